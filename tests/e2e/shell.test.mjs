// A terminal in a session's sandbox, over an upgraded connection: what it does, what ends it, and what is refused.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import net from "node:net";
import { readFileSync } from "node:fs";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { eventually } from "../support/eventually.mjs";
import { startJob } from "../support/job.mjs";
import { processes } from "../support/processes.mjs";
import { serviceMissing } from "../support/service.mjs";
import { FRAME, frame, openShell, upgrade } from "../support/shell.mjs";

describe("a terminal in a sandbox", { skip: serviceMissing }, () => {
    let job, session;
    before(async () => {
        job = await startJob();
        session = await working();
    });
    after(() => job?.stop());

    async function working() {
        const made = await job.session();
        await made.run(`CALL bash ${JSON.stringify({ command: "echo kept > f" })} THEN SAY done`);
        return made;
    }

    const shellOf = (one) => `/v1/sessions/${one.id}/shell`;

    test("runs what is typed, in the working directory, and gives the status", async () => {
        const shell = await openShell(job.service, session.id);
        shell.type("cat f; pwd; echo TERM=$TERM; tty; exit 7\n");
        await shell.sees(/kept\r\n\/workspace\r\nTERM=dumb\r\n\/dev\/pts\/\d/);
        assert.deepEqual(await shell.ended, { exit: { code: 7 } });
    });

    test("knows its size and learns of a new one", async () => {
        const shell = await openShell(job.service, session.id, { rows: 31, cols: 97 });
        shell.type("trap 'stty size' WINCH; stty size\n");
        await shell.sees(/\n31 97\r/);
        shell.resize(40, 120);
        await shell.sees(/40 120\r/);
        shell.type("exit\n");
        assert.deepEqual(await shell.ended, { exit: { code: 0 } });
    });

    test("^C interrupts, ^D ends", async () => {
        const shell = await openShell(job.service, session.id);
        shell.type("echo go; sleep 1000; echo after=$?\n");
        await shell.sees(/\ngo\r/);
        shell.type("\x03");
        shell.type("echo st=$?\n");
        await shell.sees(/\nst=130\r/);
        shell.type("\x04");
        assert.deepEqual(await shell.ended, { exit: { code: 0 } });
    });

    test("much output comes whole to a reader that stops reading for a while", async () => {
        const shell = await openShell(job.service, session.id, { cols: 1000 });
        shell.type("stty -echo; echo ready\n");
        await shell.sees(/\nready\r/);
        shell.socket.pause();
        shell.type("echo; seq 300000; echo e''nd\n");
        shell.socket.resume();
        await shell.sees(/\nend\r/);
        const numbers = shell.screen.split("\n").map((line) => line.trim()).filter((line) => /^\d+$/.test(line));
        assert.equal(numbers.length, 300000);
        shell.socket.destroy();
    });

    test("closing the connection ends what runs in it", async () => {
        const shell = await openShell(job.service, session.id);
        shell.type("echo pid=$$; sleep 4321\n");
        await shell.sees(/pid=\d+\r/);
        const sleeps = () => processes().filter(({ command }) => command.startsWith("sleep 4321"));
        await eventually("the sleep", sleeps, (found) => found.length === 1);
        shell.socket.destroy();
        await eventually("its end", sleeps, (found) => found.length === 0);
    });

    test("several are open at once, beside tool calls; more than sixteen are refused", async () => {
        const one = await working();
        const shells = await Promise.all(Array.from({ length: 16 }, () => openShell(job.service, one.id)));
        shells.forEach((shell, i) => shell.type(`echo number-$((${i} + 1000))\n`));
        await Promise.all(shells.map((shell, i) => shell.sees(new RegExp(`number-${i + 1000}\\r`))));
        await one.run(`CALL bash ${JSON.stringify({ command: "true" })} THEN SAY done`);
        const refused = await upgrade(job.service, shellOf(one));
        assert.equal(refused.status, 429);
        assert.equal(refused.body.code, "too_many_shells");
        shells.forEach((shell) => shell.type("exit\n"));
        for (const shell of shells) {
            assert.deepEqual(await shell.ended, { exit: { code: 0 } });
        }
    });

    test("ends when the sandbox does, and the next one starts it again with its files", async () => {
        const one = await working();
        const shell = await openShell(job.service, one.id);
        shell.type("echo he''re\n");
        await shell.sees(/here\r/);
        const run = path.join(job.service.data, "sandboxes", one.id, "run.json");
        const { pid } = JSON.parse(readFileSync(run, "utf8"));
        process.kill(pid, "SIGKILL");
        const { error } = await shell.ended;
        assert.equal(error.code, "sandbox_ended");
        await eventually("the end of the init", () => processes().find((found) => found.pid === pid)?.command,
            (command) => !command);
        const again = await openShell(job.service, one.id);
        again.type("cat f; exit\n");
        await again.sees(/kept\r/);
        assert.deepEqual(await again.ended, { exit: { code: 0 } });
    });

    test("ends when the session is deleted", async () => {
        const one = await working();
        const shell = await openShell(job.service, one.id);
        shell.type("echo he''re\n");
        await shell.sees(/here\r/);
        await job.service.ok("DELETE", one.path);
        assert.equal((await shell.ended).error?.code, "sandbox_ended");
    });

    test("ends when the key it was opened with is revoked", async () => {
        const one = await working();
        const { id, apiKey } = await job.service.ok("POST", "/v1/api-keys", { name: "for a terminal", scope: "write" });
        const shell = await openShell(job.service, one.id, { key: apiKey });
        const other = await openShell(job.service, one.id);
        shell.type("echo he''re\n");
        await shell.sees(/here\r/);
        await job.service.ok("DELETE", `/v1/api-keys/${id}`);
        assert.deepEqual(await shell.ended, { cut: true }); // without a word
        other.type("echo st''ill; exit\n");
        await other.sees(/still\r/);
        assert.deepEqual(await other.ended, { exit: { code: 0 } });
    });

    test("keeps the sandbox from being stopped for being idle", async () => {
        const one = await job.session({ environment: { idleTimeout: 1 } });
        await one.run(`CALL bash ${JSON.stringify({ command: "true" })} THEN SAY done`);
        const shell = await openShell(job.service, one.id);
        const idle = await job.session({ environment: { idleTimeout: 1 } });
        await idle.run(`CALL bash ${JSON.stringify({ command: "true" })} THEN SAY done`);
        const state = async (of) => (await job.service.ok("GET", of.path)).sandbox.state;
        await eventually("the stop of the one beside it", () => state(idle), (seen) => seen === "stopped");
        assert.equal(await state(one), "running");
        shell.type("echo st''ill\n");
        await shell.sees(/still\r/);
        shell.type("exit\n");
        await shell.ended;
        await eventually("its stop, now", () => state(one), (seen) => seen === "stopped");
    });

    test("needs the upgrade, a write key of the tenant, a session with a sandbox, and no body", async () => {
        const plain = await job.service.request("POST", shellOf(session));
        assert.equal(plain.status, 400);
        assert.equal(plain.body.code, "upgrade_required");
        const other = await upgrade(job.service, shellOf(session), { headers: { upgrade: "websocket" } });
        assert.equal(other.body.code, "upgrade_required");
        const fresh = await job.session();
        const none = await upgrade(job.service, shellOf(fresh));
        assert.equal(none.status, 409);
        assert.equal(none.body.code, "no_sandbox");
        assert.equal((await upgrade(job.service, shellOf(session), { key: "nonsense" })).status, 401);
        assert.equal((await upgrade(job.service, "/v1/sessions/sess_00000000000000000000000000/shell")).status, 404);
        const key = await job.service.ok("POST", "/v1/api-keys", { name: "reader", scope: "read" });
        assert.equal((await upgrade(job.service, shellOf(session), { key: key.apiKey })).status, 403);
        const body = await upgrade(job.service, shellOf(session), { headers: { "content-length": "2" }, first: "{}" });
        assert.equal(body.status, 400);
        const twice = await raw([`POST ${shellOf(session)} HTTP/1.1`, "Host: x", "Upgrade: pi-shell", "Upgrade: pi-shell",
            "Connection: Upgrade", `Authorization: Bearer ${job.service.apiKey}`]);
        assert.match(twice, /^HTTP\/1\.1 400 /);
        const old = await raw([`POST ${shellOf(session)} HTTP/1.0`, "Host: x", "Upgrade: pi-shell", "Connection: Upgrade",
            `Authorization: Bearer ${job.service.apiKey}`]);
        assert.doesNotMatch(old, / 101 /);
    });

    /** Sends lines and returns what comes until the end, or until the head of a 101. */
    function raw(lines) {
        return new Promise((resolve, reject) => {
            const { hostname, port } = new URL(job.service.url);
            const socket = net.connect(Number(port), hostname, () => socket.write(`${lines.join("\r\n")}\r\n\r\n`));
            let text = "";
            socket.on("data", (bytes) => {
                text += bytes;
                if (/^HTTP\/1\.1 /.test(text) && text.includes("\r\n\r\n")) {
                    socket.destroy();
                }
            });
            socket.on("close", () => resolve(text));
            socket.on("error", reject);
        });
    }

    test("frames that do not belong into a terminal end it; nothing else of the sandbox is reached", async () => {
        const attacks = [
            frame(1, "{}"), // HELLO before EXEC
            frame(FRAME.STDIN, "ls\n"), // input before EXEC
            Buffer.concat([frame(FRAME.EXEC, {}), frame(FRAME.EXEC, { argv: ["id"] })]),
            Buffer.concat([frame(FRAME.EXEC, {}), frame(FRAME.SIGNAL, { signal: 9 })]),
            frame(20, { root: "/" }), // COPY_OUT
            frame(FRAME.EXEC, "[]"),
            frame(FRAME.EXEC, "no json"),
            Buffer.from([0xff, 0xff, 0xff, 0x05, 13]), // a frame of 96 MB
            Buffer.from([0, 0, 0, 0, 13]),
        ];
        for (const bytes of attacks) {
            const { socket } = await upgrade(job.service, shellOf(session));
            const said = [];
            socket.on("data", (part) => said.push(part));
            const closed = new Promise((resolve) => socket.on("close", resolve));
            socket.on("end", () => socket.end());
            socket.write(bytes);
            await closed;
            assert.match(Buffer.concat(said).toString("latin1"), /"code":"bad_frame"/, bytes.toString("latin1"));
        }
        const shell = await openShell(job.service, session.id, { term: "x; id", rows: -5, cols: 1e9 });
        shell.type("echo TERM=$TERM; stty size; exit\n");
        await shell.sees(/\n1 1000\r/);
        assert.doesNotMatch(shell.screen, /TERM=x/);
        await shell.ended;
    });

    test("what came along with the request is not lost", async () => {
        const { hostname, port } = new URL(job.service.url);
        const text = await new Promise((resolve, reject) => {
            const socket = net.connect(Number(port), hostname, () => socket.write(Buffer.concat([
                Buffer.from(`POST ${shellOf(session)} HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: pi-shell\r\n`
                    + `Authorization: Bearer ${job.service.apiKey}\r\n\r\n`),
                frame(FRAME.EXEC, { pty: { rows: 5, cols: 50 } }), frame(FRAME.STDIN, "echo ear''ly; exit\n")])));
            let all = "";
            socket.on("data", (bytes) => (all += bytes.toString("latin1")));
            socket.on("end", () => socket.end());
            socket.on("close", () => resolve(all));
            socket.on("error", reject);
        });
        assert.match(text, /^HTTP\/1\.1 101 /);
        assert.match(text, /early\r\n/);
    });

    test("the service stops cleanly with a terminal open", async () => {
        const shell = await openShell(job.service, session.id);
        shell.type("echo he''re\n");
        await shell.sees(/here\r/);
        await job.service.restart();
        await shell.ended;
        const again = await openShell(job.service, session.id);
        again.type("exit\n");
        assert.deepEqual(await again.ended, { exit: { code: 0 } });
    });

    test("goes through TLS, too", async () => { // the last: the service has another address from here on
        const [cert, key] = ["cert.pem", "key.pem"].map((name) => path.join(job.service.data, name));
        execFileSync("openssl", ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", key,
            "-out", cert, "-days", "2", "-subj", "/CN=localhost"], { stdio: "ignore" });
        await job.service.restart({ args: ["--tls-cert", cert, "--tls-key", key] });
        const shell = await openShell(job.service, session.id);
        shell.type("stty -echo; echo; seq 20000; exit 5\n");
        assert.deepEqual(await shell.ended, { exit: { code: 5 } });
        assert.equal(shell.screen.match(/^\d+\r$/gm).length, 20000);
    });
});
