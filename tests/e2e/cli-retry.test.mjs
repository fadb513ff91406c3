// What the command line does when the service is away for a moment: it asks again where that is safe, says so, and
// nothing happens twice.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import http from "node:http";
import { lstatSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { run, startCli } from "../support/cli.mjs";
import { serviceMissing, startService } from "../support/service.mjs";

/** Stands before a service. `trouble(request)` may say what becomes of a request: "cut" (the service does the work,
    and the client does not hear of it), "refuse" (the connection is reset), {status, headers, body}, or nothing. */
class Troublemaker {
    seen = [];
    trouble = () => undefined;
    #server = http.createServer((request, response) => this.#answer(request, response));

    async open(service) {
        this.target = new URL(service.url);
        await new Promise((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
        this.url = `http://127.0.0.1:${this.#server.address().port}`;
        return this;
    }

    async #answer(request, response) {
        const chunks = [];
        for await (const chunk of request) {
            chunks.push(chunk);
        }
        this.seen.push(request);
        const trouble = this.trouble(request);
        if (trouble === "refuse") {
            request.socket.resetAndDestroy();
            return;
        }
        if (trouble?.status) {
            response.writeHead(trouble.status, trouble.headers).end(trouble.body);
            return;
        }
        const reply = await this.#ask(request, Buffer.concat(chunks));
        if (trouble === "cut") {
            request.socket.resetAndDestroy();
        } else {
            response.writeHead(reply.status, reply.headers).end(reply.body);
        }
    }

    #ask({ method, url, headers }, body) {
        return new Promise((resolve, reject) => {
            const { hostname, port } = this.target;
            const sent = http.request({ hostname, port, method, path: url, headers, agent: false }, async (reply) => {
                const chunks = [];
                for await (const chunk of reply) {
                    chunks.push(chunk);
                }
                const { "transfer-encoding": _, ...rest } = reply.headers;
                resolve({ status: reply.statusCode, headers: rest, body: Buffer.concat(chunks) });
            });
            sent.on("error", reject).end(body);
        });
    }

    close() {
        this.#server.closeAllConnections();
        this.#server.close();
    }
}

const problem = (status, code, retryAfter) => ({ status, body: JSON.stringify({ status, code, detail: "not now" }),
    headers: { "content-type": "application/problem+json", ...(retryAfter && { "retry-after": retryAfter }) } });

describe("a command whose service is away for a moment", { skip: serviceMissing }, () => {
    let service, between, agent, environment, dir;
    before(async () => {
        service = await startService();
        between = await new Troublemaker().open(service);
        dir = mkdtempSync(path.join(tmpdir(), "cli-retry-"));
        agent = await service.ok("POST", "/v1/agents", { name: "one",
            model: { provider: "local", id: "m", api: "openai-completions", baseUrl: "http://127.0.0.1:9/v1" } });
        environment = await service.ok("POST", "/v1/environments", { name: "one" });
    });
    after(async () => {
        between?.close();
        await service?.stop();
        rmSync(dir, { recursive: true, force: true });
    });

    const env = () => ({ PI_MANAGED_URL: between.url, PI_MANAGED_API_KEY: service.apiKey });
    /** The first `times` requests that match have this trouble. */
    function trouble(match, times, what) {
        between.seen = [];
        between.trouble = (request) => match(request) && times-- > 0 ? what : undefined;
    }
    const posts = (request) => request.method === "POST";
    const gets = (request) => request.method === "GET";
    const keys = () => between.seen.filter(posts).map((one) => one.headers["idempotency-key"]);

    test("makes one session, though the answer to its POST is lost twice", async () => {
        trouble(posts, 2, "cut");
        const made = await run(["session", "create", "--agent", agent.id, "--env", environment.id, "--json"], { env: env() });
        assert.equal(made.code, 0, made.stderr);
        assert.match(made.stderr, /^· http:\S+: .*; trying again\n$/);
        const sessions = (await service.ok("GET", "/v1/sessions")).data;
        assert.deepEqual(sessions.map((one) => one.id), [JSON.parse(made.stdout).id]);
        assert.equal(keys().length, 3);
        assert.equal(new Set(keys()).size, 1);
    });

    test("every POST has a key of its own, uploads too", async () => {
        const file = path.join(dir, "a.txt");
        writeFileSync(file, "content");
        trouble(posts, 1, "cut");
        const once = await run(["file", "upload", file], { env: env() });
        assert.equal(once.code, 0, once.stderr);
        assert.equal((await service.ok("GET", "/v1/files")).data.length, 1);
        const [first] = keys();
        trouble(posts, 0);
        assert.equal((await run(["file", "upload", file], { env: env() })).code, 0);
        assert.equal((await service.ok("GET", "/v1/files")).data.length, 2);
        assert.notEqual(keys()[0], first);
    });

    test("a GET that was reset is asked again", async () => {
        trouble(gets, 1, "refuse");
        const listed = await run(["agent", "list", "--json"], { env: env() });
        assert.equal(listed.code, 0, listed.stderr);
        assert.equal(JSON.parse(listed.stdout).id, agent.id);
        assert.match(listed.stderr, /trying again/);
    });

    test("a change that may have been made is not made again", async () => {
        trouble((request) => request.method === "DELETE", 1, "cut");
        const [file] = (await service.ok("GET", "/v1/files")).data;
        const gone = await run(["file", "delete", file.id], { env: env() });
        assert.equal(gone.code, 1);
        assert.match(gone.stderr, /cannot reach/);
        assert.equal(between.seen.filter((one) => one.method === "DELETE").length, 1);
        assert.equal((await service.request("GET", `/v1/files/${file.id}`)).status, 404);
    });

    test("429 and 503 are waited for as long as the service asks, and no longer than a minute", async () => {
        for (const busy of [problem(429, "rate_limited", "1"), problem(503, "overloaded")]) {
            trouble(gets, 1, busy);
            const listed = await run(["agent", "list"], { env: env() });
            assert.equal(listed.code, 0, listed.stderr);
            assert.match(listed.stderr, /the service is busy \((rate_limited|overloaded)\): trying again in 1 s/);
        }
        for (const [final, requests] of [[problem(429, "rate_limited", "3600"), 1], [problem(429, "quota_exceeded", "1"), 1]]) {
            trouble(gets, 9, final);
            const listed = await run(["agent", "list"], { env: env() });
            assert.equal(listed.code, 1);
            assert.match(listed.stderr, /the service answered 429 \w+: not now/);
            assert.equal(between.seen.length, requests);
        }
    });

    test("what comes out of a pipe is not sent again: there is nothing left in it", async () => {
        trouble(posts, 9, problem(503, "overloaded"));
        const fifo = path.join(dir, "fifo");
        await promisify(execFile)("mkfifo", [fifo]);
        const written = writeFile(fifo, "content");
        const before = (await service.ok("GET", "/v1/files")).data.length;
        const upload = await run(["file", "upload", fifo], { env: env() });
        assert.equal(upload.code, 1, upload.stdout);
        assert.match(upload.stderr, /the service answered 503 overloaded: not now/);
        await written;
        assert.equal(between.seen.filter(posts).length, 1);
        assert.equal((await service.ok("GET", "/v1/files")).data.length, before);
        trouble(posts, 9, problem(429, "rate_limited", "1"));
        const imported = await run(["import", "-", "--agent", agent.id, "--env", environment.id], { env: env(),
            input: '{"type":"session","version":3,"id":"x","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/"}\n' });
        assert.equal(imported.code, 1, imported.stdout);
        assert.match(imported.stderr, /the service answered 429 rate_limited: not now/);
        assert.equal(between.seen.filter(posts).length, 1);
    });

    test("a service that restarts is waited for; one that is not there is said to be so", async () => {
        const list = startCli(["agent", "list", "--json"],
            { env: { PI_MANAGED_URL: "http://127.0.0.1:1", PI_MANAGED_API_KEY: service.apiKey } });
        await list.says(/trying again/);
        assert.equal((await list.ended).code, 1);
        assert.match(list.stderr, /cannot reach http:\/\/127\.0\.0\.1:1: .*Is the service running/);
        assert.equal(list.stderr.match(/trying again/g).length, 1, "said once");
    });

    test("an export is written whole or not at all", async () => {
        const imported = await service.request("POST",
            `/v1/sessions/import?agent=${agent.id}&environmentId=${environment.id}`,
            { body: '{"type":"session","version":3,"id":"x","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/"}\n'
                + '{"type":"message","id":"a","parentId":null,"message":{"role":"user","content":"hi"}}\n',
            headers: { "content-type": "application/jsonl" } });
        const file = path.join(dir, "log.jsonl");
        trouble((request) => request.url.endsWith("/export"), 1, "refuse");
        const exported = await run(["export", imported.body.id, "--output", file], { env: env(), cwd: dir });
        assert.equal(exported.code, 0, exported.stderr);
        const [header, ...rest] = readFileSync(file, "utf8").split("\n");
        assert.equal(JSON.parse(header).cwd, dir);
        assert.deepEqual(rest.filter(Boolean).map((line) => JSON.parse(line).id), ["a"]);
        trouble((request) => request.url.endsWith("/export"), 9, problem(404, "session_not_found"));
        const nothing = await run(["export", imported.body.id, "--output", path.join(dir, "none")], { env: env(), cwd: dir });
        assert.equal(nothing.code, 1);
        assert.throws(() => readFileSync(path.join(dir, "none")));
        trouble(posts, 0);
        const linked = path.join(dir, "linked");
        symlinkSync(file, linked);
        writeFileSync(file, "older and longer than what comes now\n".repeat(100));
        const through = await run(["export", imported.body.id, "--output", linked], { env: env(), cwd: dir });
        assert.equal(through.code, 0, through.stderr);
        assert.ok(lstatSync(linked).isSymbolicLink(), "a link, a pipe or a device is written, not replaced");
        assert.equal(readFileSync(file, "utf8").split("\n").length, 3);
    });
});
