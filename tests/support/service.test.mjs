// The helpers of the black-box tests, against a double of the service.
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

process.env.PI_MANAGED_BIN = fileURLToPath(new URL("fixtures/service-double.mjs", import.meta.url));
process.env.OPENAI_API_KEY = "must not be inherited";
process.env.ASAN_OPTIONS = "may=be";
const { startService: start } = await import("./service.mjs");
const startService = (options) => start({ contract: null, ...options });

test("starts on new data, asks with its key, and cleans up", async () => {
    const service = await startService({ env: { EXTRA: "1" } });
    assert.equal(service.tenantId, "tenant_1");
    assert.match(service.url, /^http:\/\/127\.0\.0\.1:\d+$/);
    const target = "/v1/echo/%2F/../x?y";
    const echo = await service.ok("POST", target, { a: 1 }, { headers: { "x-h": "v" } });
    assert.equal(echo.url, target, "the path goes out as it is");
    assert.equal(echo.headers.authorization, `Bearer ${service.apiKey}`);
    assert.equal(echo.headers["content-type"], "application/json");
    assert.equal(echo.headers["x-h"], "v");
    assert.equal(echo.body, '{"a":1}');
    assert.ok(echo.environment.includes("EXTRA") && echo.environment.includes("ASAN_OPTIONS"));
    assert.ok(!echo.environment.includes("OPENAI_API_KEY"));
    const bare = await service.request("POST", "/v1/echo", { body: "{broken", key: null });
    assert.equal(bare.body.headers.authorization, undefined);
    assert.equal(bare.body.body, "{broken");
    assert.equal((await service.request("GET", "/nope")).status, 404);
    await assert.rejects(service.ok("GET", "/nope"), /GET \/nope gave 404: \{/);
    await service.stop();
    assert.ok(!existsSync(service.data));
});

test("a GET on a kept connection that is dead goes out again, a POST does not", async () => {
    const service = await startService();
    await service.ok("GET", "/v1/echo");
    assert.equal((await service.ok("GET", "/v1/echo?kept=no")).method, "GET");
    await assert.rejects(service.request("POST", "/v1/echo?kept=no", { body: {} }), { code: "ECONNRESET" });
    await service.stop();
});

test("takes the key that serve prints", async () => {
    const service = await startService({ init: false });
    assert.match(service.apiKey, /^pmk_a{12}_B{49}$/);
    await service.stop();
});

test("kill9 and restart keep data and key", async () => {
    const data = mkdtempSync(path.join(tmpdir(), "service-test-"));
    const service = await startService({ data });
    const { pid, apiKey } = service;
    await service.kill9();
    await assert.rejects(service.request("GET", "/v1/echo"), /ECONNREFUSED/);
    await service.restart({ args: ["--more"] });
    assert.notEqual(service.pid, pid);
    assert.equal(service.apiKey, apiKey);
    await service.restart();
    await service.ok("GET", "/v1/echo");
    await service.kill9();
    await service.stop();
    assert.ok(existsSync(data), "a given directory stays");
    rmSync(data, { recursive: true });
});

test("a service that cannot start, or ends badly, says why", async () => {
    await assert.rejects(startService({ env: { DOUBLE: "crash" } }),
        /ended with status 3 before it wrote .*the disk is on fire/s);
    const service = await startService({ env: { DOUBLE: "deaf" } });
    await assert.rejects(service.stop(), /ended with status 1/);
});

test("the stream resumes, tells deltas apart and says what it saw", async () => {
    const service = await startService();
    const stream = await service.stream("sess_1", { lastEventId: 1, eventDeltas: ["a.b", "c"] });
    const frames = await stream.until((frame) => frame.type === "event_delta");
    assert.deepEqual(frames.map(({ type, id, data }) => [type, id, data.seq]),
        [["e2", "2", 2], ["e3", "3", 3], ["event_delta", undefined, undefined]]);
    assert.equal(frames.at(-1).lastEventId, "3");
    assert.equal(frames.at(-1).data.url, "/v1/sessions/sess_1/stream?eventDeltas=a.b%2Cc");
    assert.deepEqual(stream.comments, [" open"]);
    await assert.rejects(stream.until(() => false, { timeoutMs: 10 }), /after 10 ms no frame/);
    const other = await service.stream("sess_1");
    for await (const frame of other) {
        assert.equal(frame.data.seq, 1);
        break;
    }
    const wrong = service.stream("sess_2");
    await assert.rejects(wrong, (error) => error.reply.status === 404);
    await service.stop();
});
