// What the API tests share: bodies that are accepted, and the shape every problem has (R10).
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { SERVICE_PROGRAM, startService } from "../support/service.mjs";

export { startService };

export const MODEL = {
    provider: "local", id: "test-model", api: "openai-completions", baseUrl: "http://127.0.0.1:9/v1",
};

let names = 0;
export const uniqueName = (prefix) => `${prefix} ${++names}`;
export const agentBody = (more) => ({ name: uniqueName("agent"), model: MODEL, ...more });
export const environmentBody = (more) => ({ name: uniqueName("environment"), ...more });

export async function createSession(service, more) {
    const agent = await service.ok("POST", "/v1/agents", agentBody());
    const environment = await service.ok("POST", "/v1/environments", environmentBody());
    return service.ok("POST", "/v1/sessions",
        { agent: agent.id, environmentId: environment.id, ...more });
}

/** A second tenant in the same database, with an admin key: {tenantId, apiKey}. */
export async function createTenant(service, name) {
    const args = ["tenant", "create", name, "--data", service.data, "--json"];
    const { stdout } = await promisify(execFile)(SERVICE_PROGRAM, args);
    const { tenantId, apiKey } = JSON.parse(stdout);
    assert.ok(tenantId && apiKey, stdout);
    return { tenantId, apiKey };
}

/** Asserts a problem+json reply; returns its body. */
export function assertProblem(reply, status, code) {
    assert.equal(reply.status, status, reply.text);
    assert.match(reply.headers["content-type"], /^application\/problem\+json/);
    assert.equal(reply.body.status, status);
    assert.ok(reply.body.type && reply.body.title && reply.body.detail, reply.text);
    assert.equal(reply.body.requestId, reply.headers["x-request-id"]);
    if (code) {
        assert.equal(reply.body.code, code, reply.text);
    }
    assert.match(reply.body.code, /^[a-z][a-z0-9_]*$/);
    return reply.body;
}

/** …whose errors name exactly these paths. */
export function assertPaths(reply, paths, code) {
    const problem = assertProblem(reply, 400, code);
    assert.deepEqual((problem.errors ?? []).map((error) => error.path).sort(), [...paths].sort(),
        reply.text);
    problem.errors?.forEach((error) => assert.ok(error.message));
}

/** Every page of a list, checked against the size asked for. */
export async function allPages(service, path, limit, options) {
    const rows = [];
    const join = path.includes("?") ? "&" : "?";
    for (let cursor = null; ;) {
        const query = `${join}limit=${limit}${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ""}`;
        const page = await service.ok("GET", `${path}${query}`, undefined, options);
        assert.ok(page.data.length <= limit);
        assert.equal(page.hasMore, page.nextCursor !== null);
        rows.push(...page.data);
        if (!page.hasMore) {
            return rows;
        }
        assert.equal(page.data.length, limit);
        cursor = page.nextCursor;
    }
}
