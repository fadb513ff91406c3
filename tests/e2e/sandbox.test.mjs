// A session's sandbox through the whole service: it outlives the service, is replaced when it dies, stops when idle, goes with
// its session, and is made whatever happens to the processes that wait to make it.
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { startJob, textOf } from "../support/job.mjs";
import { descendants } from "../support/processes.mjs";
import { serviceMissing } from "../support/service.mjs";

/** False when it ended by itself: a maker lives for one verb. */
function ended(pid) {
    try {
        return process.kill(pid, "SIGKILL");
    } catch (error) {
        if (error.code !== "ESRCH") throw error;
        return false;
    }
}

describe("a session's sandbox", { skip: serviceMissing }, () => {
    let job;
    before(async () => (job = await startJob()));
    after(() => job?.stop());

    /** What the bash tool answered. */
    async function bash(session, command) {
        const events = await session.run(`CALL bash ${JSON.stringify({ command })} THEN SAY done`);
        const results = events.filter((event) => event.type === "agent.tool_result");
        assert.equal(results.length, 1, JSON.stringify(events));
        return textOf(results[0]);
    }

    const folder = (session) => path.join(job.service.data, "sandboxes", session.id);
    const init = (session) => JSON.parse(readFileSync(path.join(folder(session), "run.json"), "utf8")).pid;

    test("outlives the service with its files and processes", async () => {
        const session = await job.session();
        await bash(session, "echo kept > f; (setsid sleep 1000 > /dev/null 2>&1 &)");
        const pid = init(session);
        await job.service.kill9();
        await job.service.restart();
        assert.match(await bash(session, "cat f; grep -l sleep /proc/[0-9]*/comm | wc -l"), /^kept\n1\n/);
        assert.equal(init(session), pid);
    });

    test("is booted again when its init was killed, files kept", async () => {
        const session = await job.session();
        await bash(session, "echo kept > f");
        const pid = init(session);
        process.kill(pid, "SIGKILL");
        assert.match(await bash(session, "cat f"), /^kept\n/);
        assert.notEqual(init(session), pid);
    });

    test("is made although the makers that waited were killed", async () => {
        const waiting = descendants(job.service.pid).filter((one) => one.command.includes("--role maker"));
        assert.ok(waiting.length > 0, "no maker waits for work");
        assert.ok(waiting.map((one) => ended(one.pid)).includes(true), "all were gone already");
        assert.match(await bash(await job.session(), "echo here"), /^here\n/);
    });

    test("sees nothing of another session's", async () => {
        const left = await job.session(), right = await job.session();
        await bash(left, "echo mine > secret");
        assert.match(await bash(right, "ls -A /workspace | wc -l"), /^0\n/);
    });

    test("goes with its session", async () => {
        const session = await job.session();
        await bash(session, "echo x > f");
        assert.ok(readdirSync(folder(session)).includes("run.json"));
        await job.service.ok("DELETE", session.path);
        const others = readdirSync(path.dirname(folder(session)));
        assert.ok(!others.includes(session.id), others.join());
    });
});
