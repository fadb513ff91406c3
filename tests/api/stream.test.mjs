// Streams and the queue while a turn runs: resuming, ordering, withdrawing, text that looks like a frame.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { startJob, textOf } from "../support/job.mjs";
import { assertProblem } from "./support.mjs";

let job, service;
before(async () => {
    job = await startJob();
    service = job.service;
});
after(() => job?.stop());

const withId = (frames) => frames.filter((frame) => frame.id);
const numbers = (frames) => withId(frames).map((frame) => Number(frame.id));
const isIdle = (frame) => frame.type === "session.status_idle";
const say = (text) => ({ type: "user.message", content: text });
const post = (session, body) => service.ok("POST", `${session.path}/events`, body);

/** A session whose turn hangs in the model until job.model.release(). */
async function running() {
    const session = await job.session();
    const stream = await session.stream();
    await post(session, say("SAY begun HANG"));
    const request = await job.model.waitForRequest((one) => one.userText.includes("SAY begun HANG")
        && !one.outcome);
    await request.stalled;
    return { session, stream };
}

test("text that looks like frames arrives as text", async () => {
    const text = "a\nb\r\nc\n\ndata: x\nid: 99\nevent: evil\n\n: no\u2028\u0085end";
    const session = await job.session();
    const stream = await session.stream();
    await post(session, say(`SAY ${JSON.stringify(text)}`));
    const frames = await stream.until(isIdle);
    await stream.close();
    const message = frames.find((frame) => frame.type === "agent.message");
    assert.equal(textOf(message.data), text);
    assert.deepEqual(numbers(frames), numbers(frames).map((_, i) => i + 1));
    for (const frame of withId(frames)) {
        assert.equal(frame.type, frame.data.type);
        assert.equal(frame.data.seq, Number(frame.id));
        assert.equal(frame.data.sessionId, session.id);
    }
});

test("whoever comes back at any point gets exactly the rest", async () => {
    const session = await job.session();
    const stream = await session.stream();
    await post(session, say('THINK hm SAY one CALL bash {"command":"echo hi"} THEN SAY two'));
    const whole = withId(await stream.until(isIdle));
    await stream.close();
    for (let seen = 0; seen < whole.length; seen++) {
        const again = await session.stream({ lastEventId: seen });
        const rest = withId(await again.until(isIdle));
        await again.close();
        assert.deepEqual(rest.map((frame) => frame.data.id),
            whole.slice(seen).map((frame) => frame.data.id));
    }
    const listed = await session.events();
    assert.deepEqual(listed.map((event) => event.id), whole.map((frame) => frame.data.id));
});

test("only who asked gets deltas; they have no id and move nothing", async () => {
    const session = await job.session();
    const [plain, eager] = [await session.stream(), await session.stream({ eventDeltas: "agent.message" })];
    await post(session, say("SLOW 1 SAY some words that come one after the other"));
    const [without, withDeltas] = [await plain.until(isIdle), await eager.until(isIdle)];
    await Promise.all([plain.close(), eager.close()]);
    const isDelta = (frame) => /^event_(start|delta|discarded)$/.test(frame.type);
    assert.ok(!without.some(isDelta));
    assert.ok(withDeltas.filter(isDelta).length > 1);
    assert.ok(withDeltas.filter(isDelta).every((frame) => frame.id === undefined));
    assert.deepEqual(withDeltas.filter((frame) => frame.id).map((frame) => frame.data),
        without.filter((frame) => frame.id).map((frame) => frame.data));
});

test("the output of a tool is streamed to who asks for it", async () => {
    const session = await job.session();
    const stream = await session.stream({ eventDeltas: ["agent.tool_result", "agent.message"] });
    await post(session, say('CALL bash {"command":"echo first; sleep 0.3; echo second"} THEN SAY done'));
    const frames = await stream.until(isIdle);
    await stream.close();
    const use = frames.find((frame) => frame.type === "agent.tool_use").data;
    const grown = frames.filter((frame) => frame.type === "event_delta" && frame.data.eventId === use.id);
    assert.ok(grown.length >= 1);
    assert.equal(grown.map((frame) => frame.data.delta.text).join(""), "first\nsecond\n");
});

test("a backlog and what is said meanwhile come in one strictly rising line", async () => {
    const session = await job.session();
    const batch = { events: Array.from({ length: 50 }, () => ({ type: "user.interrupt" })) };
    for (let i = 0; i < 40; i++) {
        await post(session, batch);
    }
    const first = await session.stream();
    await first.until((frame) => frame.id === "2000");
    await first.close();
    const stream = await session.stream({ lastEventId: 0 });
    await post(session, say("SAY during the replay"));
    const frames = await stream.until(isIdle);
    await stream.close();
    const seen = numbers(frames);
    assert.ok(seen.length > 2000);
    assert.deepEqual(seen, seen.map((_, i) => i + 1));
});

test("whoever starts beyond the head misses nothing of what is posted after the answer", async () => {
    const session = await job.session();
    const batch = { events: Array.from({ length: 50 }, () => ({ type: "user.interrupt" })) };
    for (let i = 0; i < 20; i++) {
        await post(session, batch);
    }
    const first = await session.stream();
    await first.until((frame) => frame.id === "1000");
    await first.close();
    for (let round = 0; round < 10; round++) {
        const head = (await service.ok("GET", `${session.path}/events?limit=1&order=desc`)).data[0].seq;
        const stream = await session.stream({ lastEventId: 99_999_999 });
        const { data: [posted] } = await post(session, say("SAY hi"));
        const frames = withId(await stream.until(isIdle));
        await stream.close();
        assert.equal(frames[0].data.id, posted.id);
        assert.deepEqual(numbers(frames), frames.map((_, i) => head + 1 + i));
    }
});

test("a message that waits can be withdrawn, the one at work cannot", async () => {
    const { session, stream } = await running();
    const { data: [second] } = await post(session, say("SAY second"));
    const { data: [third] } = await post(session, say("SAY third"));
    const list = async () => (await session.events()).filter((event) => event.type === "user.message");
    await stream.until((frame) => frame.data.id === third.id);
    const [first, ...waiting] = await list();
    assert.ok(first.processedAt);
    assert.deepEqual(waiting.map((event) => [event.id, event.processedAt]),
        [[second.id, null], [third.id, null]]);

    const remove = (id) => service.request("DELETE", `${session.path}/events/${id}`);
    assertProblem(await remove(first.id), 409);
    const gone = await remove(second.id);
    assert.equal(gone.status, 204, gone.text);
    const again = await remove(second.id);
    assert.ok([404, 409].includes(again.status), again.text);

    job.model.release();
    await stream.until((frame) => frame.type === "agent.message" && textOf(frame.data) === "third");
    await stream.until(isIdle);
    await stream.close();
    const [, withdrawn, last] = await list();
    assert.equal(withdrawn.withdrawn, true);
    assert.ok(last.processedAt && !last.withdrawn);
    const answers = (await session.events()).filter((event) => event.type === "agent.message");
    assert.ok(!answers.some((event) => textOf(event) === "second"));
});

test("a running session is listed as running and idle again afterwards", async () => {
    const { session, stream } = await running();
    const ids = async (status) => (await service.ok("GET",
        `/v1/sessions?agentId=${session.resource.agentId}&status=${status}`)).data.map((one) => one.id);
    assert.deepEqual(await ids("running"), [session.id]);
    assert.deepEqual(await ids("idle"), []);
    await post(session, { type: "user.interrupt" });
    const idle = (await stream.until(isIdle)).at(-1);
    await stream.close();
    assert.equal(idle.data.stopReason.type, "interrupted");
    const read = await session.get();
    assert.equal(read.status, "idle");
    assert.equal(read.stopReason.type, "interrupted");
    job.model.release();
});

test("a session can be deleted while it runs; its streams end", async () => {
    const { session, stream } = await running();
    const idle = await session.stream();
    const reply = await service.request("DELETE", session.path);
    assert.equal(reply.status, 204, reply.text);
    assertProblem(await service.request("GET", session.path), 404);
    for (const one of [stream, idle]) {
        const frames = await one.until((frame) => frame.type === "session.deleted");
        assert.equal(frames.at(-1).id, undefined);
        assert.deepEqual(await one.next(), { value: undefined, done: true });
    }
    job.model.release();
});

test("a stream that catches up while its session is deleted ends with session.deleted, too", async () => {
    const session = await job.session();
    await session.run("SAY one");
    const opening = Array.from({ length: 40 }, () =>
        session.stream().catch((error) => assert.equal(error.reply?.status, 404, error.message)));
    await service.ok("DELETE", session.path);
    let ended = 0;
    for (const stream of (await Promise.all(opening)).filter(Boolean)) {
        const frames = [];
        for await (const frame of stream) {
            frames.push(frame.type);
        }
        assert.equal(frames.at(-1), "session.deleted", frames.join());
        assert.equal(frames.filter((type) => type === "session.deleted").length, 1);
        ended += 1;
    }
    assert.ok(ended > 0);
});

test("NUL and separators in a message reach the model and come back unchanged", async () => {
    const text = "x\0y\u2028z SAY got it";
    const session = await job.session();
    await session.run(text);
    const [event] = (await session.events()).filter((one) => one.type === "user.message");
    assert.equal(textOf(event), text);
    const entries = await service.ok("GET", `${session.path}/entries`);
    const told = entries.data.map((row) => row.entry).find((entry) => entry.message?.role === "user");
    assert.ok(JSON.stringify(told.message.content).includes(JSON.stringify(text).slice(1, -1)));
});
