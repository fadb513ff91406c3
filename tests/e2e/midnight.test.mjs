// The day ends at 00:00 UTC, whatever else goes on: what a turn spends counts on the day on which it is spent, a tenant's
// dailyUsd begins anew, and what is ordered by time stays in order. The service starts shortly before a new year;
// only a test build has a clock that can be set.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { after, before, describe, test } from "node:test";
import { eventually } from "../support/eventually.mjs";
import { startJob, textOf } from "../support/job.mjs";
import { SERVICE_PROGRAM, serviceMissing } from "../support/service.mjs";

const DAY_MS = 86_400_000;
const NEW_YEAR = Date.UTC(2028, 0, 1);
const LEADS_MS = [20_000, 60_000, 180_000]; // before midnight; a busy machine gets more
const skip = serviceMissing || (!/\/(address|thread)\//.test(SERVICE_PROGRAM) && "the clock can be set in a sanitizer build only");
const COSTS = 'USAGE {"input":400000,"output":100000,"cacheRead":0,"cacheWrite":0}'; // $0.60 at the price of the test's agents

const ofType = (events, type) => events.filter((event) => event.type === type);
const dayOf = ({ createdAt }) => (Date.parse(createdAt) - NEW_YEAR) / DAY_MS < 0 ? "old" : "new";
const isEnd = (frame) => frame.type === "session.status_idle";

describe("midnight", { skip }, () => {
    let job, ahead, crossing, stream, poor;

    /** What the tenant spent on each day, in the database. */
    const days = () => {
        const db = new DatabaseSync(join(job.service.data, "control.db"), { readOnly: true });
        const rows = db.prepare("SELECT day, usd FROM tenant_spend ORDER BY day").all();
        db.close();
        return rows.map(({ day, usd }) => [day - NEW_YEAR / DAY_MS, usd.toFixed(2)]);
    };
    const used = async () => (await job.service.ok("GET", "/v1/tenant")).quotas.dailyUsd.used.toFixed(2);

    /** The old day: one turn waits for its model, the money of the day is spent, another turn is refused. */
    async function spendTheOldDay(lead) {
        ahead = NEW_YEAR - lead - Date.now();
        job = await startJob({ env: { PI_MANAGED_TEST_CLOCK_AHEAD_MS: String(ahead) } });
        execFileSync(SERVICE_PROGRAM, ["tenant", "set", job.service.tenantId, "--data", job.service.data, "--limits", "dailyUsd=1"]);
        crossing = await job.session();
        stream = await crossing.stream({ lastEventId: 0 });
        await crossing.say(`${COSTS} CALL bash {"command":"true"} THEN ${COSTS} HANG EARLY SAY "a happy new year"`);
        await stream.until((frame) => frame.type === "span.model_request_start" && frame.data.requestNumber === 2);
        await (await job.session()).run(`${COSTS} SAY "the last of the money"`);
        poor = await job.session();
        return (await poor.run("SAY never")).at(-1);
    }

    before(async () => {
        for (const lead of LEADS_MS) {
            const last = await spendTheOldDay(lead);
            if (dayOf(last) === "old") {
                assert.deepEqual(last.stopReason, { type: "budget_exhausted" });
                assert.equal(await used(), "1.20");
                await eventually("the new year", () => Date.now() + ahead, (now) => now >= NEW_YEAR);
                return;
            }
            stream.close();
            await job.stop();
        }
        assert.fail("the old day was over before its work was done");
    });
    after(() => job?.stop());

    test("the new day has its whole budget", async () => {
        assert.equal(await used(), "0.00");
        const events = await poor.run(`${COSTS} SAY "may speak now"`);
        assert.deepEqual(events.at(-1).stopReason, { type: "end_turn" });
        assert.equal(await used(), "0.60");
    });

    test("a turn that goes over it is charged by requests, each on its day, and ends as any other", async () => {
        job.model.release();
        const events = (await stream.until(isEnd)).map((frame) => frame.data);
        stream.close();
        assert.deepEqual(events.at(-1).stopReason, { type: "end_turn" });
        assert.equal(textOf(ofType(events, "agent.message").at(-1)), "a happy new year");
        const all = await crossing.events();
        assert.deepEqual(ofType(all, "span.model_request_end").map(dayOf), ["old", "new"]);
        assert.equal((await crossing.get()).usage.costUsd.toFixed(2), "1.20");
        assert.equal(await used(), "1.20");
        assert.deepEqual(days(), [[-1, "1.20"], [0, "1.20"]]);
        const refused = await poor.run("SAY never");
        assert.deepEqual(refused.at(-1).stopReason, { type: "budget_exhausted" });
    });

    test("times and numbers only grow, and lists go over it", async () => {
        for (const session of [crossing, poor]) {
            const events = await session.events();
            assert.deepEqual(events.map(({ seq }) => seq), events.map((_, i) => i + 1));
            const own = events.filter(({ type }) => !type.startsWith("agent.")); // those have the time of Pi, whose clock is not set
            assert.deepEqual(new Set(own.map(dayOf)), new Set(["old", "new"]));
            own.forEach(({ createdAt }, i) => assert.ok(i === 0 || own[i - 1].createdAt <= createdAt));
        }
        const newest = await job.session();
        const { data } = await job.service.ok("GET", "/v1/sessions");
        assert.equal(data[0].id, newest.id);
        assert.deepEqual(data.map(dayOf), ["new", "old", "old", "old"]);
    });

    test("all of it is there after a crash in the new year", async () => {
        await job.service.kill9();
        await job.service.restart();
        assert.deepEqual(days(), [[-1, "1.20"], [0, "1.20"]]);
        assert.equal(await used(), "1.20");
    });
});
