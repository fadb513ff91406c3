// What holds for every route: methods, media types, sizes, targets, problems, idempotency, health.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { agentBody, assertProblem, environmentBody, startService } from "./support.mjs";

let service;
before(async () => { service = await startService(); });
after(() => service?.stop());

test("health needs no key; ready names what is missing", async () => {
    const health = await service.request("GET", "/healthz", { key: null });
    assert.equal(health.status, 200);
    assert.equal(health.body.status, "ok");
    const ready = await service.request("GET", "/readyz", { key: null });
    assert.ok([200, 503].includes(ready.status), ready.text);
    for (const name of ["database", "broker", "harness", "sandbox"]) {
        const check = ready.body.checks[name];
        assert.ok(check.ok || check.reason, name);
    }
    assert.equal(ready.status === 200, Object.values(ready.body.checks).every((check) => check.ok));
});

test("every reply has a request id; a client's own is taken over", async () => {
    const mine = await service.request("GET", "/v1/agents", { headers: { "x-request-id": "my.id-1" } });
    assert.equal(mine.headers["x-request-id"], "my.id-1");
    const strange = await service.request("GET", "/v1/agents",
        { headers: { "x-request-id": "a b{}" } });
    assert.match(strange.headers["x-request-id"], /^req_/);
});

test("unknown paths are 404, known paths with another method 405 with Allow", async () => {
    for (const target of ["/", "/v1", "/v1/", "/v1/nothing", "/v1/agents/", "//v1/agents", "/V1/agents"]) {
        assertProblem(await service.request("GET", target), 404);
    }
    for (const [method, target, allow] of [
        ["PUT", "/v1/agents", "GET, HEAD, OPTIONS, POST"],
        ["DELETE", "/v1/agents/agent_x", "GET, HEAD, OPTIONS, PATCH"],
        ["PATCH", "/v1/sessions/sess_x/events", "GET, HEAD, OPTIONS, POST"],
        ["GET", "/v1/agents/agent_x/archive", "OPTIONS, POST"],
        ["POST", "/healthz", "GET, HEAD, OPTIONS"],
    ]) {
        const reply = await service.request(method, target, { body: method === "GET" ? undefined : {} });
        assertProblem(reply, 405, "method_not_allowed");
        assert.equal(reply.headers.allow.split(/, */).sort().join(", "), allow);
    }
    const options = await service.request("OPTIONS", "/v1/agents");
    assert.equal(options.status, 204);
    assert.match(options.headers.allow, /POST/);
});

test("HEAD answers like GET without a body", async () => {
    const agent = await service.ok("POST", "/v1/agents", agentBody());
    const get = await service.request("GET", `/v1/agents/${agent.id}`);
    const head = await service.request("HEAD", `/v1/agents/${agent.id}`);
    assert.equal(head.status, 200);
    assert.equal(head.text, "");
    assert.equal(head.headers["content-length"], get.headers["content-length"]);
});

test("no web page of another origin may read a reply: there is no CORS header, whatever is asked", async () => {
    const headers = { origin: "https://elsewhere.example.com", "access-control-request-method": "POST",
        "access-control-request-headers": "authorization" };
    for (const [method, target] of [["OPTIONS", "/v1/agents"], ["GET", "/v1/agents"], ["GET", "/healthz"], ["GET", "/v1/nothing"],
        ["POST", "/v1/agents"]]) {
        const reply = await service.request(method, target, { headers });
        assert.deepEqual(Object.keys(reply.headers).filter((name) => name.startsWith("access-control")), [], target);
    }
});

test("every GET without parameters answers HEAD and names it in Allow", async () => {
    for (const target of ["/v1/agents", "/v1/environments", "/v1/sessions", "/v1/files", "/v1/api-keys", "/v1/tenant", "/healthz"]) {
        const head = await service.request("HEAD", target);
        const get = await service.request("GET", target);
        assert.deepEqual([head.status, head.text, head.headers["content-type"]], [get.status, "", get.headers["content-type"]]);
        const { headers } = await service.request("OPTIONS", target);
        assert.match(headers.allow, /GET.*HEAD/);
    }
});

test("%2F, %00, bad escapes and what is not UTF-8 in a segment are 400", async () => {
    for (const id of ["a%2Fb", "a%2fb", "a%00b", "%ff", "%c3%28", "%", "%2", "%zz", "%ed%a0%80"]) {
        assertProblem(await service.request("GET", `/v1/agents/${id}`), 400);
    }
    assertProblem(await service.request("GET", "/v1/agents/%61gent"), 404);
    assertProblem(await service.request("GET", "/v1/agents/a%2F..%2Fb/versions"), 400);
});

test("malformed JSON, also in its small print, is 400", async () => {
    for (const body of ["{", "{}{}", '{"name":}', "{'a':1}", '{"a":1,}', '{"a":01}', '{"a":NaN}',
        '{"name":"\\ud800"}', '{"name":"a","name":"b"}', '{"a\\u0000":1}', "\ufeff{}", '{"a":1e999}',
        `${"[".repeat(65)}${"]".repeat(65)}`, Buffer.from([0x7b, 0x22, 0xc0, 0xaf, 0x22, 0x3a, 0x31, 0x7d])]) {
        assertProblem(await service.request("POST", "/v1/agents", { body }), 400);
    }
});

test("another media type is 415, also when a body comes without one", async () => {
    for (const type of ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", "json"]) {
        assertProblem(await service.request("POST", "/v1/agents",
            { body: "{}", headers: { "content-type": type } }), 415, "unsupported_media_type");
    }
    const charset = await service.request("POST", "/v1/agents",
        { body: agentBody(), headers: { "content-type": "Application/JSON; charset=utf-8" } });
    assert.equal(charset.status, 201, charset.text);
});

test("a body that is too large is 413 and the service goes on", async () => {
    const body = JSON.stringify(agentBody({ systemPrompt: "x".repeat(300 * 1024) }));
    assertProblem(await service.request("POST", "/v1/agents", { body }), 413, "too_large");
    await service.ok("GET", "/v1/agents");
});

test("a body where none belongs is refused", async () => {
    const reply = await service.request("POST", "/v1/agents/agent_x/archive", { body: { a: 1 } });
    assert.ok([400, 413].includes(reply.status), reply.text);
});

test("unknown and doubled query parameters are 400", async () => {
    for (const query of ["colour=red", "limit=1&limit=2", "order=up", "name=%zz", "limit=", "cursor="]) {
        assertProblem(await service.request("GET", `/v1/agents?${query}`), 400);
    }
    assertProblem(await service.request("POST", "/v1/agents?x=1", { body: agentBody() }), 400);
});

test("Idempotency-Key: one effect, byte-equal replay, bound to path and body", async () => {
    const body = agentBody();
    const headers = { "idempotency-key": "key-1" };
    const first = await service.request("POST", "/v1/agents", { body, headers });
    const again = await service.request("POST", "/v1/agents", { body, headers });
    assert.equal(first.status, 201);
    assert.equal(again.status, 201);
    assert.equal(again.text, first.text);
    assert.equal(again.headers["idempotent-replayed"], "true");
    assertProblem(await service.request("POST", "/v1/agents", { body: agentBody(), headers }), 422);
    const elsewhere = await service.request("POST", "/v1/environments",
        { body: environmentBody(), headers });
    assert.equal(elsewhere.status, 201);
    assert.equal(elsewhere.headers["idempotent-replayed"], undefined);
});

test("Idempotency-Key: a refusal is replayed, too; strange keys are 400", async () => {
    const headers = { "idempotency-key": "key-2" };
    const bad = await service.request("POST", "/v1/agents", { body: { name: 1 }, headers });
    const again = await service.request("POST", "/v1/agents", { body: { name: 1 }, headers });
    assert.equal(bad.status, 400);
    assert.equal(again.status, 400);
    for (const key of ["", "a b", "x".repeat(256), "\"open", "ä"]) {
        const reply = await service.request("POST", "/v1/agents", { body: agentBody(),
            headers: { "idempotency-key": Buffer.from(key).toString("latin1") } });
        assertProblem(reply, 400);
    }
});

test("Idempotency-Key: of many at once one makes it, the rest replay it or are told to wait", async () => {
    const body = agentBody();
    const replies = await Promise.all(Array.from({ length: 20 }, () =>
        service.request("POST", "/v1/agents", { body, headers: { "idempotency-key": "key-3" } })));
    const made = replies.filter((reply) => reply.status === 201);
    assert.equal(new Set(made.map((reply) => reply.text)).size, 1);
    assert.equal(made.filter((reply) => !reply.headers["idempotent-replayed"]).length, 1);
    for (const reply of replies.filter((one) => one.status !== 201)) {
        assertProblem(reply, 409);
        assert.equal(reply.headers["retry-after"], "1");
    }
    const listed = await service.ok("GET", `/v1/agents?name=${encodeURIComponent(body.name)}`);
    assert.equal(listed.data.length, 1);
});

test("what was answered 2xx is there after kill -9 and restart, and replays", async () => {
    const bodies = Array.from({ length: 30 }, () => agentBody());
    const headers = (i) => ({ "idempotency-key": `durable-${i}` });
    const first = await Promise.all(bodies.map((body, i) =>
        service.request("POST", "/v1/agents", { body, headers: headers(i) })));
    await service.kill9();
    await service.restart();
    for (const [i, body] of bodies.entries()) {
        const made = first[i].body;
        assert.deepEqual(await service.ok("GET", `/v1/agents/${made.id}`), made);
        const again = await service.request("POST", "/v1/agents", { body, headers: headers(i) });
        assert.equal(again.text, first[i].text);
    }
});
