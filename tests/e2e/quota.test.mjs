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
});
