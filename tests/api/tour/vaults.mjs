// Vaults and credentials, once around; a session with a vault and a budget that is used up.
import { agentBody, environmentBody } from "../support.mjs";

const keyed = { headers: { "idempotency-key": "tour" } };

async function twice(service, list) {
    const page = await service.ok("GET", `${list}?limit=1&order=asc&includeArchived=true`);
    await service.ok("GET", `${list}?limit=1&order=asc&includeArchived=true&cursor=${encodeURIComponent(page.nextCursor)}`);
}

export default async function tour({ service, job }) {
    const vault = await service.ok("POST", "/v1/vaults", { name: "tour" }, keyed);
    const second = await service.ok("POST", "/v1/vaults", { name: "tour 2" });
    const path = `/v1/vaults/${vault.id}`;
    const openai = { kind: "model_provider_key", provider: "openai", baseUrl: null, apiKey: "sk-tour" };
    await service.ok("POST", `${path}/credentials`, openai, keyed);
    const bound = { kind: "model_provider_key", provider: null, baseUrl: "https://models.example.com/v1", apiKey: "k" };
    const other = await service.ok("POST", `${path}/credentials`, bound);
    await service.ok("GET", path);
    await service.ok("GET", `${path}/credentials/openai`);
    await service.ok("PATCH", `${path}/credentials/openai`, { apiKey: "sk-tour-2" });
    await service.ok("DELETE", `${path}/credentials/${other.id}`);
    await validate(service, `${path}/credentials`, job.model);
    await twice(service, `${path}/credentials`);
    await twice(service, "/v1/vaults");
    await session(service, vault, job.model);
    await service.ok("POST", `${path}/archive`, undefined, keyed);
    await service.ok("DELETE", `/v1/vaults/${second.id}`);
}

async function validate(service, credentials, model) {
    const own = await service.ok("POST", credentials,
        { kind: "model_provider_key", baseUrl: model.url, apiKey: "sk-listed" });
    for (const listKey of [undefined, "sk-another", "sk-listed"]) {
        model.listKey = listKey;
        for (const api of ["openai-completions", "openai-responses", "anthropic-messages", "google-generative-ai"]) {
            const body = { api, baseUrl: model.baseUrl(api) };
            await service.ok("POST", `${credentials}/${own.id}/validate`, body);
        }
    }
    model.listKey = undefined;
    await service.ok("DELETE", `${credentials}/${own.id}`);
}

async function session(service, vault, model) {
    const agent = await service.ok("POST", "/v1/agents", agentBody({
        model: { provider: "scripted", id: "scripted-1", api: "openai-completions",
            baseUrl: model.baseUrl("openai-completions"), cost: { input: 1, output: 2 } },
    }));
    const environment = await service.ok("POST", "/v1/environments", environmentBody());
    const { id } = await service.ok("POST", "/v1/sessions", {
        agent: agent.id, environmentId: environment.id, vaultIds: [vault.id],
        budget: { maxTokens: 1, maxUsd: null, warnAt: 0.5 },
    });
    const stream = await service.stream(id);
    await service.ok("PATCH", `/v1/sessions/${id}`, { budget: { maxTokens: null, maxUsd: 1, warnAt: 0.000001 } });
    await service.ok("POST", `/v1/sessions/${id}/events`, { type: "user.message", content: "FAIL 503 TIMES 1 SAY tour" });
    await stream.until((frame) => frame.type === "session.status_idle");
    await service.ok("PATCH", `/v1/sessions/${id}`, { budget: null });
    await stream.until((frame) => frame.type === "session.updated");
    await stream.close();
}
