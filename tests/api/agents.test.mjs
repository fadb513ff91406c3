// Agents: validation, versions, names, archive, lists.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import {
    MODEL, agentBody, allPages, assertPaths, assertProblem, createTenant, environmentBody,
    startService, uniqueName,
} from "./support.mjs";

let service;
before(async () => { service = await startService(); });
after(() => service?.stop());

const post = (body, options) => service.request("POST", "/v1/agents", { body, ...options });
const create = (more) => service.ok("POST", "/v1/agents", agentBody(more));

test("create answers 201 with the resource and its defaults", async () => {
    const body = agentBody();
    const reply = await post(body);
    assert.equal(reply.status, 201, reply.text);
    const agent = reply.body;
    assert.match(agent.id, /^agent_[0-9A-HJKMNP-TV-Z]{26}$/);
    assert.match(agent.createdAt, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
    assert.deepEqual(agent, {
        id: agent.id, type: "agent", version: 1, name: body.name, model: MODEL, systemPrompt: null,
        tools: null, extensions: [], skills: [], mcpServers: [], multiagent: null, projectContext: true,
        metadata: {}, createdAt: agent.createdAt,
        updatedAt: agent.createdAt, archivedAt: null,
    });
    assert.deepEqual(await service.ok("GET", `/v1/agents/${agent.id}`), agent);
});

test("a full definition comes back as it was given", async () => {
    const given = {
        model: { ...MODEL, thinkingLevel: "high", contextWindow: 128000, maxTokens: 4096,
            input: ["text", "image"], cost: { input: 1, output: 2.5, cacheRead: 0.1 } },
        systemPrompt: "Be brief.\nÄ 😀",
        tools: {
            defaultConfig: { enabled: false, permissionPolicy: "always_allow" },
            configs: [{ name: "bash", enabled: true }, { name: "read", permissionPolicy: "always_deny" }],
        },
        metadata: { team: "core", "key with spaces": "" },
    };
    const agent = await create(given);
    for (const [name, value] of Object.entries(given)) {
        assert.deepEqual(agent[name], value, name);
    }
});

const PDF = { type: "prebuilt", skillId: "pdf" };
const CUSTOM = { type: "custom", skillId: `skill_${"0".repeat(26)}` };
const DOCS = { type: "url", name: "docs", url: "https://example.com/mcp" };
const long = "x".repeat(100 * 1024);
const refused = [
    ["nothing", {}, ["/name", "/model"]],
    ["a name that is no string", agentBody({ name: 7 }), ["/name"]],
    ["an empty name", agentBody({ name: "" }), ["/name"]],
    ["a name of 129 characters", agentBody({ name: "ä".repeat(129) }), ["/name"]],
    ["NUL in the name", agentBody({ name: "a\0b" }), ["/name"]],
    ["a line break in the name", agentBody({ name: "a\nb" }), ["/name"]],
    ["an unknown field", agentBody({ colour: "red" }), ["/colour"]],
    ["several at once", { name: 1, model: 2, a: 3, "b/c~": 4 }, ["/name", "/model", "/a", "/b~1c~0"]],
    ["a null name", agentBody({ name: null }), ["/name"]],
    ["a model without id", agentBody({ model: { provider: "local" } }), ["/model/id"]],
    ["an unknown field of the model", agentBody({ model: { ...MODEL, x: 1 } }), ["/model/x"]],
    ["an unknown thinking level", agentBody({ model: { ...MODEL, thinkingLevel: "big" } }),
        ["/model/thinkingLevel"]],
    ["an unknown wire API", agentBody({ model: { ...MODEL, api: "bedrock" } }), ["/model/api"]],
    ["baseUrl without api", agentBody({ model: { ...MODEL, api: undefined } }), ["/model/api"]],
    ["api without baseUrl", agentBody({ model: { ...MODEL, baseUrl: undefined } }), ["/model/baseUrl"]],
    ["a baseUrl with a password", agentBody({ model: { ...MODEL, baseUrl: "http://u:p@example.com" } }),
        ["/model/baseUrl"]],
    ["a baseUrl that is a file", agentBody({ model: { ...MODEL, baseUrl: "file:///etc/passwd" } }),
        ["/model/baseUrl"]],
    ["a model that nobody has", agentBody({ model: { provider: "openai", id: "gpt-none" } }),
        ["/model/id"], "model_unknown"],
    ["a negative price", agentBody({ model: { ...MODEL, cost: { input: -1, output: 0 } } }),
        ["/model/cost/input"]],
    ["a systemPrompt over 100 KB", agentBody({ systemPrompt: `${long}x` }), ["/systemPrompt"]],
    ["17 pairs of metadata",
        agentBody({ metadata: Object.fromEntries(Array.from({ length: 17 }, (_, i) => [`k${i}`, ""])) }),
        ["/metadata"]],
    ["metadata that is no string", agentBody({ metadata: { a: 1, ok: "" } }), ["/metadata/a"]],
    ["a metadata key of 65 characters", agentBody({ metadata: { ["k".repeat(65)]: "" } }),
        [`/metadata/${"k".repeat(65)}`]],
    ["a metadata value of 513 characters", agentBody({ metadata: { k: "v".repeat(513) } }),
        ["/metadata/k"]],
    ["an unknown tool", agentBody({ tools: { configs: [{ name: "rm" }] } }), ["/tools/configs/0/name"]],
    ["a tool configured twice", agentBody({ tools: { configs: [{ name: "ls" }, { name: "ls" }] } }),
        ["/tools/configs"]],
    ["enabled as a string", agentBody({ tools: { defaultConfig: { enabled: "yes" } } }),
        ["/tools/defaultConfig/enabled"]],
    ["always_ask", agentBody({ tools: { defaultConfig: { permissionPolicy: "always_ask" } } }),
        ["/tools/defaultConfig/permissionPolicy"], "not_supported"],
    ["custom tools", agentBody({ tools: { custom: [{ name: "x" }] } }), ["/tools/custom"],
        "not_supported"],
    ["a skill that is no object", agentBody({ skills: ["pdf"] }), ["/skills/0"]],
    ["an unknown prebuilt skill", agentBody({ skills: [{ type: "prebuilt", skillId: "csv" }] }),
        ["/skills/0/skillId"]],
    ["a version of a prebuilt skill", agentBody({ skills: [{ type: "prebuilt", skillId: "pdf", version: 1 }] }),
        ["/skills/0/version"]],
    ["a custom skill without an id of one", agentBody({ skills: [{ type: "custom", skillId: "pdf" }] }),
        ["/skills/0/skillId"]],
    ["a skill named twice", agentBody({ skills: [PDF, PDF] }), ["/skills"]],
    ["21 skills", agentBody({ skills: Array.from({ length: 21 }, (_, i) => ({ ...CUSTOM,
        skillId: `skill_${String(i).padStart(26, "0")}` })) }), ["/skills"]],
    ["an MCP server without url", agentBody({ mcpServers: [{ type: "url", name: "a" }] }), ["/mcpServers/0/url"]],
    ["an MCP server that is a program", agentBody({ mcpServers: [{ ...DOCS, type: "stdio" }] }),
        ["/mcpServers/0/type"]],
    ["an MCP server that is a file", agentBody({ mcpServers: [{ ...DOCS, url: "file:///etc" }] }),
        ["/mcpServers/0/url"]],
    ["an MCP server named twice", agentBody({ mcpServers: [DOCS, DOCS] }), ["/mcpServers"]],
    ["21 MCP servers", agentBody({ mcpServers: Array.from({ length: 21 }, (_, i) => ({ ...DOCS, name: `${i}` })) }),
        ["/mcpServers"]],
    ["a server without its tools", agentBody({ mcpServers: [DOCS] }), []],
    ["tools of no server", agentBody({ tools: { mcp: [{ server: "docs" }] } }), []],
    ["tools of a server twice", agentBody({ mcpServers: [DOCS],
        tools: { mcp: [{ server: "docs" }, { server: "docs" }] } }), []],
    ["an empty roster", agentBody({ multiagent: { agents: [] } }), ["/multiagent/agents"]],
    ["a roster of 21", agentBody({ multiagent: { agents: Array.from({ length: 21 }, () => ({ type: "self" })) } }),
        ["/multiagent/agents"]],
    ["a roster member of an unknown type", agentBody({ multiagent: { agents: [{ type: "human" }] } }),
        ["/multiagent/agents/0/type"]],
    ["a self with an id", agentBody({ multiagent: { agents: [{ type: "self", id: "x" }] } }),
        ["/multiagent/agents/0/id"]],
    ["an extension", agentBody({ extensions: ["evil.js"] }), ["/extensions/0"], "extension_unavailable"],
];

for (const [what, body, paths, code] of refused) {
    test(`refuses ${what}`, async () => assertPaths(await post(body), paths, code));
}

test("an unknown provider is told which ones work", async () => {
    const reply = await post(agentBody({ model: { provider: "nobody", id: "x" } }));
    assertPaths(reply, ["/model/provider"], "provider_unavailable");
    assert.match(reply.body.detail, /anthropic/);
    assert.match(reply.body.detail, /openai/);
});

test("a body that is no object is refused", async () => {
    for (const body of ["[]", "1", "null", '"x"']) {
        assertProblem(await post(body), 400);
    }
    assertProblem(await post(undefined), 400);
});

test("limits are met exactly", async () => {
    await create({ name: "😀".repeat(128), systemPrompt: long,
        metadata: Object.fromEntries(Array.from({ length: 16 }, (_, i) =>
            [`${i}`.padEnd(64, "k"), "v".repeat(512)])) });
});

test("features of later are stored as they are given, and no session can run them", async () => {
    const environment = await service.ok("POST", "/v1/environments", environmentBody());
    const member = await create();
    const given = {
        skills: [PDF, { ...CUSTOM, version: 2 }], mcpServers: [DOCS],
        tools: { mcp: [{ server: "docs", defaultConfig: { enabled: false }, configs: [{ name: "search", enabled: true }] }] },
    };
    const agent = await create(given);
    Object.entries(given).forEach(([name, value]) => assert.deepEqual(agent[name], value));
    const start = (form) => service.request("POST", "/v1/sessions", { body: { agent: form, environmentId: environment.id } });
    const refused = assertProblem(await start(agent.id), 400, "not_supported");
    assert.match(refused.detail, /skills/);
    const overrides = { skills: null, mcpServers: null, tools: null };
    assertProblem(await start({ id: agent.id, overrides: { skills: null } }), 400, "not_supported");
    assertProblem(await start({ id: agent.id, overrides: { ...overrides, tools: undefined } }), 400, "invalid_request");
    const session = await start({ id: agent.id, overrides });
    assert.equal(session.status, 201, session.text);
    assert.deepEqual(session.body.agent.mcpServers, []);

    const roster = (agents) => create({ multiagent: { agents } });
    await service.ok("PATCH", `/v1/agents/${member.id}`, { systemPrompt: "two" });
    const coordinator = await roster([{ type: "agent", id: member.id }, { type: "self" }]);
    assert.deepEqual(coordinator.multiagent.agents, [{ type: "agent", id: member.id, version: 2 }, { type: "self" }]);
    await service.ok("PATCH", `/v1/agents/${member.id}`, { systemPrompt: "three" });
    assert.deepEqual((await service.ok("GET", `/v1/agents/${coordinator.id}`)).multiagent, coordinator.multiagent);
    assertProblem(await start(coordinator.id), 400, "not_supported");
    for (const one of [{ type: "agent", id: `agent_${"0".repeat(26)}` }, { type: "agent", id: member.id, version: 9 }]) {
        const reply = await post(agentBody({ multiagent: { agents: [{ type: "self" }, one] } }));
        assert.deepEqual(assertProblem(reply, 404).errors.map((error) => error.path), ["/multiagent/agents/1"]);
    }
    assertProblem(await post(agentBody({ multiagent: { agents: [
        { type: "agent", id: member.id }, { type: "agent", id: member.id, version: 1 }] } })), 400);
});

test("a change meant for another version is refused", async () => {
    const agent = await create();
    const patch = (body) => service.request("PATCH", `/v1/agents/${agent.id}`, { body });
    const second = await patch({ version: 1, systemPrompt: "a" });
    assert.deepEqual([second.status, second.body.version], [200, 2], second.text);
    assertProblem(await patch({ version: 1, systemPrompt: "b" }), 409, "version_conflict");
    assertProblem(await patch({ version: 3, systemPrompt: "a" }), 409, "version_conflict");
    assertPaths(await patch({ version: 0 }), ["/version"]);
    assert.equal((await patch({ version: 2 })).body.version, 2);
    const race = await Promise.all(Array.from({ length: 10 }, (_, i) => patch({ version: 2, systemPrompt: `${i}` })));
    assert.deepEqual(race.map((reply) => reply.status).sort(), [200, ...Array(9).fill(409)]);
    assert.equal((await service.ok("GET", `/v1/agents/${agent.id}`)).version, 3);
});

test("a list can be of the agents with some metadata", async () => {
    const mark = uniqueName("mark");
    const made = [];
    for (let i = 0; i < 7; i++) {
        made.push((await create({ metadata: { mark, odd: String(i % 2), 'ä"': "ö" } })).id);
    }
    await create({ metadata: { mark: "other" } });
    const list = (pairs, more = "") => `/v1/agents?metadata=${encodeURIComponent(JSON.stringify(pairs))}${more}`;
    const ids = async (...args) => (await allPages(service, list(...args), 2)).map((agent) => agent.id);
    assert.deepEqual(await ids({ mark }), [...made].reverse());
    assert.deepEqual(await ids({ mark, odd: "1", 'ä"': "ö" }, "&order=asc"), [made[1], made[3], made[5]]);
    assert.deepEqual(await ids({ mark, odd: "2" }), []);
    await service.ok("POST", `/v1/agents/${made[1]}/archive`);
    assert.deepEqual(await ids({ mark, odd: "1" }), [made[5], made[3]]);
    assert.deepEqual(await ids({ mark, odd: "1" }, "&includeArchived=true"), [made[5], made[3], made[1]]);
    for (const bad of ["x", "[]", "1", '{"a":1', "null"]) {
        assertProblem(await service.request("GET", `/v1/agents?metadata=${encodeURIComponent(bad)}`), 400);
    }
    const { nextCursor } = await service.ok("GET", list({ mark }, "&limit=2"));
    assertProblem(await service.request("GET", list({ mark, odd: "1" }, `&limit=2&cursor=${nextCursor}`)), 400,
        "invalid_cursor");
});

test("null brings a default", async () => {
    assert.deepEqual((await create({ extensions: null, tools: null })).extensions, []);
});

test("a name is unique within the tenant, also against archived agents", async () => {
    const agent = await create();
    assertProblem(await post(agentBody({ name: agent.name })), 409, "name_taken");
    await service.ok("POST", `/v1/agents/${agent.id}/archive`);
    assertProblem(await post(agentBody({ name: agent.name })), 409, "name_taken");
});

test("an update makes a version: omitted stays, null clears, a value replaces", async () => {
    const first = await create({ systemPrompt: "one", metadata: { a: "1", b: "2" },
        tools: { configs: [{ name: "ls", enabled: false }] } });
    const change = { systemPrompt: null, metadata: { c: "3" } };
    const second = await service.ok("PATCH", `/v1/agents/${first.id}`, change);
    assert.deepEqual(second, { ...first, ...change, version: 2, updatedAt: second.updatedAt });
    assert.ok(second.updatedAt >= first.updatedAt);
    assert.deepEqual(await service.ok("GET", `/v1/agents/${first.id}`), second);
    const old = await service.ok("GET", `/v1/agents/${first.id}/versions/1`);
    assert.equal(old.systemPrompt, "one");
    assert.deepEqual(old.metadata, { a: "1", b: "2" });
    assert.equal(old.version, 1);
});

test("an update that changes nothing makes no version", async () => {
    const agent = await create({ systemPrompt: "same" });
    assert.deepEqual(await service.ok("PATCH", `/v1/agents/${agent.id}`, {}), agent);
    assert.deepEqual(await service.ok("PATCH", `/v1/agents/${agent.id}`, { systemPrompt: "same" }), agent);
});

test("an update is checked like a create, and leaves nothing behind when refused", async () => {
    const agent = await create();
    const patch = (body) => service.request("PATCH", `/v1/agents/${agent.id}`, { body });
    assertPaths(await patch({ name: null, model: null, x: 1 }), ["/name", "/model", "/x"]);
    const other = await create();
    assertProblem(await patch({ name: other.name }), 409, "name_taken");
    assert.deepEqual(await service.ok("GET", `/v1/agents/${agent.id}`), agent);
});

test("many updates at once make as many versions, without gaps", async () => {
    const agent = await create();
    await Promise.all(Array.from({ length: 20 }, (_, i) =>
        service.ok("PATCH", `/v1/agents/${agent.id}`, { systemPrompt: `prompt ${i}` })));
    const versions = await allPages(service, `/v1/agents/${agent.id}/versions`, 6);
    assert.deepEqual(versions.map((one) => one.version), Array.from({ length: 21 }, (_, i) => 21 - i));
    assert.equal(new Set(versions.map((one) => one.systemPrompt)).size, 21);
    const ascending = await allPages(service, `/v1/agents/${agent.id}/versions?order=asc`, 6);
    assert.deepEqual(ascending, versions.reverse());
});

test("an archived agent is read-only; archiving twice is archiving once", async () => {
    const agent = await create();
    const archived = await service.ok("POST", `/v1/agents/${agent.id}/archive`);
    assert.ok(archived.archivedAt);
    assert.deepEqual(await service.ok("POST", `/v1/agents/${agent.id}/archive`), archived);
    assertProblem(await service.request("PATCH", `/v1/agents/${agent.id}`, { body: { systemPrompt: "x" } }),
        409, "agent_archived");
    const named = (query) => service.ok("GET",
        `/v1/agents?name=${encodeURIComponent(agent.name)}${query}`);
    assert.deepEqual((await named("")).data, []);
    assert.deepEqual((await named("&includeArchived=true")).data, [archived]);
    assertProblem(await service.request("GET", "/v1/agents?includeArchived=1"), 400);
});

test("unknown agents and versions are 404", async () => {
    const agent = await create();
    const unknown = `agent_${"0".repeat(26)}`;
    for (const [method, target] of [
        ["GET", `/v1/agents/${unknown}`], ["GET", "/v1/agents/x"], ["PATCH", `/v1/agents/${unknown}`],
        ["POST", `/v1/agents/${unknown}/archive`], ["GET", `/v1/agents/${unknown}/versions`],
        ["GET", `/v1/agents/${agent.id}/versions/2`], ["GET", `/v1/agents/${agent.id}/versions/0`],
        ["GET", `/v1/agents/${agent.id}/versions/01x`], ["GET", `/v1/agents/${agent.id}/versions/-1`],
        ["GET", `/v1/agents/${agent.id}/versions/99999999999999999999`],
    ]) {
        const body = method === "PATCH" ? {} : undefined;
        assertProblem(await service.request(method, target, { body }), 404);
    }
});

test("another tenant sees nothing of it, and may use the same name", async () => {
    const other = { key: (await createTenant(service, uniqueName("tenant"))).apiKey };
    const agent = await create();
    for (const [method, target] of [
        ["GET", `/v1/agents/${agent.id}`], ["PATCH", `/v1/agents/${agent.id}`],
        ["POST", `/v1/agents/${agent.id}/archive`], ["GET", `/v1/agents/${agent.id}/versions`],
        ["GET", `/v1/agents/${agent.id}/versions/1`],
    ]) {
        const body = method === "PATCH" ? { systemPrompt: "mine" } : undefined;
        assertProblem(await service.request(method, target, { body, ...other }), 404);
    }
    assert.deepEqual((await service.ok("GET", "/v1/agents", undefined, other)).data, []);
    const same = await service.ok("POST", "/v1/agents", agentBody({ name: agent.name }), other);
    assert.notEqual(same.id, agent.id);
    assert.deepEqual(await service.ok("GET", `/v1/agents/${agent.id}`), agent);
});
