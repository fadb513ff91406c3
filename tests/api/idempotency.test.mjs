// Idempotency-Key to the end (R12): every POST that changes something has it, whatever it answers.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { after, before, test } from "node:test";
import { agentBody, assertProblem, createSession, createTenant, environmentBody, startService, uniqueName } from "./support.mjs";

/** A kept reply would keep the key in clear; the next one leaves HTTP; the last changes nothing and is asked to look again. */
const WITHOUT = ["/v1/api-keys", "/v1/sessions/:id/shell", "/v1/vaults/:id/credentials/:key/validate"];

let service;
before(async () => { service = await startService(); });
after(() => service?.stop());

const post = (target, body, key, options = {}) => service.request("POST", target,
    { body, ...options, headers: { "idempotency-key": key, ...options.headers } });

test("every POST route honours it", () => {
    const folder = new URL("../../src/api/", import.meta.url);
    const source = readdirSync(folder).filter((name) => name.endsWith(".c"))
        .map((name) => readFileSync(new URL(name, folder), "utf8")).join("\n");
    const rows = [...source.matchAll(/\{POST,\s*"([^"]+)"[^}]*\}/g)];
    assert.ok(rows.length >= 8, `${rows.length}`);
    const silent = rows.filter(([row]) => !/\.idempotent = true/.test(row)).map(([, path]) => path);
    assert.deepEqual(silent.filter((path) => !WITHOUT.includes(path)), []);
});

test("replays are byte-equal, of whatever it answered", async () => {
    const session = await createSession(service);
    const agent = await service.ok("POST", "/v1/agents", agentBody());
    const environment = await service.ok("POST", "/v1/environments", environmentBody());
    for (const [target, body, status] of [
        ["/v1/agents", agentBody(), 201],
        ["/v1/environments", environmentBody(), 201],
        ["/v1/sessions", { agent: agent.id, environmentId: environment.id }, 201],
        [`/v1/sessions/${session.id}/events`, { type: "user.interrupt" }, 202],
        [`/v1/agents/${agent.id}/archive`, undefined, 200],
        ["/v1/agents", { name: 7 }, 400],
        ["/v1/agents", agentBody({ name: environment.name, model: { provider: "nobody" } }), 400],
        ["/v1/sessions", { agent: agent.id, environmentId: environment.id }, 409], // the agent is archived by now
        ["/v1/sessions/sess_x/events", { type: "user.interrupt" }, 404],
    ]) {
        const key = uniqueName("key").replaceAll(" ", "-");
        const first = await post(target, body, key);
        assert.equal(first.status, status, `${target} ${first.text}`);
        const again = await post(target, body, key);
        assert.equal(again.text, first.text, target);
        assert.equal(again.status, first.status);
        assert.equal(again.headers["content-type"], first.headers["content-type"]);
        assert.equal(again.headers["idempotent-replayed"], "true", target);
        assert.equal(first.headers["idempotent-replayed"], undefined);
        if (body !== undefined) {
            assertProblem(await post(target, { ...body, more: 1 }, key), 422, "idempotency_key_reused");
        }
    }
});

test("the key is of one tenant, one method and path; quotes are not part of it", async () => {
    const other = await createTenant(service, uniqueName("tenant"));
    const body = agentBody();
    const first = await post("/v1/agents", body, "shared");
    const theirs = await post("/v1/agents", body, "shared", { key: other.apiKey });
    assert.equal(theirs.status, 201);
    assert.notEqual(theirs.body.id, first.body.id);
    assert.equal((await post("/v1/agents", body, '"shared"')).text, first.text);
    assert.equal((await post("/v1/environments", environmentBody(), "shared")).status, 201);
});

test("what was refused before the handler is not kept: a key that may not, a tenant over its rate", async () => {
    const reader = await service.ok("POST", "/v1/api-keys", { name: "reader", scope: "read" });
    const body = agentBody();
    assertProblem(await post("/v1/agents", body, "later", { key: reader.apiKey }), 403);
    assert.equal((await post("/v1/agents", body, "later")).status, 201);
});
