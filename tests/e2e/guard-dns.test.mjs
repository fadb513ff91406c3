// The dial guard against a real name server and real web servers, in a network of their own: names
// that change between question and connection, mixed answers, redirects into private networks.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { SERVICE_PROGRAM, serviceMissing } from "../support/service.mjs";

const PUBLIC = "93.184.215.14";
const OTHER = "140.82.112.5";
const NAMESPACES = process.getuid() === 0 ? ["-nm"] : ["-rnm"];
const impossible = spawnSync("unshare", [...NAMESPACES, "true"]).status !== 0
    && "no network and mount namespaces here";

describe("the dial guard and the name system", { skip: serviceMissing || impossible }, () => {
    let child;
    let replies;
    before(async () => {
        const world = fileURLToPath(new URL("../support/guard-world.mjs", import.meta.url));
        child = spawn("unshare", [...NAMESPACES, process.execPath, world, SERVICE_PROGRAM],
            { stdio: ["pipe", "pipe", "inherit"] });
        replies = createInterface(child.stdout)[Symbol.asyncIterator]();
        assert.equal((await replies.next()).value, "ready");
    });
    after(async () => {
        child?.stdin.end();
        await once(child, "exit");
    });

    async function guard(args, dns, pages) {
        child.stdin.write(`${JSON.stringify({ args, dns, pages })}\n`);
        const { value, done } = await replies.next();
        assert.ok(!done, "the little internet broke down");
        return JSON.parse(value);
    }
    const follow = (url, dns, pages) => guard(["--follow", url], dns, pages);

    test("a public name is resolved once and connected to where it led", async () => {
        const { status, output, asked, seen } = await follow("http://a.example.com/x",
            { "a.example.com": [[PUBLIC]] }, { "a.example.com/x": "hello" });
        assert.equal(status, 0, JSON.stringify(output));
        assert.deepEqual(asked, ["a.example.com"]);
        assert.deepEqual(seen, [`${PUBLIC} a.example.com/x`]);
        assert.equal(output.bytes, 5);
    });

    test("a name that changes after the check is not asked again: the connection is pinned", async () => {
        const { status, asked, seen } = await follow("http://rebind.example.com/",
            { "rebind.example.com": [[PUBLIC], ["127.0.0.1"], ["127.0.0.1"]] });
        assert.equal(status, 0);
        assert.deepEqual(asked, ["rebind.example.com"]);
        assert.deepEqual(seen, [`${PUBLIC} rebind.example.com/`]);
    });

    test("a name that has changed when a redirect comes back to it is refused then", async () => {
        const { status, output, asked, seen } = await follow("http://rebind.example.com/",
            { "rebind.example.com": [[PUBLIC], ["169.254.169.254"]] },
            { "rebind.example.com/": "/latest/meta-data/" });
        assert.equal(status, 1);
        assert.equal(output.code, "address_not_allowed");
        assert.equal(asked.length, 2);
        assert.deepEqual(seen, [`${PUBLIC} rebind.example.com/`]);
    });

    test("one private address among public ones refuses the name, wherever it stands", async () => {
        for (const answers of [[PUBLIC, "10.1.2.3"], ["127.0.0.1", PUBLIC], [PUBLIC, OTHER, "169.254.169.254"]]) {
            const { status, output, seen } = await guard(["http://mixed.example.com/", "--follow"],
                { "mixed.example.com": [answers] });
            assert.equal(status, 1);
            assert.equal(output.code, "address_not_allowed");
            assert.deepEqual(seen, []);
            const shown = await guard(["http://mixed.example.com/"], { "mixed.example.com": [answers] });
            assert.equal(shown.output.answers.length, answers.length);
            assert.equal(shown.output.answers.filter(({ denied }) => denied).length, 1);
        }
    });

    test("each redirect is judged anew: to a private name, address, scheme, or port of another kind", async () => {
        const dns = { "a.example.com": [[PUBLIC]], "int.example.com": [["10.1.2.3"]] };
        for (const location of ["http://int.example.com/", "http://127.0.0.1/", "http://2130706433/",
            "http://169.254.169.254/latest/meta-data/", "http://localhost/", "file:///etc/passwd",
            "http://u:p@a.example.com/", "http://[::ffff:10.1.2.3]/", "//10.1.2.3/"]) {
            const { status, output, seen } = await follow("http://a.example.com/", dns,
                { "a.example.com/": location });
            assert.equal(status, 1, location);
            assert.equal(output.verdict, "deny", location);
            assert.deepEqual(seen, [`${PUBLIC} a.example.com/`], location);
            assert.equal(output.hops[0].status, 302);
        }
    });

    test("a redirect to another public host is followed, and too many are not", async () => {
        const dns = { "a.example.com": [[PUBLIC]], "b.example.com": [[OTHER]] };
        const once = await follow("http://a.example.com/", dns,
            { "a.example.com/": "http://b.example.com/y?z", "b.example.com/y?z": "there" });
        assert.equal(once.status, 0);
        assert.deepEqual(once.seen, [`${PUBLIC} a.example.com/`, `${OTHER} b.example.com/y?z`]);
        const endless = await follow("http://a.example.com/", dns, { "a.example.com/": "/" });
        assert.equal(endless.output.code, "too_many_redirects");
        assert.equal(endless.seen.length, 6);
    });

    test("a name without an answer, and one whose server is silent, are failures that say so", async () => {
        const none = await follow("http://nowhere.example.com/", {});
        assert.equal(none.status, 1);
        assert.match(none.output.why, /could not be resolved/);
        const silent = await follow("http://silent.example.com/", { "silent.example.com": "silent" });
        assert.equal(silent.status, 1);
        assert.match(silent.output.why, /could not be resolved \(/, "the system's resolver gave up");
        const impatient = await guard(["--timeout", "1", "http://silent.example.com/"],
            { "silent.example.com": "silent" });
        assert.match(impatient.output.why, /could not be resolved in time/, "we gave up before it did");
    });

    test("--allow-private opens one host for what its name stands for", async () => {
        const { status, seen } = await guard(["--follow", "--allow-private", "int.example.com:80",
            "http://int.example.com/"], { "int.example.com": [["10.1.2.3"]] });
        assert.equal(status, 0);
        assert.deepEqual(seen, ["10.1.2.3 int.example.com/"]);
    });
});
