// R27 and R53 through the whole service: what may be spent, by a session and by a tenant.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { after, before, describe, test } from "node:test";
import { inOneDay } from "../support/eventually.mjs";
import { startJob, textOf } from "../support/job.mjs";
import { SERVICE_PROGRAM, serviceMissing } from "../support/service.mjs";

const ofType = (events, type) => events.filter((event) => event.type === type);
const idle = (frame) => frame.type === "session.status_idle";
const COSTS = 'USAGE {"input":400000,"output":100000,"cacheRead":0,"cacheWrite":0} '; // $0.60 at the price of the test's agents
const ROUNDS = `${COSTS}CALL bash {"command":"true"} THEN ${COSTS}CALL bash {"command":"true"} THEN ${COSTS}SAY "all done"`;

describe("budgets", { skip: serviceMissing }, () => {
    let job;
    before(async () => {
        job = await startJob();
    });
    after(() => job?.stop());

    const sessionWith = (budget) => job.session({ more: { budget } });

    test("a session stops when its dollars are spent, and goes on when there are more", async () => {
        const session = await sessionWith({ maxUsd: 1, warnAt: 0.5 });
        assert.deepEqual(session.resource.budget, { maxUsd: 1, warnAt: 0.5 });
        const events = await session.run(ROUNDS);
        assert.deepEqual(events.at(-1).stopReason, { type: "budget_exhausted" });
        assert.equal(ofType(events, "span.model_request_end").length, 2); // the second was under way
        const [warning] = ofType(events, "session.budget_warning");
        assert.equal(warning.costUsd.toFixed(2), "0.60");
        const [error] = ofType(events, "session.error");
        assert.equal(error.error.code, "budget_exhausted");
        assert.match(error.error.message, /\$1\.2000 of the \$1\.0000/);
        assert.equal((await session.get()).usage.costUsd.toFixed(2), "1.20");

        const again = await session.run("SAY not yet");
        assert.deepEqual(again.at(-1).stopReason, { type: "budget_exhausted" });
        assert.equal(ofType(again, "span.model_request_start").length, 0);

        const last = (await session.events()).at(-1);
        const stream = await session.stream({ lastEventId: String(last.seq) });
        await job.service.ok("PATCH", session.path, { budget: { maxUsd: 10 } });
        const more = (await stream.until(idle)).map((frame) => frame.data);
        await stream.close();
        assert.deepEqual(ofType(more, "session.updated").map((event) => event.budget), [{ maxUsd: 10 }]);
        assert.deepEqual(ofType(more, "agent.message").map(textOf), ["all done", "not yet"]);
    });

    test("a budget in tokens; price and cost stand in each span", async () => {
        const session = await sessionWith({ maxTokens: 600_000 });
        const events = await session.run(ROUNDS);
        assert.deepEqual(events.at(-1).stopReason, { type: "budget_exhausted" });
        for (const span of ofType(events, "span.model_request_end")) {
            assert.deepEqual(span.price, { input: 1, output: 2, cacheRead: 0.1, cacheWrite: 1.25 });
            assert.equal(span.costUsd.toFixed(2), "0.60");
            assert.deepEqual(span.usage, {
                inputTokens: 400_000, outputTokens: 100_000, cacheReadInputTokens: 0,
                cacheCreationInputTokens: 0,
            });
        }
    });

    test("what a budget may be", async () => {
        const agent = await job.agent();
        const env = await job.environment();
        const create = (budget, id = agent.id) => job.service.request("POST", "/v1/sessions",
            { body: { agent: id, environmentId: env.id, budget } });
        for (const budget of [{}, { maxTokens: 0 }, { maxUsd: -1 }, { maxUsd: 0 }, { maxUsd: 1, warnAt: 2 },
            { maxUsd: 1, warnAt: 0 }, { maxTokens: 1.5 }, { warnAt: 0.5 }, { maxEuro: 1 }, 7]) {
            assert.equal((await create(budget)).status, 400, JSON.stringify(budget));
        }
        assert.equal((await create({ maxTokens: 10, maxUsd: 1, warnAt: 0.8 })).status, 201);
        assert.equal((await create(null)).body.budget, null);
        const free = await job.agent({ model: { cost: null } });
        const refused = await create({ maxUsd: 1 }, free.id);
        assert.deepEqual([refused.status, refused.body.code], [400, "price_unknown"]);
        assert.equal(refused.body.errors[0].path, "/budget/maxUsd");
        assert.equal((await create({ maxTokens: 1 }, free.id)).status, 201);
    });

    test("a tenant's day: sessions side by side stop together", () => inOneDay(async () => {
        execFileSync(SERVICE_PROGRAM, ["tenant", "set", job.service.tenantId, "--data", job.service.data,
            "--limits", "dailyUsd=5"]);
        const sessions = await Promise.all(Array.from({ length: 8 }, () => job.session()));
        const runs = await Promise.all(sessions.map((session) => session.run(ROUNDS)));
        const ends = runs.map((events) => events.at(-1).stopReason.type);
        assert.ok(ends.includes("budget_exhausted"), ends.join());
        const stopped = runs.flatMap((events) => ofType(events, "session.error"));
        assert.ok(stopped.every((event) => event.error.code === "tenant_budget_exhausted"));
        const cost = runs.flatMap((events) => ofType(events, "span.model_request_end"))
            .reduce((sum, span) => sum + span.costUsd, 0);
        assert.ok(cost <= 5 + 8 * 0.6, `${cost}`);
        const { quotas } = await job.service.ok("GET", "/v1/tenant");
        assert.equal(quotas.dailyUsd.limit, 5);
        assert.ok(quotas.dailyUsd.used >= cost - 0.001, `${quotas.dailyUsd.used}`);
        execFileSync(SERVICE_PROGRAM, ["tenant", "set", job.service.tenantId, "--data", job.service.data,
            "--limits", "dailyUsd=none"]);
        const later = await sessions[0].run("SAY at it again");
        assert.deepEqual(later.at(-1).stopReason, { type: "end_turn" });
    }));
});
