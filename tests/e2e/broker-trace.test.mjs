// Only one place connects to the internet: the broker's dial.c (and the C library's resolver, asked by
// dial_resolve.c). Shown by looking at what is linked, and by tracing every connect(2) of a whole
// service while it works, fails, retries and looks names up.
import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, readlinkSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";

const PROGRAM = path.resolve(process.env.PI_MANAGED_BIN ?? fileURLToPath(new URL("../../build/pi-managed", import.meta.url)));
const BUILD = path.dirname(PROGRAM);
const TRACER = path.join(BUILD, "tests/support/trace_connect");
const missing = [PROGRAM, TRACER].filter((file) => !existsSync(file));
const skip = (missing.length > 0 && `run \`make ${missing.map((file) => path.relative(".", file)).join(" ")}\``)
    || (process.getuid() !== 0 && "only root can look at confined processes");

/** The source file of an address in a program, by its debug information. */
function sourceOf({ file, offset }) {
    // A return address: the call is the instruction before it.
    const text = execFileSync("addr2line", ["-e", file, `0x${(offset - 1).toString(16)}`], { encoding: "utf8" });
    return path.basename(text.split(":")[0]);
}

/** The innermost caller: a source file of the program, or the name of a library. */
function callSite({ callers, exe }) {
    const caller = callers.find(({ file }) => !/lib[at]san/.test(file)); // those stand between, in sanitizer builds
    const name = path.basename(caller.file);
    return name === path.basename(exe) ? sourceOf({ ...caller, file: PROGRAM }) : name;
}

function readTrace(file) {
    return readFileSync(file, "utf8").trim().split("\n").filter(Boolean).map((line) => JSON.parse(line));
}

describe("what is linked", { skip: missing.length > 0 && skip }, () => {
    const users = (symbol) => execFileSync("nm", ["-A", "--undefined-only", path.join(BUILD, "libpm.a")],
        { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"], maxBuffer: 64 << 20 })
        .split("\n").filter((line) => line.endsWith(` U ${symbol}`))
        .map((line) => /:([^:]+)\.o:/.exec(line)[1]).sort();

    test("connect is called by dial.c, and by hands.c for the unix socket of a sandbox", () => {
        assert.deepEqual(users("connect"), ["dial", "hands"]);
    });

    test("names are looked up by dial_resolve.c only", () => {
        for (const symbol of ["getaddrinfo", "gethostbyname", "gethostbyname_r", "res_query", "getaddrinfo_a"]) {
            assert.deepEqual(users(symbol), symbol === "getaddrinfo" ? ["dial_resolve"] : [], symbol);
        }
    });

    test("curl is driven by upstream.c, which hands it connected sockets, and by the command line's client", () => {
        assert.deepEqual(users("curl_easy_init"), ["http_client", "upstream"]);
        const source = readFileSync(new URL("../../src/broker/upstream.c", import.meta.url), "utf8");
        assert.match(source, /CURLOPT_OPENSOCKETFUNCTION/);
    });
});

describe("a whole service, traced", { skip }, () => {
    let folder;
    let file;
    let job;
    before(async () => {
        folder = mkdtempSync(path.join(tmpdir(), "trace-"));
        file = path.join(folder, "connects");
        const wrapper = path.join(folder, "pi-managed");
        writeFileSync(wrapper, `#!/bin/sh\nif [ "$1" = serve ]; then exec ${TRACER} ${file} ${PROGRAM} "$@"; fi\n`
            + `exec ${PROGRAM} "$@"\n`, { mode: 0o755 });
        process.env.PI_MANAGED_BIN = wrapper; // read by service.mjs, which is imported only now
        const { startJob } = await import("../support/job.mjs");
        job = await startJob();
    });
    after(async () => {
        await job?.stop();
        rmSync(folder, { recursive: true, force: true });
    });

    test("the tracer sees a connect of any program, and who made it", () => {
        const mine = path.join(folder, "mine");
        const script = 'require("net").connect(9, "127.0.0.1").on("error", () => {})';
        assert.equal(spawnSync(TRACER, [mine, process.execPath, "-e", script]).status, 0);
        const [seen] = readTrace(mine);
        assert.equal(`${seen.address}:${seen.port}`, "127.0.0.1:9");
        assert.ok(seen.callers.some((caller) => caller.file === process.execPath));
    });

    test("whatever sessions do, only dial.c connects, and only from the broker", async () => {
        const session = await job.session();
        await session.run('CALL bash {"command":"exec 3<>/dev/tcp/127.0.0.1/9; echo tried"} THEN SAY done');
        await session.run("FAIL 400");
        await session.run("CUT EARLY TIMES 1 SAY after all");
        const elsewhere = await job.session({ model: { baseUrl: "https://models.invalid/v1" } });
        const stream = await elsewhere.stream();
        await elsewhere.say("SAY never");
        await stream.until((frame) => frame.type === "session.error");
        await elsewhere.interrupt();
        await stream.until((frame) => frame.type === "session.status_idle");
        await stream.close();
        const refused = await job.session({ model: { baseUrl: "https://127.0.0.1:1/v1" } });
        await refused.run("SAY never");

        const net = readlinkSync("/proc/self/ns/net");
        const here = readTrace(file).filter((connect) => connect.net === net); // sandboxes have networks of their own
        const model = Number(new URL(job.model.url).port);
        const sites = here.map((connect) => ({ ...connect, site: callSite(connect) }));
        for (const { command, site, address, port, connected } of sites) {
            const what = `${address}:${port} from ${site}`;
            assert.match(command, /--role broker/, `${what}, ${command}`);
            // curl (7.88) calls connect once more on the socket it was given, which the kernel refuses; the C library
            // asks name servers, and on the same port 0 the kernel for source addresses.
            const allowed = site === "dial.c" ? !connected
                : site.startsWith("libcurl") ? connected
                    : site.startsWith("libc.") && (port === 53 || port === 0);
            assert.ok(allowed, what);
        }
        const dialled = sites.filter(({ site }) => site === "dial.c");
        // Several requests may share one; a dropped one makes the next.
        assert.ok(dialled.length >= 2, `${dialled.length} connections`);
        assert.ok(dialled.every(({ address, port }) => address === "127.0.0.1" && port === model));
    });
});
