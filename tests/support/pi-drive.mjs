// Drives the real Pi SDK against a model server, for pi-sdk.test.mjs: a bare host with in-memory
// everything and two custom tools. Run by Pi's Node:
//   node pi-drive.mjs BUNDLE < JOB
// JOB is JSON: {api, baseUrl, prompts: [text], thinkingLevel?, abortOn?, retries?}
// Prints {messages, deltas: [type]} as one JSON line.
import { json } from "node:stream/consumers";
import { pathToFileURL } from "node:url";

const pi = await import(pathToFileURL(process.argv[2]).href);
const job = await json(process.stdin);

class MemoryStore {
    #map = new Map();
    async read(key) {
        return this.#map.get(key);
    }
    async list() {
        return [];
    }
    async write(key, value) {
        this.#map.set(key, value);
    }
    async modify(key, change) {
        const next = await change(this.#map.get(key));
        if (next) {
            this.#map.set(key, next);
        }
        return this.#map.get(key);
    }
    async delete(key) {
        this.#map.delete(key);
    }
}

const parameters = { type: "object", properties: { text: { type: "string" } } };
const tools = [
    {
        name: "echo",
        label: "echo",
        description: "Returns its text.",
        parameters,
        execute: async (id, { text }) => ({ content: [{ type: "text", text: `echo: ${text}` }] }),
    },
    {
        name: "broken",
        label: "broken",
        description: "Always fails.",
        parameters,
        execute: async () => {
            throw new Error("it broke");
        },
    },
];

const modelRuntime = await pi.ModelRuntime.create({
    credentials: new MemoryStore(),
    modelsPath: null,
    modelsStore: new MemoryStore(),
    allowModelNetwork: false,
    refreshOnCreate: false,
});
modelRuntime.registerProvider("scripted", {
    baseUrl: job.baseUrl,
    api: job.api,
    apiKey: "placeholder",
    models: [{
        id: "scripted-1",
        name: "Scripted 1",
        reasoning: true,
        input: ["text"],
        cost: { input: 1, output: 2, cacheRead: 0.1, cacheWrite: 1.25 },
        contextWindow: 128000,
        maxTokens: 8192,
    }],
});

const none = { diagnostics: [] };
const { session } = await pi.createAgentSession({
    cwd: "/workspace",
    agentDir: "/nonexistent",
    modelRuntime,
    model: modelRuntime.getModel("scripted", "scripted-1"),
    thinkingLevel: job.thinkingLevel ?? "off",
    sessionManager: pi.SessionManager.inMemory("/workspace", { id: "drive" }),
    settingsManager: pi.SettingsManager.inMemory({
        enableInstallTelemetry: false,
        cacheWarming: "off",
        retry: { enabled: (job.retries ?? 0) > 0, maxRetries: job.retries ?? 0, baseDelayMs: 1 },
    }),
    resourceLoader: {
        getExtensions: () => ({
            extensions: [], errors: [], runtime: pi.createExtensionRuntime(),
        }),
        getSkills: () => ({ ...none, skills: [] }),
        getPrompts: () => ({ ...none, prompts: [] }),
        getThemes: () => ({ ...none, themes: [] }),
        getAgentsFiles: () => ({ agentsFiles: [] }),
        getSystemPrompt: () => "You are a test.",
        getSystemPromptSource: () => undefined,
        getAppendSystemPrompt: () => [],
        getAppendSystemPromptSources: () => [],
        extendResources() {},
        async reload() {},
    },
    tools: tools.map((tool) => tool.name),
    customTools: tools,
});

const deltas = [];
session.subscribe((event) => {
    if (event.type === "message_update") {
        deltas.push(event.assistantMessageEvent.type);
        if (job.abortOn === event.assistantMessageEvent.type) {
            session.abort();
        }
    }
});
for (const text of job.prompts) {
    await session.prompt(text, { expandPromptTemplates: false });
}
const result = { messages: session.messages, deltas };
process.stdout.write(`${JSON.stringify(result)}\n`, () => process.exit(0));
