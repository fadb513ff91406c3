// The command line, from outside: what it prints, where keys go, what it refuses and how it says so.
import assert from "node:assert/strict";
import { chmodSync, existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, statSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { run } from "../support/cli.mjs";
import { startJob } from "../support/job.mjs";
import { serviceMissing, startService } from "../support/service.mjs";

const KEY = /^pmk_[0-9A-Za-z]{12}_[0-9A-Za-z]{49}$/;

function controlOf(service) {
    const found = readdirSync("/proc").filter((name) => /^\d+$/.test(name)).find((pid) => {
        try {
            return readFileSync(`/proc/${pid}/cmdline`, "latin1").includes("--role\0control")
                && readFileSync(`/proc/${pid}/stat`, "latin1").includes(`) S ${service.pid} `);
        } catch {
            return false; // it ended meanwhile
        }
    });
    assert.ok(found, "control runs");
    return Number(found);
}

describe("the command line", { skip: serviceMissing }, () => {
    let folder;
    let data;
    before(() => {
        folder = mkdtempSync(path.join(tmpdir(), "pi-managed-cli-"));
        data = path.join(folder, "data");
    });
    after(() => rmSync(folder, { recursive: true, force: true }));

    test("--help names every command, and each has a help of its own, alike in form", async () => {
        const { code, stdout } = await run(["--help"]);
        assert.equal(code, 0);
        const rows = stdout.match(/^ {2}\S.*$/gm).map((row) => {
            const [left, summary] = row.trim().split(/ {2,}/);
            return { name: /^[a-z]+( [a-z]+(-[a-z]+)*)?/.exec(left)[0], summary: summary ?? left.slice(left.search(/ [A-Z][a-z]/) + 1) };
        });
        const names = rows.map(({ name }) => name);
        assert.equal(new Set(names).size, names.length);
        for (const name of ["serve", "init", "key create", "tenant list", "doctor", "run", "why", "session tail", "version"]) {
            assert.ok(names.includes(name), name);
        }
        for (const { name, summary } of rows) {
            assert.match(summary, /^[A-Z].*[^.]\.$/, `${name}: a sentence`);
            const help = await run([...name.split(" "), "--help"]);
            assert.equal(help.code, 0, name);
            assert.match(help.stdout, new RegExp(`^pi-managed ${name}\\b`));
            assert.ok(help.stdout.includes(summary), `${name}: says the same`);
            const options = [...help.stdout.matchAll(/^ {2}(--[a-z-]+)/gm)].map(([, option]) => option);
            assert.equal(new Set(options).size, options.length, `${name}: each option once`);
            if (options.includes("--url") && !["shell", "export", "pull", "file download"].includes(name)) {
                assert.ok(options.includes("--json"), `${name}: for scripts, too`);
            }
        }
    });

    test("a misspelt command or option ends with status 2 and a hint", async () => {
        const command = await run(["sevre"]);
        assert.equal(command.code, 2);
        assert.match(command.stderr, /no command sevre; do you mean serve\?/);
        const option = await run(["serve", "--lisen", "127.0.0.1:0"]);
        assert.equal(option.code, 2);
        assert.match(option.stderr, /no option --lisen; do you mean --listen\?/);
        assert.equal((await run([])).code, 2);
        assert.match((await run(["tail", "last"])).stderr, /do you mean session tail\?/);
        assert.doesNotMatch((await run(["ps"])).stderr, /do you mean/);
    });

    test("init makes a data directory, once", async () => {
        const first = await run(["init", "--data", data, "--json"]);
        assert.equal(first.code, 0, first.stderr);
        const made = JSON.parse(first.stdout);
        assert.match(made.apiKey, KEY);
        assert.match(made.tenantId, /^tenant_[0-9A-Z]{26}$/);
        const again = await run(["init", "--data", data, "--json"]);
        assert.equal(again.code, 1);
        assert.match(again.stderr, /key create/);
        assert.equal(again.stdout, "");
    });

    test("keys are made, listed without their secret, and revoked", async () => {
        const made = JSON.parse((await run(["key", "create", "--data", data, "--name", "ci", "--scope", "read",
            "--json"])).stdout);
        assert.match(made.apiKey, KEY);
        const list = await run(["key", "list", "--data", data]);
        assert.match(list.stdout, new RegExp(`${made.id} .* read .* ci$`, "m"));
        assert.ok(!list.stdout.includes(made.apiKey));
        assert.equal((await run(["key", "revoke", made.id, "--data", data])).code, 0);
        assert.match((await run(["key", "list", "--data", data])).stdout, /ci {2}\(revoked\)/);
        assert.equal((await run(["key", "create", "--data", data, "--scope", "god"])).code, 1);
    });

    test("with two tenants, whose key it is must be said", async () => {
        const made = JSON.parse((await run(["tenant", "create", "second", "--data", data, "--json"])).stdout);
        assert.match(made.apiKey, KEY);
        const unclear = await run(["key", "create", "--data", data]);
        assert.equal(unclear.code, 1);
        assert.match(unclear.stderr, /--tenant/);
        const clear = await run(["key", "create", "--data", data, "--tenant", made.tenantId]);
        assert.equal(clear.code, 0, clear.stderr);
    });

    test("commands on a directory that is none say so", async () => {
        const { code, stderr } = await run(["key", "list", "--data", path.join(folder, "nothing")]);
        assert.equal(code, 1);
        assert.match(stderr, /no data directory .*nothing/);
    });

    test("serve refuses to listen where keys would travel in clear text", async () => {
        const { code, stderr } = await run(["serve", "--data", data, "--listen", "0.0.0.0:0"]);
        assert.equal(code, 1);
        assert.match(stderr, /--tls-cert/);
    });

    test("serve says that a port is taken", async () => {
        const server = http.createServer().listen(0, "127.0.0.1");
        await new Promise((resolve) => server.once("listening", resolve));
        const { code, stderr } = await run(["serve", "--data", data, "--listen",
            `127.0.0.1:${server.address().port}`]);
        server.close();
        assert.equal(code, 1);
        assert.match(stderr, /Address already in use/);
    });

    test("serve says that the runtime is missing, and how to get it", async () => {
        const { code, stderr } = await run(["serve", "--data", data, "--runtime", folder]);
        assert.equal(code, 1);
        assert.match(stderr, /make setup/);
    });

    test("serve says that a vault key is readable for others", async () => {
        const key = path.join(data, "keys/vault.key");
        chmodSync(key, 0o644);
        const { code, stderr } = await run(["serve", "--data", data, "--listen", "127.0.0.1:0"]);
        chmodSync(key, 0o600);
        assert.equal(code, 1);
        assert.match(stderr, /chmod 600/);
    });

    test("doctor tells a person and a program what this machine can do", async () => {
        const { code, stdout } = await run(["doctor", "--data", data, "--json"]);
        const report = JSON.parse(stdout);
        assert.equal(code, report.ok ? 0 : 1);
        const names = report.findings.map((finding) => finding.name);
        for (const name of ["runtime", "node", "pi", "catalogue", "sandbox", "zones", "data", "listen"]) {
            assert.ok(names.includes(name), `${name} in ${names}`);
        }
        assert.equal(report.findings.find((finding) => finding.name === "node").text, "v24.22.3");
        assert.ok(report.providers.some((provider) => provider.name === "linux"));
        const text = await run(["doctor", "--data", data]);
        assert.match(text.stdout, /Sessions can(not)? run here/);
        const broken = await run(["doctor", "--runtime", folder]);
        assert.equal(broken.code, 1);
        assert.match(broken.stdout, /missing +runtime/);
    });
});

describe("serve", { skip: serviceMissing }, () => {
    test("on a new directory the first key goes into a file of mode 0600, never into the log", async () => {
        const service = await startService({ init: false });
        try {
            const file = path.join(service.data, "first-key");
            const key = readFileSync(file, "utf8").trim();
            assert.match(key, KEY);
            assert.equal(statSync(file).mode & 0o777, 0o600);
            assert.ok(service.output.includes(file), "the log says where the key is");
            assert.ok(!service.output.includes(key));
            const reply = await service.request("GET", "/v1/agents", { key });
            assert.equal(reply.status, 200, reply.text);
        } finally {
            await service.stop();
        }
    });

    test("standard output holds the one line that says where it listens", async () => {
        const service = await startService();
        try {
            assert.match(service.url, /^http:\/\/127\.0\.0\.1:\d+$/);
        } finally {
            await service.stop();
        }
    });

    test("one data directory has one service", async () => {
        const service = await startService();
        try {
            const second = await run(["serve", "--data", service.data, "--listen", "127.0.0.1:0"]);
            assert.equal(second.code, 1);
            assert.match(second.stderr, /another pi-managed serves/);
            const destroy = await run(["sandbox", "rm", "all", "--data", service.data]);
            assert.equal(destroy.code, 1);
            assert.match(destroy.stderr, /service is running on/);
        } finally {
            await service.stop();
        }
    });

    test("a model key of the environment is taken, kept sealed, and gone from /proc", async () => {
        const secret = "sk-ant-this-must-not-be-seen";
        const service = await startService({ env: { ANTHROPIC_API_KEY: secret } });
        try {
            assert.match(service.output, /environment's model key for anthropic/);
            assert.ok(!service.output.includes(secret));
            assert.ok(!readFileSync(`/proc/${service.pid}/environ`, "latin1").includes(secret));
            const database = readFileSync(path.join(service.data, "control.db"), "latin1")
                + readFileSync(path.join(service.data, "control.db-wal"), "latin1");
            assert.ok(!database.includes(secret));
        } finally {
            await service.stop();
        }
    });

    test("with a certificate it speaks TLS", async (t) => {
        const folder = mkdtempSync(path.join(tmpdir(), "pi-managed-tls-"));
        t.after(() => rmSync(folder, { recursive: true, force: true }));
        const made = await run(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
            "/CN=localhost", "-keyout", `${folder}/key.pem`, "-out", `${folder}/cert.pem`],
        { program: "openssl", cwd: folder });
        assert.equal(made.code, 0, made.stderr);
        const service = await startService({
            args: ["--tls-cert", `${folder}/cert.pem`, "--tls-key", `${folder}/key.pem`],
        });
        try {
            assert.match(service.url, /^https:/);
            const ca = readFileSync(`${folder}/cert.pem`);
            const status = () => new Promise((resolve, reject) => {
                https.get(`${service.url}/healthz`, { ca, servername: "localhost", agent: false },
                    (response) => resolve(response.resume().statusCode)).on("error", reject);
            });
            assert.equal(await status(), 200);
            const env = { PI_MANAGED_URL: service.url.replace("127.0.0.1", "localhost"), PI_MANAGED_API_KEY: service.apiKey };
            const stranger = await run(["agent", "list"], { env });
            assert.equal(stranger.code, 1);
            assert.match(stranger.stderr, /is not trusted: .*--ca-cert FILE/);
            const known = await run(["agent", "list", "--ca-cert", `${folder}/cert.pem`], { env });
            assert.equal(known.code, 0, known.stderr);
            const restarted = service.waitForOutput(/control is ready[^]*control is ready/);
            process.kill(controlOf(service), "SIGKILL");
            await restarted;
            assert.equal(await status(), 200, "a new control speaks TLS too");
        } finally {
            await service.stop();
        }
    });
});

describe("export", { skip: serviceMissing }, () => {
    let job;
    let session;
    let folder;
    before(async () => {
        folder = mkdtempSync(path.join(tmpdir(), "pi-managed-export-"));
        job = await startJob();
        session = await job.session();
        await session.run("SAY Hello there.");
    });
    after(async () => {
        await job?.stop();
        rmSync(folder, { recursive: true, force: true });
    });
    const env = () => ({ PI_MANAGED_URL: job.service.url, PI_MANAGED_API_KEY: job.service.apiKey });

    test("the log comes whole; only the header's directory is where you stand", async () => {
        const { code, stderr, stdout } = await run(["export", session.id], { env: env(), cwd: folder });
        assert.equal(code, 0, stderr);
        const file = path.join(folder, `${session.id}.jsonl`);
        assert.match(stdout, new RegExp(`pi --session ${session.id}.jsonl`));
        const [header, ...lines] = readFileSync(file, "utf8").trimEnd().split("\n");
        assert.equal(JSON.parse(header).cwd, folder);
        const log = path.join(job.service.data, "logs");
        const tenant = path.join(log, job.service.tenantId, `${session.id}.jsonl`);
        assert.ok(existsSync(tenant));
        assert.deepEqual(lines, readFileSync(tenant, "utf8").trimEnd().split("\n").slice(1));
    });

    test("to standard output", async () => {
        const { code, stdout } = await run(["export", session.id, "--output", "-"], { env: env(), cwd: folder });
        assert.equal(code, 0);
        assert.match(stdout, /^\{"type":"session"/);
    });

    test("what goes wrong is said: no such session, a wrong key, no service", async () => {
        const unknown = await run(["export", session.id.replace(/.$/, (c) => (c === "0" ? "1" : "0"))],
            { env: env(), cwd: folder });
        assert.equal(unknown.code, 1);
        assert.match(unknown.stderr, /404/);
        const foreign = await run(["export", session.id],
            { env: { ...env(), PI_MANAGED_API_KEY: "pmk_wrong" }, cwd: folder });
        assert.match(foreign.stderr, /401/);
        const nobody = await run(["export", session.id],
            { env: { ...env(), PI_MANAGED_URL: "http://127.0.0.1:9" }, cwd: folder });
        assert.match(nobody.stderr, /cannot reach/);
        assert.equal((await run(["export", "not-an-id"], { env: env(), cwd: folder })).code, 1);
    });
});
