// pi-managed why: what happened in a session, for persons and for programs.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { envOf, run } from "../support/cli.mjs";
import { startJob } from "../support/job.mjs";
import { serviceMissing } from "../support/service.mjs";

describe("why", { skip: serviceMissing }, () => {
    let job;
    before(async () => {
        job = await startJob();
    });
    after(() => job?.stop());
    const why = (...args) => run(["why", ...args], { env: envOf(job.service) });

    test("a turn with tools: each request and call in order, with times, tokens and cost", async () => {
        const session = await job.session();
        await session.run("USAGE {\"input\":1000,\"output\":100} SAY I look. "
            + "CALL bash {\"command\":\"echo hi\"} ;; bash {\"command\":\"exit 3\"} "
            + "THEN USAGE {\"input\":200,\"cacheRead\":1000,\"output\":50} SAY Done.");
        const { code, stdout, stderr } = await why(session.id);
        assert.equal(code, 0, stderr);
        const order = [/message +USAGE/, /turn +turn 1 begins/, /model +request 1 to scripted\/scripted-1, first token after/,
            /answer +I look\./, /tool +bash echo hi/, /tool +bash exit 3; failed: .*code 3/, /sandbox +ready for its first tool call/, /model +request 2 .*1000 from cache/,
            /answer +Done\./, /turn +turn 1 ends: end_turn/];
        let at = 0;
        for (const pattern of order) {
            const found = stdout.slice(at).search(pattern);
            assert.ok(found >= 0, `${pattern} after ${at} in\n${stdout}`);
            at += found;
        }
        assert.match(stdout, new RegExp(`^${session.id} {2}idle \\(end_turn\\) `));
        assert.match(stdout, /^1 turn in .*, 2 model requests in .*, 2 tool calls in .* \(1 failed\), 1 sandbox start in /m);
        const { usage } = await session.get();
        assert.match(stdout, new RegExp(`^\\$${usage.costUsd.toFixed(4)}: 1200 tokens in, 1000 from cache, 0 to cache, 150 out$`, "m"));
    });

    test("--json is one document whose sums are the session's", async () => {
        const session = await job.session();
        await session.run("CALL ls {} THEN SAY one");
        await session.run("SAY two");
        const { stdout } = await why(session.id, "--json");
        const told = JSON.parse(stdout);
        const { usage } = await session.get();
        assert.equal(told.session.id, session.id);
        assert.equal(told.totals.turns, 2);
        assert.equal(told.totals.modelRequests, 3);
        assert.ok(Math.abs(told.totals.costUsd - usage.costUsd) < 1e-9);
        assert.equal(told.totals.inputTokens, usage.inputTokens);
        assert.equal(told.totals.outputTokens, usage.outputTokens);
        const events = new Set((await session.events()).map((event) => event.id));
        assert.ok(told.rows.every((row) => events.has(row.eventId) && row.offsetMs >= 0));
        assert.ok(told.rows.filter((row) => row.kind === "tool").every((row) => row.durationMs >= 0));
    });

    test("a failed request names its error; a session without words says so", async () => {
        const session = await job.session();
        const empty = await why("last");
        assert.match(empty.stdout, /Nothing has happened yet/);
        await session.run("FAIL 400");
        const { stdout } = await why(session.id);
        assert.match(stdout, /model +request 1 .*failed: model_bad_request/);
        assert.match(stdout, /error +model_bad_request/);
        assert.match(stdout, /1 model request in .* \(1 failed\)/);
    });

    test("what has no price is not said to be free", async () => {
        const session = await job.session({ model: { cost: null } });
        const sent = await run(["session", "send", session.id, "SAY free?", "--tail"], { env: envOf(job.service) });
        assert.match(sent.stderr, /, no price known$/m);
        assert.match((await why(session.id)).stdout, /^No price known: \d+ tokens in/m);
        assert.equal(JSON.parse((await why(session.id, "--json")).stdout).totals.unpricedModelRequests, 1);
    });

    test("a retry is told with what it waited for", async () => {
        const session = await job.session();
        await session.run("FAIL 503 TIMES 1 SAY made it");
        const { totals, rows } = JSON.parse((await why(session.id, "--json")).stdout);
        assert.deepEqual([totals.modelRequests, totals.failedModelRequests, totals.retries], [2, 1, 1]);
        const [retry] = rows.filter((row) => row.kind === "retry");
        assert.ok(retry.durationMs > 0 && /attempt 2 follows/.test(retry.text), JSON.stringify(retry));
        assert.match((await why(session.id)).stdout, /, 1 retry\b/);
    });

    test("the id of a request leads to its session, and to what it said there", async () => {
        const session = await job.session();
        await session.run("SAY one");
        const reply = await job.service.request("POST", `${session.path}/events`,
            { body: { type: "user.message", content: "SAY two" } });
        const request = reply.headers["x-request-id"];
        const { code, stdout, stderr } = await why(request);
        assert.equal(code, 0, stderr);
        assert.match(stdout, new RegExp(`^${session.id} `));
        assert.deepEqual(stdout.match(/^.* <--.*$/gm).map((row) => / SAY two/.test(row)), [true]);
        await job.service.ok("POST", `${session.path}/events`, { type: "user.interrupt" },
            { headers: { "x-request-id": "my-own.id" } });
        assert.match((await why("my-own.id")).stdout, new RegExp(`^${session.id} `));
        const read = await job.service.request("GET", session.path);
        const unknown = await why(read.headers["x-request-id"]);
        assert.equal(unknown.code, 1);
        assert.match(unknown.stderr, /made no session and spoke to none/);
        assert.match((await why("nothing")).stderr, /there is no session nothing/);
    });

    test("what an agent says cannot steer the terminal", async () => {
        const session = await job.session();
        await session.run("SAY \"\\u001b]0;owned\\u0007text\"");
        const { stdout } = await why(session.id);
        assert.match(stdout, /answer +\ufffd\]0;owned\ufffdtext/);
        assert.ok(!stdout.includes("\x1b"));
    });
});
