// Model keys from vaults, from the request that brings one to the header that the provider gets (R4, R4a, §12.5).
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { startJob, textOf } from "../support/job.mjs";
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
        assert.match(error.error.message, /model_provider_key/);
        assert.deepEqual(events.at(-1).stopReason, { type: "error" });
    });

    test("the key is nowhere in what the session keeps or says", async () => {
        const vault = await vaultWith(ours("sk-never-shown"));
        const session = await job.session({ more: { vaultIds: [vault.id] } });
        const events = await session.run('CALL bash {"command":"env; cat /proc/*/environ"} THEN SAY $RESULT');
        assert.ok(textOf(events.find((event) => event.type === "agent.tool_result")).length > 0);
        assert.ok(!JSON.stringify([events, await session.entries()]).includes("sk-never-shown"));
        assert.ok(!job.service.output.includes("sk-never-shown"));
    });
});
