// kill -9 of every process at every stage of a turn: nothing that left is lost, nothing runs twice.
import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { startJob, textOf, types } from "../support/job.mjs";
import { descendants } from "../support/processes.mjs";
import { serviceMissing } from "../support/service.mjs";

const call = (command) => `CALL bash ${JSON.stringify({ command })}`;

function roleOf(service, pattern) {
    const found = descendants(service.pid).filter((one) => pattern.test(one.command));
    assert.ok(found.length > 0, `no process like ${pattern}`);
    return found;
}

const kill = (processes) => processes.forEach((one) => process.kill(one.pid, "SIGKILL"));

/** Every posted message once, every tool_use with exactly one result, no gap. */
function checkWhole(events) {
    assert.deepEqual(events.map((event) => event.seq), events.map((_, index) => index + 1));
    const uses = events.filter((event) => event.type === "agent.tool_use").map((event) => event.toolCallId);
    const results = events.filter((event) => event.type === "agent.tool_result").map((event) => event.toolCallId);
    assert.deepEqual([...results].sort(), [...uses].sort());
}

async function resumeAndFinish(session) {
    const last = (await session.events()).at(-1);
    if (last?.type === "session.status_idle") {
        return;
    }
    const stream = await session.stream({ lastEventId: "0" });
    await stream.until((frame) => frame.type === "session.status_idle");
    await stream.close();
}

const TOOL = "echo x >> /workspace/runs; echo begun; sleep 2; echo runs=$(wc -l < /workspace/runs)";

describe("crashes", { skip: serviceMissing }, () => {
    let job;
    after(() => job?.stop());

    async function fresh() {
        await job?.stop();
        job = undefined;
        job = await startJob();
        return job.session();
    }

    /** A turn whose tool runs until /workspace/go exists; resolves when its output shows that it runs. */
    async function whileToolRuns(session) {
        const stream = await session.stream({ eventDeltas: "agent.tool_result" });
        await session.say(`${call(TOOL)} THEN SAY "saw $RESULT"`);
        await stream.until((frame) => frame.type === "event_delta" && frame.data.delta.text.includes("begun"));
        return stream;
    }

    /** Ran once, its true result arrived, and the model saw it. */
    async function checkTool(session) {
        await resumeAndFinish(session);
        const events = await session.events();
        checkWhole(events);
        const results = events.filter((event) => event.type === "agent.tool_result");
        assert.equal(results.length, 1);
        assert.match(textOf(results[0]), /begun\nruns=1\n/);
        assert.match(textOf(events.findLast((event) => event.type === "agent.message")), /saw begun/);
        assert.deepEqual(events.at(-1).stopReason, { type: "end_turn" });
    }

    test("kill -9 of everything while a tool runs: its true result is delivered once", async () => {
        const session = await fresh();
        const stream = await whileToolRuns(session);
        await job.service.kill9();
        await stream.close();
        await job.service.restart();
        await checkTool(session);
    });

    test("kill -9 of everything while the model streams: the turn is done again and ends", async () => {
        const session = await fresh();
        const stream = await session.stream({ eventDeltas: "agent.message" });
        await session.say("SAY \"half a thought\" HANG TIMES 1 THEN SAY never");
        await stream.until((frame) => frame.type === "event_delta");
        await job.service.kill9();
        await stream.close().catch(() => {});
        await job.service.restart();
        await resumeAndFinish(session);
        const events = await session.events();
        checkWhole(events);
        assert.equal(events.filter((event) => event.type === "user.message").length, 1);
        assert.equal(events.filter((event) => event.type === "session.status_idle").length, 1);
        assert.match(textOf(events.find((event) => event.type === "agent.message")), /half a thought/);
    });

    test("kill -9 of the Pi host while a tool runs: the session moves to a new host", async () => {
        const session = await fresh();
        const stream = await whileToolRuns(session);
        kill(roleOf(job.service, /host\.mjs/));
        await stream.close();
        await checkTool(session);
    });

    test("kill -9 of control while a tool runs: a new one goes on", async () => {
        const session = await fresh();
        const stream = await whileToolRuns(session);
        kill(roleOf(job.service, /--role control/));
        await assert.rejects(stream.until(() => false));
        await checkTool(session);
    });

    test("kill -9 of the broker: the next request works", async () => {
        const session = await fresh();
        await session.run("SAY before");
        kill(roleOf(job.service, /--role broker/));
        const events = await session.run("SAY after");
        const last = events.at(-1);
        if (last.stopReason.type !== "end_turn") { // the request may have met the broker's death
            const next = await session.run("SAY after");
            assert.deepEqual(next.at(-1).stopReason, { type: "end_turn" }, types(next).join());
        }
        checkWhole(await session.events());
    });

    test("a posted message survives kill -9 right after its 202", async () => {
        const session = await fresh();
        const { data: [posted] } = await session.say("SAY \"answer to it\"");
        await job.service.kill9();
        await job.service.restart();
        await resumeAndFinish(session);
        const events = await session.events();
        checkWhole(events);
        assert.deepEqual(events.filter((event) => event.type === "user.message").map((event) => event.id), [posted.id]);
        assert.match(textOf(events.find((event) => event.type === "agent.message")), /answer to it/);
    });
});
