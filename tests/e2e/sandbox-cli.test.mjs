// pi-managed sandbox run, exec, shell, tool, ls, rm: sandboxes driven without a service, as root and as a plain user.
import assert from "node:assert/strict";
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { chownSync, existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { SERVICE_PROGRAM, serviceMissing, startService } from "../support/service.mjs";

const PLAIN_UID = 65534;
const ENVIRONMENT = { PATH: process.env.PATH, ASAN_OPTIONS: process.env.ASAN_OPTIONS ?? "", TERM: "vt100" };
const isRoot = process.getuid() === 0;

/** The words that run the program as that user. */
const asUser = (uid) => (uid === process.getuid() ? []
    : ["setpriv", "--reuid", `${uid}`, "--regid", `${uid}`, "--clear-groups"]);

/** A reason why this user cannot run sandboxes here, else false. */
function cannotRun(uid) {
    if (serviceMissing) {
        return serviceMissing;
    }
    const [program, ...args] = [...asUser(uid), SERVICE_PROGRAM, "doctor"];
    const doctor = spawnSync(program, args, { env: ENVIRONMENT, encoding: "utf8" });
    if (doctor.error || /failed to execute|Permission denied/.test(doctor.stderr)) {
        return `user ${uid} cannot reach ${SERVICE_PROGRAM}`;
    }
    return false;
}

/** A data directory of that user, and the program on it. */
class Cli {
    constructor(uid) {
        this.uid = uid;
        this.data = mkdtempSync(path.join(tmpdir(), "pi-managed-cli-"));
        if (uid !== process.getuid()) {
            chownSync(this.data, uid, uid);
        }
    }

    words(verb, args, command) {
        return [...asUser(this.uid), SERVICE_PROGRAM, "sandbox", verb, ...args, "--data", this.data,
            ...(command ? ["--", ...command] : [])];
    }

    start(verb, args, command) {
        const [program, ...rest] = this.words(verb, args, command);
        return new Running(spawn(program, rest, { env: ENVIRONMENT }));
    }

    /** Runs to its end: {status, stdout, stderr}; stdout as bytes is in `bytes`. */
    async do(verb, args, command, input) {
        const running = this.start(verb, args, command);
        running.child.stdin.on("error", () => {}); // it may end without reading
        running.child.stdin.end(input);
        return running.ended;
    }

    async names() {
        const { stdout } = await this.do("ls", ["--json"]);
        return stdout.split("\n").filter(Boolean).map((line) => JSON.parse(line).name).sort();
    }

    async remove() {
        const { status, stderr } = await this.do("rm", ["all"]);
        assert.equal(status, 0, stderr);
        rmSync(this.data, { recursive: true });
    }
}

class Running {
    #seen = [];
    #waiting = [];
    constructor(child) {
        const chunks = { stdout: [], stderr: [] };
        this.child = child;
        for (const name of ["stdout", "stderr"]) {
            child[name].on("data", (chunk) => {
                chunks[name].push(chunk);
                this.#seen.push(chunk);
                this.#look();
            });
        }
        this.ended = new Promise((resolve, reject) => {
            child.on("error", reject);
            child.on("close", (status, signal) => {
                const bytes = Buffer.concat(chunks.stdout);
                resolve({ status, signal, bytes, stdout: `${bytes}`, stderr: `${Buffer.concat(chunks.stderr)}` });
                this.#waiting.forEach((w) => w.reject(new Error(`it ended; no ${w.pattern} in: ${this.text}`)));
            });
        });
    }

    get text() {
        return `${Buffer.concat(this.#seen)}`;
    }

    #look() {
        this.#waiting = this.#waiting.filter((w) => {
            const match = w.pattern.exec(this.text);
            if (match) {
                w.resolve(match);
            }
            return !match;
        });
    }

    until(pattern) {
        return new Promise((resolve, reject) => {
            this.#waiting.push({ pattern, resolve, reject });
            this.#look();
        });
    }
}

const users = isRoot ? [["root", 0], ["a plain user", PLAIN_UID]] : [["a plain user", process.getuid()]];
for (const [who, uid] of users) {
    describe(`sandbox commands as ${who}`, { skip: cannotRun(uid) }, () => {
        let cli;
        before(() => {
            cli = new Cli(uid);
        });
        after(() => cli.remove());

        test("run: output, error output and status come apart, and nothing stays", async () => {
            const done = await cli.do("run", [], ["sh", "-c", "echo out; echo err >&2; id -u; pwd; exit 3"]);
            assert.deepEqual([done.status, done.stdout, done.stderr], [3, "out\n0\n/workspace\n", "err\n"]);
            assert.deepEqual(readdirSync(path.join(cli.data, "sandboxes")), []);
        });

        test("run: it is a sandbox: another pid 1, no network, none of our files", async () => {
            const done = await cli.do("run", [], ["sh", "-c",
                `test -e ${cli.data} && echo data; cat /proc/1/comm; ls /sys/class/net 2>/dev/null; hostname`]);
            assert.doesNotMatch(done.stdout, /data|eth|wl|ens/);
            assert.notEqual(done.stdout.split("\n")[0], "systemd");
        });

        test("run: 128 and the number of a signal; 127 and 126 when there is nothing to run", async () => {
            assert.equal((await cli.do("run", [], ["sh", "-c", "kill -9 $$"])).status, 137);
            const none = await cli.do("run", [], ["no-such-program"]);
            assert.deepEqual([none.status, none.stdout], [127, ""]);
            assert.match(none.stderr, /sandbox run: cannot start no-such-program: No such file/);
            assert.equal((await cli.do("run", [], ["/etc"])).status, 126);
            assert.deepEqual(await cli.names(), []);
        });

        test("run --json: one object with output, status and time", async () => {
            const done = await cli.do("run", ["--json", "--name", "shown"],
                ["sh", "-c", "printf 'a\\000b'; echo é >&2; exit 9"]);
            assert.equal(done.status, 9);
            const { durationMs, ...rest } = JSON.parse(done.stdout);
            assert.ok(Number.isInteger(durationMs) && durationMs >= 0);
            assert.deepEqual(rest, {
                name: "shown", status: 9, signal: null, stdout: "a\0b", stderr: "é\n", truncated: false,
            });
        });

        test("input: a megabyte of anything comes back unchanged", async () => {
            const bytes = randomBytes(1 << 20);
            const done = await cli.do("run", [], ["cat"], bytes);
            assert.equal(done.status, 0, done.stderr);
            assert.ok(done.bytes.equals(bytes), `${done.bytes.length} bytes came back`);
        });

        test("--keep, then exec in the same files; rm takes them away", async () => {
            const kept = await cli.do("run", ["--keep", "--name", "kept"], ["sh", "-c", "echo hi >note"]);
            assert.equal(kept.status, 0, kept.stderr);
            assert.match(kept.stderr, /kept: pi-managed sandbox exec kept --data/);
            const read = await cli.do("exec", ["kept"], ["cat", "note"]);
            assert.deepEqual([read.status, read.stdout], [0, "hi\n"]);
            assert.deepEqual(await cli.names(), ["kept"]);
            const again = await cli.do("run", ["--name", "kept"], ["true"]);
            assert.equal(again.status, 125);
            assert.match(again.stderr, /there is a sandbox kept already/);
            assert.equal((await cli.do("exec", ["kept"], ["cat", "note"])).stdout, "hi\n", "and it is unharmed");
            assert.equal((await cli.do("rm", ["kept"])).stdout, "kept removed\n");
            const gone = await cli.do("exec", ["kept"], ["true"]);
            assert.equal(gone.status, 125, "we failed, not the command");
            assert.match(gone.stderr, /there is no sandbox kept in .*sandbox ls/);
        });

        test("memory: what does not fit beside the others is refused, and leaves nothing", async () => {
            const running = cli.start("run", ["--name", "first"], ["sh", "-c", "echo up; read x"]);
            await running.until(/up\n/);
            const less = ["--sandbox-memory", "1000"]; // one of 512 MiB fits
            const refused = await cli.do("run", ["--name", "second", ...less], ["true"]);
            assert.deepEqual([refused.status, refused.stdout], [125, ""]);
            assert.match(refused.stderr, /no memory is left for another sandbox: 512 of 1000 MiB \(--sandbox-memory\)/);
            assert.deepEqual(await cli.names(), ["first"]);
            running.child.stdin.end("\n");
            assert.equal((await running.ended).status, 0);
            const fits = await cli.do("run", less, ["echo", "fits"]);
            assert.deepEqual([fits.status, fits.stdout], [0, "fits\n"]);
            const wrong = await cli.do("run", ["--sandbox-memory", "much"], ["true"]);
            assert.match(wrong.stderr, /--sandbox-memory much: give a number of MiB/);
            assert.deepEqual(readdirSync(path.join(cli.data, "sandboxes")), []);
        });

        test("limits: --disk holds as root; for a plain user it is refused unless allowed, and told", async () => {
            const fill = ["sh", "-c", "head -c 64m /dev/zero >f; rm f; nproc >/dev/null; echo alive"];
            const limits = ["--disk", "32", ...(uid === 0 ? ["--memory", "64", "--pids", "40", "--cpus", "0.5"] : [])];
            const limited = await cli.do("run", ["--keep", "--name", "limited", ...limits], fill);
            if (uid !== 0) {
                assert.deepEqual([limited.status, limited.stdout], [125, ""]);
                assert.match(limited.stderr, /disk space cannot be limited here: it needs root.*--allow-unenforced-limits/);
                const kept = await cli.do("run", ["--keep", "--name", "limited", "--allow-unenforced-limits", ...limits], fill);
                assert.deepEqual([kept.status, kept.stdout], [0, "alive\n"], kept.stderr);
            } else {
                assert.match(limited.stderr, /No space left on device/);
                assert.deepEqual([limited.status, limited.stdout], [0, "alive\n"]);
            }
            const { stdout } = await cli.do("ls", ["--json"]);
            const listed = JSON.parse(stdout);
            assert.equal(listed.limitsEnforced, uid === 0);
            assert.match(listed.reason, uid === 0 ? /^$/ : /disk/);
            assert.ok(listed.diskBytes > 0 && listed.diskBytes < 33 * 2 ** 20, stdout);
            assert.equal((await cli.do("rm", ["limited"])).status, 0);
            for (const [option, value] of [["--disk", "0"], ["--memory", "x"], ["--cpus", "-1"], ["--pids", "4294967296"]]) {
                const wrong = await cli.do("run", [option, value], ["true"]);
                assert.equal(wrong.status, 125);
                assert.match(wrong.stderr, new RegExp(`${option} ${value}: give a`));
            }
            const tiny = await cli.do("run", ["--disk", "15"], ["true"]);
            assert.match(tiny.stderr, /at least 16 MiB of disk, not 15/);
            assert.deepEqual(readdirSync(path.join(cli.data, "sandboxes")), []);
        });

        test("snapshot and fork: the files of one that runs, then on their own", async () => {
            const script = "echo one >f; chmod 600 f; rm /etc/shells; (while :; do echo x >>busy; done) >/dev/null 2>&1 </dev/null &";
            assert.equal((await cli.do("run", ["--keep", "--name", "model"], ["sh", "-c", script])).status, 0);
            const kept = await cli.do("snapshot", ["model", "before"]);
            assert.deepEqual([kept.status, kept.stdout], [0, "before made\n"], kept.stderr);
            assert.equal((await cli.do("exec", ["model"], ["sh", "-c", "echo two >f"])).status, 0);
            for (const [from, name, content] of [["model", "now", "two"], ["before", "then", "one"]]) {
                const made = await cli.do("fork", [from, name]);
                assert.deepEqual([made.status, made.stdout], [0, `${name} made\n`], made.stderr);
                const read = await cli.do("exec", [name], ["sh", "-c", "cat f; stat -c %a f; ls /etc/shells; test -s busy && echo busy"]);
                assert.equal(read.stdout, `${content}\n600\nbusy\n`);
            }
            const listed = (await cli.do("ls", ["--json"])).stdout.split("\n").filter(Boolean).map((line) => JSON.parse(line));
            assert.deepEqual(Object.fromEntries(listed.map(({ name, state }) => [name, state])),
                { model: "running", before: "snapshot", now: "running", then: "running" });
            for (const [verb, args, why] of [
                ["fork", ["nothing", "x"], /no sandbox or snapshot nothing/], ["snapshot", ["before", "x"], /no sandbox before/],
                ["fork", ["model", "now"], /sandbox or a snapshot now already/], ["snapshot", ["model", "then"], /sandbox or a snapshot then already/],
                ["fork", ["model", "../x"], /no name for a sandbox/], ["exec", ["before"], /no sandbox before/],
            ]) {
                const refused = await cli.do(verb, args, verb === "exec" ? ["true"] : undefined);
                assert.notEqual(refused.status, 0);
                assert.match(refused.stderr, why);
            }
            assert.equal((await cli.do("rm", ["model"])).status, 0);
            assert.equal((await cli.do("exec", ["now"], ["cat", "f"])).stdout, "two\n", "it needs its model no more");
            assert.match((await cli.do("rm", ["all"])).stdout, /before removed/);
            assert.deepEqual(readdirSync(path.join(cli.data, "sandboxes")), []);
        });

        test("names: letters, digits and . _ -, forty at most, none that means something else", async () => {
            for (const name of ["", "../x", "a/b", "-x", ".x", "all", "sess_x", "a".repeat(41), "a b", "é"]) {
                const done = await cli.do("run", [`--name=${name}`], ["true"]);
                assert.equal(done.status, 125, `"${name}"`);
                assert.match(done.stderr, /no name for a sandbox|means something else/);
            }
            const longest = await cli.do("run", ["--name", "a".repeat(40)], ["true"]);
            assert.equal(longest.status, 0, longest.stderr);
            assert.deepEqual(await cli.names(), []);
        });

        test("called wrongly: 125 with what is missing; an unknown image is told", async () => {
            const none = await cli.do("run", []);
            assert.equal(none.status, 125);
            assert.match(none.stderr, /this must be given: -- CMD/);
            const loose = await cli.do("run", ["ls"], ["x"]);
            assert.equal(loose.status, 125);
            assert.match(loose.stderr, /the command comes behind --/);
            const image = await cli.do("run", ["--image", "nothing:1"], ["true"]);
            assert.equal(image.status, 125);
            assert.match(image.stderr, /there is no image nothing:1/);
            assert.deepEqual(readdirSync(path.join(cli.data, "sandboxes")), []);
            const help = await cli.do("run", [], ["printf", "%s\\n", "--help"]);
            assert.equal(help.stdout, "--help\n", "what stands behind -- is not ours");
        });

        test("tool: its result as JSON; 1 when it is an error, an unknown tool too", async () => {
            assert.equal((await cli.do("run", ["--keep", "--name", "tools"], ["true"])).status, 0);
            const wrote = await cli.do("tool", ["tools", "write", '{"path":"a.txt","content":"one\\n"}']);
            assert.equal(wrote.status, 0, wrote.stderr);
            const read = await cli.do("tool", ["tools", "read", '{"path":"/workspace/a.txt"}']);
            assert.deepEqual(JSON.parse(read.stdout).content, [{ type: "text", text: "one\n" }]);
            assert.equal(read.status, 0);
            const missing = await cli.do("tool", ["tools", "read", '{"path":"/nope"}']);
            assert.equal(missing.status, 1);
            assert.equal(JSON.parse(missing.stdout).isError, true);
            const unknown = await cli.do("tool", ["tools", "fly", "{}"]);
            assert.equal(unknown.status, 1);
            assert.match(JSON.parse(unknown.stdout).content[0].text, /fly/);
            for (const [text, why] of [["{", /is no JSON/], ["[]", /must be a JSON object/]]) {
                const bad = await cli.do("tool", ["tools", "read", text]);
                assert.deepEqual([bad.status, bad.stdout], [125, ""]);
                assert.match(bad.stderr, why);
            }
            assert.equal((await cli.do("rm", ["tools"])).status, 0);
        });

        test("several at once on one directory, each with a range of ids of its own", async () => {
            const script = "cat /proc/self/uid_map; touch mine; ls | wc -l; read x";
            const all = [1, 2, 3].map(() => cli.start("run", [], ["sh", "-c", script]));
            const maps = [];
            for (const one of all) {
                maps.push((await one.until(/^\s*0\s+(\d+)\s+\d+\n[^]*?^1$/m))[1]);
            }
            assert.equal((await cli.names()).length, 3);
            assert.equal(new Set(maps).size, uid === 0 ? 3 : 1);
            all.forEach((one) => one.child.stdin.end("\n"));
            assert.deepEqual((await Promise.all(all.map((one) => one.ended))).map((d) => d.status), [0, 0, 0]);
            assert.deepEqual(await cli.names(), []);
        });

        test("Ctrl-C reaches the command, which decides; the sandbox is removed", async () => {
            const running = cli.start("run", [],
                ["sh", "-c", "trap 'echo caught; exit 5' INT; echo up; while :; do sleep 0.05; done"]);
            await running.until(/up\n/);
            running.child.kill("SIGINT");
            const done = await running.ended;
            assert.deepEqual([done.status, done.stdout], [5, "up\ncaught\n"]);
            const other = cli.start("run", [], ["sh", "-c", "echo up; exec sleep 100"]);
            await other.until(/up\n/);
            other.child.kill("SIGTERM");
            assert.equal((await other.ended).status, 128 + 15);
            assert.deepEqual(readdirSync(path.join(cli.data, "sandboxes")), []);
        });

        test("a reader that leaves ends the command", async () => {
            const running = cli.start("run", [], ["yes"]);
            await running.until(/y\n/);
            running.child.stdout.destroy();
            assert.equal((await running.ended).status, 128 + 13);
            assert.deepEqual(await cli.names(), []);
        });

        test("shell: a terminal, resized with ours, whose mode comes back", { skip: noScript(), timeout: 60_000 }, async (t) => {
            assert.equal((await cli.do("run", ["--keep", "--name", "term"], ["true"])).status, 0);
            const line = cli.words("shell", ["term"]).map((word) => `'${word}'`).join(" ");
            const outer = new Running(spawn("script", ["-qec", `stty rows 33 cols 99; echo "on $(tty) $$"; `
                + `${line}; echo "status $?"; stty -a | grep -ow -- '-\\?icanon'`, "/dev/null"],
            { env: ENVIRONMENT }));
            t.after(() => outer.child.kill());
            const say = (text) => outer.child.stdin.write(text);
            const [, tty] = await outer.until(/on (\/dev\S+) \d+/);
            await outer.until(/on \/dev[^]*[#$] /);
            say("stty size; echo $TERM $((6 * 7))\n");
            await outer.until(/33 99\r\n[^]*vt100 42/);
            execFileSync("stty", ["-F", tty, "rows", "20", "cols", "70"]);
            say("stty size\n");
            await outer.until(/\b20 70\b/);
            say(`sh -c 'trap "exit 6" INT; echo slee''ps; while :; do sleep 0.05; done'\n`);
            await outer.until(/sleeps\r\n/);
            say("\x03"); // a terminal throws away what is typed behind it, until the prompt
            await outer.until(/sleeps\r\n[^]*\^C[^]*[#$] /);
            say("exit 4\n");
            await outer.until(/status 4\r\n[^]*icanon/);
            assert.doesNotMatch(outer.text, /-icanon/);
            outer.child.stdin.end();
            await outer.ended;
            const piped = await cli.do("shell", ["term"]);
            assert.equal(piped.status, 125);
            assert.match(piped.stderr, /no terminal.*sandbox exec/);
            assert.equal((await cli.do("rm", ["term"])).status, 0);
        });

        test("ls and rm of a directory that is none", async () => {
            const nowhere = path.join(cli.data, "nowhere");
            for (const words of [["ls"], ["rm", "all"]]) {
                const done = spawnSync(SERVICE_PROGRAM, ["sandbox", ...words, "--data", nowhere],
                    { env: ENVIRONMENT, encoding: "utf8" });
                assert.equal(done.status, 1);
                assert.match(done.stderr, /nowhere is no data directory/);
            }
            assert.ok(!existsSync(nowhere), "looking makes nothing");
        });
    });
}

function noScript() {
    return spawnSync("script", ["--version"]).error ? "script(1) is not installed" : false;
}

describe("sandbox commands and a service on one directory", { skip: serviceMissing }, () => {
    test("one keeps the other out, and says so", async () => {
        const service = await startService();
        const cli = new Cli(process.getuid());
        rmSync(cli.data, { recursive: true });
        cli.data = service.data;
        try {
            for (const [verb, args, command] of [["run", [], ["true"]], ["exec", ["x"], ["true"]], ["ls", []]]) {
                const done = await cli.do(verb, args, command);
                assert.equal(done.status, verb === "ls" ? 1 : 125);
                assert.match(done.stderr, /a service is running on .*Stop it first/);
            }
        } finally {
            await service.stop();
        }
    });
});
