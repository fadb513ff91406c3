// Model keys from vaults, from the request that brings one to the header that the provider gets (R4, R4a, §12.5).
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { assertPaths, assertProblem, createTenant } from "../api/support.mjs";
import { eventually } from "../support/eventually.mjs";
import { APIS, startJob, textOf } from "../support/job.mjs";
import { descendants } from "../support/processes.mjs";
import { serviceMissing } from "../support/service.mjs";

const ofType = (events, type) => events.filter((event) => event.type === type);

describe("model keys", { skip: serviceMissing }, () => {
    let job;
    before(async () => {
        job = await startJob();
    });
    after(() => job?.stop());

    let vaults = 0;
    async function vaultWith(...credentials) {
        const vault = await job.service.ok("POST", "/v1/vaults", { name: `vault ${++vaults}` });
        for (const credential of credentials) {
            await job.service.ok("POST", `/v1/vaults/${vault.id}/credentials`,
                { kind: "model_provider_key", ...credential });
        }
        return vault;
    }

    const ours = (apiKey) => ({ baseUrl: job.model.url, apiKey });
    const keysSeen = () => job.model.requests.map((request) =>
        request.headers.authorization ?? request.headers["x-api-key"] ?? null);

    /** A message, and the keys that came with its requests. */
    async function run(session, text) {
        const before = job.model.requests.length;
        const events = await session.run(text);
        return { events, keys: keysSeen().slice(before) };
    }

    test("the first vault with a key for the address wins, and only such a key is sent", async () => {
        const other = await vaultWith({ provider: "openai", apiKey: "sk-openai" },
            { baseUrl: "https://elsewhere.example.com", apiKey: "sk-elsewhere" });
        const first = await vaultWith(ours("sk-first"));
        const second = await vaultWith(ours("sk-second"));
        const session = await job.session({ more: { vaultIds: [other.id, first.id, second.id] } });
        assert.deepEqual((await run(session, "SAY hi")).keys, ["Bearer sk-first"]);
        const none = await job.session({ more: { vaultIds: [other.id] } });
        assert.deepEqual((await run(none, "SAY hi")).keys.filter((key) => key?.includes("sk-")), []);
        const anthropic = await job.session({ api: "anthropic-messages", more: { vaultIds: [second.id] } });
        assert.deepEqual((await run(anthropic, "SAY hi")).keys, ["sk-second"]);
    });

    test("a key that is changed or archived is so from the next request on", async () => {
        const vault = await vaultWith(ours("sk-one"));
        const at = `/v1/vaults/${vault.id}/credentials`;
        const { data: [{ id }] } = await job.service.ok("GET", at);
        const session = await job.session({ more: { vaultIds: [vault.id] } });
        assert.deepEqual((await run(session, "SAY hi")).keys, ["Bearer sk-one"]);
        await job.service.ok("PATCH", `${at}/${id}`, { apiKey: "sk-two" });
        assert.deepEqual((await run(session, "SAY hi again")).keys, ["Bearer sk-two"]);
        await job.service.ok("DELETE", `${at}/${id}`);
        const { events, keys } = await run(session, "SAY once more");
        assert.deepEqual(keys.filter((key) => key?.includes("sk-")), []);
        assert.deepEqual(events.at(-1).stopReason, { type: "end_turn" }); // a custom address may go without
    });

    test("a provider of the catalogue without a key fails closed, and says what to do", async () => {
        const agent = await job.service.ok("POST", "/v1/agents",
            { name: "no key", model: { provider: "openai", id: "gpt-4o" } });
        const session = await job.session({ more: { vaultIds: [(await vaultWith(ours("sk-wrong"))).id], agent: agent.id } });
        const { events, keys } = await run(session, "SAY hi");
        assert.deepEqual(keys, []);
        const [error] = ofType(events, "session.error");
        assert.equal(error.error.code, "credential_missing");
        assert.match(error.error.message, /vault set VAULT openai/);
        assert.deepEqual(events.at(-1).stopReason, { type: "error" });
    });

    /** A key of a vault with one, tried with the list of models asking for listKey. */
    async function validate(vault, { api = "openai-completions", ...more } = {}, options = {}) {
        const at = `/v1/vaults/${vault.id}/credentials`;
        const { data: [{ id }] } = await job.service.ok("GET", at);
        return job.service.request("POST", `${at}/${id}/validate`,
            { body: { api, baseUrl: job.model.baseUrl(api), ...more }, ...options });
    }

    for (const api of APIS) {
        test(`a key is tried where ${api} wants it: valid, invalid, or shown to anyone`, async () => {
            const vault = await vaultWith(ours("sk-tried-secret"));
            const results = [];
            for (const listKey of ["sk-tried-secret", "sk-other", undefined]) {
                job.model.listKey = listKey;
                const { status, body, text } = await validate(vault, { api });
                assert.equal(status, 200, text);
                assert.ok(!text.includes("sk-"), text);
                results.push([body.status, body.reason]);
            }
            job.model.listKey = undefined;
            assert.deepEqual(results[0], ["valid", null]);
            assert.equal(results[1][0], "invalid");
            assert.match(results[1][1], /does not accept the key.*\(status 40[01]\)/);
            assert.equal(results[2][0], "unknown");
            assert.match(results[2][1], /without a key/);
            assert.ok(!job.service.output.includes("sk-tried-secret"));
        });
    }

    test("an answer that says nothing of the key is unknown, and a redirect is not followed", async () => {
        const vault = await vaultWith(ours("sk-tried"));
        const lists = job.model.lists.length;
        job.model.onList = () => ({ status: 302, headers: { location: `${job.model.url}/v1/models` } });
        assert.deepEqual([(await validate(vault)).body.status, job.model.lists.length - lists], ["unknown", 1]);
        for (const status of [403, 404, 429, 500, 503]) {
            job.model.onList = () => ({ status });
            const { body } = await validate(vault);
            assert.equal(body.status, "unknown");
            assert.match(body.reason, new RegExp(`status ${status}`));
        }
        job.model.onList = () => ({ status: 401 });
        assert.equal((await validate(vault)).body.status, "invalid");
        job.model.onList = undefined;
    });

    test("a private address that was not allowed is not dialled, nor one that the key is not for", async () => {
        const vault = await vaultWith({ baseUrl: "https://127.0.0.1:1/v1", apiKey: "sk-private" });
        const { body } = await validate(vault, { baseUrl: "https://127.0.0.1:1/v1" });
        assert.equal(body.status, "unknown");
        assert.match(body.reason, /127\.0\.0\.1/);
        assert.match(body.reason, /allow-private|private/);
        assertPaths(await validate(vault), ["/baseUrl"]);
    });

    test("of another tenant, archived, of a provider with an address: refused", async () => {
        const vault = await vaultWith(ours("sk-tried"));
        const other = await createTenant(job.service, "other");
        const { data: [{ id }] } = await job.service.ok("GET", `/v1/vaults/${vault.id}/credentials`);
        const at = `/v1/vaults/${vault.id}/credentials/${id}/validate`;
        const body = { api: "openai-completions", baseUrl: job.model.url };
        assertProblem(await job.service.request("POST", at, { body, key: other.apiKey }), 404, "vault_not_found");
        assertPaths(await job.service.request("POST", at), ["/api"]);
        assertPaths(await job.service.request("POST", at, { body: { api: "nonsense", baseUrl: job.model.url } }), ["/api"]);
        await job.service.ok("DELETE", at.replace("/validate", ""));
        assertProblem(await job.service.request("POST", at, { body }), 409, "credential_archived");
        const openai = await vaultWith({ provider: "openai", apiKey: "sk-openai" });
        assertPaths(await validate(openai), ["/api"]);
    });

    test("the key is nowhere in what the session keeps or says", async () => {
        const vault = await vaultWith(ours("sk-never-shown"));
        const session = await job.session({ more: { vaultIds: [vault.id] } });
        const events = await session.run('CALL bash {"command":"env; cat /proc/*/environ"} THEN SAY $RESULT');
        const [result] = ofType(events, "agent.tool_result");
        assert.ok(result && textOf(result).length > 0, JSON.stringify(events));
        assert.ok(!JSON.stringify([events, await session.entries()]).includes("sk-never-shown"));
        assert.ok(!job.service.output.includes("sk-never-shown"));
    });

    test("the broker dies meanwhile: unknown at once, and the next try works", async () => {
        const vault = await vaultWith(ours("sk-tried"));
        job.model.listKey = "sk-tried";
        const { promise: never, resolve: release } = Promise.withResolvers();
        const asked = new Promise((resolve) => {
            job.model.onList = () => (resolve(), never);
        });
        const reply = validate(vault);
        await asked;
        const [broker] = descendants(job.service.pid).filter(({ command }) => /--role broker/.test(command));
        process.kill(broker.pid, "SIGKILL");
        const { status, body } = await reply;
        assert.deepEqual([status, body.status], [200, "unknown"]);
        assert.match(body.reason, /went away/);
        job.model.onList = undefined;
        release();
        await eventually("a verdict", async () => (await validate(vault)).body.status, (verdict) => verdict === "valid");
        job.model.listKey = undefined;
    });
});
