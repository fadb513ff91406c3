// Tenants, plans and limits (§8.12, §27.3): exactly as many as fit, also when all come at once.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { eventually } from "../support/eventually.mjs";
import { SERVICE_PROGRAM } from "../support/service.mjs";
import { agentBody, assertProblem, createTenant, environmentBody, startService, uniqueName } from "./support.mjs";

let service;
before(async () => { service = await startService(); });
after(() => service?.stop());

const cli = async (...args) => (await promisify(execFile)(SERVICE_PROGRAM,
    [...args, "--data", service.data])).stdout;
const refused = (pattern, ...args) => assert.rejects(cli(...args), pattern);

/** A tenant with limits, and what a session of it needs. */
async function limited(limits) {
    const tenant = await createTenant(service, uniqueName("tenant"));
    const own = { key: tenant.apiKey };
    const agent = await service.ok("POST", "/v1/agents", agentBody(), own);
    const environment = await service.ok("POST", "/v1/environments", environmentBody(), own);
    if (limits) {
        await cli("tenant", "set", tenant.tenantId, "--limits", limits);
    }
    return { ...tenant, own, body: { agent: agent.id, environmentId: environment.id } };
}
const create = ({ own, body }) => service.request("POST", "/v1/sessions", { body, ...own });
const quotas = async ({ own }) => (await service.ok("GET", "/v1/tenant", undefined, own)).quotas;

test("a tenant sees its plan, its limits and what it uses", async () => {
    const tenant = await service.ok("GET", "/v1/tenant");
    assert.equal(tenant.id, service.tenantId);
    assert.equal(tenant.quotaPlan, "unlimited");
    assert.deepEqual(tenant.quotas.concurrentSessions, { limit: null, used: 0 });
    assert.equal(Object.keys(tenant.quotas).length, 9);
    const read = await service.ok("POST", "/v1/api-keys", { name: "reader", scope: "read" });
    assert.deepEqual(await service.ok("GET", "/v1/tenant", undefined, { key: read.apiKey }), tenant);
    assertProblem(await service.request("GET", "/v1/tenant", { key: null }), 401);
});

test("of 100 creates at once exactly as many succeed as fit; a delete makes room for one", async () => {
    const tenant = await limited("concurrentSessions=5");
    const replies = await Promise.all(Array.from({ length: 100 }, () => create(tenant)));
    const made = replies.filter((reply) => reply.status === 201);
    assert.equal(made.length, 5);
    for (const reply of replies.filter((one) => one.status !== 201)) {
        assertProblem(reply, 429, "quota_exceeded");
        assert.match(reply.body.detail, /concurrentSessions.*5/);
        assert.ok(Number(reply.headers["retry-after"]) >= 1);
    }
    assert.deepEqual((await quotas(tenant)).concurrentSessions, { limit: 5, used: 5 });
    await service.ok("DELETE", `/v1/sessions/${made[0].body.id}`, undefined, tenant.own);
    const next = await Promise.all(Array.from({ length: 20 }, () => create(tenant)));
    assert.equal(next.filter((reply) => reply.status === 201).length, 1);
    assert.deepEqual((await quotas(tenant)).concurrentSessions, { limit: 5, used: 5 });
    assert.equal((await create(await limited())).status, 201, "another tenant is not concerned");
});

/** A session in Pi's own form, with one message to fork at. */
const LOG = [{ type: "session", version: 3, id: "s", timestamp: "2026-11-30T12:00:00.000Z", cwd: "/workspace" },
    { type: "message", id: "m1", parentId: null, timestamp: "2026-11-30T12:00:00.000Z",
        message: { role: "user", content: [{ type: "text", text: "hello" }], timestamp: 1 } }]
    .map((line) => `${JSON.stringify(line)}\n`).join("");
const importLog = ({ own, body }) => service.request("POST",
    `/v1/sessions/import?agent=${body.agent}&environmentId=${body.environmentId}`,
    { body: LOG, ...own, headers: { "content-type": "application/jsonl" } });

test("creates, imports and forks at once count together", async () => {
    const tenant = await limited("concurrentSessions=6");
    const source = await importLog(tenant);
    assert.equal(source.status, 201, source.text);
    const fork = () => service.request("POST", `/v1/sessions/${source.body.id}/fork`, { body: { files: "none" }, ...tenant.own });
    const replies = await Promise.all(Array.from({ length: 60 }, (_, i) =>
        [create, importLog, fork][i % 3](tenant)));
    assert.equal(replies.filter(({ status }) => status === 201).length, 5);
    replies.filter(({ status }) => status !== 201).forEach((reply) => assertProblem(reply, 429, "quota_exceeded"));
    assert.deepEqual((await quotas(tenant)).concurrentSessions, { limit: 6, used: 6 });
    const listed = await service.ok("GET", "/v1/sessions?limit=100", undefined, tenant.own);
    assert.equal(listed.data.length, 6);
});

test("credentials at once: as many as the tenant may have over all vaults, and as many as a vault holds", async () => {
    const tenant = await limited("vaultCredentials=5");
    const vaults = await Promise.all(["a", "b", "c"].map((name) => service.ok("POST", "/v1/vaults", { name }, tenant.own)));
    const add = (vault, i) => service.request("POST", `/v1/vaults/${vault.id}/credentials`,
        { body: { kind: "model_provider_key", baseUrl: `https://m${i}.example.com`, apiKey: "k" }, ...tenant.own });
    const many = await Promise.all(Array.from({ length: 60 }, (_, i) => add(vaults[i % 3], i)));
    assert.equal(many.filter(({ status }) => status === 201).length, 5);
    many.filter(({ status }) => status !== 201).forEach((reply) => assertProblem(reply, 429, "quota_exceeded"));
    assert.deepEqual((await quotas(tenant)).vaultCredentials, { limit: 5, used: 5 });
    const made = many.find(({ status }) => status === 201).body;
    await service.ok("DELETE", `/v1/vaults/${made.vaultId}/credentials/${made.id}`, undefined, tenant.own);
    const again = await Promise.all(Array.from({ length: 10 }, (_, i) => add(vaults[0], 100 + i)));
    assert.equal(again.filter(({ status }) => status === 201).length, 1);

    await cli("tenant", "set", tenant.tenantId, "--limits", "vaultCredentials=none");
    const vault = await service.ok("POST", "/v1/vaults", { name: "full" }, tenant.own);
    const full = await Promise.all(Array.from({ length: 40 }, (_, i) => add(vault, i)));
    assert.equal(full.filter(({ status }) => status === 201).length, 20);
    full.filter(({ status }) => status !== 201).forEach((reply) => assertProblem(reply, 409, "vault_full"));
});

test("a name, a credential and a default at once: one makes it", async () => {
    const tenant = await limited();
    const same = (path, body) => Promise.all(Array.from({ length: 20 }, () =>
        service.request("POST", path, { body, ...tenant.own })));
    const vault = await service.ok("POST", "/v1/vaults", { name: "v" }, tenant.own);
    for (const [path, body] of [["/v1/agents", agentBody()], ["/v1/environments", environmentBody()], ["/v1/vaults", { name: "w" }],
        [`/v1/vaults/${vault.id}/credentials`, { kind: "model_provider_key", provider: "openai", apiKey: "k" }]]) {
        const replies = await same(path, body);
        assert.equal(replies.filter(({ status }) => status === 201).length, 1, path);
        replies.filter(({ status }) => status !== 201).forEach((reply) => assertProblem(reply, 409));
    }
});

test("a refused create is not kept for its Idempotency-Key, a made one counts once", async () => {
    const tenant = await limited("concurrentSessions=1");
    const first = { body: tenant.body, headers: { "idempotency-key": "one" }, ...tenant.own };
    const made = await service.request("POST", "/v1/sessions", first);
    assert.equal((await service.request("POST", "/v1/sessions", first)).text, made.text);
    const second = { ...first, headers: { "idempotency-key": "two" } };
    assertProblem(await service.request("POST", "/v1/sessions", second), 429, "quota_exceeded");
    await service.ok("DELETE", `/v1/sessions/${made.body.id}`, undefined, tenant.own);
    assert.equal((await service.request("POST", "/v1/sessions", second)).status, 201);
});

test("a tenant's requests are counted in a bucket of its own", async () => {
    const tenant = await limited("requestsPerMinute=12");
    const look = () => service.request("GET", "/v1/agents?limit=1", tenant.own);
    await eventually("the limit to be known", look, ({ status }) => status === 429);
    const replies = await Promise.all(Array.from({ length: 50 }, look));
    const refusals = replies.filter(({ status }) => status === 429);
    assert.ok(refusals.length >= 25, `${refusals.length} of 50 refused`);
    for (const reply of refusals) {
        assertProblem(reply, 429, "rate_limited");
        const wait = Number(reply.headers["retry-after"]);
        assert.ok(wait >= 1 && wait <= 5, `Retry-After: ${wait}`);
    }
    assert.equal((await service.request("GET", "/v1/agents")).status, 200, "others go on");
    assert.equal((await service.request("GET", "/healthz", tenant.own)).status, 200);
    await eventually("the bucket to fill", look, ({ status }) => status === 200);
    await cli("tenant", "set", tenant.tenantId, "--limits", "requestsPerMinute=none");
    await eventually("the limit to be gone", () => Promise.all(Array.from({ length: 30 }, look)),
        (all) => all.every(({ status }) => status === 200));
});

test("plans are data: made, changed, given, and overridden by a tenant's own limits", async () => {
    await cli("plan", "set", "small", "--limits", "concurrentSessions=1,dailyUsd=2.5",
        "--features", '{"webhooks":true}');
    const { tenantId, apiKey } = JSON.parse(await cli("tenant", "create", uniqueName("tenant"),
        "--plan", "small", "--json"));
    const seen = () => service.ok("GET", "/v1/tenant", undefined, { key: apiKey });
    const first = await seen();
    assert.equal(first.quotaPlan, "small");
    assert.deepEqual(first.features, { webhooks: true });
    assert.deepEqual([first.quotas.concurrentSessions.limit, first.quotas.dailyUsd.limit, first.quotas.jobs.limit],
        [1, 2.5, null]);
    await cli("plan", "set", "small", "--limits", "concurrentSessions=2,dailyUsd=none");
    await cli("tenant", "set", tenantId, "--limits", "jobs=7");
    const second = await seen();
    assert.deepEqual([second.quotas.concurrentSessions.limit, second.quotas.dailyUsd.limit, second.quotas.jobs.limit],
        [2, null, 7]);
    await cli("tenant", "set", tenantId, "--plan", "free", "--limits", "concurrentSessions=none");
    const third = await seen();
    assert.equal(third.quotaPlan, "free");
    assert.deepEqual([third.quotas.concurrentSessions.limit, third.quotas.jobs.limit], [null, 7]);
    const plans = (await cli("plan", "list", "--json")).trim().split("\n").map((line) => JSON.parse(line));
    assert.deepEqual(plans.map(({ name }) => name), ["free", "small", "team", "unlimited"]);
    assert.equal(plans[0].limits.fileStorageBytes, 2 ** 30);
});

test("the command line says what it does not take", async () => {
    await refused(/no limit called sessions.*concurrentSessions/, "plan", "set", "x", "--limits", "sessions=1");
    await refused(/no number/, "plan", "set", "x", "--limits", "jobs=-1");
    await refused(/no number/, "plan", "set", "x", "--limits", "jobs=1e9");
    await refused(/KIND=N/, "plan", "set", "x", "--limits", "jobs");
    await refused(/JSON/i, "plan", "set", "x", "--features", "[1]");
    await refused(/no plan gold/, "tenant", "set", service.tenantId, "--plan", "gold");
    await refused(/no plan gold/, "tenant", "create", "golden", "--plan", "gold");
    await refused(/no tenant id/, "tenant", "set", "nobody");
    await refused(/no tenant tenant_/, "tenant", "set", `tenant_${"0".repeat(26)}`);
    assert.doesNotMatch(await cli("tenant", "list"), /golden/, "nothing half made");
});

test("counters are right again after kill -9", async () => {
    const tenant = await limited("concurrentSessions=3");
    await Promise.all(Array.from({ length: 10 }, () => create(tenant)));
    await service.kill9();
    await service.restart();
    assert.deepEqual((await quotas(tenant)).concurrentSessions, { limit: 3, used: 3 });
    assertProblem(await create(tenant), 429, "quota_exceeded");
});
