// What becomes of a session's sandbox and of the session itself over its life: idle stop, the limit on
// running time, deletion, restarts of the service.
import assert from "node:assert/strict";
import { existsSync, readdirSync } from "node:fs";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { eventually } from "../support/eventually.mjs";
import { startJob, textOf, types } from "../support/job.mjs";
import { serviceMissing } from "../support/service.mjs";

const call = (command) => `CALL bash ${JSON.stringify({ command })}`;
const resultOf = (events) => textOf(events.find((event) => event.type === "agent.tool_result"));

const stopped = (session) => eventually("the sandbox stops",
    async () => (await session.get()).sandbox.state, (state) => state === "stopped");

describe("life of a session", { skip: serviceMissing }, () => {
    let job;
    before(async () => {
        job = await startJob();
    });
    after(() => job?.stop());

    test("an idle sandbox is stopped twice; files, modes and times stay, processes do not, the model is told", async () => {
        const session = await job.session({ environment: { idleTimeout: 1 } });
        await session.run(`${call("echo 1 > f1; chmod 751 f1; touch -d @1700000000 f1; sleep 600 >/dev/null 2>&1 & echo ok")} THEN SAY ok`);
        await stopped(session);
        const second = await session.run(`${call("stat -c '%a %Y' f1; cat /proc/[0-9]*/comm | grep -x sleep || echo no process; echo 2 > f2")} THEN SAY ok`);
        assert.match(resultOf(second), /751 1700000000\nno process/);
        const notes = (await session.entries()).filter((entry) => entry.type === "custom_message");
        assert.match(JSON.stringify(notes), /processes that were running in it are gone/);
        await stopped(session);
        const third = await session.run(`${call("cat f1 f2")} THEN SAY ok`);
        assert.match(resultOf(third), /1\n2/);
    });

    test("the idle timer never stops a sandbox in the middle of a tool", async () => {
        const session = await job.session({ environment: { idleTimeout: 1 } });
        const events = await session.run(`${call("sleep 3; echo whole")} THEN SAY ok`);
        assert.match(resultOf(events), /whole/);
    });

    test("running time is limited: the tool is stopped, session.error says why", async () => {
        const session = await job.session({ environment: { maxDuration: 1 } });
        const events = await session.run(`${call("sleep 600")} THEN SAY never`);
        const error = events.find((event) => event.type === "session.error");
        assert.equal(error.error.code, "max_duration_exceeded");
        assert.deepEqual(events.at(-1).stopReason, { type: "error" });
        const again = await session.run("SAY more");
        assert.ok(types(again).includes("session.error"));
        assert.ok(!types(again).includes("agent.message"));
    });

    test("a deleted session's sandbox and processes are gone at once", async () => {
        const session = await job.session();
        const stream = await session.stream({ eventDeltas: "agent.tool_result" });
        await session.say(`${call("echo begun; sleep 600")} THEN SAY never`);
        await stream.until((frame) => frame.type === "event_delta");
        await job.service.request("DELETE", session.path);
        await stream.close();
        assert.ok(!existsSync(path.join(job.service.data, "sandboxes", session.id)));
        assert.equal((await job.service.request("GET", session.path)).status, 404);
        const logs = readdirSync(path.join(job.service.data, "logs", job.service.tenantId));
        assert.ok(logs.includes(`${session.id}.jsonl`), "the log is archived");
    });

    test("deletion with purge removes the log too", async () => {
        const session = await job.session();
        await session.run("SAY hello");
        await job.service.request("DELETE", `${session.path}?purge=true`);
        const logs = readdirSync(path.join(job.service.data, "logs", job.service.tenantId));
        assert.ok(!logs.includes(`${session.id}.jsonl`));
    });

    test("sessions, files and the conversation outlive a restart of the service", async () => {
        const session = await job.session();
        await session.run(`${call("echo remembered > note")} THEN SAY "first answer"`);
        await job.service.restart();
        const events = await session.run(`${call("cat note")} THEN SAY ok`);
        assert.match(resultOf(events), /remembered/);
        const request = job.model.requests.at(-1);
        assert.match(JSON.stringify(request.body), /first answer/);
    });

    test("a session that says nothing wrong leaves no unfinished work behind", async () => {
        const session = await job.session();
        await session.run("SAY done");
        await job.service.restart();
        assert.equal((await session.get()).status, "idle");
        assert.equal((await session.events()).filter((event) => event.type === "session.status_run_started").length, 1);
    });
});
