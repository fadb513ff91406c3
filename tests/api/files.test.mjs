// Files (§21): what goes up comes down, in ranges too; names and contents cannot hurt a browser; storage is counted.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import http from "node:http";
import path from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { eventually } from "../support/eventually.mjs";
import { SERVICE_PROGRAM } from "../support/service.mjs";
import { allPages, assertPaths, assertProblem, createTenant, startService, uniqueName } from "./support.mjs";

let service;
before(async () => { service = await startService(); });
after(() => service?.stop());

const BOUNDARY = "----a-boundary";
const part = (name, content, more = "", type = "") => Buffer.concat([
    Buffer.from(`--${BOUNDARY}\r\nContent-Disposition: form-data; name="${name}"${more}\r\n${
        type && `Content-Type: ${type}\r\n`}\r\n`),
    Buffer.from(content), Buffer.from("\r\n")]);
const body = (...parts) => Buffer.concat([...parts, Buffer.from(`--${BOUNDARY}--\r\n`)]);
const filePart = (content, name = "a.txt", type = "text/plain") =>
    part("file", content, `; filename="${name}"`, type);
const send = (payload, { headers, ...options } = {}) => service.request("POST", "/v1/files", {
    body: payload, headers: { "content-type": `multipart/form-data; boundary=${BOUNDARY}`, ...headers }, ...options,
});
const upload = async (...parts) => {
    const reply = await send(body(...parts));
    assert.equal(reply.status, 201, reply.text);
    return reply.body;
};
const content = (id, headers = {}, options = {}) =>
    service.request("GET", `/v1/files/${id}/content`, { headers, ...options });
const objects = (folder = "files") => readdirSync(path.join(service.data, "objects", folder), { recursive: true })
    .filter((name) => /file_/.test(name));
const storage = async (options) => (await service.ok("GET", "/v1/tenant", undefined, options)).quotas.fileStorageBytes;

test("a file comes back as it was, with its hash, name and type", async () => {
    const bytes = randomBytes(300_000).toString("base64");
    const file = await upload(filePart(bytes, "r\u00e9sum\u00e9.txt", "text/plain; charset=utf-8"),
        part("metadata", '{"k":"v"}'));
    assert.match(file.id, /^file_[0-9A-HJKMNP-TV-Z]{26}$/);
    assert.deepEqual({ ...file, id: 0, createdAt: 0 }, { id: 0, createdAt: 0, type: "file", name: "r\u00e9sum\u00e9.txt",
        mimeType: "text/plain; charset=utf-8", sizeBytes: bytes.length, metadata: { k: "v" }, sessionId: null, path: null,
        sha256: createHash("sha256").update(bytes).digest("hex") });
    assert.deepEqual(await service.ok("GET", `/v1/files/${file.id}`), file);
    const down = await content(file.id);
    assert.equal(down.status, 200);
    assert.equal(down.text, bytes);
    assert.equal(down.headers["content-type"], "text/plain; charset=utf-8");
    assert.equal(down.headers["content-length"], String(bytes.length));
    assert.equal(down.headers["content-disposition"],
        "attachment; filename=\"r_sum_.txt\"; filename*=UTF-8''r%C3%A9sum%C3%A9.txt");
    assert.equal(down.headers["x-content-type-options"], "nosniff");
    assert.match(down.headers["content-security-policy"], /sandbox/);
    const head = await service.request("HEAD", `/v1/files/${file.id}/content`);
    assert.equal(head.text, "");
    assert.equal(head.headers["content-length"], String(bytes.length));
});

test("an empty file is a file", async () => {
    const file = await upload(filePart(""));
    assert.equal(file.sizeBytes, 0);
    const down = await content(file.id);
    assert.equal(down.status, 200);
    assert.equal(down.text, "");
});

test("ranges", async () => {
    const file = await upload(filePart("0123456789"));
    for (const [range, status, text, shown] of [
        ["bytes=0-3", 206, "0123", "bytes 0-3/10"], ["bytes=7-", 206, "789", "bytes 7-9/10"],
        ["bytes=-2", 206, "89", "bytes 8-9/10"], ["bytes=5-99", 206, "56789", "bytes 5-9/10"],
        ["bytes=0-1,4-5", 200, "0123456789", undefined], ["lines=1-2", 200, "0123456789", undefined],
    ]) {
        const reply = await content(file.id, { range });
        assert.deepEqual([reply.status, reply.text, reply.headers["content-range"]], [status, text, shown], range);
        assert.equal(reply.headers["accept-ranges"], "bytes");
    }
    const beyond = await content(file.id, { range: "bytes=10-" });
    assertProblem(beyond, 416, "range_not_satisfiable");
    assert.equal(beyond.headers["content-range"], "bytes */10");
    const { etag } = (await content(file.id)).headers;
    assert.equal((await content(file.id, { range: "bytes=1-2", "if-range": etag })).text, "12");
    assert.equal((await content(file.id, { range: "bytes=1-2", "if-range": '"other"' })).status, 200);
});

test("names that would hurt are tamed, wherever they come from", async () => {
    for (const [given, name] of [
        ["../../etc/passwd", "passwd"], ["C:\\temp\\x.txt", "x.txt"], ["..", "file"], ["a/", "file"], ["", "file"],
        ["a\tb\u0001.txt", "a_b_.txt"], ["x".repeat(5000), "x".repeat(255)], ["\u00e9".repeat(200), "\u00e9".repeat(127)],
        ['q\\"uote.html', 'q"uote.html'],
    ]) {
        const file = await upload(filePart("x", given, "text/html"));
        assert.equal(file.name, name);
        const { headers } = await content(file.id);
        assert.match(headers["content-disposition"], /^attachment; filename="[ -!#-~]*"; filename\*=UTF-8''[\w.~%-]*$/);
    }
    const split = await send(body(part("file", "x", '; filename="a\r\nX-Evil: y"')));
    assertProblem(split, 400);
    for (const [given, name] of [["a%22%0D%0AX-Evil%3A%20y", 'a"__X-Evil: y'], ["%C3%A9.txt", "\u00e9.txt"],
        ["..%2F..%2Fx", "x"], ["%2e%2e", "file"], ["%7F%1B", "__"], ["%C2%85%C2%9B", "__"]]) {
        const file = await upload(part("file", "<script>", `; filename*=UTF-8''${given}`, "text/html"));
        assert.equal(file.name, name);
        const { headers } = await content(file.id);
        assert.match(headers["content-disposition"], /^attachment; filename="[ -!#-~]*"; filename\*=UTF-8''[\w.~%-]*$/);
        assert.equal(headers["x-evil"], undefined);
        assert.equal(headers["content-type"], "text/html");
        assert.equal(headers["x-content-type-options"], "nosniff");
        assert.match(headers["content-security-policy"], /sandbox/);
    }
    for (const given of ["a%00b", "%ff", "%ED%A0%BD", "%C0%AF"]) {
        assertProblem(await send(body(part("file", "x", `; filename*=UTF-8''${given}`))), 400);
    }
    for (const given of ["a\0b", "\xff", "\xed\xa0\xbd"]) {
        const bytes = Buffer.from(body(part("file", "x", '; filename="@"')).toString("latin1").replace("@", given), "latin1");
        assertProblem(await send(bytes), 400);
    }
    for (const name of ["a\0b", "a\r\nX: y", "\ud83d", "x".repeat(300), ""]) { // the half becomes U+FFFD on the way out
        const reply = await send(body(filePart("x"), part("name", name)));
        name.isWellFormed() ? assertPaths(reply, ["/name"]) : assert.equal(reply.body.name, "\ufffd");
    }
    for (const metadata of ['{"a\\u0000":"b"}', '{"a":"b\\u0000"}', '{"a":"\\ud83d"}']) {
        assertProblem(await send(body(filePart("x"), part("metadata", metadata))), 400);
    }
    const named = await upload(filePart("x"), part("name", "other name.txt"));
    assert.equal(named.name, "other name.txt");
});

test("refuses what is no upload", async () => {
    assertProblem(await send("{}", { headers: { "content-type": "application/json" } }), 415);
    assertProblem(await send("", { headers: { "content-type": "multipart/form-data" } }), 415);
    assertProblem(await send(body(filePart("x")).subarray(0, 60)), 400, "invalid_multipart");
    assertProblem(await send("nonsense"), 400, "invalid_multipart");
    assertPaths(await send(body()), ["/file"]);
    assertPaths(await send(body(part("file", "x"))), ["/file"]);
    assertPaths(await send(body(filePart("x"), filePart("y"))), ["/file"]);
    assertPaths(await send(body(filePart("x"), part("colour", "red"))), ["/colour"]);
    assertPaths(await send(body(filePart("x"), part("metadata", "no json"))), ["/metadata"]);
    assertPaths(await send(body(filePart("x"), part("metadata", '{"a":1}'))), ["/metadata/a"]);
    assertPaths(await send(body(filePart("x"), part("name", "a\0b"))), ["/name"]);
    assertProblem(await service.request("GET", "/v1/files/file_x"), 404, "file_not_found");
    assertProblem(await content("file_x"), 404, "file_not_found");
    assertProblem(await service.request("DELETE", "/v1/files/file_x"), 404, "file_not_found");
});

test("lists newest first, in pages; a deleted one is gone with its object", async () => {
    const made = [];
    for (let i = 0; i < 5; i++) {
        made.push(await upload(filePart(`${i}`)));
    }
    const listed = (await allPages(service, "/v1/files", 2)).map(({ id }) => id);
    assert.deepEqual(listed.filter((id) => made.some((one) => one.id === id)), made.map(({ id }) => id).reverse());
    const [gone] = made;
    assert.ok(objects().some((name) => name.includes(gone.id)));
    const before = await storage();
    assert.equal((await service.request("DELETE", `/v1/files/${gone.id}`)).status, 204);
    assertProblem(await service.request("DELETE", `/v1/files/${gone.id}`), 404);
    assertProblem(await content(gone.id), 404);
    assert.ok(!objects().some((name) => name.includes(gone.id)));
    assert.equal((await storage()).used, before.used - 1);
});

test("an Idempotency-Key is bound to the content, not to the boundary", async () => {
    const once = (boundary, text) => {
        const payload = Buffer.from(body(filePart(text)).toString("latin1").replaceAll(BOUNDARY, boundary), "latin1");
        return send(payload, { headers: { "content-type": `multipart/form-data; boundary=${boundary}`,
            "idempotency-key": "upload-1" } });
    };
    const first = await once("one", "same");
    const count = objects().length;
    const again = await once("two", "same");
    assert.equal(first.status, 201);
    assert.equal(again.text, first.text);
    assert.equal(again.headers["idempotent-replayed"], "true");
    assert.equal(objects().length, count, "no second object");
    assertProblem(await once("three", "other"), 422);
});

test("another tenant sees nothing of it", async () => {
    const file = await upload(filePart("mine"));
    const other = { key: (await createTenant(service, uniqueName("tenant"))).apiKey };
    assertProblem(await service.request("GET", `/v1/files/${file.id}`, other), 404);
    assertProblem(await content(file.id, {}, other), 404);
    assertProblem(await service.request("DELETE", `/v1/files/${file.id}`, other), 404);
    assert.deepEqual((await service.ok("GET", "/v1/files", undefined, other)).data, []);
});

test("storage is counted to the byte, also when all come at once", async () => {
    const tenant = await createTenant(service, uniqueName("tenant"));
    const own = { key: tenant.apiKey };
    await promisify(execFile)(SERVICE_PROGRAM, ["tenant", "set", tenant.tenantId, "--limits", "fileStorageBytes=10000",
        "--data", service.data]);
    const payload = body(filePart("x".repeat(3000)));
    const replies = await Promise.all(Array.from({ length: 12 }, () => send(payload, own)));
    const made = replies.filter(({ status }) => status === 201);
    assert.equal(made.length, 3);
    replies.filter(({ status }) => status !== 201).forEach((reply) => assertProblem(reply, 429, "quota_exceeded"));
    assert.deepEqual(await storage(own), { limit: 10000, used: 9000 });
    assert.equal(objects(`files/${tenant.tenantId}`).length, 3);
    await service.ok("DELETE", `/v1/files/${made[0].body.id}`, undefined, own);
    assert.equal((await send(payload, own)).status, 201);
    assert.equal((await send(body(filePart("x".repeat(1000))), own)).status, 201, "exactly full");
    assertProblem(await send(body(filePart("x")), own), 429);
    assertProblem(await send(body(filePart("x".repeat(40_000))), own), 429, "quota_exceeded");
});

/** Sends the head of an upload and some of it, then hangs up. */
const giveUp = () => new Promise((resolve) => {
    const { hostname, port } = new URL(service.url);
    const request = http.request({ hostname, port, method: "POST", path: "/v1/files", headers: {
        authorization: `Bearer ${service.apiKey}`, "content-type": `multipart/form-data; boundary=${BOUNDARY}`,
        "content-length": 10_000_000 } });
    request.on("error", resolve);
    request.write(filePart("y".repeat(600_000)), () => request.destroy());
    request.once("close", resolve);
});

test("an upload that breaks off leaves nothing half-written, and a large one no large process", async () => {
    const before = objects().length;
    await giveUp();
    await eventually("the half-written object to be gone",
        () => readdirSync(path.join(service.data, "objects", ".tmp")), (names) => names.length === 0);
    assert.equal(objects().length, before);
    const status = () => Number(/VmHWM:\s*(\d+)/.exec(readFileSync(`/proc/${control()}/status`, "utf8"))[1]);
    const control = () => readdirSync("/proc").find((pid) => /^\d+$/.test(pid) && isControl(pid));
    const isControl = (pid) => {
        try {
            return readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0").includes("control")
                && new RegExp(`^PPid:\\s*${service.pid}$`, "m").test(readFileSync(`/proc/${pid}/status`, "utf8"));
        } catch {
            return false; // it ended meanwhile
        }
    };
    const low = status();
    const file = await upload(filePart(Buffer.alloc(64 * 1024 * 1024, "z")));
    assert.equal(file.sizeBytes, 64 * 1024 * 1024);
    assert.ok(status() - low < 24 * 1024, `grew by ${status() - low} KiB`);
    assert.equal((await content(file.id, { range: "bytes=67108863-" })).text, "z");
});

test("what was uploaded is there after kill -9", async () => {
    const file = await upload(filePart("lasting"));
    await service.kill9();
    await service.restart();
    assert.equal((await content(file.id)).text, "lasting");
});
