// pi-managed diff, pull and shell over a running service.
import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { existsSync, lstatSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, readlinkSync, rmSync, statSync,
    symlinkSync, writeFileSync } from "node:fs";
import http from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { envOf, run, startCli } from "../support/cli.mjs";
import { eventually } from "../support/eventually.mjs";
import { startJob } from "../support/job.mjs";
import { SERVICE_PROGRAM, serviceMissing } from "../support/service.mjs";

describe("diff, pull and shell", { skip: serviceMissing }, () => {
    let job, work, session;
    before(async () => {
        job = await startJob();
        work = mkdtempSync(path.join(tmpdir(), "pm-cli-copy-"));
        session = await sessionWith("mkdir -p src/deep; echo one > src/one; printf 'x%.0s' $(seq 100000) > src/deep/big; "
            + "echo '#!/bin/sh' > run; chmod 6755 run; touch -d @1000000000 run; ln -s src/one near; ln -s ../../etc/passwd away; "
            + "ln -s /etc/passwd far; mkfifo pipe; echo more >> /etc/hosts; rm /etc/shells");
    });
    after(async () => {
        rmSync(work, { recursive: true, force: true });
        await job?.stop();
    });

    async function sessionWith(command) {
        const made = await job.session();
        await made.run(`CALL bash ${JSON.stringify({ command })} THEN SAY done`);
        return made;
    }

    const pm = (args, options = {}) => run(args, { ...options, env: { ...envOf(job.service), TMPDIR: work, ...options.env } });
    async function ok(...args) {
        const { code, stdout, stderr } = await pm(args);
        assert.equal(code, 0, `${args.join(" ")}: ${stderr}`);
        return { stdout, stderr };
    }

    let folders = 0;
    const folder = () => path.join(work, `to-${++folders}`);

    test("diff names what was added, changed and removed", async () => {
        const { stdout, stderr } = await ok("diff", session.id);
        assert.equal(stdout, "M /etc/hosts\nD /etc/shells\nA /workspace/away -> ../../etc/passwd\nA /workspace/far -> /etc/passwd\n"
            + "A /workspace/near -> src/one\nA /workspace/pipe\nA /workspace/run\nA /workspace/src/\nA /workspace/src/deep/\n"
            + "A /workspace/src/deep/big\nA /workspace/src/one\n");
        assert.equal(stderr, "9 added, 1 changed, 1 removed\n");
        const below = await ok("diff", session.id, "--path", "/workspace/src", "--json");
        assert.deepEqual(JSON.parse(below.stdout).changes.map((one) => one.path),
            ["/workspace/src/deep", "/workspace/src/deep/big", "/workspace/src/one"]);
    });

    test("diff is coloured on a terminal, and names cannot steer it", async () => {
        const odd = await sessionWith("touch $'bad\\e[31m\\nname'");
        const shown = startCli(["diff", odd.id], { env: { ...envOf(job.service), TERM: "xterm" }, terminal: true });
        await shown.ended;
        assert.match(shown.stdout, /\x1b\[\d+mA \/workspace\/bad/);
        assert.doesNotMatch(shown.stdout, /\x1b\[31m|\nname/);
    });

    test("a patch goes to git apply", async () => {
        const odd = await sessionWith("mkdir d; echo a > d/a; echo b > b; chmod +x b");
        for (const args of [["diff", odd.id, "--patch", "--path", "/workspace"], ["pull", odd.id, "--patch"]]) {
            const to = folder();
            mkdirSync(to);
            execFileSync("git", ["init", "-q"], { cwd: to });
            execFileSync("git", ["apply"], { cwd: to, input: (await ok(...args)).stdout });
            assert.equal(readFileSync(path.join(to, "d/a"), "utf8"), "a\n");
            assert.equal(statSync(path.join(to, "b")).mode & 0o111, 0o111);
        }
    });

    test("pull writes files, modes and links that stay inside; the rest is named", async () => {
        const to = folder();
        const { stdout, stderr } = await ok("pull", session.id, "--to", to);
        assert.match(stdout, new RegExp(`^${to}: 3 files, 1 link\n$`));
        assert.deepEqual(readdirSync(to, { recursive: true }).sort(),
            ["near", "run", "src", "src/deep", "src/deep/big", "src/one"]);
        assert.equal(readFileSync(path.join(to, "src/deep/big"), "utf8"), "x".repeat(100000));
        assert.equal(statSync(path.join(to, "run")).mode & 0o7777, 0o755); // no set-id bits
        assert.equal(statSync(path.join(to, "run")).mtimeMs, 1e12);
        assert.equal(readlinkSync(path.join(to, "near")), "src/one");
        assert.match(stderr, /points elsewhere: away -> \.\.\/\.\.\/etc\/passwd/);
        assert.match(stderr, /points elsewhere: far -> \/etc\/passwd/);
        assert.match(stderr, /left out, neither file, folder nor link: pipe/);
    });

    test("pull never writes over what is there, unless told to", async () => {
        const to = folder();
        mkdirSync(path.join(to, "src"), { recursive: true });
        writeFileSync(path.join(to, "src/one"), "mine");
        writeFileSync(path.join(to, "other"), "stays");
        const refused = await pm(["pull", session.id, "--to", to]);
        assert.equal(refused.code, 1);
        assert.match(refused.stderr, /src\/one is there already\. Nothing was written; --force/);
        assert.deepEqual(readdirSync(to, { recursive: true }).sort(), ["other", "src", "src/one"]);
        assert.equal(readFileSync(path.join(to, "src/one"), "utf8"), "mine");
        await ok("pull", session.id, "--to", to, "--force");
        assert.equal(readFileSync(path.join(to, "src/one"), "utf8"), "one\n");
        assert.equal(readFileSync(path.join(to, "other"), "utf8"), "stays");
    });

    test("pull never writes through a link", async () => {
        const outside = folder(), to = folder();
        mkdirSync(outside);
        mkdirSync(to);
        symlinkSync(outside, path.join(to, "src"));
        for (const more of [[], ["--force"]]) {
            const refused = await pm(["pull", session.id, "--to", to, ...more]);
            assert.equal(refused.code, 1);
            assert.deepEqual(readdirSync(outside), []);
            assert.deepEqual(readdirSync(to), ["src"]);
        }
        const file = path.join(outside, "victim");
        writeFileSync(file, "mine");
        rmSync(path.join(to, "src"));
        symlinkSync(file, path.join(to, "run"));
        await ok("pull", session.id, "--to", to, "--force"); // the link goes, what it pointed to stays
        assert.equal(readFileSync(file, "utf8"), "mine");
        assert.ok(lstatSync(path.join(to, "run")).isFile());
    });

    test("pull of the changes, of another folder, of nothing", async () => {
        const to = folder();
        await ok("pull", session.id, "--to", to, "--path", "/", "--changes");
        assert.ok(readFileSync(path.join(to, "etc/hosts"), "utf8").endsWith("more\n"));
        const empty = await ok("pull", (await job.session()).id, "--to", folder());
        assert.match(empty.stdout, /0 files/);
        const none = await pm(["pull", session.id, "--to", folder(), "--path", "/workspace/far"]);
        assert.equal(none.code, 1);
        assert.match(none.stderr, /not_a_folder/);
    });

    /** A service that answers with these bytes, whatever is asked. */
    async function lying(bytes, check, { cut = false } = {}) {
        const server = http.createServer((request, reply) => {
            reply.writeHead(200, { "content-type": "application/x-tar" });
            reply.write(bytes, () => cut ? reply.socket.end() : reply.end());
        });
        await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
        try {
            await check({ PI_MANAGED_URL: `http://127.0.0.1:${server.address().port}`, PI_MANAGED_API_KEY: job.service.apiKey });
        } finally {
            server.close();
        }
    }

    test("an archive that lies cannot write outside, nor can one that was cut write at all", async () => {
        const make = (script) => execFileSync("python3", ["-c",
            `import tarfile,io,sys\nt=tarfile.open(fileobj=sys.stdout.buffer,mode="w|")\n`
            + `def f(n,**k):\n i=tarfile.TarInfo(n);[setattr(i,a,b) for a,b in k.items()];i.size=2 if i.isreg() else 0;`
            + `t.addfile(i,io.BytesIO(b"hi") if i.isreg() else None)\n${script}\nt.close()`]);
        const outside = folder();
        mkdirSync(outside);
        const attacks = [
            'f("../escaped")', 'f("a/../../escaped")', `f("l",type=tarfile.SYMTYPE,linkname="${outside}"); f("l/escaped")`,
            'f("l",type=tarfile.SYMTYPE,linkname="."); f("l/escaped")',
            'f("dev",type=tarfile.CHRTYPE)', 'f("p",type=tarfile.FIFOTYPE)', 'f("a"); f("h",type=tarfile.LNKTYPE,linkname="a")',
        ];
        for (const attack of attacks) {
            const to = folder();
            await lying(make(attack), async (env) => {
                const { code } = await pm(["pull", session.id, "--to", to], { env });
                assert.ok(!existsSync(path.join(work, "escaped")), attack);
                assert.deepEqual(readdirSync(outside), [], attack);
                assert.ok(!readdirSync(to).some((name) => ["dev", "p", "h"].includes(name)), attack);
                assert.ok(code === 1 || attack.includes("l/"), attack);
            });
        }
        await lying(make('f("/abs/olute")'), async (env) => {
            const to = folder();
            await pm(["pull", session.id, "--to", to], { env });
            assert.ok(!existsSync("/abs"));
        });
        const to = folder();
        await lying(make('f("a"); f("b")').subarray(0, 1024), async (env) => {
            const { code, stderr } = await pm(["pull", session.id, "--to", to], { env });
            assert.equal(code, 1);
            assert.match(stderr, /Nothing was written/);
            assert.ok(!existsSync(to));
        }, { cut: true });
    });

    test("shell: what is typed runs, and the status comes back", async () => {
        const shell = startCli(["shell", session.id], { env: { ...envOf(job.service), TERM: "dumb" }, terminal: true });
        await shell.says(/# $/);
        shell.child.stdin.write("cat src/one; echo in-$((6*7)); exit 9\n");
        await shell.says(/one\r\nin-42\r\n/);
        assert.equal((await shell.ended).code, 9);
    });

    test("shell: the terminal is as it was afterwards, also when the sandbox goes", async () => {
        const modes = path.join(work, "modes");
        const doomed = await sessionWith("true");
        const script = `stty -a > '${modes}1'; '${SERVICE_PROGRAM}' shell ${doomed.id}; echo st=$?; stty -a > '${modes}2'; echo over`;
        const shell = spawn("script", ["-qec", script, "/dev/null"],
            { env: { PATH: process.env.PATH, ...envOf(job.service), TERM: "dumb", ASAN_OPTIONS: process.env.ASAN_OPTIONS ?? "" } });
        let said = "";
        const seen = (pattern) => eventually(`${pattern}`, () => said, (text) => pattern.test(text));
        shell.stdout.on("data", (bytes) => (said += bytes));
        await seen(/# $/);
        await job.service.ok("DELETE", doomed.path);
        await seen(/over/);
        assert.match(said, /the sandbox ended/);
        assert.match(said, /st=125/);
        assert.equal(readFileSync(`${modes}2`, "utf8"), readFileSync(`${modes}1`, "utf8"));
    });

    test("shell: no terminal, no session, no sandbox", async () => {
        const none = await pm(["shell", session.id]);
        assert.equal(none.code, 1);
        assert.match(none.stderr, /no terminal/);
        const fresh = await job.session();
        const refused = startCli(["shell", fresh.id], { env: envOf(job.service), terminal: true });
        assert.equal((await refused.ended).code, 1);
        assert.match(refused.stdout, /409 no_sandbox/);
        const missing = startCli(["shell", "sess_00000000000000000000000000"], { env: envOf(job.service), terminal: true });
        assert.equal((await missing.ended).code, 1);
    });
});
