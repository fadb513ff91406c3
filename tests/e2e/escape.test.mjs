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
import { frame, startHands } from "../support/hands-driver.mjs";
import { startJob, textOf } from "../support/job.mjs";
import { descendants } from "../support/processes.mjs";
import { BUILD, Box, PLAIN_UID } from "../support/sandbox-box.mjs";
import { serviceMissing } from "../support/service.mjs";

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
    const args = ["--mount", "--propagation", "private", "--wd", world.dir, ATTACK, ...names,
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
    ...["table_of_32_bits", "table_of_x32", "load_module"].flatMap((name) => absent(name, NO_CALL)),
    ...absent("route_outside", "Network is unreachable"),
    ...["raise_limit", "set_clock", "load_module", "restart_machine"].flatMap((name) => absent(name, "Operation not permitted")),
    ...absent("sys", "No such file or directory"), ...absent("cgroup_release_agent", "No such file or directory"),
]);

let free;
test("without walls every attempt succeeds", { skip: !isRoot && "needs root" }, async (t) => {
    free = await attackFreely("all");
    const failed = told(free.filter((r) => !r.succeeded));
    failed.forEach((line) => t.diagnostic(`not on this machine: ${line}`));
    assert.deepEqual(failed.filter((line) => !MAY_BE_ABSENT.has(line)), []);
});

const LOOKING = ["read", "ls", "grep", "find"]; // they fail where there is nothing of the host

// What every tool does to absolute paths below `folder` and to home; what those that look see there.
async function useEveryTool(hands, folder) {
    const results = {};
    const call = async (as, tool, input) => { results[as] = await hands.call(tool, input, "/tmp"); };
    await call("read", "read", { path: world.file });
    await call("ls", "ls", { path: world.dir });
    await call("grep", "grep", { pattern: "pm-escape", path: world.dir });
    await call("find", "find", { pattern: "secret", path: world.dir });
    await call("write", "write", { path: path.join(folder, "written"), content: "w" });
    await call("write home", "write", { path: `~/${world.token}/written`, content: "w" });
    await call("write to edit", "write", { path: path.join(folder, "edited"), content: "before" });
    await call("edit", "edit", { path: path.join(folder, "edited"), edits: [{ oldText: "before", newText: "after" }] });
    await call("bash", "bash", { command: `echo x >${folder}/ran; mkdir -p ~/${world.token}; echo x >~/${world.token}/ran` });
    return results;
}
const failedTools = (results) => Object.keys(results).filter((name) => results[name].isError);
const seen = (...names) => names.filter((name) => fs.existsSync(name));

describe("tools without walls", () => {
    test("work on the host", async () => {
        const folder = path.join(world.dir, "effects");
        const home = path.join(world.dir, "home", world.token);
        assert.deepEqual(failedTools(await useEveryTool(world.hands, folder)), []);
        assert.deepEqual(fs.readdirSync(folder).sort(), ["edited", "ran", "written"]);
        assert.equal(fs.readFileSync(path.join(folder, "edited"), "utf8"), "after");
        assert.deepEqual(fs.readdirSync(home).sort(), ["ran", "written"]);
        fs.rmSync(folder, { recursive: true });
        fs.rmSync(home, { recursive: true });
    });

    test("follow links", async () => {
        const target = path.join(world.dir, "target");
        fs.writeFileSync(target, "before");
        fs.symlinkSync(target, path.join(world.dir, "link"));
        await world.hands.call("write", { path: path.join(world.dir, "link"), content: "after" }, "/");
        assert.equal(fs.readFileSync(target, "utf8"), "after");
    });
});

// Where the agent would like its links to lead.
const links = () => [`/proc/1/root${world.file}`, `/../../../../../..${world.file}`, "/proc/1/mem", "/proc/1/fd/3", "/.pi/hands",
    "/.pi/rg", "/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger/x", "/usr/bin/env", "/sys/kernel/profiling"];

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

        test("every tool works inside alone", async () => {
            const results = await useEveryTool(box.hands, world.dir); // made by write, inside
            assert.deepEqual(failedTools(results), LOOKING);
            assert.deepEqual(await box.bash(`cd ${world.dir} && ls && cd ~/${world.token} && ls`),
                { code: 0, out: "edited\nran\nwritten\nran\nwritten\n" });
            assert.deepEqual(seen(...["edited", "ran", "written"].map((name) => path.join(world.dir, name))), []);
            const folders = ["/tmp", "/etc", "/root", "/home", "/var/tmp", "/opt", "/"].map((f) => path.join(f, `${world.token}.d`));
            for (const folder of folders) {
                const effects = await useEveryTool(box.hands, folder);
                assert.deepEqual(failedTools(effects).filter((name) => !LOOKING.includes(name)), [], folder);
            }
            assert.deepEqual(seen(...folders, `/root/${world.token}`, path.join(os.homedir(), world.token)), []);
            assert.equal(fs.readFileSync(world.file, "utf8"), `${world.token}\n`);
        });

        test("links lead nowhere", async () => {
            const made = links().map((to, i) => `ln -s ${to} /workspace/link${i}`).join(" && ");
            assert.deepEqual(await box.bash(`rm -rf ${world.dir}; ${made}`), { code: 0, out: "" });
            for (const i of links().keys()) {
                const write = await box.hands.call("write", { path: `link${i}`, content: "x" }, "/workspace");
                assert.equal(write.isError, true, links()[i]);
            }
            assert.equal(fs.readFileSync(world.file, "utf8"), `${world.token}\n`);
            await assertAlive(box);
        });

        test("folders made links before a stop do not lead the next start astray", async () => {
            const bait = path.join(world.dir, `bait-${uid}`);
            fs.mkdirSync(bait, { mode: 0o777 });
            fs.chmodSync(bait, 0o777);
            const { mtimeMs } = fs.statSync(bait);
            const swap = ["/workspace", "/mnt", "/root", "/home"].map((f) => `mv ${f} ${f}.old && ln -s ${bait} ${f}`);
            assert.deepEqual(await box.bash(`cd / && ${swap.join(" && ")}`), { code: 0, out: "" });
            await box.verb("stop");
            await box.start();
            await assertAlive(box);
            assert.deepEqual(await box.bash("touch /workspace/a /mnt/session/outputs/a /root/a"), { code: 0, out: "" });
            assert.deepEqual(fs.readdirSync(bait), []);
            assert.equal(fs.statSync(bait).mtimeMs, mtimeMs);
        });
    });
}
walls("root", 0, !isRoot && "needs root");
walls("a plain user", isRoot ? PLAIN_UID : process.getuid());

const HOGS = ["many_processes", "much_memory", "fill_shm", "fill_dev", "fill_disk", "many_files"];
describe("what exhausts", () => {
    let box;
    before(async () => {
        box = new Box({ memory: 128, pids: 64, disk: 48 });
        await box.start();
        await bringKit(box);
    });
    after(() => box.end());

    test("succeeds without limits", { skip: !isRoot && "needs root" }, async () => {
        assert.deepEqual(told((await attackFreely(...HOGS)).filter((r) => !r.succeeded)), []);
    });

    for (const name of HOGS)
        test(`meets a limit, and pi-hands lives: ${name}`, { skip: !isRoot && "needs control groups" }, async () => {
            const { bootId } = await hello(box);
            const [{ succeeded, detail }] = await attackInside(box, name);
            assert.equal(succeeded, false, detail);
            await assertAlive(box);
            assert.equal((await hello(box)).bootId, bootId);
        });

    test("a plain user's sandbox has a limit of processes without any control group", { skip: !isRoot && "the others are it" }, async () => {
        const plain = new Box({ uid: PLAIN_UID, pids: 64 });
        try {
            await plain.start();
            await bringKit(plain);
            const [{ succeeded, detail }] = await attackInside(plain, "many_processes");
            assert.equal(succeeded, false, detail);
            // All that may be is there and stays: only what pi-hands itself starts still runs.
            await plain.bash("exec sh -c 'for i in $(seq 200); do sleep 600 & done'");
            assert.match((await plain.bash("(:)")).out, /fork/);
            await assertAlive(plain);
            await plain.bash("exec pkill -9 sleep");
        } finally {
            await plain.end();
        }
    });

    test("a full disk leaves the host's alone, and room once something goes", { skip: !isRoot && "needs root" }, async () => {
        const { out } = await box.bash("for f in /workspace /root /etc /mnt/session/outputs; do head -c 40m /dev/zero >$f/full; done; "
            + "df -m --output=size,avail /workspace | tail -1");
        const [size, left] = out.trim().split("\n").at(-1).trim().split(/\s+/).map(Number);
        assert.ok(size <= 48, out);
        assert.equal(left, 0, out);
        const taken = fs.statSync(path.join(box.data, "sandboxes", box.id, "disk.img")).blocks * 512;
        assert.ok(taken <= 48 * 2 ** 20, `${taken} bytes of the host's disk`);
        const write = await box.hands.call("write", { path: "/workspace/more", content: "x".repeat(1 << 20) }, "/workspace");
        assert.equal(write.isError, true);
        assert.match(textOf(write), /ENOSPC|No space left/i);
        await box.bash("rm -f /workspace/full /root/full /etc/full /mnt/session/outputs/full");
        const again = await box.hands.call("write", { path: "/workspace/more", content: "x".repeat(1 << 20) }, "/workspace");
        assert.equal(again.isError, false, textOf(again));
        await assertAlive(box);
    });

    test("full memory disks leave room to work", async () => {
        const { bootId } = await hello(box);
        await box.bash("head -c 200m /dev/zero >/tmp/full; head -c 200m /dev/zero >/dev/shm/full; true");
        assert.deepEqual(await box.bash("ls /tmp/full /dev/shm/full && rm /tmp/full /dev/shm/full"),
            { code: 0, out: "/dev/shm/full\n/tmp/full\n" });
        assert.equal((await hello(box)).bootId, bootId);
    });

    test("descriptors: one process's are its own", async () => {
        await box.bash("mkfifo /tmp/held /tmp/gate");
        const hog = box.bash('ulimit -n "$(ulimit -Hn)"; i=10; while [ $i -lt 4000 ] && eval "exec $i</dev/null"; do i=$((i+1)); done; '
            + "echo $i >/tmp/held; cat /tmp/gate; echo $i");
        const { out } = await box.bash("cat /tmp/held; echo >/tmp/gate");
        assert.ok(Number(out) > 200, out);
        await hog;
    });

    test("a flood of output is cut, and pi-hands stays small", async () => {
        const key = "flood";
        const input = { command: "head -c 100m /dev/zero | tr '\\0' x" };
        const frames = await box.hands.converse("CALL", { key, tool: "bash", input, cwd: "/tmp" });
        await box.hands.converse("ACK", { key });
        assert.equal(frames.at(-1).type, "RESULT");
        assert.ok(frames.at(-1).payload.length < 200_000, `${frames.at(-1).payload.length} bytes`);
        const { out } = await box.bash("grep VmHWM /proc/1/status | tr -dc 0-9; echo; find / -xdev -name 'pi-bash-*' -size +65M 2>/dev/null");
        const [kib, ...tooLarge] = out.trim().split("\n");
        assert.ok(Number(kib) < 32 * 1024, `${kib} KiB`);
        assert.deepEqual(tooLarge, []);
    });
});

async function hello(box) {
    const [{ payload }] = await box.hands.converse("HELLO", {});
    return JSON.parse(payload);
}

// The same each run.
function randomSource(seed) {
    let state = seed;
    return (below) => {
        state = (Math.imul(state, 1103515245) + 12345) >>> 0;
        return (state >>> 8) % below;
    };
}

function hostileBytes(random) {
    if (random(3) === 0) return Buffer.from(Array.from({ length: random(64) }, () => random(256)));
    const whole = [["HELLO", {}], ["CALL", { key: `k${random(40)}`, tool: "read", input: { path: "x" }, cwd: "/" }], ["PING", "junk"],
        ["EXEC", { argv: ["true"], cwd: "/" }], ["ATTACH", { key: "k1", offset: -1 }], ["CANCEL", { key: "k2" }], ["STDIN", "x"]];
    const bytes = frame(...whole[random(whole.length)]);
    for (let n = random(4); n > 0; n--) bytes[random(bytes.length)] = random(256);
    return bytes.subarray(0, random(4) ? bytes.length : random(bytes.length));
}

test("2000 hostile frames do not kill pi-hands", async () => {
    const box = new Box();
    try {
        await box.start();
        const { bootId } = await hello(box);
        const random = randomSource(7);
        const send = () => new Promise((resolve) => {
            const connection = net.connect(box.hands.socket, () => connection.end(hostileBytes(random)));
            connection.on("error", () => {}).on("close", resolve).resume();
        });
        const sender = async () => { for (let i = 0; i < 250; i++) await send(); };
        await Promise.all(Array.from({ length: 8 }, sender));
        assert.equal((await hello(box)).bootId, bootId);
        await assertAlive(box);
    } finally {
        await box.end();
    }
});

// KiB, the largest so far of each process of the service.
function peaks(service) {
    return new Map([service.pid, ...descendants(service.pid).map((p) => p.pid)].flatMap((pid) => {
        try {
            const status = fs.readFileSync(`/proc/${pid}/status`, "utf8");
            return [[pid, Number(/VmHWM:\s*(\d+)/.exec(status)?.[1] ?? 0)]];
        } catch (error) {
            if (error.code !== "ENOENT" && error.code !== "ESRCH") {
                throw error;
            }
            return []; // it ended meanwhile, as makers do
        }
    }));
}

describe("through the service", { skip: serviceMissing }, () => {
    const FLOOD_MIB = 400;
    const GROWTH_MIB = 128;
    // AddressSanitizer would keep up to 256 MiB of what was freed.
    const ASAN_OPTIONS = [process.env.ASAN_OPTIONS, "quarantine_size_mb=4"].filter(Boolean).join(":");
    const call = (tool, input) => `CALL ${tool} ${JSON.stringify(input)}`;
    const resultOf = (events) => events.find((event) => event.type === "agent.tool_result");
    let job;
    before(async () => { job = await startJob({ env: { ASAN_OPTIONS } }); });
    after(() => job?.stop());

    test("what tools do is done in the sandbox", async () => {
        const session = await job.session();
        const folder = path.join(world.dir, "service");
        const run = async (tool, input) => resultOf(await session.run(`${call(tool, input)} THEN SAY ok`));
        assert.equal((await run("write", { path: path.join(folder, "a"), content: "before" })).isError, false);
        const edits = [{ oldText: "before", newText: "after" }];
        assert.equal((await run("edit", { path: path.join(folder, "a"), edits })).isError, false);
        const shown = await run("bash", { command: `echo x >~/${world.token}; echo x >/etc/${world.token}; cat ${folder}/a; hostname` });
        assert.equal(textOf(shown), "aftersandbox\n");
        assert.deepEqual(seen(folder, `/etc/${world.token}`, path.join(os.homedir(), world.token), `/root/${world.token}`), []);
        assert.equal((await run("read", { path: world.file })).isError, true);
        assert.equal((await run("ls", { path: path.join(world.dir, "home") })).isError, true);
    });

    test("a flood of output does not fill the service's memory", async () => {
        const session = await job.session();
        await session.run(`${call("bash", { command: "echo warm" })} THEN SAY ok`);
        const earlier = peaks(job.service);
        const command = `head -c ${FLOOD_MIB}m /dev/zero | tr '\\0' x`;
        const result = resultOf(await session.run(`${call("bash", { command })} THEN SAY ok`));
        assert.ok(textOf(result).length < 200_000);
        for (const [pid, kib] of peaks(job.service)) {
            const grown = (kib - (earlier.get(pid) ?? kib)) / 1024;
            assert.ok(grown < GROWTH_MIB, `process ${pid} grew by ${grown} MiB`);
        }
    });
});
