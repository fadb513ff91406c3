// The host's walls: an attack script, run by the launcher in place of the host, fails at everything; the same
// script with no walls around it succeeds at everything, so each attempt is a real one.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import dgram from "node:dgram";
import { once } from "node:events";
import fs from "node:fs";
import { chmod, mkdtemp, rm } from "node:fs/promises";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";

const HERE = path.dirname(fileURLToPath(import.meta.url));
const ROOT = path.join(HERE, "../..");
const RUNTIME = path.join(ROOT, "build/runtime");
const NODE = path.join(RUNTIME, "node/bin/node");
const BUILD = process.env.PI_MANAGED_BIN ? path.dirname(process.env.PI_MANAGED_BIN) : path.join(ROOT, "build");
const DRIVER = path.join(BUILD, "tests/support/confine_driver");
const ALLOWED = new Set(["its own gateway"]);

let world;

before(async () => {
    const dir = await mkdtemp(path.join(tmpdir(), "confine-"));
    await chmod(dir, 0o777);
    world = { dir, servers: [], targets: { file: path.join(dir, "file"), abstract: `confine-${process.pid}` } };
    const listen = (where) => new Promise((resolve) => {
        const server = net.createServer((socket) => socket.destroy());
        world.servers.push(server);
        server.listen(where, () => resolve(server.address()));
    });
    world.gateway = path.join(dir, "gateway.sock");
    world.targets.socket = path.join(dir, "foreign.sock");
    await listen(world.gateway);
    await listen(world.targets.socket);
    await listen(`\0${world.targets.abstract}`);
    world.targets.tcp = (await listen({ port: 0, host: "127.0.0.1" })).port;
    await chmod(world.gateway, 0o777);
    await chmod(world.targets.socket, 0o777);
    world.udp = dgram.createSocket("udp4").bind(0, "127.0.0.1");
    await once(world.udp, "listening");
    world.targets.udp = world.udp.address().port;
});

after(async () => {
    world.udp.close();
    await Promise.all(world.servers.map((s) => new Promise((resolve) => s.close(resolve))));
    await rm(world.dir, { recursive: true });
});

/** Runs the script; a fresh sibling process is there to be killed or spied on. */
async function attack(command, args) {
    const sibling = spawn("/bin/sleep", ["600"], { env: { SECRET: "of the sibling" } });
    const end = once(sibling, "exit");
    await once(sibling, "spawn");
    fs.rmSync(world.targets.file, { force: true });
    const child = spawn(command, args, { stdio: ["ignore", "ignore", "pipe", "pipe"] });
    const exited = once(child, "exit");
    let text = "";
    let errors = "";
    child.stdio[3].on("data", (chunk) => { text += chunk; });
    child.stderr.on("data", (chunk) => { errors += chunk; });
    child.stdio[3].write(`${JSON.stringify({ ...world.targets, sibling: sibling.pid })}\n`);
    await exited;
    const results = text.trim().split("\n").filter(Boolean).map((line) => JSON.parse(line));
    assert.notEqual(results.length, 0, errors);
    const claimed = results.find((r) => r.name === "kill").ok;
    if (!claimed) {
        sibling.kill("SIGKILL");
    }
    const [, signal] = await end;
    const killed = signal === "SIGTERM";
    return { results, killed, wrote: fs.existsSync(world.targets.file) };
}

function names(results, ok) {
    return results.filter((r) => r.ok === ok).map((r) => r.name);
}

describe("an attack from inside the host", () => {
    let free;
    test("succeeds everywhere without the walls", async () => {
        free = await attack(NODE, [path.join(HERE, "confine/attack.mjs"), RUNTIME, world.gateway]);
        assert.deepEqual(free.results.filter((r) => !r.ok), []);
        assert.deepEqual([free.killed, free.wrote], [true, true]);
    });

    test("fails everywhere with them, but for its own gateway", async () => {
        const { results, killed, wrote } = await attack(DRIVER,
            [RUNTIME, path.join(HERE, "confine"), "attack.mjs", world.gateway]);
        assert.deepEqual(results.map((r) => r.name), free.results.map((r) => r.name));
        assert.deepEqual(names(results, true), [...ALLOWED]);
        assert.deepEqual([killed, wrote], [false, false]);
    });

    test("reaches at most other sockets where namespaces are forbidden", async (t) => {
        if (spawnSync("unshare", ["-U", "-r", "true"]).status !== 0) {
            t.skip("this test itself needs a user namespace");
            return;
        }
        const forbid = "echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all "
            + '--inh-caps=-all --no-new-privs "$@"';
        const { results, killed, wrote } = await attack("unshare", ["-U", "-r", "sh", "-c", forbid, "sh",
            DRIVER, RUNTIME, path.join(HERE, "confine"), "attack.mjs", world.gateway]);
        const open = names(results, true).filter((name) => name !== "abstract socket"); // before Linux 6.12
        assert.deepEqual(open, ["foreign socket", ...ALLOWED]);
        assert.deepEqual([killed, wrote], [false, false]);
    });
});

test("a missing Node is told to control, with what to do", async () => {
    const child = spawn(path.join(BUILD, "pi-managed"), ["--role", "host", "--runtime", "/nonexistent",
        "--harness", path.join(ROOT, "harness"), "--gateway", world.gateway],
    { stdio: ["ignore", "ignore", "ignore", "pipe"] });
    let text = "";
    child.stdio[3].on("data", (chunk) => { text += chunk; });
    const [status] = await once(child, "close");
    assert.deepEqual([status, JSON.parse(text)], [1, {
        t: "failed",
        error: "Node is missing: /nonexistent/node/bin/node: No such file or directory; run make setup",
    }]);
});

test("a host dies with its launcher", async () => {
    const launcher = spawn(DRIVER, [RUNTIME, path.join(ROOT, "harness"), "host.mjs", world.gateway],
        { stdio: ["ignore", "ignore", "ignore", "pipe"] });
    const stream = launcher.stdio[3];
    const [hello] = await once(stream, "data");
    assert.match(hello.toString(), /^\{"t":"hello"/);
    const ended = once(stream, "close"); // only Node holds the other end
    launcher.kill("SIGKILL");
    await ended;
});
