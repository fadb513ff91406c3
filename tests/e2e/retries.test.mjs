// R24 through the whole service: one count of attempts for broker, Pi and control, whatever dies meanwhile.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { APIS, startJob, textOf } from "../support/job.mjs";
import { descendants } from "../support/processes.mjs";
import { serviceMissing } from "../support/service.mjs";

const ofType = (events, type) => events.filter((event) => event.type === type);
const attempts = (events) => ofType(events, "span.model_request_start").map((event) => event.attempt);
const retries = (events) => ofType(events, "session.error").map((event) => event.retryStatus);
const idle = (frame) => frame.type === "session.status_idle";

/** Spans in pairs; no attempt before its time; one rescheduled for each error that announces a retry. */
function checkRetries(events, expected) {
    assert.deepEqual(attempts(events), expected);
    const ends = ofType(events, "span.model_request_end");
    assert.deepEqual(ends.map((event) => event.attempt), expected);
    let nextAt = "";
    for (const event of events) {
        if (event.type === "session.error" && event.retryStatus.type === "retrying") {
            nextAt = event.retryStatus.nextRetryAt;
        } else if (event.type === "span.model_request_start") {
            assert.ok(event.createdAt >= nextAt, `${event.createdAt} is before ${nextAt}`);
        }
    }
    const announced = retries(events).filter((status) => status.type === "retrying");
    assert.equal(ofType(events, "session.status_rescheduled").length, announced.length);
    return announced;
}

function kill(job, pattern) {
    const found = descendants(job.service.pid).filter((one) => pattern.test(one.command));
    assert.ok(found.length > 0, `no process like ${pattern}`);
    found.forEach((one) => process.kill(one.pid, "SIGKILL"));
}

/** The scripted model counts how often it was asked the very same: no two tests ask the same. */
let asked = 0;
const unique = (script) => `No. ${++asked}: ${script}`;

async function finish(session) {
    const stream = await session.stream({ lastEventId: "0" });
    await stream.until(idle);
    await stream.close();
    return session.events();
}

describe("retries", { skip: serviceMissing }, () => {
    let job;
    before(async () => {
        job = await startJob();
    });
    after(() => job?.stop());

    for (const api of APIS) {
        test(`${api}: a provider that is busy twice is asked a third time`, async () => {
            const session = await job.session({ api });
            const events = await session.run(unique("FAIL 529 1 TIMES 2 SAY made it"));
            const announced = checkRetries(events, [1, 2, 3]);
            assert.deepEqual(announced.map((status) => status.attempt), [2, 3]);
            const [error] = ofType(events, "session.error");
            assert.equal(error.error.code, "model_overloaded");
            assert.match(error.error.message, /overloaded.*529/);
            assert.match(textOf(events.find((event) => event.type === "agent.message")), /made it/);
            assert.deepEqual(events.at(-1).stopReason, { type: "end_turn" });
        });

        test(`${api}: an answer that breaks off is asked for again, and its call does not run`, async () => {
            const session = await job.session({ api });
            const script = unique('SAY "let me see" CALL bash {"command":"echo ran"} CUT ARGS TIMES 1 THEN SAY done');
            const stream = await session.stream({ eventDeltas: "agent.message" });
            await session.say(script);
            const frames = (await stream.until(idle)).map((frame) => frame.data);
            await stream.close();
            checkRetries(frames.filter((frame) => frame.seq), [1, 2, 1]);
            assert.equal(ofType(frames, "agent.tool_use").length, 1);
            assert.equal(ofType(frames, "agent.tool_result").length, 1);
            const discarded = ofType(frames, "event_discarded").map((frame) => frame.eventId);
            assert.equal(discarded.length, 1);
            assert.ok(ofType(frames, "agent.message").every((event) => !discarded.includes(event.id)));
            assert.deepEqual(frames.at(-1).stopReason, { type: "end_turn" });
        });
    }

    test("a failure that Pi does not take for one to retry is one", async () => {
        const session = await job.session();
        const events = await session.run(unique('SAY "let me see" ERROR "out of luck" TIMES 1'));
        checkRetries(events, [1, 2]);
        assert.deepEqual(events.at(-1).stopReason, { type: "end_turn" });
    });

    test("after five attempts the turn ends; the next message begins anew", async () => {
        const session = await job.session();
        const events = await session.run("FAIL 503");
        const announced = checkRetries(events, [1, 2, 3, 4, 5]);
        assert.equal(announced.length, 4);
        assert.deepEqual(retries(events).at(-1), { type: "exhausted" });
        assert.deepEqual(events.at(-1).stopReason, { type: "retries_exhausted" });
        assert.equal((await session.get()).status, "idle");
        const later = await session.run("SAY well again");
        checkRetries(later, [1]);
        assert.deepEqual(later.at(-1).stopReason, { type: "end_turn" });
    });

    test("a key that is not accepted ends the turn at once", async () => {
        const session = await job.session({ api: "anthropic-messages" });
        const events = await session.run("FAIL 401");
        checkRetries(events, [1]);
        assert.deepEqual(retries(events), [{ type: "terminal" }]);
        const [error] = ofType(events, "session.error");
        assert.equal(error.error.code, "model_rejected_key");
        assert.match(error.error.message, /does not accept the key.*401/);
        assert.deepEqual(events.at(-1).stopReason, { type: "error" });
    });

    test("an interrupt ends a backoff", async () => {
        const session = await job.session();
        const stream = await session.stream();
        await session.say("FAIL 503 60");
        await stream.until((frame) => frame.type === "session.status_rescheduled");
        assert.equal((await session.get()).status, "rescheduling");
        await session.interrupt();
        const frames = await stream.until(idle);
        await stream.close();
        assert.deepEqual(frames.at(-1).data.stopReason, { type: "interrupted" });
    });

    const VICTIMS = [
        ["the broker", () => kill(job, /--role broker/)],
        ["the host", () => kill(job, /harness\/host\.mjs/)],
        ["control", async () => {
            kill(job, /--role control/);
            await job.service.waitForOutput(/control is ready[^]*control is ready/);
        }],
        ["everything", async () => {
            await job.service.kill9();
            await job.service.restart();
        }],
    ];
    for (const [name, strike] of VICTIMS) {
        test(`kill -9 of ${name} during a backoff: the count and the time stand`, async () => {
            const session = await job.session();
            const stream = await session.stream();
            await session.say(unique("FAIL 503 4 TIMES 2 SAY made it"));
            await stream.until((frame) => frame.type === "session.error");
            await stream.until((frame) => frame.type === "session.status_rescheduled");
            await strike();
            await stream.close().catch(() => {}); // control took it along
            const events = await finish(session);
            checkRetries(events, attempts(events));
            assert.ok(attempts(events).length >= 2 && attempts(events).at(-1) <= 3, attempts(events).join());
            assert.match(textOf(events.findLast((event) => event.type === "agent.message")), /made it/);
            assert.deepEqual(events.at(-1).stopReason, { type: "end_turn" });
        });
    }

    test("kill -9 of the broker in the middle of an answer: the request is made again", async () => {
        const session = await job.session();
        const stream = await session.stream({ eventDeltas: "agent.message" });
        await session.say(unique('SAY "one two three four five six" HANG TIMES 1'));
        await stream.until((frame) => frame.type === "event_delta");
        kill(job, /--role broker/);
        await stream.close();
        const events = await finish(session);
        checkRetries(events, [1, 2]);
        const [lost] = ofType(events, "span.model_request_end");
        assert.equal(lost.error.code, "request_lost");
        assert.deepEqual(events.at(-1).stopReason, { type: "end_turn" });
    });
});
