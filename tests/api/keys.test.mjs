// API keys (R14): scopes, what is shown once, revocation, bad tokens.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { SERVICE_PROGRAM } from "../support/service.mjs";
import {
    agentBody, allPages, assertPaths, assertProblem, createSession, createTenant, startService, uniqueName,
} from "./support.mjs";

let service;
before(async () => { service = await startService(); });
after(() => service?.stop());

const create = (scope, options) => service.ok("POST", "/v1/api-keys",
    { name: uniqueName("key"), ...(scope && { scope }) }, options);
const list = (key) => service.request("GET", "/v1/agents", { key });

test("a key is shown once; afterwards its last four characters", async () => {
    const key = await create("read");
    assert.match(key.apiKey, /^pmk_[0-9A-Za-z]{12}_[0-9A-Za-z]{49}$/);
    assert.match(key.id, /^key_[0-9A-HJKMNP-TV-Z]{26}$/);
    assert.equal(key.last4, key.apiKey.slice(-4));
    assert.equal(key.scope, "read");
    assert.equal(key.revokedAt, null);
    const all = await allPages(service, "/v1/api-keys", 1);
    const { apiKey, ...shown } = key;
    assert.deepEqual(all.find((one) => one.id === key.id), shown);
    assert.ok(!JSON.stringify(all).includes(apiKey.slice(17, 60)));
    assert.ok(all.length >= 2, "the first key is listed, too");
});

test("a key works at once, and not any more once it is revoked", async () => {
    const key = await create();
    assert.equal(key.scope, "write");
    assert.equal((await list(key.apiKey)).status, 200);
    assert.equal((await list(key.apiKey)).status, 200);
    const reply = await service.request("DELETE", `/v1/api-keys/${key.id}`);
    assert.equal(reply.status, 204);
    assertProblem(await list(key.apiKey), 401, "unauthorized");
    const again = await service.request("DELETE", `/v1/api-keys/${key.id}`);
    assert.equal(again.status, 204);
    const shown = (await allPages(service, "/v1/api-keys", 100)).find((one) => one.id === key.id);
    assert.ok(shown.revokedAt);
});

test("a stream ends once its key is revoked, here or by another process; those of other keys go on", async () => {
    const session = await createSession(service);
    const [here, elsewhere, other] = [await create("read"), await create("read"), await create("read")];
    const open = ({ apiKey }) => service.stream(session.id, { key: apiKey });
    const [one, two, three] = [await open(here), await open(elsewhere), await open(other)];
    await service.ok("DELETE", `/v1/api-keys/${here.id}`);
    await assert.rejects(one.until(() => false), /the stream ended/);
    await promisify(execFile)(SERVICE_PROGRAM, ["key", "revoke", elsewhere.id, "--data", service.data]);
    await assert.rejects(two.until(() => false), /the stream ended/);
    await service.ok("POST", `/v1/sessions/${session.id}/events`, { type: "user.interrupt" });
    await three.until((frame) => frame.type === "user.interrupt");
    three.close();
    await assert.rejects(open(here), /401/);
});

test("scopes: read reads, write writes, admin makes keys", async () => {
    const [read, write] = [(await create("read")).apiKey, (await create("write")).apiKey];
    const post = (key) => service.request("POST", "/v1/agents", { body: agentBody(), key });
    const keys = (key) => service.request("GET", "/v1/api-keys", { key });
    assert.equal((await list(read)).status, 200);
    assertProblem(await post(read), 403, "forbidden");
    assert.equal((await post(write)).status, 201);
    assertProblem(await keys(read), 403);
    assertProblem(await keys(write), 403);
    assertProblem(await service.request("POST", "/v1/api-keys",
        { body: { name: "mine", scope: "admin" }, key: write }), 403);
    assert.equal((await keys((await create("admin")).apiKey)).status, 200);
});

test("refuses bad bodies", async () => {
    const post = (body) => service.request("POST", "/v1/api-keys", { body });
    assertPaths(await post({}), ["/name"]);
    assertPaths(await post({ name: "", scope: "root", x: 1 }), ["/name", "/scope", "/x"]);
    assertPaths(await post({ name: "a\0b" }), ["/name"]);
});

test("anything that is not a live key gets 401 with WWW-Authenticate", async () => {
    const key = service.apiKey;
    const flipped = key.slice(0, -1) + (key.at(-1) === "a" ? "b" : "a");
    const tokens = ["x", flipped, key.toLowerCase(), `${key}x`, key.slice(0, -1), `pmk_${"0".repeat(62)}`,
        "pmk_wlcOXrVUTpbC_o4aQo6XtoYGhAh7NBB9sM8AZAeTFRIekejrXhoJ0iTn3wXYtK"];
    for (const token of tokens) {
        const reply = await list(token);
        assertProblem(reply, 401, "unauthorized");
        assert.match(reply.headers["www-authenticate"], /^Bearer/);
        assert.ok(!reply.text.includes(token.slice(-20)) || token.length < 20);
    }
    for (const authorization of [`Basic ${key}`, key, "Bearer", `Bearer  ${key} x`, "Bearer \u00e4"]) {
        const reply = await service.request("GET", "/v1/agents", { key: null, headers: { authorization } });
        assertProblem(reply, 401);
    }
    assertProblem(await list(null), 401);
});

test("keys of another tenant cannot be seen or revoked", async () => {
    const other = { key: (await createTenant(service, uniqueName("tenant"))).apiKey };
    const key = await create();
    const theirs = await allPages(service, "/v1/api-keys", 100, other);
    assert.equal(theirs.length, 1);
    assertProblem(await service.request("DELETE", `/v1/api-keys/${key.id}`, other), 404);
    assert.equal((await list(key.apiKey)).status, 200);
    assertProblem(await service.request("DELETE", "/v1/api-keys/key_x"), 404);
});

test("the key is in no log line", async () => {
    assert.ok(!service.output.includes(service.apiKey.slice(17)));
});
