// The limit of running sandboxes (§27.3): the one too many is refused to the tool that needs it, and fits when another
// one stopped.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { startJob } from "../support/job.mjs";
import { SERVICE_PROGRAM, serviceMissing } from "../support/service.mjs";

const ECHO = 'CALL bash {"command":"echo it-ran-here"} THEN SAY "done"';

describe("a tenant that may run one sandbox", { skip: serviceMissing }, () => {
    let job;
    before(async () => {
        job = await startJob();
        await promisify(execFile)(SERVICE_PROGRAM, ["tenant", "set", job.service.tenantId,
            "--limits", "concurrentSandboxes=1", "--data", job.service.data]);
    });
    after(() => job?.stop());

    const results = (events) => JSON.stringify(events.filter(({ type }) => type === "agent.tool_result"));

    test("runs one, is refused the second, and may have it when the first is gone", async () => {
        const [first, second] = [await job.session(), await job.session()];
        assert.match(results(await first.run(ECHO)), /it-ran-here/);
        const refused = await second.run(ECHO);
        assert.doesNotMatch(results(refused), /it-ran-here/);
        assert.match(JSON.stringify(refused), /concurrentSandboxes/);
        const { quotas } = await job.service.ok("GET", "/v1/tenant");
        assert.deepEqual(quotas.concurrentSandboxes, { limit: 1, used: 1 });
        await job.service.ok("DELETE", first.path);
        assert.match(results(await second.run(ECHO)), /it-ran-here/);
    });

    test("runs as many as it may when all begin at once", async () => {
        await promisify(execFile)(SERVICE_PROGRAM, ["tenant", "set", job.service.tenantId,
            "--limits", "concurrentSandboxes=3", "--data", job.service.data]); // one runs already
        const sessions = await Promise.all(Array.from({ length: 8 }, () => job.session()));
        const ran = (await Promise.all(sessions.map((session) => session.run(ECHO))))
            .filter((events) => /it-ran-here/.test(results(events)));
        assert.equal(ran.length, 2);
        const { quotas } = await job.service.ok("GET", "/v1/tenant");
        assert.deepEqual(quotas.concurrentSandboxes, { limit: 3, used: 3 });
    });
});
