// Agents, environments, keys, health and the errors, once around.
import { MODEL, agentBody, environmentBody } from "../support.mjs";

/** What this host may not be able to show. */
export const golden = [
    ["Mount", { type: "bind", source: "/srv/repo", target: "/workspace/repo", readOnly: true }],
    ["Resources", { cpus: 1, memoryMiB: 64, pids: 32, diskMiB: 64 }],
    ["ReadyCheck", { ok: false, reason: "no Pi host is ready yet" }],
    ["Ready", { status: "not_ready", checks: { database: { ok: true }, broker: { ok: true },
        harness: { ok: false, reason: "x" }, sandbox: { ok: true } } }],
];

const TOOLS = {
    defaultConfig: { enabled: true, permissionPolicy: "always_allow" },
    configs: [{ name: "ls", enabled: false, permissionPolicy: "always_deny" }],
    mcp: [{ server: "docs", defaultConfig: { enabled: true },
        configs: [{ name: "search", enabled: true, permissionPolicy: "always_deny" }] }],
};
const AGENT = {
    model: { ...MODEL, thinkingLevel: "off", contextWindow: 100000, maxTokens: 1000, input: ["text"],
        cost: { input: 1, output: 2, cacheRead: 0.1, cacheWrite: 1.25 } },
    systemPrompt: "Be brief.", tools: TOOLS, projectContext: true, extensions: [], metadata: { team: "core" },
    skills: [{ type: "custom", skillId: `skill_${"0".repeat(26)}`, version: 1 }],
    mcpServers: [{ type: "url", name: "docs", url: "https://example.com/mcp" }],
    multiagent: { agents: [{ type: "self" }] },
};

export default async function tour({ service }) {
    await agents(service);
    await environments(service);
    await keys(service);
    for (const path of ["/healthz", "/readyz"]) {
        await service.request("GET", path, { key: null });
    }
    await service.request("GET", "/v1/agents", { key: null });
    await service.request("POST", "/v1/agents", { body: { name: 1 } });
    await service.request("POST", "/v1/agents", { body: "x", headers: { "content-type": "text/plain" } });
}

async function twice(service, list, query = "") {
    const page = await service.ok("GET", `${list}?limit=1&order=asc${query}`);
    await service.ok("GET", `${list}?limit=1&order=asc${query}&cursor=${encodeURIComponent(page.nextCursor)}`);
}

async function agents(service) {
    const [agent, other] = [agentBody(AGENT), agentBody()];
    const { id } = await service.ok("POST", "/v1/agents", agent, { headers: { "idempotency-key": "tour" } });
    const second = await service.ok("POST", "/v1/agents", other);
    await service.ok("POST", "/v1/agents",
        agentBody({ multiagent: { agents: [{ type: "agent", id, version: 1 }] } }));
    await service.ok("GET", `/v1/agents?metadata=${encodeURIComponent('{"team":"core"}')}`);
    await service.ok("GET", `/v1/agents/${id}`);
    await service.ok("PATCH", `/v1/agents/${id}`, { version: 1, name: `${agent.name} 2`, ...AGENT,
        systemPrompt: null });
    await twice(service, `/v1/agents/${id}/versions`);
    await service.ok("GET", `/v1/agents/${id}/versions/1`);
    await twice(service, "/v1/agents", "&includeArchived=true");
    await service.ok("GET", `/v1/agents?name=${encodeURIComponent(other.name)}`);
    await service.ok("POST", `/v1/agents/${second.id}/archive`, undefined,
        { headers: { "idempotency-key": "tour" } });
    await service.request("PATCH", `/v1/agents/${second.id}`, { body: { systemPrompt: "late" } });
}

async function environments(service) {
    const packages = { apt: ["jq"], npm: ["typescript@5.4.2"], pip: ["requests==2.32.3"] };
    const mounts = [{ type: "volume", name: "tour", target: "/srv/tour", readOnly: true }];
    const full = { type: "cloud", image: "debian", packages, mounts, resources: null, networking: { type: "none" },
        idleTimeout: 60, maxDuration: 3600, metadata: { a: "b" } };
    const { id, name } = await service.ok("POST", "/v1/environments", environmentBody(full),
        { headers: { "idempotency-key": "tour" } });
    const second = await service.ok("POST", "/v1/environments", environmentBody());
    await service.ok("GET", `/v1/environments/${id}`);
    await service.ok("PATCH", `/v1/environments/${id}`, { name: `${name} 2`, ...full });
    await twice(service, "/v1/environments", "&includeArchived=true");
    await service.ok("GET", `/v1/environments?name=${encodeURIComponent(second.name)}`);
    await service.ok("POST", `/v1/environments/${second.id}/archive`, undefined,
        { headers: { "idempotency-key": "tour" } });
    await service.ok("DELETE", `/v1/environments/${second.id}`);
}

async function keys(service) {
    const { id } = await service.ok("POST", "/v1/api-keys", { name: "tour", scope: "read" });
    await twice(service, "/v1/api-keys");
    await service.ok("DELETE", `/v1/api-keys/${id}`);
    await twice(service, "/v1/api-keys");
}
