// What a session's sandbox uses (§26.4): GET /v1/sessions/:id/sandbox and GET /metrics.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { createTenant } from "../api/support.mjs";
import { eventually } from "../support/eventually.mjs";
import { startJob } from "../support/job.mjs";
import { serviceMissing } from "../support/service.mjs";

const call = (command) => `CALL bash ${JSON.stringify({ command })}`;

describe("what a sandbox uses", { skip: serviceMissing }, () => {
    let job;
    before(async () => {
        job = await startJob();
    });
    after(() => job?.stop());

    const measure = (session) => job.service.ok("GET", `${session.path}/sandbox`);
    const metrics = async (options) => (await job.service.request("GET", "/metrics", options)).text;
    const valueOf = (text, name, session) =>
        Number(text.match(new RegExp(`^${name}\\{session="${session.id}"\\} (\\S+) \\d+$`, "m"))?.[1]);

    test("a session that never ran has no sandbox", async () => {
        const session = await job.session();
        const sandbox = await measure(session);
        assert.equal(sandbox.state, "none");
        assert.deepEqual([sandbox.image, sandbox.limits, sandbox.startedAt, sandbox.uptimeMs],
            ["host", null, null, null]);
        assert.deepEqual(sandbox.usage, { cpuMs: null, memoryBytes: null, diskBytes: null, processes: null });
        assert.doesNotMatch(await metrics(), new RegExp(session.id));
    });

    test("a running one is measured now, and metrics show the same", async () => {
        const session = await job.session();
        await session.run(`${call("sleep 600 >/dev/null 2>&1 & echo ok")} THEN SAY ok`);
        const sandbox = await measure(session);
        assert.equal(sandbox.state, "running");
        assert.equal(Date.parse(sandbox.measuredAt) - Date.parse(sandbox.startedAt), sandbox.uptimeMs);
        assert.equal(sandbox.limits, session.resource.sandbox.limits);
        const text = await metrics();
        assert.match(text, /^pi_sandboxes\{state="running"\} 1$/m);
        assert.ok(valueOf(text, "pi_sandbox_uptime_seconds", session) >= 0, text);
        if (sandbox.limits === "enforced") { // then its control groups count, too
            assert.ok(sandbox.usage.memoryBytes > 0 && sandbox.usage.processes >= 2, JSON.stringify(sandbox));
            assert.ok(valueOf(text, "pi_sandbox_memory_bytes", session) > 0, text);
        }
        await job.service.request("DELETE", session.path);
        assert.doesNotMatch(await metrics(), new RegExp(session.id));
    });

    test("a stopped one says so and uses nothing but disk", async () => {
        const session = await job.session({ environment: { idleTimeout: 1 } });
        await session.run(`${call("true")} THEN SAY ok`);
        const sandbox = await eventually("the sandbox stops", () => measure(session), ({ state }) => state === "stopped");
        const { state, startedAt, uptimeMs, usage } = sandbox;
        assert.deepEqual([state, startedAt, uptimeMs, usage.processes, usage.memoryBytes, usage.cpuMs],
            ["stopped", null, null, null, null, null]);
        assert.ok(Number.isNaN(valueOf(await metrics(), "pi_sandbox_uptime_seconds", session)));
    });

    test("the numbers grow with use", async () => {
        const session = await job.session();
        await session.run(`${call("true")} THEN SAY ok`);
        const first = await measure(session);
        await session.run(`${call("i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; head -c 5000000 /dev/urandom > f")} THEN SAY ok`);
        const second = await measure(session);
        assert.equal(second.startedAt, first.startedAt);
        assert.ok(second.uptimeMs > first.uptimeMs);
        if (first.usage.cpuMs !== null) {
            assert.ok(second.usage.cpuMs > first.usage.cpuMs, JSON.stringify([first, second]));
        }
        if (first.usage.diskBytes !== null) {
            assert.ok(second.usage.diskBytes >= first.usage.diskBytes + 5_000_000, JSON.stringify([first, second]));
        }
    });

    test("another tenant sees neither", async () => {
        const session = await job.session();
        await session.run(`${call("true")} THEN SAY ok`);
        await measure(session);
        const other = await createTenant(job.service, "other");
        const reply = await job.service.request("GET", `${session.path}/sandbox`, { key: other.apiKey });
        assert.equal(reply.status, 404);
        assert.match(await metrics(), new RegExp(session.id));
        assert.doesNotMatch(await metrics({ key: other.apiKey }), new RegExp(session.id));
    });
});
