// The sandbox's walls (§10.2): an attacker's kit, copied in with a tool call and run there as root, fails at
// everything; the same program on the host succeeds at everything, so each attempt is a real one. And every tool
// works inside: nothing it does is seen on the host.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import dgram from "node:dgram";
import { once } from "node:events";
import fs from "node:fs";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { startHands } from "../support/hands-driver.mjs";
import { BUILD, Box, PLAIN_UID } from "../support/sandbox-box.mjs";

const ATTACK = path.join(BUILD, "tests/support/attack");
const isRoot = process.getuid() === 0;
let world; // what the host has that nobody inside may reach

function listen(where) {
    return new Promise((resolve, reject) => {
        const server = net.createServer((socket) => socket.on("error", () => {}).destroy());
        server.on("error", reject).listen(where, () => resolve(server));
    });
}

async function run(command, args, stdio = []) {
    const child = spawn(command, args, { stdio: ["ignore", "pipe", "inherit", ...stdio] });
    let out = "";
    child.stdout.on("data", (data) => { out += data; });
    const [code] = await once(child, "close");
    assert.equal(code, 0, `${command} ${args}`);
    return out;
}

before(async () => {
    const dir = fs.mkdtempSync(path.join(os.tmpdir(), "pm-escape-"));
    fs.chmodSync(dir, 0o755);
    const token = path.basename(dir);
    const file = path.join(dir, "secret");
    fs.writeFileSync(file, `${token}\n`);
    const fd = fs.openSync(file, "r");
    const victim = spawn("/bin/sleep", ["600"], { cwd: dir, stdio: ["ignore", "ignore", "ignore", fd] });
    await once(victim, "spawn");
    fs.closeSync(fd);
    const unix = path.join(dir, "host.sock");
    const servers = [await listen(unix), await listen(`\0${token}`), await listen({ port: 0, host: "127.0.0.1" })];
    fs.chmodSync(unix, 0o777);
    const udp = dgram.createSocket("udp4").bind(0, "127.0.0.1");
    udp.on("message", (_, from) => udp.send("y", from.port, from.address));
    await once(udp, "listening");
    const disk = fs.readFileSync("/proc/partitions", "utf8").split("\n")[2]?.trim().split(/\s+/) ?? [];
    world = { dir, token, file, victim, servers, udp, hands: await startHands(dir, { HOME: path.join(dir, "home") }) };
    world.values = {
        pid: victim.pid, token, file, unix, abstract: token, tcp: servers[2].address().port, udp: udp.address().port,
        disk: `${disk[0]}:${disk[1]}`, uid: 1000, handle: isRoot ? (await run(ATTACK, ["handle", "/etc/passwd"])).trim() : "0",
    };
});

after(async () => {
    await world.hands.stop();
    world.victim.kill("SIGKILL");
    world.udp.close();
    await Promise.all(world.servers.map((s) => new Promise((resolve) => s.close(resolve))));
    fs.rmSync(world.dir, { recursive: true });
});

const values = (more) => Object.entries({ ...world.values, ...more }).map(([key, value]) => `${key}=${value}`);
const parse = (out) => out.trim().split("\n").map((line) => JSON.parse(line));
const told = (results) => results.map(({ name, detail }) => `${name}: ${detail}`);

// In a mount namespace of its own, so that its mounts are nobody else's; with a listening socket left open.
async function attackFreely(...names) {
    const args = ["--mount", "--propagation", "private", ATTACK, ...names, 
        ...values({ hands: world.hands.child.pid, agent: world.hands.socket })];
    return parse(await run("unshare", args, [world.servers[2]._handle.fd]));
}

// As an agent could bring it.
async function bringKit(box) {
    const content = fs.readFileSync(ATTACK).toString("base64");
    const { isError } = await box.hands.call("write", { path: "/workspace/kit.txt", content }, "/workspace");
    assert.equal(isError, false);
    const { code, out } = await box.bash("base64 -d kit.txt >kit && chmod 755 kit && rm kit.txt");
    assert.equal(code, 0, out);
}

async function attackInside(box, ...names) {
    const { code, out } = await box.hands.exec(["/workspace/kit", ...names, ...values({ hands: 1, agent: box.hands.socket })]);
    assert.equal(code, 0, out);
    return parse(out);
}

async function assertAlive(box) {
    assert.deepEqual(await box.bash("echo alive"), { code: 0, out: "alive\n" });
}

// What a kernel may have been built without, or this machine may forbid its own root.
const absent = (name, ...details) => details.map((detail) => `${name}: ${detail}`);
const NO_CALL = "Function not implemented";
const MAY_BE_ABSENT = new Set([
    ...absent("sysrq", "No such file or directory"), ...absent("device_disk", "Operation not permitted"),
    ...absent("socket_vm", "Address family not supported by protocol"), ...absent("io_uring", NO_CALL, "Operation not permitted"),
    ...["key_add", "key_session", "userfaultfd", "bpf", "perf_event"].flatMap((name) => absent(name, NO_CALL)),
    ...["raise_limit", "set_clock"].flatMap((name) => absent(name, "Operation not permitted")),
    ...absent("sys", "No such file or directory"), ...absent("cgroup_release_agent", "No such file or directory"),
]);

let free;
test("without walls every attempt succeeds", { skip: !isRoot && "needs root" }, async (t) => {
    free = await attackFreely("all");
    const failed = told(free.filter((r) => !r.succeeded));
    failed.forEach((line) => t.diagnostic(`not on this machine: ${line}`));
    assert.deepEqual(failed.filter((line) => !MAY_BE_ABSENT.has(line)), []);
});

function walls(who, uid, skip) {
    describe(`in a sandbox made by ${who}`, { skip }, () => {
        let box;
        before(async () => {
            box = new Box({ uid });
            await box.start();
            await bringKit(box);
        });
        after(() => box.end());

        test("every attempt fails", async () => {
            const results = await attackInside(box, "all");
            assert.deepEqual(told(results.filter((r) => r.succeeded)), []);
            if (free) assert.deepEqual(results.map((r) => r.name), free.map((r) => r.name));
            await assertAlive(box);
        });
    });
}
walls("root", 0, !isRoot && "needs root");
walls("a plain user", isRoot ? PLAIN_UID : process.getuid());
