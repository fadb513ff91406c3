// Vaults and credentials (§12): lifecycle, what is refused, that no secret ever comes back or lies about in the clear.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync, statSync } from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import {
    assertPaths, assertProblem, createSession, createTenant, startService, uniqueName,
} from "./support.mjs";
import { SERVICE_PROGRAM } from "../support/service.mjs";

let service;
before(async () => { service = await startService(); });
after(() => service?.stop());

const SECRET = "sk-this-is-the-secret-0123456789";
const makeVault = (options) => service.ok("POST", "/v1/vaults", { name: uniqueName("vault") }, options);
const add = (vault, more = {}, options = {}) => service.request("POST", `/v1/vaults/${vault.id}/credentials`,
    { body: { kind: "model_provider_key", provider: "openai", apiKey: SECRET, ...more }, ...options });

test("a vault from create to delete", async () => {
    const name = uniqueName("vault");
    const made = await service.ok("POST", "/v1/vaults", { name });
    assert.match(made.id, /^vault_/);
    assert.deepEqual(made, {
        id: made.id, type: "vault", name, isDefault: false, createdAt: made.createdAt,
        updatedAt: made.createdAt, archivedAt: null,
    });
    assert.deepEqual(await service.ok("GET", `/v1/vaults/${made.id}`), made);
    assertProblem(await service.request("POST", "/v1/vaults", { body: { name } }), 409, "name_taken");
    assertPaths(await service.request("POST", "/v1/vaults", { body: { label: 1 } }), ["/label", "/name"]);
    const { data } = await service.ok("GET", "/v1/vaults?limit=1");
    assert.equal(data[0].id, made.id);
    assert.equal((await service.request("DELETE", `/v1/vaults/${made.id}`)).status, 204);
    assertProblem(await service.request("GET", `/v1/vaults/${made.id}`), 404, "vault_not_found");
});

test("a credential is shown without its secret, and found by key and by id", async () => {
    const vault = await makeVault();
    const reply = await add(vault);
    assert.equal(reply.status, 201, reply.text);
    const made = reply.body;
    assert.deepEqual(made, {
        id: made.id, type: "credential", vaultId: vault.id, kind: "model_provider_key", key: "openai",
        provider: "openai", baseUrl: null, createdAt: made.createdAt, updatedAt: made.createdAt,
        archivedAt: null,
    });
    const at = `/v1/vaults/${vault.id}/credentials`;
    assert.deepEqual(await service.ok("GET", `${at}/openai`), made);
    assert.deepEqual(await service.ok("GET", `${at}/${made.id}`), made);
    assert.deepEqual((await service.ok("GET", at)).data, [made]);
    const changed = await service.ok("PATCH", `${at}/openai`, { apiKey: `${SECRET}-2` });
    assert.ok(changed.updatedAt >= made.updatedAt);
    assertProblem(await add(vault), 409, "credential_exists");
    assertProblem(await service.request("GET", `${at}/anthropic`), 404, "credential_not_found");
});

test("a key for an address is bound to its origin", async () => {
    const vault = await makeVault();
    const bind = async (baseUrl) => (await add(vault, { provider: null, baseUrl })).body;
    assert.equal((await bind("HTTPS://Models.Example.com:443/v1/")).baseUrl, "https://models.example.com");
    assert.equal((await bind("http://[2001:db8::1]:8080/v1")).key, "http://[2001:db8::1]:8080");
    for (const url of ["ftp://a.example.com", "https://user@a.example.com", "https://a.example.com\\@b", "nonsense"]) {
        assertPaths(await add(vault, { provider: null, baseUrl: url }), ["/baseUrl"]);
    }
});

test("archiving destroys the secret, keeps the record and frees the key", async () => {
    const vault = await makeVault();
    const at = `/v1/vaults/${vault.id}/credentials`;
    const first = (await add(vault)).body;
    const archived = await service.ok("DELETE", `${at}/openai`);
    assert.ok(archived.archivedAt);
    assert.deepEqual((await service.ok("GET", at)).data, []);
    assert.deepEqual(await service.ok("GET", `${at}/${first.id}`), archived);
    assertProblem(await service.request("GET", `${at}/openai`), 404, "credential_not_found");
    assertProblem(await service.request("PATCH", `${at}/${first.id}`, { body: { apiKey: "x" } }), 409,
        "credential_archived");
    const second = (await add(vault)).body;
    assert.notEqual(second.id, first.id);
    const all = await service.ok("GET", `${at}?includeArchived=true`);
    assert.deepEqual(all.data.map((one) => one.id).sort(), [first.id, second.id].sort());
    const gone = await service.ok("POST", `/v1/vaults/${vault.id}/archive`);
    assert.ok(gone.archivedAt);
    assert.ok((await service.ok("GET", `${at}/${second.id}`)).archivedAt);
    assertProblem(await add(vault, { provider: "anthropic" }), 409, "vault_archived");
    assert.ok(!(await service.ok("GET", "/v1/vaults")).data.some((one) => one.id === vault.id));
});

const REFUSED = [
    ["no kind", { kind: undefined }, ["/kind"]],
    ["another kind", { kind: "static_bearer" }, ["/kind"]],
    ["no secret", { apiKey: undefined }, ["/apiKey"]],
    ["an empty secret", { apiKey: "" }, ["/apiKey"]],
    ["a secret with a line break", { apiKey: "a\nX-Evil: 1" }, ["/apiKey"]],
    ["a secret beyond ASCII", { apiKey: "schlüssel" }, ["/apiKey"]],
    ["a huge secret", { apiKey: "x".repeat(5000) }, ["/apiKey"]],
    ["an unknown provider", { provider: "acme" }, ["/provider"], "provider_unavailable"],
    ["neither provider nor address", { provider: null }, ["/provider"]],
    ["both", { baseUrl: "https://a.example.com" }, ["/provider"]],
];
for (const [what, more, paths, code = "invalid_request"] of REFUSED) {
    test(`refused: ${what}`, async () => {
        const reply = await add(await makeVault(), more);
        assertProblem(reply, 400, code);
        assertPaths(reply, paths);
        assert.ok(!reply.text.includes("X-Evil") && !reply.text.includes("schl"), reply.text);
    });
}

test("a vault holds twenty credentials", async () => {
    const vault = await makeVault();
    for (let i = 0; i < 20; i += 1) {
        const reply = await add(vault, { provider: null, baseUrl: `https://m${i}.example.com` });
        assert.equal(reply.status, 201, reply.text);
    }
    assertProblem(await add(vault), 409, "vault_full");
});

test("credentials count against the tenant's limit", async () => {
    const tenant = await createTenant(service, "few credentials");
    const set = ["tenant", "set", tenant.tenantId, "--data", service.data, "--limits", "vaultCredentials=2"];
    execFileSync(SERVICE_PROGRAM, set);
    const options = { key: tenant.apiKey };
    const vault = await makeVault(options);
    assert.equal((await add(vault, {}, options)).status, 201);
    assert.equal((await add(vault, { provider: "anthropic" }, options)).status, 201);
    assertProblem(await add(vault, { provider: "google" }, options), 429, "quota_exceeded");
    await service.ok("DELETE", `/v1/vaults/${vault.id}/credentials/openai`, undefined, options);
    assert.equal((await add(vault, { provider: "google" }, options)).status, 201);
    await service.ok("POST", `/v1/vaults/${vault.id}/archive`, undefined, options);
    const second = await makeVault(options);
    assert.equal((await add(second, {}, options)).status, 201);
});

test("a session names vaults that are there and live", async () => {
    const vault = await makeVault();
    const session = await createSession(service, { vaultIds: [vault.id] });
    assert.deepEqual(session.vaultIds, [vault.id]);
    const { agentId, environmentId } = session;
    const create = (vaultIds) => service.request("POST", "/v1/sessions",
        { body: { agent: agentId, environmentId, vaultIds } });
    const unknown = await create([vault.id, "vault_01ARZ3NDEKTSV4RRFFQ69G5FAV"]);
    assertProblem(unknown, 404, "vault_not_found");
    assert.deepEqual(unknown.body.errors.map((error) => error.path), ["/vaultIds/1"]);
    await service.ok("POST", `/v1/vaults/${vault.id}/archive`);
    assertProblem(await create([vault.id]), 409, "vault_archived");
});

test("another tenant sees nothing of it, and cannot use it", async () => {
    const vault = await makeVault();
    const made = (await add(vault)).body;
    const { apiKey: key } = await createTenant(service, "vault stranger");
    const at = `/v1/vaults/${vault.id}`;
    for (const [method, target, body] of [["GET", at], ["DELETE", at], ["POST", `${at}/archive`],
        ["GET", `${at}/credentials`], ["GET", `${at}/credentials/openai`], ["GET", `${at}/credentials/${made.id}`],
        ["PATCH", `${at}/credentials/openai`, { apiKey: "mine" }], ["DELETE", `${at}/credentials/openai`]]) {
        assertProblem(await service.request(method, target, { key, body }), 404, "vault_not_found");
    }
    assertProblem(await add(vault, { provider: "anthropic" }, { key }), 404, "vault_not_found");
    assert.deepEqual((await service.ok("GET", "/v1/vaults", undefined, { key })).data, []);
    const own = await makeVault({ key });
    assertProblem(await service.request("GET", `/v1/vaults/${own.id}/credentials/${made.id}`, { key }), 404,
        "credential_not_found");
});

test("the default vault of the environment's keys stays", async () => {
    const other = await startService({ env: { OPENAI_API_KEY: "sk-from-the-environment" } });
    try {
        const { data: [vault] } = await other.ok("GET", "/v1/vaults");
        assert.equal(vault.isDefault, true);
        assertProblem(await other.request("DELETE", `/v1/vaults/${vault.id}`), 409, "vault_is_default");
        assertProblem(await other.request("POST", `/v1/vaults/${vault.id}/archive`), 409, "vault_is_default");
        const { data: [key] } = await other.ok("GET", `/v1/vaults/${vault.id}/credentials`);
        assert.equal(key.provider, "openai");
    } finally {
        await other.stop();
    }
});

function filesBeneath(dir) {
    return readdirSync(dir).flatMap((name) => {
        const at = path.join(dir, name);
        const stat = statSync(at, { throwIfNoEntry: false });
        return stat?.isDirectory() ? filesBeneath(at) : stat?.isFile() ? [at] : [];
    });
}

test("no secret lies in the data directory or the service's output", async () => {
    const vault = await makeVault();
    const marked = `${SECRET}-marked`;
    await add(vault, { apiKey: marked }, { headers: { "idempotency-key": "secret" } });
    await add(vault, { apiKey: marked }, { headers: { "idempotency-key": "secret" } });
    for (const file of filesBeneath(service.data)) {
        assert.ok(!readFileSync(file).includes(marked), file);
    }
    assert.ok(!service.output.includes(marked));
});
