// Runs in the Pi host: several tools at once, stopping, steering, failures, and the small translations.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { startGateway, startHost } from "../support/host-driver.mjs";
import { startModelServer } from "../support/model-server.mjs";

const MODEL = { provider: "groq", id: "llama-3.1-8b-instant" };

let server;
let gateway;
let host;

before(async () => {
    server = await startModelServer();
    gateway = await startGateway(server.baseUrl("openai-completions"));
    host = await startHost(gateway);
});

after(async () => {
    await host?.stop();
    await gateway?.close();
    await server?.close();
});

function messages(session) {
    return host.entries(session).map((e) => e.message).filter(Boolean);
}

function textOf(message) {
    return message.content.filter((c) => c.type === "text").map((c) => c.text).join("");
}

test("calls of one message run side by side and their results keep the order of the calls", async () => {
    await host.open("sess_parallel", { model: MODEL });
    await host.call({ op: "prompt", session: "sess_parallel" },
        [{ type: "text", text: 'CALL read {"path":"a"} ;; read {"path":"b"} THEN SAY both' }]);
    const isTool = (m) => m.t === "tool" && m.session === "sess_parallel";
    const second = await host.next((m) => isTool(m) && m.body[0].includes('"b"'));
    const first = host.received.find(isTool); // both are asked for before either is answered
    host.answer("sess_parallel", second.call, { content: [{ type: "text", text: "B" }], isError: false });
    host.answer("sess_parallel", first.call, { content: [{ type: "text", text: "A" }], isError: false });
    await host.settled("sess_parallel");
    const results = messages("sess_parallel").filter((m) => m.role === "toolResult");
    assert.deepEqual(results.map(textOf), ["A", "B"]);
    assert.deepEqual(results.map((r) => r.toolCallId), [first.call, second.call]);
});

test("a request tells how many messages went to control before it: what led to it is among them", async () => {
    host.onTool("bash", () => ({ content: [{ type: "text", text: "x" }], isError: false }));
    await host.open("sess_said", { model: MODEL });
    const before = gateway.said.length;
    await host.run("sess_said", 'CALL bash {"command":"x"} THEN SAY $RESULT');
    const roles = gateway.said.slice(before).map((said) => host.received.slice(0, said)
        .filter((m) => m.t === "entry" && m.session === "sess_said")
        .map((m) => JSON.parse(m.body[0]).message?.role).filter((role) => role && role !== "system"));
    assert.deepEqual(roles, [["user"], ["user", "assistant", "toolResult"]]);
});

test("a failed tool keeps its text and details and is an error to the model", async () => {
    host.onTool("bash", () => ({
        content: [{ type: "text", text: "no\n\nCommand exited with code 3" }], details: { x: 1 }, isError: true,
    }));
    await host.open("sess_fail", { model: MODEL });
    await host.run("sess_fail", 'CALL bash {"command":"false"} THEN SAY $RESULT');
    const result = messages("sess_fail").find((m) => m.role === "toolResult");
    assert.equal(result.isError, true);
    assert.deepEqual(result.details, { x: 1 });
    assert.match(textOf(messages("sess_fail").at(-1)), /exited with code 3/);
});

test("wrong arguments never reach control", async () => {
    await host.open("sess_args", { model: MODEL });
    await host.run("sess_args", 'CALL read {"nothing":1} THEN SAY ok');
    assert.equal(host.received.some((m) => m.t === "tool" && m.session === "sess_args"), false);
    assert.equal(messages("sess_args").find((m) => m.role === "toolResult").isError, true);
});

test("edit gets its diff and patch from the old and new text", async () => {
    host.onTool("edit", () => ({
        content: [{ type: "text", text: "Successfully replaced 1 block(s) in f." }],
        details: { oldText: "one\ntwo\n", newText: "one\n2\n" }, isError: false,
    }));
    await host.open("sess_edit", { model: MODEL, tools: ["edit"] });
    await host.run("sess_edit", 'CALL edit {"path":"f","edits":[{"oldText":"two","newText":"2"}]} THEN SAY ok');
    const { details } = messages("sess_edit").find((m) => m.role === "toolResult");
    assert.deepEqual(Object.keys(details).sort(), ["diff", "firstChangedLine", "patch"]);
    assert.match(details.patch, /^--- f\n\+\+\+ f\n@@ -1,2 \+1,2 @@\n one\n-two\n\+2\n$/);
    assert.match(details.diff, /-2 two\n\+2 2/);
    assert.equal(details.firstChangedLine, 2);
});

test("aborting a stream keeps what was said and settles as aborted", async () => {
    await host.open("sess_stop", { model: MODEL });
    await host.call({ op: "prompt", session: "sess_stop" }, [{ type: "text", text: "SAY Half a sen HANG" }]);
    await host.next((m) => m.t === "delta" && m.session === "sess_stop" && m.kind === "text");
    await host.call({ op: "abort", session: "sess_stop" });
    const settled = await host.settled("sess_stop");
    assert.deepEqual([settled.aborted, settled.error], [true, undefined]);
    const last = messages("sess_stop").at(-1);
    assert.equal(last.stopReason, "aborted");
    assert.equal(host.deltas("sess_stop").at(-1).kind, "message_end");
    assert.equal((await host.run("sess_stop", "SAY again")).aborted, false);
});

test("aborting a tool gives it up at once, says so, and ignores its late result", async () => {
    await host.open("sess_tool", { model: MODEL });
    await host.call({ op: "prompt", session: "sess_tool" }, [{ type: "text", text: 'CALL read {"path":"x"}' }]);
    const tool = await host.next((m) => m.t === "tool" && m.session === "sess_tool");
    await host.call({ op: "abort", session: "sess_tool" });
    await host.settled("sess_tool");
    assert.ok(host.received.some((m) => m.t === "tool_cancel" && m.call === tool.call));
    const result = messages("sess_tool").find((m) => m.role === "toolResult");
    assert.match(textOf(result), /^Interrupted/);
    host.answer("sess_tool", tool.call, { content: [{ type: "text", text: "late" }], isError: false });
    await host.call({ op: "ping" });
    assert.equal(messages("sess_tool").filter((m) => m.role === "toolResult").length, 1);
});

test("a steering message comes between the tool results and the next answer", async () => {
    await host.open("sess_steer", { model: MODEL });
    await host.call({ op: "prompt", session: "sess_steer" },
        [{ type: "text", text: 'CALL read {"path":"x"} THEN SAY finished' }]);
    const tool = await host.next((m) => m.t === "tool" && m.session === "sess_steer");
    await host.call({ op: "steer", session: "sess_steer" }, [{ type: "text", text: "and be brief" }]);
    host.answer("sess_steer", tool.call, { content: [{ type: "text", text: "X" }], isError: false });
    await host.settled("sess_steer");
    assert.deepEqual(messages("sess_steer").slice(1).map((m) => m.role),
        ["user", "assistant", "toolResult", "user", "assistant"]);
    const idle = await host.ask({ op: "steer", session: "sess_steer" }, [{ type: "text", text: "late" }]);
    assert.deepEqual([idle.ok, idle.error], [false, "nothing is running: send a prompt instead"]);
});

test("a failed model request is tried again, each preview discarded, the last error told", async () => {
    await host.open("sess_broken", { model: MODEL });
    const from = server.requests.length;
    const settled = await host.run("sess_broken", "SAY Some words CUT");
    assert.equal(server.requests.length - from, 5);
    assert.ok(settled.error);
    assert.equal(host.deltas("sess_broken").filter(({ kind }) => kind === "discarded").length, 5);
    assert.equal(host.deltas("sess_broken").at(-1).kind, "discarded");
    assert.equal(messages("sess_broken").at(-1).stopReason, "error");
    const refused = await host.run("sess_broken", "FAIL 529");
    assert.match(refused.error, /529/);
});

test("a call whose arguments were cut off never runs", async () => {
    await host.open("sess_cut", { model: MODEL });
    const settled = await host.run("sess_cut", 'CALL bash {"command":"rm -rf /"} CUT ARGS');
    assert.ok(settled.error);
    assert.equal(host.received.some((m) => m.t === "tool" && m.session === "sess_cut"), false);
});

test("a message must be sent to an open, idle session, and tools must be Pi's", async () => {
    assert.match((await host.ask({ op: "prompt", session: "sess_none" }, [])).error, /not open in this host/);
    assert.match((await host.ask({ op: "dance", session: "sess_none" })).error, /unknown op: dance/);
    await assert.rejects(host.open("sess_bad", { model: MODEL, tools: ["powershell"] }), /unknown tool: powershell/);
    const unknown = { provider: "groq", id: "no-such" };
    await assert.rejects(host.open("sess_bad", { model: unknown }), /no model groq\/no-such/);
    await host.open("sess_bad", { model: MODEL });
    await assert.rejects(host.open("sess_bad", { model: MODEL }), /open already/);
    await host.call({ op: "prompt", session: "sess_bad" }, [{ type: "text", text: "HANG" }]);
    await assert.rejects(host.call({ op: "prompt", session: "sess_bad" }, [{ type: "text", text: "x" }]),
        /going on already/);
    await host.call({ op: "close", session: "sess_bad" });
    assert.match((await host.ask({ op: "abort", session: "sess_bad" })).error, /not open/);
});

test("a tool result in a wrong form is an error to the model and harms nobody else", async () => {
    await host.open("sess_form", { model: MODEL });
    for (const bad of ["nonsense", "[]", '{"content":"x"}', '{"content":[{"type":"text"}]}',
        '{"content":[],"details":"x"}', "[".repeat(100_000)]) {
        const from = host.received.length;
        const text = 'CALL read {"path":"x"} THEN SAY ok';
        await host.call({ op: "prompt", session: "sess_form" }, [{ type: "text", text }]);
        const { call } = await host.next((m) => m.t === "tool" && m.session === "sess_form", from);
        host.write({ op: "tool_result", session: "sess_form", call }, bad);
        assert.equal((await host.settled("sess_form", from)).error, undefined);
        const result = messages("sess_form").findLast((m) => m.role === "toolResult");
        assert.deepEqual([result.isError, textOf(result)],
            [true, "The tool's result was not in the right form and is lost."]);
    }
});

const SMALL = {
    custom: true, id: "small", api: "openai-completions", baseUrl: "http://small.example.com", contextWindow: 40_000,
};

const LONG = "word ".repeat(8000);

test("a long conversation is compacted, and goes on from its summary", async () => {
    await host.open("sess_long", { model: SMALL });
    for (let i = 0; i < 4; i += 1) {
        assert.equal((await host.run("sess_long", LONG)).error, undefined);
    }
    const compaction = host.entries("sess_long").find((e) => e.type === "compaction");
    assert.match(compaction.summary, /The user ran a scripted task/);
    assert.equal((await host.run("sess_long", "SAY two")).error, undefined);
    const last = server.requests.at(-1);
    assert.match(last.body, /The user ran a scripted task/);
    assert.ok(last.body.length < 3.5 * LONG.length);
});

test("an abort while the conversation is being compacted is heard at once", async () => {
    await host.open("sess_compact", { model: SMALL });
    let summary;
    const compacting = new Promise((resolve) => {
        server.setScript((request) => {
            summary = request.conversation.tools.length === 0 ? request : summary;
            return request === summary ? resolve("compacting") ?? "HANG" : undefined;
        });
    });
    const isSettled = (m) => m.t === "settled" && m.session === "sess_compact";
    for (let from = 0; !summary; from = host.received.findLastIndex(isSettled) + 1) {
        await host.call({ op: "prompt", session: "sess_compact" }, [{ type: "text", text: LONG }]);
        await Promise.race([host.next(isSettled, from), compacting]);
    }
    await summary.stalled;
    await host.call({ op: "abort", session: "sess_compact" });
    server.setScript(undefined);
    assert.equal((await host.run("sess_compact", "SAY again")).aborted, false);
});

test("a system prompt of the largest size opens, whatever its bytes", async () => {
    await host.open("sess_prompt", { model: MODEL, systemPrompt: "\u0001".repeat(100 * 1024) });
    assert.equal((await host.run("sess_prompt", "hello")).error, undefined);
});

test("text that looks like a command, a file or a shell line stays text", async () => {
    await host.open("sess_text", { model: MODEL });
    for (const text of ["/skill:x do", "@/etc/passwd", "!ls", "$HOME"]) {
        await host.run("sess_text", text);
        assert.equal(textOf(messages("sess_text").findLast((m) => m.role === "user")), text);
    }
});

test("a custom model is named after its origin and gets its own limits", async () => {
    const model = {
        custom: true, provider: "mine", id: "my-model", api: "openai-completions",
        baseUrl: "https://models.example.com/v1", contextWindow: 50_000, maxTokens: 77,
    };
    await host.open("sess_custom", { model });
    await host.run("sess_custom", "hello");
    const change = host.entries("sess_custom").find((e) => e.type === "model_change");
    assert.match(change.provider, /^custom-[0-9a-f]{16}$/);
    assert.equal(change.modelId, "my-model");
    assert.equal(server.requests.at(-1).parsed.max_completion_tokens ?? server.requests.at(-1).parsed.max_tokens, 77);
    assert.equal(host.log("sess_custom").join("").includes("models.example.com"), false);
});

test("half a character never leaves the host", async () => {
    host.onTool("bash", () => ({ content: [{ type: "text", text: "half: \ud83d" }], isError: false }));
    await host.open("sess_half", { model: MODEL });
    await host.run("sess_half", 'CALL bash {"command":"x"} THEN SAY done');
    const line = host.log("sess_half").find((l) => l.includes("half: "));
    assert.ok(line.includes("half: \ufffd"));
    assert.equal(/\\ud[89a-f]/i.test(line), false);
});

test("nothing the host says names a folder of this machine", async () => {
    const tools = ["read", "bash", "edit", "write", "grep", "find", "ls"];
    await host.open("sess_default", { model: MODEL, systemPrompt: null, tools });
    await host.run("sess_default", "hello");
    const system = messages("sess_default").find((m) => m.role === "system");
    assert.match(system.sections.preamble, /You are a coding assistant running inside pi/);
    assert.doesNotMatch(JSON.stringify(system), /PI_|<docs>/);
    const root = new URL("../..", import.meta.url).pathname.replace(/\/$/, "");
    for (const message of host.received) {
        const text = JSON.stringify(message);
        for (const path of [root, "/nonexistent", process.env.HOME ?? "/root/", "/tmp/", "node_modules", "host.mjs"]) {
            assert.equal(text.includes(path), false, `${path} in ${text.slice(0, 2000)}`);
        }
    }
});

test("bytes that are not the protocol end the host", async () => {
    const other = await startHost(gateway, { quiet: true });
    other.socket.write("nonsense\n");
    assert.deepEqual(await other.exited, [1, null]);
});

test("a host whose control goes away ends", async () => {
    const other = await startHost(gateway);
    other.socket.destroy();
    assert.deepEqual(await other.exited, [0, null]);
});
