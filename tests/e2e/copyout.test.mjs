// What comes out of a session's sandbox: GET …/diff and …/workspace, with content that is anything but kind.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, readlinkSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { eventually } from "../support/eventually.mjs";
import { startJob, textOf } from "../support/job.mjs";
import { processes } from "../support/processes.mjs";
import { serviceMissing } from "../support/service.mjs";

describe("copying out of a sandbox", { skip: serviceMissing }, () => {
    let job;
    let work;
    before(async () => {
        job = await startJob();
        work = mkdtempSync(path.join(tmpdir(), "pm-copyout-"));
    });
    after(async () => {
        rmSync(work, { recursive: true, force: true });
        await job?.stop();
    });

    /** Runs a command in the session's sandbox; it must succeed. */
    async function bash(session, command) {
        const events = await session.run(`CALL bash ${JSON.stringify({ command, timeout: 300 })} THEN SAY done`);
        const results = events.filter((event) => event.type === "agent.tool_result");
        assert.equal(results.length, 1, JSON.stringify(events));
        assert.ok(!results[0].isError, textOf(results[0]));
        return textOf(results[0]);
    }

    async function sessionWith(command) {
        const session = await job.session();
        await bash(session, command);
        return session;
    }

    const get = (session, query = "") => job.service.ok("GET", `${session.path}/diff${query}`);

    /** Short lines, as "A f 0644 /workspace/a". */
    const lines = (diff) => diff.changes.map((one) =>
        `${one.change[0].toUpperCase()} ${one.type[0]} ${one.mode} ${one.path}`);

    /** The archive's bytes; rejects when the transfer was cut. */
    async function download(session, query = "") {
        const url = `${job.service.url}${session.path}/workspace${query}`;
        const reply = await fetch(url, { headers: { authorization: `Bearer ${job.service.apiKey}` } });
        return { status: reply.status, headers: reply.headers, bytes: Buffer.from(await reply.arrayBuffer()) };
    }

    async function unpack(session, query) {
        const { status, bytes } = await download(session, query);
        assert.equal(status, 200, bytes.toString());
        const to = mkdtempSync(path.join(work, "to-"));
        writeFileSync(path.join(work, "t.tar"), bytes);
        execFileSync("tar", ["-xpf", path.join(work, "t.tar"), "-C", to]);
        return to;
    }

    const tree = (folder) => execFileSync("find", [".", "-mindepth", "1", "-printf", "%y %m %P\\n"], { cwd: folder })
        .toString().split("\n").filter(Boolean).sort();

    test("a session that never ran anything changed nothing", async () => {
        const session = await job.session();
        const diff = await get(session);
        assert.deepEqual(diff.changes, []);
        assert.deepEqual(diff.summary, { added: 0, changed: 0, removed: 0, leftOut: 0 });
        assert.deepEqual(tree(await unpack(session)), []);
        assert.equal((await job.service.ok("GET", session.path)).sandbox.state, "none");
    });

    test("added, changed and removed are told with modes", async () => {
        const session = await sessionWith(
            "mkdir d; echo a > d/a; chmod 750 d; echo run > x; chmod 755 x; ln -s d/a l; mkfifo p; "
            + "rm /etc/shells; rmdir /srv; echo more >> /etc/hosts; chmod 600 /etc/hostname; touch /tmp/not");
        const diff = await get(session);
        assert.deepEqual(lines(diff), [
            "C f 0600 /etc/hostname", "C f 0644 /etc/hosts", "R f 0644 /etc/shells", "R f 0755 /srv",
            "A f 0750 /workspace/d", "A f 0644 /workspace/d/a", "A l 0777 /workspace/l",
            "A o 0644 /workspace/p", "A f 0755 /workspace/x"]);
        assert.deepEqual(diff.summary, { added: 5, changed: 2, removed: 2, leftOut: 0 });
        assert.equal(diff.changes.find((one) => one.path === "/workspace/l").target, "d/a");
        assert.equal(diff.changes.find((one) => one.path === "/etc/hostname").before.mode, "0644");
        assert.equal(diff.changes.find((one) => one.path === "/srv").type, "folder");
        assert.deepEqual(lines(await get(session, "?path=/workspace/d")), ["A f 0644 /workspace/d/a"]);
        assert.deepEqual(lines(await get(session, "?path=/nowhere")), []);
    });

    test("the archive has contents, modes, times and links; nothing is followed", async () => {
        const session = await sessionWith(
            "mkdir -p a/b; printf 'x%.0s' $(seq 100000) > a/b/big; echo hi > a/f; chmod 4711 a/f; touch -d @1000000000 a/f; "
            + "ln -s /etc/passwd out; ln -s a in; ln a/f hard; mkfifo pipe; mkdir empty; chmod 700 empty");
        const to = await unpack(session);
        assert.deepEqual(tree(to), ["d 700 empty", "d 755 a", "d 755 a/b", "f 4711 a/f", "f 4711 hard", "f 644 a/b/big",
            "l 777 in", "l 777 out"]);
        assert.equal(readFileSync(path.join(to, "a/b/big"), "utf8"), "x".repeat(100000));
        assert.equal(statSync(path.join(to, "a/f")).mtimeMs, 1e12);
        assert.equal(readlinkSync(path.join(to, "out")), "/etc/passwd");
        const { headers } = await download(session);
        assert.equal(headers.get("content-type"), "application/x-tar");
        assert.equal(headers.get("content-disposition"), `attachment; filename="${session.id}.tar"`);
        assert.equal(headers.get("x-content-type-options"), "nosniff");
    });

    test("names with newlines, bytes that are not UTF-8 and long paths arrive exactly", async () => {
        const long = `${"n".repeat(200)}/${"m".repeat(200)}`;
        const session = await sessionWith(
            `printf 1 > $'a\\nb'; printf 2 > $'\\xff\\xfe'; printf 3 > é; mkdir -p ${path.dirname(long)}; printf 4 > ${long}`);
        const to = await unpack(session);
        const found = execFileSync("find", [".", "-type", "f", "-print0"], { cwd: to });
        for (const name of [Buffer.from("./a\nb\0"), Buffer.from([0x2e, 0x2f, 0xff, 0xfe, 0]), Buffer.from("./é\0"),
            Buffer.from(`./${long}\0`)]) {
            assert.ok(found.includes(name), `${name} in ${found}`);
        }
        const diff = await get(session, "?path=/workspace");
        const odd = diff.changes.find((one) => one.pathBase64);
        assert.deepEqual(Buffer.from(odd.pathBase64, "base64"),
            Buffer.concat([Buffer.from("/workspace/"), Buffer.from([0xff, 0xfe])]));
        assert.ok(diff.changes.some((one) => one.path === "/workspace/a\nb" && !one.pathBase64));
    });

    test("only what changed can be had, of the whole file system too", async () => {
        const session = await sessionWith("echo new > n; echo more >> /etc/hosts; rm /etc/shells");
        assert.deepEqual(tree(await unpack(session, "?path=/&changes=true")), ["d 755 etc", "d 755 workspace",
            "f 644 etc/hosts", "f 644 workspace/n"]);
        const { status } = await download(session, "?path=/");
        assert.equal(status, 400);
    });

    async function patchOf(session, query, headers = {}) {
        const reply = await fetch(`${job.service.url}${session.path}/diff${query}`,
            { headers: { authorization: `Bearer ${job.service.apiKey}`, ...headers } });
        assert.equal(reply.status, 200);
        assert.equal(reply.headers.get("content-type"), "text/x-diff");
        return Buffer.from(await reply.arrayBuffer());
    }

    test("a patch is taken by git, and makes of the image's files what the session did", async () => {
        const setup = "mkdir -p base/d; cd base; seq 50 > edit; echo x > gone; echo m > mode; ln -s edit link; printf none > 'no newline'; "
            + "echo y > d/kept; echo t > type; cd ..";
        const session = await sessionWith(`${setup}; cp -a base work; cd work; sed -i 's/^25$/twenty-five/; 3d' edit; rm gone; `
            + "chmod +x mode; ln -sf d/kept link; printf more >> 'no newline'; mkdir new; echo n > new/$'odd\"\\\\\tname'; touch empty; "
            + "echo é > ünï; rm type; ln -s d type; head -c 100 /dev/zero > binary; head -c 2M /dev/zero | tr '\\0' 'a' > large");
        const patch = await patchOf(session, "?path=/workspace/work&format=patch");
        assert.match(patch.toString(), /^# left out, binary: binary$/m);
        assert.match(patch.toString(), /^# left out, too large: large$/m);
        const to = mkdtempSync(path.join(work, "git-"));
        writeFileSync(path.join(work, "p.patch"), patch);
        execFileSync("git", ["init", "-q"], { cwd: to });
        execFileSync("git", ["apply", "--whitespace=nowarn", path.join(work, "p.patch")], { cwd: to });
        const wanted = await unpack(session, "?path=/workspace/work");
        for (const name of ["binary", "large"]) {
            rmSync(path.join(wanted, name));
        }
        rmSync(path.join(to, ".git"), { recursive: true });
        execFileSync("diff", ["-r", "--no-dereference", wanted, to]);
        assert.deepEqual(tree(to), tree(wanted));
        assert.deepEqual(await patchOf(session, "?path=/workspace/work", { accept: "text/x-diff" }), patch);
        assert.equal((await job.service.request("GET", `${session.path}/diff?format=xml`)).status, 400);
    });

    test("a patch shows what an image's own file was", async () => {
        const session = await sessionWith("echo '10.0.0.1 here' >> /etc/hosts; rm /etc/shells; chmod +x /etc/hostname");
        const patch = (await patchOf(session, "?format=patch")).toString();
        assert.equal(patch, "diff --git a/etc/hostname b/etc/hostname\nold mode 100644\nnew mode 100755\n"
            + "diff --git a/etc/hosts b/etc/hosts\n--- a/etc/hosts\n+++ b/etc/hosts\n@@ -1,2 +1,3 @@\n"
            + " 127.0.0.1 localhost sandbox\n ::1 localhost ip6-localhost ip6-loopback\n+10.0.0.1 here\n"
            + "diff --git a/etc/shells b/etc/shells\ndeleted file mode 100644\n--- a/etc/shells\n+++ /dev/null\n"
            + "@@ -1,2 +0,0 @@\n-/bin/sh\n-/bin/bash\n");
        assert.equal((await patchOf(await job.session(), "?format=patch")).length, 0);
    });

    test("a sparse file of a terabyte is told, and cuts the archive instead of passing for whole", async () => {
        const session = await sessionWith("truncate -s 1T huge; echo x > small");
        assert.equal((await get(session)).changes.find((one) => one.path === "/workspace/huge").size, 2 ** 40);
        assert.equal((await download(session)).status, 413);
        await bash(session, "head -c 1M /dev/urandom > before");
        await assert.rejects(download(session), /terminated/);
    });

    test("a hundred thousand names are listed whole", async () => {
        const session = await sessionWith("mkdir many; cd many; seq 100000 | xargs touch");
        const diff = await get(session, "?path=/workspace");
        assert.equal(diff.summary.added, 100001);
        assert.equal(diff.truncated, false);
    });

    test("a tree deeper than any path is cut and counted", async () => {
        const session = await sessionWith("for i in $(seq 300); do mkdir d; cd d; done; echo bottom > f");
        const diff = await get(session, "?path=/workspace");
        assert.equal(diff.summary.leftOut, 1);
        assert.equal(diff.summary.added, 128);
    });

    test("links swapped in while it is copied never lead anywhere", async () => {
        const session = await sessionWith(
            "mkdir d other; echo mine > d/f; ln -s /etc other/l; "
            + "(setsid sh -c 'while :; do mv d x; mv other/l d; mv d other/l; mv x d; done' > /dev/null 2>&1 &)");
        for (let i = 0; i < 40; i++) {
            const { status, bytes } = await download(session);
            assert.equal(status, 200);
            assert.ok(!bytes.includes("root:x:0:0"), "/etc was read through a link");
        }
        await job.service.ok("DELETE", session.path);
    });

    test("/proc and other mounts are not copied", async () => {
        const session = await sessionWith("ln -s /proc/1 p; ln -s /proc/self/environ e");
        assert.deepEqual(tree(await unpack(session)), ["l 777 e", "l 777 p"]);
        const { status } = await download(session, "?path=/workspace/p");
        assert.equal(status, 409);
        assert.ok(!lines(await get(session)).some((line) => / \/(proc|sys|dev|tmp|usr)/.test(line)));
    });

    test("a root that is a link is refused with a clear code", async () => {
        const session = await sessionWith("cd /; rm -rf /workspace; ln -s /etc /workspace");
        const reply = await job.service.request("GET", `${session.path}/workspace`);
        assert.equal(reply.status, 409);
        assert.equal(reply.body.code, "not_a_folder");
    });

    test("a stopped sandbox is started, its files kept", async () => {
        const session = await sessionWith("echo kept > f");
        const { pid } = JSON.parse(readFileSync(path.join(job.service.data, "sandboxes", session.id, "run.json"), "utf8"));
        process.kill(pid, "SIGKILL");
        await eventually("the end of the init", () => processes().find((one) => one.pid === pid)?.command,
            (command) => !command); // a zombie has none
        assert.deepEqual(lines(await get(session)), ["A f 0644 /workspace/f"]);
    });

    test("a sandbox that was stopped for being idle is started for it, and stopped again", async () => {
        const session = await job.session({ environment: { idleTimeout: 1 } });
        await bash(session, "echo kept > f; chmod 4750 f; touch -d @1000000000 f");
        const stopped = () => eventually("the stop", async () => (await job.service.ok("GET", session.path)).sandbox.state,
            (state) => state === "stopped");
        await stopped();
        assert.deepEqual(lines(await get(session)), ["A f 4750 /workspace/f"]);
        await stopped();
        const to = await unpack(session);
        assert.equal(readFileSync(path.join(to, "f"), "utf8"), "kept\n");
        assert.equal(statSync(path.join(to, "f")).mtimeMs, 1e12);
        await stopped();
    });

    test("other tenants, bad paths and bad ids see nothing", async () => {
        const session = await sessionWith("echo x > f");
        for (const bad of ["?path=workspace", "?path=/a/../b", "?path=/a//b", "?path=/a/", "?path=", "?what=1"]) {
            assert.equal((await job.service.request("GET", `${session.path}/diff${bad}`)).status, 400, bad);
        }
        assert.equal((await job.service.request("GET", "/v1/sessions/sess_00000000000000000000000000/diff")).status, 404);
        assert.equal((await job.service.request("GET", `${session.path}/diff`, { key: "nonsense" })).status, 401);
    });

    test("a client that leaves ends the copy", async () => {
        const session = await sessionWith("head -c 300M /dev/zero > big");
        for (let i = 0; i < 3; i++) {
            const stop = new AbortController();
            const reply = await fetch(`${job.service.url}${session.path}/workspace`,
                { headers: { authorization: `Bearer ${job.service.apiKey}` }, signal: stop.signal });
            const reader = reply.body.getReader();
            await reader.read();
            stop.abort();
            await reader.read().catch(() => {});
        }
        assert.equal((await download(session)).bytes.length, 300 * 1024 * 1024 + 512 + 1024);
    });
});
