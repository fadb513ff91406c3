// R51: sandboxes are promised no more memory than there is, however many ask at once. Beyond it a session cannot be
// made, and a turn that needs a sandbox says why it has none. A limit on disk space holds, or is refused, or is said not
// to hold.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { startJob, textOf } from "../support/job.mjs";
import { serviceMissing } from "../support/service.mjs";

const FIT = 2, ASK = 5; // of 512 MiB, the default

describe("memory for sandboxes", { skip: serviceMissing }, () => {
    let job, environment, agent;
    before(async () => {
        job = await startJob({ args: ["--sandbox-memory", `${FIT * 512 + 100}`] });
        [environment, agent] = [await job.environment(), await job.agent()];
    });
    after(() => job?.stop());

    const ask = (environmentId = environment.id) =>
        job.service.request("POST", "/v1/sessions", { body: { agent: agent.id, environmentId } });

    /** Whether its bash ran; else the error on the stream has the code. */
    async function runs(session) {
        const events = await session.run('CALL bash {"command":"echo here"} THEN SAY done');
        const [result] = events.filter((event) => event.type === "agent.tool_result");
        const codes = events.filter((event) => event.type === "session.error").map((event) => event.error.code);
        if (!result.isError) {
            assert.match(textOf(result), /^here\n/);
            assert.deepEqual(codes, []);
            return true;
        }
        assert.match(textOf(result), /cannot be started: no memory is left for another sandbox/);
        assert.deepEqual(codes, ["host_capacity"]);
        return false;
    }

    test("exactly as many run as fit, and no more can be asked for until one ends", async () => {
        const sessions = [];
        for (let i = 0; i < ASK; i++) sessions.push(await job.session());
        const ran = await Promise.all(sessions.map(runs));
        assert.equal(ran.filter(Boolean).length, FIT);

        const refused = await ask();
        assert.equal(refused.status, 429);
        assert.equal(refused.body.code, "host_capacity");
        assert.equal(refused.body.type, "urn:pi-managed:error:host_capacity");
        assert.match(refused.body.detail, /1024 of 1124 MiB/);
        assert.equal(refused.headers["retry-after"], "30");

        const without = sessions[ran.indexOf(false)];
        assert.equal(await runs(without), false);
        await job.service.ok("DELETE", sessions[ran.indexOf(true)].path);
        assert.equal((await ask()).status, 201);
        assert.equal(await runs(without), true);
    });

    test("what runs is counted after a crash too", async () => {
        assert.equal((await ask()).status, 429);
        await job.service.kill9();
        await job.service.restart();
        assert.equal((await ask()).status, 429);
    });
});

const isRoot = process.getuid() === 0;
const refusesDisk = (reply) => {
    assert.equal(reply.status, 400);
    assert.equal(reply.body.code, "limits_not_enforced");
    assert.match(reply.body.errors[0].message, /--allow-unenforced-limits/);
};

describe("disk space of a sandbox", { skip: serviceMissing }, () => {
    test("a limit holds, and what is used is told", async (t) => {
        const job = await startJob();
        t.after(() => job.stop());
        if (!isRoot) {
            refusesDisk(await job.service.request("POST", "/v1/environments",
                { body: { name: "small", resources: { diskMiB: 32 } } }));
            return;
        }
        const session = await job.session({ environment: { resources: { diskMiB: 32 } } });
        assert.equal(session.resource.sandbox.limits, "enforced");
        const fill = JSON.stringify({ command: "head -c 64m /dev/zero >full; ls -s full | cut -d' ' -f1; rm full; head -c 8m /dev/zero >f; sync" });
        const events = await session.run(`CALL bash ${fill} THEN SAY done`);
        const text = textOf(events.find((event) => event.type === "agent.tool_result"));
        assert.match(text, /No space left on device/);
        const { usage, limits } = await job.service.ok("GET", `${session.path}/sandbox`);
        assert.equal(limits, "enforced");
        assert.ok(usage.diskBytes > 8 * 2 ** 20 && usage.diskBytes <= 32 * 2 ** 20, `${usage.diskBytes}`);
        assert.ok(usage.cpuMs > 0);
    });

    test("what cannot hold is taken only where the operator allows it, and said", { skip: isRoot && "root can limit it" }, async (t) => {
        const job = await startJob({ args: ["--allow-unenforced-limits"] });
        t.after(() => job.stop());
        const session = await job.session({ environment: { resources: { diskMiB: 32 } } });
        assert.equal(session.resource.sandbox.limits, "none");
        const events = await session.run('CALL bash {"command":"echo here"} THEN SAY done');
        assert.match(textOf(events.find((event) => event.type === "agent.tool_result")), /^here/);
        const { limits, reason } = await job.service.ok("GET", `${session.path}/sandbox`);
        assert.equal(limits, "none");
        assert.match(reason, /disk/);
    });
});
