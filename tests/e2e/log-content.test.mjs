// Whatever a model puts into its answer stands in the log, and the session goes on, also in a new process.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { startJob, textOf } from "../support/job.mjs";
import { serviceMissing } from "../support/service.mjs";

function nested(depth) {
    return depth === 0 ? 1 : depth % 2 ? [nested(depth - 1)] : { a: nested(depth - 1) };
}

const STRANGE = {
    "a number beyond 64 bits": { n: 1e20 },
    "NUL in the name of a member": { "a\u0000b": 1 },
    "NUL and line separators in a text": { text: "a\u0000b\u2028c\u2029d\u0085e\r\nf" },
    "arguments nested 500 deep": { deep: nested(500) },
    "an empty name and a long one": { "": 1, ["x".repeat(3000)]: 2 },
};

describe("strange answers", { skip: serviceMissing }, () => {
    let job;
    let session;
    before(async () => {
        job = await startJob();
        session = await job.session();
    });
    after(() => job?.stop());

    const ofType = (events, type) => events.filter((event) => event.type === type);

    /** A turn that calls a tool with these arguments beside a sound command; it must end as any other. */
    async function runWith(more) {
        const input = JSON.stringify({ command: "echo ran", ...more });
        const events = await session.run(`CALL bash ${input} THEN SAY "saw $RESULT"`);
        assert.deepEqual(events.at(-1).stopReason, { type: "end_turn" });
        assert.equal(ofType(events, "agent.tool_use").length, 1);
        assert.equal(ofType(events, "agent.tool_result").length, 1);
        return events;
    }

    for (const [what, more] of Object.entries(STRANGE)) {
        test(what, async () => {
            const events = await runWith(more);
            const [use] = ofType(events, "agent.tool_use");
            assert.equal(use.input.command, "echo ran");
            assert.match(textOf(ofType(events, "agent.message").at(-1)), /saw/);
            const entries = await session.entries();
            assert.equal(entries.some((entry) => entry.type === "unreadable"), false);
        });
    }

    test("nested deeper than Pi itself can bear: the turn fails and says so, the session goes on once reopened", async () => {
        const input = JSON.stringify({ command: "echo ran", deep: nested(3000) });
        const events = await session.run(`CALL bash ${input} THEN SAY "saw $RESULT"`);
        assert.equal(events.at(-1).stopReason.type, "retries_exhausted");
        const codes = ofType(events, "session.error").map((event) => event.error.code);
        assert.ok(codes.includes("line_unreadable"), codes.join());
    });

    test("a new process goes on with all of it", async () => {
        const before = await session.events();
        await job.service.restart();
        assert.deepEqual(await session.events(), before);
        await runWith({});
        const log = await session.entries();
        assert.equal(log.some((entry) => entry.type === "unreadable"), false);
    });
});
