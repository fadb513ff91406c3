// PATCH /v1/sessions/:id (§6.3): names at any time, tools only between turns, for this session only.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { assertPaths, assertProblem } from "../api/support.mjs";
import { startJob, types } from "../support/job.mjs";
import { serviceMissing } from "../support/service.mjs";

describe("changing a session", { skip: serviceMissing }, () => {
    let job;
    before(async () => { job = await startJob(); });
    after(() => job?.stop());

    const request = (session, body) => job.service.request("PATCH", session.path, { body });
    async function change(session, body) {
        const reply = await request(session, body);
        assert.equal(reply.status, 200, reply.text);
        return reply.body;
    }
    const updates = async (session) => (await session.events()).filter((one) => one.type === "session.updated");
    const shownTools = () => job.model.requests.at(-1).parsed.tools.map((one) => one.function.name).sort();

    test("title and metadata: omitted stays, null clears, who watches sees it", async () => {
        const session = await job.session();
        const stream = await session.stream();
        const first = await change(session, { title: "One", metadata: { a: "1" } });
        assert.deepEqual([first.title, first.metadata], ["One", { a: "1" }]);
        const seen = await stream.until((frame) => frame.type === "session.updated");
        await stream.close();
        assert.deepEqual([seen.at(-1).data.title, seen.at(-1).data.metadata], ["One", { a: "1" }]);
        const second = await change(session, { title: null });
        assert.deepEqual([second.title, second.metadata], [null, { a: "1" }]);
        assert.deepEqual((await change(session, { metadata: null })).metadata, {});
        assert.deepEqual(await change(session, {}), await session.get());
        assert.equal((await updates(session)).length, 3, "nothing changed, nothing told");
        const events = await session.run("SAY hello");
        assert.equal(events.at(-1).stopReason.type, "end_turn");
    });

    test("tools change for this session, from the next turn on, also over a restart", async () => {
        const session = await job.session();
        await session.run("SAY one");
        assert.ok(shownTools().includes("bash"));
        const tools = { defaultConfig: { enabled: false }, configs: [{ name: "read", enabled: true }] };
        const changed = await change(session, { agent: { tools } });
        assert.deepEqual(changed.agent.tools, tools);
        assert.deepEqual(changed.agent.model, session.resource.agent.model);
        await session.run("SAY two");
        assert.deepEqual(shownTools(), ["read"]);
        assert.equal((await job.service.ok("GET", `/v1/agents/${changed.agentId}`)).tools, null);
        await job.service.restart();
        assert.deepEqual((await session.get()).agent.tools, tools);
        await session.run("SAY three");
        assert.deepEqual(shownTools(), ["read"]);
        await change(session, { agent: { tools: null } });
        const events = await session.run('CALL bash {"command":"echo back"} THEN SAY done');
        assert.ok(shownTools().includes("bash"));
        assert.equal(events.find((one) => one.type === "agent.tool_result").isError, false);
        assert.deepEqual((await updates(session)).map((one) => one.agent.tools), [tools, null]);
    });

    test("a running session keeps its tools; its title may change", async () => {
        const session = await job.session();
        const stream = await session.stream();
        await session.say('CALL bash {"command":"sleep 60"} THEN SAY late');
        await stream.until((frame) => frame.type === "agent.tool_use");
        assertProblem(await request(session, { title: "no", agent: { tools: null } }), 409, "session_not_idle");
        assert.equal((await change(session, { title: "yes" })).title, "yes");
        await session.interrupt();
        await stream.until((frame) => frame.type === "session.status_idle");
        await stream.close();
        await change(session, { agent: { tools: null } });
        const seen = types(await session.events());
        assert.equal(seen.filter((type) => type === "session.updated").length, 2);
    });

    test("what does not fit is refused and changes nothing", async () => {
        const session = await job.session();
        const model = session.resource.agent.model;
        assertPaths(await request(session, { agent: { model }, status: "idle", title: "" }),
            ["/agent/model", "/status", "/title"]);
        assertPaths(await request(session, { agent: { tools: { configs: [{ name: "rm" }] } } }),
            ["/agent/tools/configs/0/name"]);
        const docs = { type: "url", name: "docs", url: "https://example.com/mcp" };
        assertProblem(await request(session, { agent: { mcpServers: [docs] } }), 400, "invalid_request");
        assertProblem(await request(session, { agent: { mcpServers: [docs], tools: { mcp: [{ server: "docs" }] } } }),
            400, "not_supported");
        assert.deepEqual(await session.get(), session.resource);
        assert.deepEqual(await updates(session), []);
    });

    test("many changes at once all count", async () => {
        const session = await job.session();
        const bodies = Array.from({ length: 20 }, (_, i) => [
            { title: `title ${i}` }, { metadata: { i: String(i) } }, { agent: { tools: { configs: [] } } }][i % 3]);
        await Promise.all(bodies.map((body) => change(session, body)));
        const all = await updates(session);
        assert.equal(all.length, bodies.length);
        const now = await session.get();
        assert.equal(now.title, all.findLast((one) => one.title).title);
        assert.deepEqual(now.metadata, all.findLast((one) => one.metadata).metadata);
        assert.deepEqual(now.agent.tools, { configs: [] });
    });
});
