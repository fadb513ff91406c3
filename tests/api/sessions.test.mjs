// Sessions: the three agent forms, overrides, lists and their cursors, delete.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import {
    MODEL, agentBody, allPages, assertPaths, assertProblem, createSession, createTenant,
    environmentBody, startService, uniqueName,
} from "./support.mjs";

let service, agent, environment;
before(async () => {
    service = await startService();
    agent = await service.ok("POST", "/v1/agents", agentBody({ systemPrompt: "one",
        tools: { configs: [{ name: "ls", enabled: false }] } }));
    await service.ok("PATCH", `/v1/agents/${agent.id}`, { systemPrompt: "two" });
    environment = await service.ok("POST", "/v1/environments", environmentBody());
});
after(() => service?.stop());

const post = (body, options) => service.request("POST", "/v1/sessions", { body, ...options });
const create = (form, more) => service.ok("POST", "/v1/sessions",
    { agent: form, environmentId: environment.id, ...more });

test("create answers 201 with an idle session; nothing runs yet", async () => {
    const reply = await post({ agent: agent.id, environmentId: environment.id, title: "Try",
        metadata: { a: "b" } });
    assert.equal(reply.status, 201, reply.text);
    const session = reply.body;
    assert.match(session.id, /^sess_[0-9A-HJKMNP-TV-Z]{26}$/);
    assert.equal(session.status, "idle");
    assert.equal(session.stopReason, null);
    assert.equal(session.title, "Try");
    assert.deepEqual(session.metadata, { a: "b" });
    assert.equal(session.agentId, agent.id);
    assert.equal(session.environmentId, environment.id);
    assert.deepEqual(session.usage, { inputTokens: 0, outputTokens: 0, cacheReadInputTokens: 0,
        cacheCreationInputTokens: 0, costUsd: 0 });
    const { provider, ownKernel, limits, state } = session.sandbox;
    assert.equal(typeof provider, "string");
    assert.equal(typeof ownKernel, "boolean");
    assert.ok(["enforced", "none"].includes(limits), limits);
    assert.equal(state, "none");
    assert.deepEqual(await service.ok("GET", `/v1/sessions/${session.id}`), session);
    const events = await service.ok("GET", `/v1/sessions/${session.id}/events`);
    assert.deepEqual(events, { data: [], nextCursor: null, hasMore: false });
    assert.deepEqual((await service.ok("GET", `/v1/sessions/${session.id}/entries`)).data, []);
    const log = await service.request("GET", `/v1/sessions/${session.id}/export`);
    assert.deepEqual([log.status, log.text], [200, ""]);
});

test("a bare id means the newest version, a pinned one exactly that", async () => {
    const bare = await create(agent.id);
    assert.equal(bare.agentVersion, 2);
    assert.equal(bare.agent.systemPrompt, "two");
    const pinned = await create({ id: agent.id, version: 1 });
    assert.equal(pinned.agentVersion, 1);
    assert.equal(pinned.agent.systemPrompt, "one");
    const newest = await create({ id: agent.id });
    assert.equal(newest.agentVersion, 2);
});

test("overrides: omitted inherits, null clears, a value replaces whole", async () => {
    const model = { ...MODEL, id: "other" };
    const session = await create({ id: agent.id, version: 1,
        overrides: { model, tools: null } });
    assert.deepEqual(session.agent.model, model);
    assert.equal(session.agent.tools, null);
    assert.equal(session.agent.systemPrompt, "one");
    const cleared = await create({ id: agent.id, overrides: { systemPrompt: null } });
    assert.equal(cleared.agent.systemPrompt, null);
    assert.deepEqual(cleared.agent.tools, agent.tools);
    const stored = await service.ok("GET", `/v1/agents/${agent.id}`);
    assert.equal(stored.version, 2);
    assert.equal(stored.systemPrompt, "two");
});

test("a session keeps the agent it was made with", async () => {
    const mine = await service.ok("POST", "/v1/agents", agentBody({ systemPrompt: "before" }));
    const session = await create(mine.id);
    await service.ok("PATCH", `/v1/agents/${mine.id}`, { systemPrompt: "after" });
    const read = await service.ok("GET", `/v1/sessions/${session.id}`);
    assert.equal(read.agent.systemPrompt, "before");
    assert.equal(read.agentVersion, 1);
});

const FILE = `file_${"0".repeat(26)}`;
const refused = [
    ["nothing", () => ({}), ["/agent", "/environmentId"]],
    ["an unknown field", () => ({ agent: agent.id, environmentId: environment.id, x: 1 }), ["/x"]],
    ["a number as agent", () => ({ agent: 1, environmentId: environment.id }), ["/agent"]],
    ["an agent object without id", () => ({ agent: {}, environmentId: environment.id }), ["/agent/id"]],
    ["version 0", () => ({ agent: { id: agent.id, version: 0 }, environmentId: environment.id }),
        ["/agent/version"]],
    ["an override of the name",
        () => ({ agent: { id: agent.id, overrides: { name: "x" } }, environmentId: environment.id }),
        ["/agent/overrides/name"]],
    ["an override that clears the model",
        () => ({ agent: { id: agent.id, overrides: { model: null } }, environmentId: environment.id }),
        ["/agent/overrides/model"]],
    ["an override with an unknown model",
        () => ({ agent: { id: agent.id, overrides: { model: { provider: "openai", id: "no" } } },
            environmentId: environment.id }), ["/agent/overrides/model/id"], "model_unknown"],
    ["NUL in the title", () => ({ agent: agent.id, environmentId: environment.id, title: "a\0" }),
        ["/title"]],
    ["a title of 257 characters",
        () => ({ agent: agent.id, environmentId: environment.id, title: "t".repeat(257) }), ["/title"]],
    ["resources of another type", () => ({ agent: agent.id, environmentId: environment.id,
        resources: [{ type: "repo", fileId: FILE }] }), ["/resources/0/type"]],
    ["resources outside the working directory", () => ({ agent: agent.id, environmentId: environment.id,
        resources: ["/etc/passwd", "../a", "a/../../b", "/workspace", "/workspace/", "a//b", "a/", "./a", "a\nb",
            "x".repeat(1025)].map((path) => ({ type: "file", fileId: FILE, path })) }),
        Array.from({ length: 10 }, (_, n) => `/resources/${n}/path`)],
    ["two resources at one path", () => ({ agent: agent.id, environmentId: environment.id,
        resources: [1, 2].map(() => ({ type: "file", fileId: FILE, path: "a" })) }), ["/resources"]],
    ["vaults that are no list", () => ({ agent: agent.id, environmentId: environment.id, vaultIds: "vault_x" }),
        ["/vaultIds"]],
    ["a budget of nothing", () => ({ agent: agent.id, environmentId: environment.id, budget: {} }),
        ["/budget"]],
];

for (const [what, body, paths, code] of refused) {
    test(`refuses ${what}`, async () => assertPaths(await post(body()), paths, code));
}

test("a reference that leads nowhere is 404 and names its field", async () => {
    const unknown = { agent: `agent_${"0".repeat(26)}`, environment: `env_${"0".repeat(26)}` };
    for (const [body, path] of [
        [{ agent: unknown.agent, environmentId: environment.id }, "/agent"],
        [{ agent: { id: agent.id, version: 3 }, environmentId: environment.id }, "/agent"],
        [{ agent: agent.id, environmentId: unknown.environment }, "/environmentId"],
        [{ agent: "x", environmentId: environment.id }, "/agent"],
        [{ agent: agent.id, environmentId: environment.id, resources: [{ type: "file", fileId: FILE }] },
            "/resources/0/fileId"],
    ]) {
        const problem = assertProblem(await post(body), 404);
        assert.deepEqual(problem.errors.map((error) => error.path), [path]);
    }
});

test("an archived agent starts no session", async () => {
    const old = await service.ok("POST", "/v1/agents", agentBody());
    await service.ok("POST", `/v1/agents/${old.id}/archive`);
    assertProblem(await post({ agent: old.id, environmentId: environment.id }), 409, "agent_archived");
});

test("lists filter by status, agent and environment", async () => {
    const mine = await service.ok("POST", "/v1/agents", agentBody());
    const made = [await create(mine.id), await create(mine.id)];
    const other = await createSession(service);
    const ids = async (query) =>
        (await service.ok("GET", `/v1/sessions?limit=100&${query}`)).data.map((one) => one.id);
    assert.deepEqual(await ids(`agentId=${mine.id}`), [made[1].id, made[0].id]);
    assert.deepEqual(await ids(`agentId=${mine.id}&order=asc`), [made[0].id, made[1].id]);
    assert.deepEqual(await ids(`environmentId=${other.environmentId}`), [other.id]);
    assert.deepEqual(await ids(`environmentId=${other.environmentId}&agentId=${mine.id}`), []);
    assert.ok((await ids("status=idle")).includes(other.id));
    assert.deepEqual(await ids("status=terminated"), []);
    assertProblem(await service.request("GET", "/v1/sessions?status=busy"), 400);
    assertProblem(await service.request("GET", "/v1/sessions?colour=red"), 400);
});

test("a list can be that of one request: the session it made, or spoke to", async () => {
    const agent = await service.ok("POST", "/v1/agents", agentBody());
    const reply = await post({ agent: agent.id, environmentId: environment.id });
    const ids = async (request, options) => (await service.ok("GET",
        `/v1/sessions?requestId=${encodeURIComponent(request)}`, undefined, options)).data.map((one) => one.id);
    assert.deepEqual(await ids(reply.headers["x-request-id"]), [reply.body.id]);
    const spoken = await service.request("POST", `/v1/sessions/${reply.body.id}/events`,
        { body: { type: "user.interrupt" } });
    const request = spoken.headers["x-request-id"];
    assert.equal(spoken.body.data[0].requestId, request);
    assert.deepEqual(await ids(request), [reply.body.id]);
    assert.deepEqual(await ids("nobody's"), []);
    const again = await service.request("POST", `/v1/sessions/${reply.body.id}/events`,
        { body: { type: "user.interrupt" }, headers: { "x-request-id": request } });
    assert.equal(again.status, 202, "an id may be used twice");
    assert.deepEqual(await ids(request), [reply.body.id]);
});

test("paging gives each session once, also when many are created at once", async () => {
    const mine = await service.ok("POST", "/v1/agents", agentBody());
    const made = await Promise.all(Array.from({ length: 40 }, () => create(mine.id)));
    const path = `/v1/sessions?agentId=${mine.id}`;
    const newest = (await allPages(service, path, 7)).map((one) => one.id);
    assert.deepEqual([...newest].sort(), made.map((one) => one.id).sort());
    const oldest = (await allPages(service, `${path}&order=asc`, 7)).map((one) => one.id);
    assert.deepEqual(oldest, [...newest].reverse());
});

test("a page goes on where it stopped while rows come and go", async () => {
    const mine = await service.ok("POST", "/v1/agents", agentBody());
    for (let i = 0; i < 6; i++) {
        await create(mine.id);
    }
    const path = `/v1/sessions?agentId=${mine.id}&limit=3`;
    const made = (await allPages(service, `/v1/sessions?agentId=${mine.id}`, 6)).map((one) => one.id);
    const first = await service.ok("GET", path);
    await service.request("DELETE", `/v1/sessions/${made[2]}`); // the cursor's own row
    await create(mine.id);
    const second = await service.ok("GET", `${path}&cursor=${encodeURIComponent(first.nextCursor)}`);
    assert.deepEqual(second.data.map((one) => one.id), made.slice(3));
});

test("cursors are good only for the list they came from", async () => {
    const mine = await service.ok("POST", "/v1/agents", agentBody());
    await create(mine.id);
    await create(mine.id);
    const { nextCursor } = await service.ok("GET", `/v1/sessions?agentId=${mine.id}&limit=1`);
    const other = { key: (await createTenant(service, uniqueName("tenant"))).apiKey };
    const bad = (query, options) => service.request("GET", `/v1/sessions?${query}`, options)
        .then((reply) => assertProblem(reply, 400, "invalid_cursor"));
    const cursor = `cursor=${encodeURIComponent(nextCursor)}`;
    await bad(cursor);
    await bad(`agentId=${agent.id}&${cursor}`);
    await bad(`agentId=${mine.id}&order=asc&${cursor}`);
    await bad(`agentId=${mine.id}&${cursor}`, other);
    await bad(`agentId=${mine.id}&cursor=AAAA`);
    await bad(`agentId=${mine.id}&cursor=${encodeURIComponent("' OR 1=1")}`);
    for (let i = 0; i < nextCursor.length; i += 5) {
        const changed = nextCursor[i] === "A" ? "B" : "A";
        await bad(`agentId=${mine.id}&cursor=${nextCursor.slice(0, i)}${changed}${nextCursor.slice(i + 1)}`);
    }
    for (const limit of ["0", "101", "-1", "1.5", "x", ""]) {
        assertProblem(await service.request("GET", `/v1/sessions?limit=${limit}`), 400);
    }
});

test("a deleted session is gone for the API", async () => {
    for (const query of ["", "?purge=true"]) {
        const session = await createSession(service);
        const path = `/v1/sessions/${session.id}`;
        const reply = await service.request("DELETE", `${path}${query}`);
        assert.equal(reply.status, 204, reply.text);
        for (const [method, target, body] of [
            ["GET", path], ["DELETE", path], ["GET", `${path}/events`], ["GET", `${path}/entries`],
            ["GET", `${path}/export`], ["GET", `${path}/stream`],
            ["POST", `${path}/events`, { type: "user.interrupt" }],
        ]) {
            assertProblem(await service.request(method, target, { body }), 404);
        }
        const list = await service.ok("GET", `/v1/sessions?agentId=${session.agentId}`);
        assert.deepEqual(list.data, []);
    }
    const session = await createSession(service);
    assertProblem(await service.request("DELETE", `/v1/sessions/${session.id}?purge=1`), 400);
});

test("another tenant's session is 404 in every way", async () => {
    const other = { key: (await createTenant(service, uniqueName("tenant"))).apiKey };
    const session = await createSession(service);
    const path = `/v1/sessions/${session.id}`;
    for (const [method, target, body] of [
        ["GET", path], ["DELETE", path], ["GET", `${path}/events`], ["GET", `${path}/entries`],
        ["GET", `${path}/export`], ["GET", `${path}/stream`],
        ["POST", `${path}/events`, { type: "user.interrupt" }],
        ["DELETE", `${path}/events/evt_${"0".repeat(26)}`],
    ]) {
        assertProblem(await service.request(method, target, { body, ...other }), 404);
    }
    assertProblem(await post({ agent: agent.id, environmentId: environment.id }, other), 404);
    assert.deepEqual((await service.ok("GET", "/v1/sessions", undefined, other)).data, []);
    assert.equal((await service.ok("GET", path)).id, session.id);
});
