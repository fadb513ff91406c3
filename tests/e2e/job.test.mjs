// The main job end to end: real Pi, real sandbox, scripted model, on all four wire APIs.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { APIS, startJob, textOf, types } from "../support/job.mjs";
import { serviceMissing } from "../support/service.mjs";

const call = (command, extra = {}) => `CALL bash ${JSON.stringify({ command, ...extra })}`;

describe("the main job", { skip: serviceMissing }, () => {
    let job;
    before(async () => {
        job = await startJob();
    });
    after(() => job?.stop());

    for (const api of APIS) {
        test(`a tool call runs in the sandbox and its result reaches the model (${api})`, async () => {
            const session = await job.session({ api });
            const events = await session.run(`${call("echo out-$((6*7)); hostname")} THEN SAY Got $RESULT`);
            const order = types(events).filter((type) => !["agent.thinking", "event_processed"].includes(type));
            assert.deepEqual(order, [
                "user.message",
                "session.status_run_started",
                "span.model_request_start", "agent.tool_use", "span.model_request_end",
                "span.sandbox_start", "agent.tool_result",
                "span.model_request_start", "agent.message", "span.model_request_end",
                "session.status_idle",
            ]);
            const result = events.find((event) => event.type === "agent.tool_result");
            assert.match(textOf(result), /out-42\nsandbox/);
            assert.equal(result.isError, false);
            assert.match(textOf(events.find((event) => event.type === "agent.message")), /Got out-42/);
            assert.deepEqual(events.at(-1).stopReason, { type: "end_turn" });

            const { usage, status } = await session.get();
            assert.equal(status, "idle");
            assert.ok(usage.inputTokens > 0 && usage.outputTokens > 0 && usage.costUsd > 0, JSON.stringify(usage));
        });
    }

    test("seq has no gaps, and GET events shows what the stream showed", async () => {
        const session = await job.session();
        const streamed = (await session.run("SAY one")).filter((event) => event.seq);
        const listed = await session.events();
        assert.deepEqual(listed.map((event) => event.seq), listed.map((_, index) => index + 1));
        assert.deepEqual(streamed.map((event) => event.id), listed.map((event) => event.id));
        assert.notEqual(listed.find((event) => event.type === "user.message").processedAt, null);
    });

    test("deltas are a prefix of the message they announce, under its id", async () => {
        const session = await job.session();
        const stream = await session.stream({ eventDeltas: "agent.message" });
        await session.say("SLOW 2 SAY The quick brown fox jumps over the lazy dog, and then some more.");
        const frames = await stream.until((frame) => frame.type === "session.status_idle");
        await stream.close();
        const deltas = frames.filter((frame) => frame.type === "event_delta");
        const message = frames.find((frame) => frame.type === "agent.message").data;
        assert.ok(deltas.length > 1);
        assert.equal(deltas.map((frame) => frame.data.delta.text).join(""), textOf(message));
        assert.ok(deltas.every((frame) => frame.data.eventId === message.id && !frame.id));
    });

    test("messages that arrive while running are queued and answered in order", async () => {
        const session = await job.session();
        const stream = await session.stream();
        const first = await session.say(`${call("sleep 0.3; echo first")} THEN SAY "done first"`);
        assert.equal(first.data[0].processedAt, null);
        await session.say("SAY \"done second\"");
        const frames = await stream.until((frame) =>
            frame.type === "agent.message" && textOf(frame.data) === "done second");
        assert.ok(frames.some((frame) => frame.type === "agent.message" && textOf(frame.data) === "done first"));
        assert.ok(!frames.some((frame) => frame.type === "session.status_idle"));
        await stream.until((frame) => frame.type === "session.status_idle");
        await stream.close();
    });

    test("two tool calls run side by side and both results arrive", async () => {
        const session = await job.session();
        const script = "CALL bash {\"command\":\"echo a > /tmp/a; while ! test -e /tmp/b; do sleep 0.01; done; echo A\"}"
            + " ;; bash {\"command\":\"while ! test -e /tmp/a; do sleep 0.01; done; echo b > /tmp/b; echo B\"} THEN SAY ok";
        const events = await session.run(script);
        const results = events.filter((event) => event.type === "agent.tool_result").map(textOf);
        assert.deepEqual(results.map((text) => text.trim()).sort(), ["A", "B"]);
    });

    test("interrupt stops a running tool: its result says so, idle once with interrupted", async () => {
        const session = await job.session();
        const stream = await session.stream({ eventDeltas: "agent.tool_result" });
        await session.say(`${call("echo begun; sleep 600")} THEN SAY never`);
        await stream.until((frame) => frame.type === "agent.tool_use");
        await session.interrupt();
        const frames = await stream.until((frame) => frame.type === "session.status_idle");
        await stream.close();
        assert.deepEqual(frames.at(-1).data.stopReason, { type: "interrupted" });
        assert.ok(frames.some((frame) => frame.type === "agent.tool_result" && frame.data.isError));
        assert.ok(!frames.some((frame) => frame.type === "agent.message" && textOf(frame.data) === "never"));
        const again = await session.run("SAY \"still here\"");
        assert.equal(textOf(again.find((event) => event.type === "agent.message")), "still here");
    });

    test("interrupt while the model streams keeps the partial text", async () => {
        const session = await job.session();
        const stream = await session.stream({ eventDeltas: "agent.message" });
        await session.say("SAY \"half a sen\" HANG");
        await stream.until((frame) => frame.type === "event_delta");
        await session.interrupt();
        const frames = await stream.until((frame) => frame.type === "session.status_idle");
        await stream.close();
        assert.deepEqual(frames.at(-1).data.stopReason, { type: "interrupted" });
    });

    test("files stay between turns", async () => {
        const session = await job.session();
        await session.run(`${call("echo kept > /workspace/note")} THEN SAY ok`);
        const events = await session.run(`CALL read {"path":"note"} THEN SAY ok`);
        assert.match(textOf(events.find((event) => event.type === "agent.tool_result")), /kept/);
    });

    test("two sessions see nothing of each other", async () => {
        const [one, two] = [await job.session(), await job.session()];
        await one.run(`${call("echo secret > /workspace/s; echo secret > /tmp/s")} THEN SAY ok`);
        const events = await two.run(`${call("ls -A /workspace /tmp; cat /workspace/s")} THEN SAY ok`);
        assert.doesNotMatch(textOf(events.find((event) => event.type === "agent.tool_result")), /^secret/m);
    });

    test("a failed tool is an error result, and the run goes on", async () => {
        const session = await job.session();
        const events = await session.run(`${call("echo bad; exit 3")} THEN SAY "I saw $RESULT"`);
        const result = events.find((event) => event.type === "agent.tool_result");
        assert.equal(result.isError, true);
        assert.match(textOf(result), /Command exited with code 3/);
        assert.deepEqual(events.at(-1).stopReason, { type: "end_turn" });
    });

    test("text with line breaks, NUL and U+2028 comes back exactly, one frame, one log line", async () => {
        const session = await job.session();
        const nasty = "a\nb\r\nc\n\ndata: x\nid: 99\u2028\u2029\u0085 z";
        const events = await session.run(`SAY ${JSON.stringify(nasty)}`);
        assert.equal(textOf(events.find((event) => event.type === "agent.message")), nasty);
        const nul = await session.run(`${call("printf 'a\\0b'")} THEN SAY ok`);
        assert.equal(textOf(nul.find((event) => event.type === "agent.tool_result")), "a\0b");
    });
});

describe("what goes wrong is said, and the service stays up", { skip: serviceMissing }, () => {
    let job;
    before(async () => {
        job = await startJob();
    });
    after(() => job?.stop());

    const failing = [
        ["a model that cannot be reached", { model: { baseUrl: "http://127.0.0.1:1/v1" } }, "SAY x", /address_not_allowed|model_unreachable/],
        ["a provider without a key", { model: { provider: "openai", id: "gpt-4.1", api: undefined, baseUrl: undefined, cost: undefined } }, "SAY x", /credential_missing/],
        ["a model that refuses the request", {}, "FAIL 400", /model_bad_request/],
        ["a model that refuses the key", {}, "FAIL 401", /model_rejected_key/],
        ["a model that is overloaded", {}, "FAIL 529", /model_overloaded/],
        ["a stream cut in the middle", {}, "SAY \"half of\" CUT", /model_stream_broken/],
    ];
    for (const [what, agent, text, code] of failing) {
        test(`${what}: session.error, then idle, and the next turn works`, async () => {
            const session = await job.session(agent);
            const events = await session.run(text);
            const error = events.find((event) => event.type === "session.error");
            assert.ok(error, types(events).join());
            assert.match(error.error.code, code);
            assert.ok(error.error.message.length > 10);
            assert.ok(["error", "retries_exhausted"].includes(events.at(-1).stopReason.type));
            assert.equal((await session.get()).status, "idle");
            if (agent.model === undefined) {
                const next = await session.run("SAY fine");
                assert.ok(next.some((event) => event.type === "agent.message" && textOf(event) === "fine"));
            }
        });
    }

    test("a stream cut inside tool arguments never runs the tool", async () => {
        const session = await job.session();
        const events = await session.run(`${call("touch /workspace/ran")} CUT ARGS`);
        assert.ok(!types(events).includes("agent.tool_result"));
        const next = await session.run(`${call("ls -A /workspace | wc -l")} THEN SAY ok`);
        assert.match(textOf(next.find((event) => event.type === "agent.tool_result")), /^0/);
    });
});
