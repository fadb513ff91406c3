// Agents: validation, versions, names, archive, lists.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import {
    MODEL, agentBody, allPages, assertPaths, assertProblem, createTenant, startService,
    uniqueName,
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
        tools: null, extensions: [], metadata: {}, createdAt: agent.createdAt,
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
    ["skills", agentBody({ skills: ["skill_x"] }), ["/skills"], "not_supported"],
    ["MCP servers", agentBody({ mcpServers: [{ name: "a", url: "https://example.com" }] }),
        ["/mcpServers"], "not_supported"],
    ["multiagent", agentBody({ multiagent: { roster: [1] } }), ["/multiagent"], "not_supported"],
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
