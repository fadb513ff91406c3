// Events: what can be posted, batches, idempotency, lists, entries, the stream's own rules. What a turn
// does is tested elsewhere; an interrupt of an idle session is an event that needs no model.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { allPages, assertPaths, assertProblem, createSession, startService } from "./support.mjs";

let service, session, path;
before(async () => {
    service = await startService();
    session = await createSession(service);
    path = `/v1/sessions/${session.id}`;
});
after(() => service?.stop());

const INTERRUPT = { type: "user.interrupt" };
const post = (body, options) => service.request("POST", `${path}/events`, { body, ...options });
const message = (content, more) => ({ type: "user.message", content, ...more });

/** A session of its own with `count` interrupts in its log. */
async function withInterrupts(count) {
    const own = await createSession(service);
    const stream = await service.stream(own.id);
    for (let left = count; left > 0; left -= 50) {
        await service.ok("POST", `/v1/sessions/${own.id}/events`,
            { events: Array.from({ length: Math.min(left, 50) }, () => INTERRUPT) });
    }
    await stream.until((frame) => Number(frame.id) === count);
    stream.close();
    return own;
}

const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const refused = [
    ["nothing", {}, ["/type"]],
    ["an event without type", { content: "x" }, ["/type"]],
    ["a type that is no string", { type: 1 }, ["/type"]],
    ["an unknown type", { type: "user.shout" }, ["/type"]],
    ["an event that only the service makes", { type: "session.status_idle" }, ["/type"]],
    ["user.tool_confirmation", { type: "user.tool_confirmation", toolUseId: "x" }, ["/type"],
        "not_supported"],
    ["system.message", { type: "system.message", content: "x" }, ["/type"], "not_supported"],
    ["a message without content", { type: "user.message" }, ["/content"]],
    ["empty content", message(""), ["/content"]],
    ["no blocks", message([]), ["/content"]],
    ["an empty text block", message([{ type: "text", text: "" }]), ["/content/0/text"]],
    ["an unknown block", message([{ type: "video", data: "x" }]), ["/content/0/type"]],
    ["an unknown field of a block", message([{ type: "text", text: "x", cache: 1 }]),
        ["/content/0/cache"]],
    ["an image of an unknown kind", message([{ type: "image", mimeType: "image/svg+xml", data: png }]),
        ["/content/0/mimeType"]],
    ["an image that is no base64", message([{ type: "image", mimeType: "image/png", data: "***!" }]),
        ["/content/0/data"]],
    ["an unknown delivery", message("x", { deliverAs: "now" }), ["/deliverAs"]],
    ["an unknown field", message("x", { id: "evt_1" }), ["/id"]],
    ["an interrupt with content", { ...INTERRUPT, content: "x" }, ["/content"]],
    ["an empty batch", { events: [] }, ["/events"]],
    ["51 events", { events: Array(51).fill(INTERRUPT) }, ["/events"]],
    ["events beside something else", { events: [INTERRUPT], type: "user.interrupt" }, ["/type"]],
    ["one bad event among good ones", { events: [INTERRUPT, { type: "x" }, message("")] },
        ["/events/1/type", "/events/2/content"]],
];

for (const [what, body, paths, code] of refused) {
    test(`refuses ${what}`, async () => assertPaths(await post(body), paths, code));
}

test("nothing of a refused batch is kept", async () => {
    const own = await createSession(service);
    const target = `/v1/sessions/${own.id}/events`;
    assertProblem(await service.request("POST", target,
        { body: { events: [INTERRUPT, { type: "x" }] } }), 400);
    await service.ok("POST", target, INTERRUPT);
    const stream = await service.stream(own.id, { lastEventId: 0 });
    await stream.until((frame) => frame.id === "1");
    stream.close();
    assert.equal((await service.ok("GET", target)).data.length, 1);
});

test("a lone surrogate, bad UTF-8 and duplicate keys are refused, NUL in the text is not", async () => {
    const raw = (text) => post(Buffer.isBuffer(text) ? text : Buffer.from(text));
    for (const bad of [
        '{"type":"user.message","content":"\\ud83d"}',
        '{"type":"user.message","content":"\\ude00\\ud83d"}',
        '{"type":"user.interrupt","type":"user.interrupt"}',
        '{"type":"user.interrupt"', '{"type":"user.interrupt"} x', "{'type':1}", "", "[",
        '{"type":"user.interrupt","a\\u0000b":1}',
        Buffer.from([...Buffer.from('{"type":"user.message","content":"'), 0xff, 0xfe, 0x22, 0x7d]),
        `${'{"a":'.repeat(70)}1${"}".repeat(70)}`,
    ]) {
        assertProblem(await raw(bad), 400);
    }
    const { status, body } = await post(message("a\0b\u2028c\u2029d\u0085"));
    assert.equal(status, 202);
    assert.deepEqual(body.data[0].content, [{ type: "text", text: "a\0b\u2028c\u2029d\u0085" }]);
});

test("202 carries the events with id and times, content as blocks", async () => {
    const own = await createSession(service);
    const image = { type: "image", mimeType: "image/png", data: png };
    const reply = await service.request("POST", `/v1/sessions/${own.id}/events`,
        { body: { events: [message("hello"), message([{ type: "text", text: "see" }, image],
            { deliverAs: "steer" }), INTERRUPT] } });
    assert.equal(reply.status, 202, reply.text);
    const [first, second, third] = reply.body.data;
    for (const event of reply.body.data) {
        assert.match(event.id, /^evt_[0-9A-HJKMNP-TV-Z]{26}$/);
        assert.match(event.createdAt, /^\d{4}-.*Z$/);
        assert.equal(event.processedAt, null);
        assert.equal(event.sessionId, own.id);
        assert.ok(!("seq" in event));
    }
    assert.deepEqual(first.content, [{ type: "text", text: "hello" }]);
    assert.equal(first.deliverAs, "followUp");
    assert.deepEqual(second.content, [{ type: "text", text: "see" }, image]);
    assert.equal(second.deliverAs, "steer");
    assert.equal(third.type, "user.interrupt");
});

test("posted events get their seq in order and are listed with the same id", async () => {
    const own = await withInterrupts(7);
    const rows = await allPages(service, `/v1/sessions/${own.id}/events`, 3);
    assert.deepEqual(rows.map((event) => event.seq), [1, 2, 3, 4, 5, 6, 7]);
    assert.deepEqual(new Set(rows.map((event) => event.type)), new Set(["user.interrupt"]));
    const newest = await allPages(service, `/v1/sessions/${own.id}/events?order=desc`, 3);
    assert.deepEqual(newest.map((event) => event.seq), [7, 6, 5, 4, 3, 2, 1]);
    const none = await service.ok("GET", `/v1/sessions/${own.id}/events?type=user.message`);
    assert.deepEqual(none.data, []);
    for (const limit of ["0", "1001", "x"]) {
        assertProblem(await service.request("GET", `/v1/sessions/${own.id}/events?limit=${limit}`), 400);
    }
});

test("entries and the export are the log's lines, the header first", async () => {
    const own = await withInterrupts(3);
    const entries = await allPages(service, `/v1/sessions/${own.id}/entries`, 2);
    assert.deepEqual(entries.map((row) => row.position), entries.map((_, i) => i + 1));
    assert.equal(entries[0].entry.type, "session");
    const log = await service.request("GET", `/v1/sessions/${own.id}/export`);
    assert.equal(log.status, 200);
    assert.match(log.headers["content-type"], /^application\/jsonl/);
    assert.ok(log.text.endsWith("\n"));
    const lines = log.text.trimEnd().split("\n").map((line) => JSON.parse(line));
    assert.deepEqual(lines, entries.map((row) => row.entry));
});

test("a stream resumes after Last-Event-ID: header or query, exclusive, each once", async () => {
    const own = await withInterrupts(9);
    for (const options of [{ lastEventId: 4 }, { query: { lastEventId: 4 } },
        { lastEventId: 4, query: { lastEventId: 1 } }]) {
        const stream = await service.stream(own.id, options);
        const frames = await stream.until((frame) => frame.id === "9");
        stream.close();
        assert.deepEqual(frames.filter((frame) => frame.id).map((frame) => Number(frame.id)),
            [5, 6, 7, 8, 9]);
    }
});

test("a stream beyond the head starts live, without an old event", async () => {
    const own = await withInterrupts(2);
    const stream = await service.stream(own.id, { lastEventId: 999999999 });
    await service.ok("POST", `/v1/sessions/${own.id}/events`, INTERRUPT);
    const frames = await stream.until((frame) => frame.id === "3");
    stream.close();
    assert.deepEqual(frames.filter((frame) => frame.id).map((frame) => frame.id), ["3"]);
});

test("a malformed Last-Event-ID or eventDeltas is 400", async () => {
    for (const id of ["abc", "-1", "1.5", "1e3", "0x1", "99999999999999999999", "1 2"]) {
        const reply = await service.request("GET", `${path}/stream`, { headers: { "last-event-id": id } });
        assertProblem(reply, 400, "invalid_last_event_id");
    }
    assertProblem(await service.request("GET", `${path}/stream?lastEventId=x`), 400);
    for (const deltas of ["everything", "", "agent.message,", "agent.message%20", "agent.thinking"]) {
        assertProblem(await service.request("GET", `${path}/stream?eventDeltas=${deltas}`), 400);
    }
    assertProblem(await service.request("GET", `${path}/stream?tail=1`), 400);
});

test("several streams see the same events, none lost while many are posted", async () => {
    const own = await createSession(service);
    const streams = await Promise.all([0, 1, 2].map(() => service.stream(own.id)));
    const posts = Array.from({ length: 40 }, () =>
        service.ok("POST", `/v1/sessions/${own.id}/events`, INTERRUPT));
    const late = service.stream(own.id, { lastEventId: 0 });
    await Promise.all(posts);
    const seen = [];
    for (const stream of [...streams, await late]) {
        const frames = await stream.until((frame) => frame.id === "40");
        stream.close();
        const numbers = frames.filter((frame) => frame.id).map((frame) => Number(frame.id));
        assert.deepEqual(numbers, Array.from({ length: 40 }, (_, i) => i + 1));
        seen.push(frames.filter((frame) => frame.id).map((frame) => frame.data.id).join());
    }
    assert.equal(new Set(seen).size, 1);
});

test("an Idempotency-Key makes one effect; the replay is byte-equal", async () => {
    const own = await createSession(service);
    const target = `/v1/sessions/${own.id}/events`;
    const headers = { "idempotency-key": "\"try-1\"" };
    const first = await service.request("POST", target, { body: INTERRUPT, headers });
    const again = await service.request("POST", target,
        { body: INTERRUPT, headers: { "idempotency-key": "try-1" } });
    assert.equal(first.status, 202);
    assert.equal(again.text, first.text);
    assert.equal(again.status, 202);
    assert.equal(again.headers["idempotent-replayed"], "true");
    assert.equal(first.headers["idempotent-replayed"], undefined);
    assertProblem(await service.request("POST", target, { body: message("other"), headers }), 422);
    const stream = await service.stream(own.id, { lastEventId: 0 });
    await stream.until((frame) => frame.id === "1");
    stream.close();
    assert.equal((await service.ok("GET", target)).data.length, 1);
});

test("withdrawing what is unknown, processed or foreign fails and changes nothing", async () => {
    const own = await withInterrupts(1);
    const [event] = (await service.ok("GET", `/v1/sessions/${own.id}/events`)).data;
    const remove = (id, of = own.id) => service.request("DELETE", `/v1/sessions/${of}/events/${id}`);
    assertProblem(await remove(`evt_${"0".repeat(26)}`), 404);
    assertProblem(await remove("x"), 404);
    assertProblem(await remove(event.id, session.id), 404);
    const processed = await remove(event.id);
    assert.ok([404, 409].includes(processed.status), processed.text);
    assert.equal((await service.ok("GET", `/v1/sessions/${own.id}/events`)).data.length, 1);
});
