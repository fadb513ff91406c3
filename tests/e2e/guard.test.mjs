// pi-managed guard, from outside: verdicts for a person and for a script, files of cases.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { makeCases } from "../support/guard-oracle.mjs";
import { SERVICE_PROGRAM, serviceMissing } from "../support/service.mjs";

const VECTORS = fileURLToPath(new URL("../vectors/ssrf_public.json", import.meta.url));

function guard(...args) {
    return new Promise((resolve) => {
        execFile(SERVICE_PROGRAM, ["guard", ...args], { env: { ASAN_OPTIONS: process.env.ASAN_OPTIONS ?? "" } },
            (error, stdout, stderr) => resolve({ code: error ? error.code : 0, stdout, stderr }));
    });
}

describe("pi-managed guard", { skip: serviceMissing }, () => {
    let folder;
    before(() => (folder = mkdtempSync(path.join(tmpdir(), "guard-"))));
    after(() => rmSync(folder, { recursive: true }));

    test("says allowed or refused, and why", async () => {
        const allowed = await guard("https://93.184.215.14/x");
        assert.equal(allowed.code, 0);
        assert.match(allowed.stdout, /^https:\/\/93\.184\.215\.14:443\/x\n +93\.184\.215\.14 +public\nallowed\n$/);
        const refused = await guard("http://169.254.169.254/latest/");
        assert.equal(refused.code, 1);
        assert.match(refused.stdout, /denied: 169\.254\.0\.0\/16\nrefused: .*--allow-private 169\.254\.169\.254:80/);
        const odd = await guard("http://0x7f000001/");
        assert.equal(odd.code, 1);
        assert.match(odd.stdout, /refused: .*its host is a number/);
    });

    test("--policy: webhooks and models are held to more", async () => {
        assert.equal((await guard("--policy", "fetch", "http://93.184.215.14/")).code, 0);
        assert.equal((await guard("--policy", "model", "http://93.184.215.14/")).code, 1);
        assert.equal((await guard("--policy", "model", "https://93.184.215.14/")).code, 0);
        assert.match((await guard("--policy", "webhook", "https://93.184.215.14/")).stdout, /needs a host name/);
        const unknown = await guard("--policy", "any", "https://93.184.215.14/");
        assert.equal(unknown.code, 2);
        assert.match(unknown.stderr, /--policy is fetch, webhook or model/);
    });

    test("--allow-private opens what it names, and says so", async () => {
        const { code, stdout } = await guard("--allow-private", "127.0.0.1:8080", "http://127.0.0.1:8080/v1");
        assert.equal(code, 0);
        assert.match(stdout, /denied: 127\.0\.0\.0\/8, but --allow-private names the host\nallowed: --allow-private/);
        assert.equal((await guard("--allow-private", "127.0.0.1:8080", "http://127.0.0.1:8081/")).code, 1);
    });

    test("--json is for scripts", async () => {
        const { code, stdout } = await guard("--json", "http://10.0.0.1/");
        assert.equal(code, 1);
        const { why, ...rest } = JSON.parse(stdout);
        assert.deepEqual(rest, {
            url: "http://10.0.0.1:80/", policy: "fetch", verdict: "deny", code: "address_not_allowed",
            answers: [{ address: "10.0.0.1", denied: "10.0.0.0/8" }],
        });
        assert.match(why, /private or reserved/);
    });

    test("--vectors runs the recorded cases, and tells the wrong ones", async () => {
        const good = await guard("--vectors", VECTORS);
        const { cases } = JSON.parse(readFileSync(VECTORS, "utf8"));
        assert.equal(good.code, 0);
        assert.equal(good.stdout, `${cases.length} passed, 0 failed\n`);

        const file = path.join(folder, "cases.json");
        writeFileSync(file, JSON.stringify({ cases: [
            { ...cases[0], id: "wrong", verdict: "deny" },
            { id: "idn", policy: "fetch", url: "http://bücher.example/", verdict: "allow",
                dns: { "xn--bcher-kva.example": ["93.184.215.14"] } },
        ] }));
        const bad = await guard("--vectors", file);
        assert.equal(bad.code, 1);
        assert.match(bad.stdout, /^wrong http:\/\/example\.com\/: wanted deny, it was allowed\n1 passed, 1 failed\n$/);
    });

    test("never allows what a second opinion denies, and is stricter only where it means to be", async () => {
        const file = path.join(folder, "made.json");
        const cases = makeCases(4000, 7);
        const allowed = cases.filter(({ verdict }) => verdict === "allow").length;
        assert.ok(allowed > 500 && allowed < 3500, `${allowed} are to be allowed`);
        writeFileSync(file, JSON.stringify({ cases }));
        const { stdout } = await guard("--vectors", file);
        const lines = stdout.trim().split("\n");
        assert.match(lines.pop(), /^\d+ passed, \d+ failed$/);
        // Backslashes and trailing dots mean different hosts to different parsers; port 0 is none.
        const meant = /wanted allow, .*(a backslash|its port is not a number from 1 to 65535|its host is not a valid name)$/;
        for (const line of lines) {
            assert.match(line, meant);
            assert.ok(!line.endsWith("valid name") || /\.com\.[:/?#"]/.test(line), line);
        }
    });

    test("what it cannot use it refuses", async () => {
        assert.equal((await guard()).code, 2);
        assert.equal((await guard("https://a.example/", "--vectors", VECTORS)).code, 2);
        assert.equal((await guard("--vectors", path.join(folder, "absent"))).code, 1);
        const file = path.join(folder, "odd.json");
        writeFileSync(file, '{"cases":[{"id":"x"}]}');
        const { code, stderr } = await guard("--vectors", file);
        assert.equal(code, 1);
        assert.match(stderr, /a case has no policy, url or verdict/);
    });
});
