// What surrounds the service fails: the disk is full, the database is locked, sandboxes cannot be
// made, Node is gone, the model talks nonsense, a log is damaged. It says so, stays up, loses
// nothing, and goes on once the trouble is over.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import {
    chmodSync, copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync,
} from "node:fs";
import http from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { after, before, describe, test } from "node:test";
import { eventually } from "../support/eventually.mjs";
import { startJob, textOf, types } from "../support/job.mjs";
import { descendants, processes } from "../support/processes.mjs";
import { SERVICE_PROGRAM, serviceMissing, startService } from "../support/service.mjs";

const call = (command) => `CALL bash ${JSON.stringify({ command })}`;
const errorsOf = (events) => events.filter((event) => event.type === "session.error").map(({ error }) => error);
const resultOf = (events) => events.find((event) => event.type === "agent.tool_result");
const messageOf = (events) => events.findLast((event) => event.type === "agent.message");
const isRoot = process.getuid() === 0;

const idle = (session) => eventually("the session is idle", () => session.get(), ({ status }) => status === "idle");

/** The next turn works: model, sandbox and log. */
async function checkWorks(session) {
    const events = await session.run(`${call("echo works")} THEN SAY "saw $RESULT"`);
    assert.match(textOf(messageOf(events)), /saw works/, JSON.stringify(errorsOf(events)));
    const all = await session.events();
    assert.deepEqual(all.map((event) => event.seq), all.map((_, index) => index + 1));
}

describe("sandboxes cannot be made", { skip: serviceMissing }, () => {
    let job;
    before(async () => {
        job = await startJob();
    });
    after(() => job?.stop());

    test("a call gets an error result, the session an error; no tool runs elsewhere; later it works", async () => {
        const folder = path.join(job.service.data, "sandboxes");
        renameSync(folder, `${folder}.away`);
        writeFileSync(folder, "");
        const session = await job.session();
        const evidence = path.join(tmpdir(), `ran-${process.pid}`);
        try {
            const events = await session.run(`${call(`touch ${evidence}; echo ran`)} ;; read {"path":"/etc/hostname"} THEN SAY "saw $RESULT"`);
            assert.ok(errorsOf(events).some(({ code }) => code === "sandbox_unavailable"), JSON.stringify(errorsOf(events)));
            const results = events.filter((event) => event.type === "agent.tool_result");
            assert.equal(results.length, 2);
            for (const result of results) {
                assert.equal(result.isError, true);
                assert.match(textOf(result), /sandbox cannot be started/);
            }
            assert.ok(!existsSync(evidence), "the command ran outside of a sandbox");
            assert.deepEqual(events.at(-1).stopReason, { type: "end_turn" });
        } finally {
            rmSync(folder);
            renameSync(`${folder}.away`, folder);
        }
        await checkWorks(session);
    });
});

describe("the runtime is damaged", { skip: serviceMissing }, () => {
    let folder;
    before(() => {
        folder = mkdtempSync(path.join(tmpdir(), "pi-managed-runtime-"));
        chmodSync(folder, 0o755);
        execFileSync("cp", ["-a", `${runtimeOf()}/.`, folder]);
    });
    after(() => rmSync(folder, { recursive: true, force: true }));

    /** The runtime folder beside the program, as built or as built with a sanitizer. */
    function runtimeOf() {
        const near = path.dirname(SERVICE_PROGRAM);
        return ["runtime", "../runtime"].map((name) => path.join(near, name)).find((one) => existsSync(one));
    }

    for (const [what, missing, said] of [
        ["Node", "node", /runtime folder .* is missing|node/i],
        ["the catalogue of models", "catalog.json", /catalog/i],
    ]) {
        test(`without ${what} the service does not start and says what is missing`, async () => {
            renameSync(path.join(folder, missing), path.join(folder, `${missing}.away`));
            try {
                await assert.rejects(startService({ args: ["--runtime", folder] }), (error) => {
                    assert.match(error.message, /ended with status [1-9]/);
                    assert.match(error.message, said);
                    return true;
                });
            } finally {
                renameSync(path.join(folder, `${missing}.away`), path.join(folder, missing));
            }
        });
    }

    test("hosts that die at once: session.error, idle, the service stays up, and a mended Node works", async () => {
        const job = await startJob({ args: ["--runtime", folder] });
        const node = path.join(folder, "node/bin/node");
        try {
            const session = await job.session();
            await checkWorks(session);
            renameSync(node, `${node}.away`);
            writeFileSync(node, "#!/bin/sh\nexit 3\n", { mode: 0o755 });
            for (const { pid } of descendants(job.service.pid).filter(({ command }) => /host\.mjs/.test(command))) {
                process.kill(pid, "SIGKILL");
            }
            const events = await session.run("SAY never");
            assert.match(errorsOf(events)[0]?.code ?? types(events).join(), /^harness_/);
            assert.ok(errorsOf(events)[0].message.length > 20);
            assert.deepEqual(events.at(-1).stopReason, { type: "error" });
            assert.equal((await job.service.request("GET", "/healthz")).status, 200);
            rmSync(node);
            renameSync(`${node}.away`, node);
            await checkWorks(session);
        } finally {
            await job.stop();
        }
    });
});

describe("the database is locked by another program", { skip: serviceMissing }, () => {
    test("a post is refused or kept, never both; afterwards all is as answered", async () => {
        const job = await startJob();
        try {
            const session = await job.session();
            await checkWorks(session);
            const other = new DatabaseSync(path.join(job.service.data, "control.db"));
            other.exec("BEGIN IMMEDIATE");
            const replies = await Promise.all([1, 2, 3].map((n) => job.service.request("POST", `${session.path}/events`,
                { body: { type: "user.message", content: `SAY answer ${n}` } })));
            assert.equal((await session.get()).status, "idle", "reading still works");
            other.exec("ROLLBACK");
            other.close();
            for (const reply of replies) {
                assert.ok([202, 503].includes(reply.status), reply.text);
            }
            await checkWorks(session);
            const posted = replies.filter(({ status }) => status === 202).map(({ body }) => body.data[0].id);
            const refused = replies.filter(({ status }) => status === 503);
            assert.ok(refused.every(({ body }) => body.detail.length > 10));
            const ids = (await session.events()).filter((one) => one.type === "user.message").map(({ id }) => id);
            assert.ok(posted.every((id) => ids.filter((one) => one === id).length === 1));
            assert.equal(ids.length, 2 + posted.length);
        } finally {
            await job.stop();
        }
    });

    test("a turn that ends meanwhile is in the log, and the row follows", async () => {
        const job = await startJob();
        try {
            const session = await job.session();
            const stream = await session.stream({ eventDeltas: "agent.message" });
            await session.say("SAY begun HANG TIMES 1 THEN SAY never");
            await stream.until((frame) => frame.type === "event_delta");
            const other = new DatabaseSync(path.join(job.service.data, "control.db"));
            other.exec("BEGIN IMMEDIATE");
            job.model.release();
            await stream.until((frame) => frame.type === "session.status_idle");
            await job.service.waitForOutput(/(cannot bring the session's row up to date[^]*){3}/);
            other.exec("ROLLBACK");
            other.close();
            await stream.close();
            await idle(session);
            await checkWorks(session);
        } finally {
            await job.stop();
        }
    });
});

describe("the disk is full", { skip: serviceMissing || (!isRoot && "needs root for a small file system") }, () => {
    let folder, job;
    before(async () => {
        folder = mkdtempSync(path.join(tmpdir(), "pi-managed-small-"));
        execFileSync("mount", ["-t", "tmpfs", "-o", "size=24m,mode=755", "tmpfs", folder]);
        job = await startJob({ data: path.join(folder, "data") });
    });
    after(async () => {
        await job?.stop();
        execFileSync("umount", ["-l", folder]);
        rmSync(folder, { recursive: true, force: true });
    });

    const fill = () => {
        const filler = path.join(folder, "filler");
        try {
            execFileSync("dd", ["if=/dev/zero", `of=${filler}`, "bs=4k"], { stdio: "ignore" });
        } catch {
            // dd ends with an error when the disk is full, which is what we want
        }
        return () => rmSync(filler);
    };

    test("posting says so, reading works, nothing accepted is lost, and room is enough to go on", async () => {
        const session = await job.session();
        await checkWorks(session);
        const accepted = [];
        const refused = [];
        const free = fill();
        try {
            for (let n = 0; n < 40; n++) {
                const reply = await job.service.request("POST", `${session.path}/events`,
                    { body: { type: "user.message", content: `SAY answer ${n} ${"x".repeat(5000)}` } });
                (reply.status === 202 ? accepted : refused).push(reply);
            }
            assert.ok(refused.length > 0, "the disk was not full");
            for (const reply of refused) {
                assert.ok(reply.status >= 500, reply.text);
                assert.match(reply.body.detail, /disk|full|space/i, reply.text);
            }
            assert.equal((await job.service.request("GET", session.path)).status, 200);
            assert.equal((await job.service.request("GET", `${session.path}/events`)).status, 200);
        } finally {
            free();
        }
        const last = await session.say(`${call("echo works")} THEN SAY "saw $RESULT"`);
        const posted = [...accepted.map(({ body }) => body.data[0].id), last.data[0].id];
        const events = await eventually("all that was accepted is processed", () => session.events(),
            (all) => posted.every((id) => all.some((one) => one.id === id && one.processedAt)) && all.at(-1).type === "session.status_idle");
        const ids = events.filter((one) => one.type === "user.message").map(({ id }) => id);
        assert.deepEqual(ids.slice(1), posted);
        assert.deepEqual(events.map((event) => event.seq), events.map((_, index) => index + 1));
    });

    test("full in the middle of a turn: nothing runs twice, and the turn goes on by itself once there is room", async () => {
        const session = await job.session();
        const stream = await session.stream({ eventDeltas: "agent.tool_result" });
        // It goes on when its sleep is ended from outside, silently: the disk is full by then. Long output: a few
        // lines more might still fit into the last page that the log has.
        const nap = `sleep 98765.${process.pid}`;
        const command = `echo x >> ran; echo begun; ${nap}; head -c 20000 /dev/zero | tr '\\0' y; echo; echo runs=$(wc -l < ran)`;
        await session.say(`${call(command)} THEN SAY "saw it all"`);
        await stream.until((frame) => frame.type === "event_delta");
        const free = fill();
        try {
            process.kill(processes().find((one) => one.command.startsWith(nap)).pid, "SIGPIPE");
            await job.service.waitForOutput(/the session stops: .*(space|full)/i);
            assert.equal((await session.get()).status, "running");
        } finally {
            free();
        }
        await stream.close();
        await idle(session);
        const events = await session.events();
        assert.match(textOf(resultOf(events)), /^begun\ny{20000}\nruns=1\n$/);
        assert.match(textOf(messageOf(events)), /saw it all/);
        assert.deepEqual(events.at(-1).stopReason, { type: "end_turn" });
        assert.deepEqual(events.map((event) => event.seq), events.map((_, index) => index + 1));
        await checkWorks(session);
    });
});

/** A model server; the first part of the path names which of the answers a request gets. */
async function rawModel(answers) {
    const server = http.createServer((request, response) => {
        const name = decodeURIComponent(request.url.split("/")[1]);
        request.resume().once("end", () => answers[name](response));
    });
    await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address();
    return {
        port,
        close() {
            server.closeAllConnections();
            return new Promise((resolve) => server.close(resolve));
        },
    };
}

describe("the model talks nonsense", { skip: serviceMissing }, () => {
    let job, model;
    let asked = 0;

    const sse = (response) => response.writeHead(200, { "content-type": "text/event-stream" });
    const nonsense = {
        "a web page": (response) => response.writeHead(200, { "content-type": "text/html" }).end("<html>hello</html>"),
        "an empty body": (response) => sse(response).end(),
        "bytes that are no text": (response) => sse(response).end(Buffer.from(Array.from({ length: 5000 }, (_, i) => (i * 31) % 256))),
        "events that are no JSON": (response) => sse(response).end("data: {\"choices\":[{\n\ndata: }}}}\n\ndata: [DONE]\n\n"),
        "JSON of another shape": (response) => sse(response).end("data: [1,2,3]\n\ndata: \"x\"\n\ndata: null\n\ndata: {\"choices\":7}\n\ndata: [DONE]\n\n"),
        "one line of 20 MB": (response) => sse(response).end(`data: ${"x".repeat(20_000_000)}\n\n`),
        "a redirect": (response) => response.writeHead(302, { location: "http://169.254.169.254/latest" }).end(),
        "a status that does not exist": (response) => response.writeHead(799).end("?"),
        "a broken chunk": (response) => {
            response.socket.end("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\nZZ\r\nnope\r\n");
        },
        "no HTTP at all": (response) => response.socket.end("SSH-2.0-OpenSSH_9.2\r\n"),
        "a tool call without a name or whole arguments": (response) => {
            const say = (delta, finish) => sse(response).end(`data: ${JSON.stringify({ id: "x",
                object: "chat.completion.chunk", choices: [{ index: 0, delta, finish_reason: finish }] })}\n\ndata: [DONE]\n\n`);
            if (asked++ === 0) {
                say({ tool_calls: [{ index: 0, id: "", function: { arguments: "{\"a\":" } }] }, "tool_calls");
            } else {
                say({ content: "enough" }, "stop");
            }
        },
    };
    before(async () => {
        model = await rawModel({ ...nonsense, trickle });
        job = await startJob({ allowPrivate: "127.0.0.1" });
    });
    after(async () => {
        await model?.close();
        await job?.stop();
    });
    const sessionWith = (name) => job.session({ model: {
        baseUrl: `http://127.0.0.1:${model.port}/${encodeURIComponent(name)}/v1` } });

    describe("each kind, side by side", { concurrency: true }, () => {
        for (const what of Object.keys(nonsense)) {
            test(`${what}: the turn ends idle and says why, and the service is well`, async () => {
                const session = await sessionWith(what);
                const stream = await session.stream();
                await session.say("SAY x");
                const frames = await stream.until((frame) => frame.type === "session.status_idle", { timeoutMs: 100_000 });
                await stream.close();
                const events = frames.map((frame) => frame.data);
                const { stopReason } = events.at(-1);
                if (stopReason.type !== "end_turn") { // an empty answer is an answer to some SDKs
                    assert.ok(errorsOf(events).length > 0, types(events).join());
                    assert.ok(errorsOf(events).every((error) => error.code && error.message.length > 5), JSON.stringify(errorsOf(events)));
                }
                const uses = events.filter((one) => one.type === "agent.tool_use").length;
                assert.equal(events.filter((one) => one.type === "agent.tool_result").length, uses);
                assert.equal((await session.get()).status, "idle");
                await checkWorks(await job.session());
            });
        }
    });

    function trickle(response) {
        sse(response);
        const chunk = `data: ${JSON.stringify({ id: "x", object: "chat.completion.chunk", choices: [{ index: 0, delta: { content: "y" } }] })}\n\n`;
        const timer = setInterval(() => response.write(chunk), 2);
        response.once("close", () => clearInterval(timer));
    }

    test("a model that trickles and never ends can be interrupted", async () => {
        const session = await sessionWith("trickle");
        const stream = await session.stream({ eventDeltas: "agent.message" });
        await session.say("SAY x");
        let seen = 0;
        await stream.until((frame) => frame.type === "event_delta" && ++seen > 20);
        await session.interrupt();
        const frames = await stream.until((frame) => frame.type === "session.status_idle");
        await stream.close();
        assert.deepEqual(frames.at(-1).data.stopReason, { type: "interrupted" });
        await checkWorks(await job.session());
    });
});

describe("the log is damaged", { skip: serviceMissing }, () => {
    let job, session, file;
    before(async () => {
        job = await startJob();
        session = await job.session();
        for (const word of ["first", "second", "third"]) {
            await session.run(`${call(`echo ${word}`)} THEN SAY "answer ${word}"`);
        }
        file = path.join(job.service.data, "logs", job.service.tenantId, `${session.id}.jsonl`);
    });
    after(() => job?.stop());

    const damages = {
        "bad UTF-8": (line) => Buffer.concat([line.subarray(0, 20), Buffer.from([0xff, 0xfe]), line.subarray(20)]),
        "a line break within a string": (line) => Buffer.concat([line.subarray(0, 30), Buffer.from("\n"), line.subarray(30)]),
        "a NUL byte": (line) => Buffer.concat([line.subarray(0, 20), Buffer.from([0]), line.subarray(20)]),
        "half of it missing": (line) => line.subarray(0, line.length / 2),
        "nothing but zeros": (line) => Buffer.alloc(line.length),
    };
    for (const [what, damage] of Object.entries(damages)) {
        test(`${what} in the middle: what stands before and after is served, and the session goes on`, async () => {
            await job.service.restart(); // so that nothing of it is in memory
            const whole = readFileSync(file);
            const lines = whole.toString("latin1").trimEnd().split("\n").map((line) => Buffer.from(line, "latin1"));
            const at = lines.findIndex((line) => /"role":"assistant"/.test(line) && /answer second/.test(line));
            assert.ok(at > 5);
            const before = await session.events();
            const { service } = job;
            await service.kill9();
            copyFileSync(file, `${file}.good`);
            const damaged = [...lines.slice(0, at), damage(lines[at]), ...lines.slice(at + 1)];
            writeFileSync(file, Buffer.concat(damaged.flatMap((line) => [line, Buffer.from("\n")])));
            await service.restart();
            try {
                const now = await session.events();
                const texts = now.filter((one) => one.type === "agent.message").map(textOf);
                assert.deepEqual(texts.filter((text) => /^answer/.test(text)), ["answer first", "answer third"]);
                assert.deepEqual(now.map((one) => one.seq), now.map((_, index) => index + 1));
                assert.equal(now.length, before.length - 1);
                const entries = await session.entries();
                assert.ok(entries.some((entry) => entry.type === "unreadable"));
                await checkWorks(session);
                await service.waitForOutput(/unreadable line/);
                const { body } = job.model.requests.at(-1);
                for (const word of ["answer first", "echo second", "answer third"]) {
                    assert.ok(body.includes(word), `the model is not told: ${word}`);
                }
            } finally {
                await service.kill9();
                copyFileSync(`${file}.good`, file);
                await service.restart();
            }
        });
    }
});

describe("tools that say nothing, or NUL, or halves of characters", { skip: serviceMissing }, () => {
    let job;
    before(async () => {
        job = await startJob();
    });
    after(() => job?.stop());

    test("a command without output ends with an explicit result and the run goes on", async () => {
        const session = await job.session();
        const events = await session.run(`${call("true")} THEN SAY "went on"`);
        assert.match(textOf(resultOf(events)), /no output/);
        assert.equal(textOf(messageOf(events)), "went on");
    });

    test("NUL in a command's output and U+2028 in a message go to the model and back whole", async () => {
        const session = await job.session();
        const first = await session.run(`${call("printf 'a\\0b'")} THEN SAY "saw $RESULT"`);
        assert.equal(textOf(resultOf(first)), "a\0b");
        assert.equal(textOf(messageOf(first)), "saw a\0b");
        const nasty = "x\u2028y\u2029z\u0085w\rv\nu";
        const second = await session.run(`${nasty} SAY ${JSON.stringify(nasty)}`);
        assert.equal(textOf(messageOf(second)), nasty);
        await job.service.restart();
        const messages = (await session.events()).filter((one) => one.type === "user.message");
        assert.ok(textOf(messages[1]).startsWith(nasty));
    });

    test("output cut in the middle of a character, or no UTF-8 at all, leaves a valid conversation", async () => {
        const session = await job.session();
        const events = await session.run(`${call("head -c 200001 /dev/zero | sed 's/\\x00/\u{1f600}/g' | head -c 199999; printf '\\xff\\xfe\\xed\\xa0\\x80'")} THEN SAY ok`);
        const text = textOf(resultOf(events));
        assert.ok(text.isWellFormed() && text.includes("\u{1f600}"));
        await checkWorks(session);
    });

    test("half a character from the model becomes U+FFFD, in what it says and in what it calls", async () => {
        const session = await job.session();
        const said = await session.run(String.raw`SAY "a\ud83d" THEN SAY never`);
        assert.equal(textOf(messageOf(said)), "a\ufffd");
        const called = await session.run(String.raw`CALL bash {"command":"printf '\ude00\ud83d'"} THEN SAY ok`);
        assert.equal(called.find((one) => one.type === "agent.tool_use").input.command, "printf '\ufffd\ufffd'");
        assert.equal(textOf(resultOf(called)), "\ufffd\ufffd");
        await checkWorks(session);
        await job.service.restart();
        assert.deepEqual((await session.entries()).filter((entry) => entry.type === "unreadable"), []);
        await checkWorks(session);
        for (const { body } of job.model.requests) {
            assert.doesNotMatch(body, /(?<!\\)(\\\\)*\\ud[89a-f]/i, "no half of a character goes to a provider");
        }
    });

    test("a preview is cut between characters", async () => {
        const session = await job.session();
        for (let shift = 0; shift < 4; shift++) {
            const text = `${"x".repeat(shift)}${"\u{1f600}".repeat(100)}`;
            await session.run(`${text} SAY ok`);
            const { data } = await job.service.ok("GET", `${session.path}/tree?limit=1000`);
            const { text: shown } = data.findLast((node) => node.role === "user");
            assert.ok(text.startsWith(shown) && shown.isWellFormed(), shown);
            assert.ok(Buffer.byteLength(shown) > 196 && Buffer.byteLength(shown) <= 200);
        }
    });

    test("NUL in a path is refused by every tool that takes one, and in a text it is kept", async () => {
        const session = await job.session();
        const run = async (name, input) =>
            resultOf(await session.run(`CALL ${name} ${JSON.stringify(input)} THEN SAY ok`));
        for (const [name, input] of [["read", {}], ["write", { content: "x" }], ["ls", {}], ["find", { pattern: "*" }],
            ["edit", { edits: [{ oldText: "a", newText: "b" }] }], ["grep", { pattern: "a" }]]) {
            const result = await run(name, { path: "cut\0off", ...input });
            assert.equal(result.isError, true, `${name}: ${textOf(result)}`);
        }
        assert.equal((await run("bash", { command: "touch cut\0off" })).isError, true);
        assert.equal(textOf(await run("bash", { command: "ls -a | wc -l" })).trim(), "2", "nothing was made");
        await run("write", { path: "nul", content: "a\0b" });
        assert.equal(textOf(await run("read", { path: "nul" })).trimEnd(), "a\0b");
        await run("edit", { path: "nul", edits: [{ oldText: "\0", newText: "\0\0" }] });
        assert.equal(textOf(await run("bash", { command: "od -An -c nul" })).trim().replace(/ +/g, " "), "a \\0 \\0 b");
    });
});

describe("SIGTERM in the middle of turns", { skip: serviceMissing }, () => {
    test("the service ends cleanly, and the next start goes on where they were", async () => {
        const job = await startJob();
        try {
            const tool = await job.session();
            const toolStream = await tool.stream({ eventDeltas: "agent.tool_result" });
            await tool.say(`${call("echo x >> ran; echo begun; sleep 3; echo runs=$(wc -l < ran)")} THEN SAY "saw $RESULT"`);
            await toolStream.until((frame) => frame.type === "event_delta");
            const speech = await job.session();
            const speechStream = await speech.stream({ eventDeltas: "agent.message" });
            await speech.say("SAY \"half a thought\" HANG TIMES 1 THEN SAY never");
            await speechStream.until((frame) => frame.type === "event_delta");
            await speech.say("SAY \"the second\"");
            await job.service.restart(); // throws unless SIGTERM ends it with status 0
            await idle(tool);
            await idle(speech);
            const done = await tool.events();
            assert.match(textOf(resultOf(done)), /runs=1\n/);
            assert.match(textOf(messageOf(done)), /saw begun/);
            const said = (await speech.events()).filter((one) => one.type === "agent.message").map(textOf);
            assert.deepEqual(said, ["half a thought", "the second"]);
        } finally {
            await job.stop();
        }
    });
});
