// Sessions move as plain Pi JSONL (§28): exported, imported, they are the same conversation and go on.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readdirSync } from "node:fs";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { eventually } from "../support/eventually.mjs";
import { Session, startJob } from "../support/job.mjs";
import { SERVICE_PROGRAM, serviceMissing } from "../support/service.mjs";

describe("a log that moves", { skip: serviceMissing }, () => {
    let job;
    let folder;
    let agent;
    let environment;
    let original;
    let log;

    before(async () => {
        folder = await mkdtemp(path.join(tmpdir(), "import-"));
        job = await startJob();
        [agent, environment] = [await job.agent(), await job.environment()];
        original = await job.session();
        await original.run('SAY "the first answer" CALL bash {"command":"echo a-result"} THEN SAY "done"');
        log = (await job.service.request("GET", `${original.path}/export`)).text;
    });
    after(async () => {
        await job?.stop();
        await rm(folder, { recursive: true, force: true });
    });

    const post = (body, { query = "", headers } = {}) => job.service.request("POST",
        `/v1/sessions/import?agent=${agent.id}&environmentId=${environment.id}${query}`,
        { body, headers: { "content-type": "application/jsonl", ...headers } });
    const imported = async (body, more) => {
        const reply = await post(body, more);
        assert.equal(reply.status, 201, reply.text);
        return new Session(job, reply.body);
    };
    const lines = (text) => text.split("\n").slice(0, -1);
    const eventsOf = async (session) => (await job.service.ok("GET", `${session.path}/events?order=asc&limit=1000`)).data;
    const said = (events) => events.map(({ type, content, name, toolName }) => ({ type, content, name, toolName }));
    const left = () => readdirSync(path.join(job.service.data, "logs", job.service.tenantId));

    test("is the same conversation, byte for byte but for the header, and goes on", async () => {
        const session = await imported(log, { query: "&title=moved" });
        assert.equal(session.resource.title, "moved");
        const there = (await job.service.request("GET", `${session.path}/export`)).text;
        assert.deepEqual(lines(there).slice(1), lines(log).slice(1));
        assert.deepEqual(JSON.parse(lines(there)[0]), { ...JSON.parse(lines(log)[0]), id: session.id });
        assert.deepEqual(said(await eventsOf(session)), said(await eventsOf(original)));
        await session.run('SAY "the second answer"');
        const request = JSON.stringify(job.model.requests.at(-1));
        assert.match(request, /the first answer/);
        assert.match(request, /a-result/);
        assert.doesNotMatch(JSON.stringify(await eventsOf(original)), /the second answer/);
    });

    test("a log of a local Pi, without anything of this service, is a session, too", async () => {
        const plain = lines(log).map((line) => JSON.parse(line)).filter(({ type }) => type !== "custom");
        plain[0] = { ...plain[0], id: "0a1b2c3d-local", cwd: "/home/somebody/project" };
        const session = await imported(plain.map((line) => JSON.stringify(line)).join("\n")); // no LF at the end
        const types = (await eventsOf(session)).map(({ type }) => type);
        assert.deepEqual(types.filter((type) => /message|tool/.test(type)), ["user.message", "agent.message", "agent.tool_use",
            "agent.tool_result", "agent.message"]);
        const [{ entry: header }] = (await job.service.ok("GET", `${session.path}/entries?limit=1`)).data;
        assert.equal(header.cwd, "/workspace");
        await session.run('SAY "and on"');
        assert.match(JSON.stringify(job.model.requests.at(-1)), /the first answer/);
    });

    test("what is no log of Pi's is refused with its line, and leaves nothing", async () => {
        const before = left();
        const all = lines(log);
        const changed = (i, change) => all.map((line, at) => at === i
            ? JSON.stringify({ ...JSON.parse(line), ...change }) : line).join("\n");
        for (const [body, pattern] of [
            ["", /empty/], ["\n", /line 1 .*JSON/], ["nonsense\n", /line 1 .*JSON/], ["[]\n", /line 1 .*JSON/],
            [all.slice(1).join("\n"), /line 1 .*header/], [changed(0, { version: 2 }), /version/],
            [`${all[0]}\n\n`, /line 2 .*JSON/], [`${all[0]}\n${all[1]}\n${all[1]}\n`, /line 3 .*id of a line before/],
            [changed(2, { parentId: "nobody" }), /line 3 .*parentId/], [changed(2, { parentId: 7 }), /line 3 .*parentId/],
            [changed(1, { id: "" }), /line 2 .*no id/], [changed(1, { type: "session" }), /line 2 .*type/],
            [log.slice(0, -20), /JSON/],
        ]) {
            const reply = await post(body);
            assert.equal(reply.status, 400, `${body.slice(0, 200)} → ${reply.text}`);
            assert.match(reply.body.detail, pattern);
        }
        assert.equal((await post(log, { headers: { "content-type": "application/json" } })).status, 415);
        const nowhere = await job.service.request("POST", "/v1/sessions/import?agent=agent_x&environmentId=env_x",
            { body: log, headers: { "content-type": "application/jsonl" } });
        assert.equal(nowhere.status, 404);
        const unnamed = await job.service.request("POST", "/v1/sessions/import",
            { body: log, headers: { "content-type": "application/jsonl" } });
        assert.deepEqual(unnamed.body.errors.map((one) => one.path), ["/agent", "/environmentId"]);
        await eventually("nothing to be left", left, (names) => names.join() === before.join());
    });

    test("an Idempotency-Key makes one session of it", async () => {
        const headers = { "idempotency-key": "import-1" };
        const first = await post(log, { headers });
        const before = left();
        assert.equal((await post(log, { headers })).text, first.text);
        await eventually("no second log", left, (names) => names.join() === before.join());
        assert.equal((await post(`${lines(log)[0]}\n`, { headers })).status, 422);
    });

    test("from the command line: export, import, and it is there", async () => {
        const run = async (...args) => (await promisify(execFile)(SERVICE_PROGRAM, args, { cwd: folder,
            env: { ...process.env, PI_MANAGED_URL: job.service.url, PI_MANAGED_API_KEY: job.service.apiKey } })).stdout;
        await run("export", original.id, "--output", "moved.jsonl");
        assert.equal(JSON.parse(lines(await readFile(path.join(folder, "moved.jsonl"), "utf8"))[0]).cwd, folder);
        const session = JSON.parse(await run("import", "moved.jsonl", "--agent", agent.name, "--env",
            environment.name, "--json"));
        assert.deepEqual(said(await eventsOf({ path: `/v1/sessions/${session.id}` })), said(await eventsOf(original)));
        await writeFile(path.join(folder, "bad.jsonl"), "no log\n");
        await assert.rejects(run("import", "bad.jsonl", "--agent", agent.name, "--env", environment.name),
            /line 1 of the log/);
        await assert.rejects(run("import", "moved.jsonl"), /--agent and --env/);
        await assert.rejects(run("import", "missing.jsonl", "--agent", agent.name, "--env", environment.name),
            /missing.jsonl/);
    });
});
