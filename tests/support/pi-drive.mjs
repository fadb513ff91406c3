// Drives the real Pi SDK against a model server, for pi-sdk.test.mjs: a bare host with in-memory
// everything and custom tools. Run by Pi's Node: node pi-drive.mjs BUNDLE
// Each line on stdin is a job, done in a session of its own, in order:
//   {api, baseUrl, prompts: [text], images?: [of the first prompt], thinkingLevel?, abortOn?: delta type, retries?}
// and gives a line on stdout: {messages, deltas: [type], ran: number of tool calls that were executed}.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { text as allText } from "node:stream/consumers";
import { pathToFileURL } from "node:url";

const pi = await import(pathToFileURL(process.argv[2]).href);

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

const answer = (text) => ({ content: [{ type: "text", text }], details: undefined });
const takes = (...names) => ({
    type: "object",
    properties: Object.fromEntries(names.map((name) => [name, { type: "string" }])),
});

/** `write` keeps one file in memory and `bash` runs it, whatever its command: enough for a demo. */
function customTools(onRun) {
    let kept = "";
    const tools = {
        echo: [takes("text"), async ({ text }) => answer(`echo: ${text}`)],
        broken: [takes(), async () => {
            throw new Error("it broke");
        }],
        write: [takes("path", "content"), async ({ path, content }) => {
            kept = content;
            return answer(`Successfully wrote to ${path}`);
        }],
        bash: [takes("command"), async () => {
            const shell = spawn("sh", ["-s"], { stdio: ["pipe", "pipe", "inherit"] });
            shell.stdin.end(kept);
            return answer(await allText(shell.stdout));
        }],
    };
    return Object.entries(tools).map(([name, [parameters, run]]) => ({
        name,
        label: name,
        description: `The ${name} tool of a test.`,
        parameters,
        execute: (id, input) => {
            onRun();
            return run(input);
        },
    }));
}

const modelRuntime = await pi.ModelRuntime.create({
    credentials: new MemoryStore(),
    modelsPath: null,
    modelsStore: new MemoryStore(),
    allowModelNetwork: false,
    refreshOnCreate: false,
});

function model({ api, baseUrl }) {
    modelRuntime.registerProvider(`scripted-${api}`, {
        baseUrl,
        api,
        apiKey: "placeholder",
        models: [{
            id: "scripted-1",
            name: "Scripted 1",
            reasoning: true,
            input: ["text", "image"],
            cost: { input: 1, output: 2, cacheRead: 0.1, cacheWrite: 1.25 },
            contextWindow: 128000,
            maxTokens: 8192,
        }],
    });
    return modelRuntime.getModel(`scripted-${api}`, "scripted-1");
}

function emptyResources() {
    const none = { diagnostics: [] };
    const extensions = { extensions: [], errors: [], runtime: pi.createExtensionRuntime() };
    return {
        getExtensions: () => extensions,
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
    };
}

async function openSession(job, index, onRun) {
    const retries = job.retries ?? 0;
    const tools = customTools(onRun);
    const { session } = await pi.createAgentSession({
        cwd: "/workspace",
        agentDir: "/nonexistent",
        modelRuntime,
        model: model(job),
        thinkingLevel: job.thinkingLevel ?? "off",
        sessionManager: pi.SessionManager.inMemory("/workspace", { id: `drive-${index}` }),
        settingsManager: pi.SettingsManager.inMemory({
            enableInstallTelemetry: false,
            cacheWarming: "off",
            images: { autoResize: false },
            retry: { enabled: retries > 0, maxRetries: retries, baseDelayMs: 1 },
        }),
        resourceLoader: emptyResources(),
        tools: tools.map((tool) => tool.name),
        customTools: tools,
    });
    return session;
}

async function run(job, index) {
    let ran = 0;
    const session = await openSession(job, index, () => (ran += 1));
    const deltas = [];
    session.subscribe((event) => {
        if (event.type === "message_update") {
            deltas.push(event.assistantMessageEvent.type);
            if (job.abortOn === event.assistantMessageEvent.type) {
                session.abort();
            }
        }
    });
    for (const [i, text] of job.prompts.entries()) {
        const images = i === 0 ? job.images : undefined;
        await session.prompt(text, { expandPromptTemplates: false, images });
    }
    const { messages } = session;
    session.dispose();
    return { messages, deltas, ran };
}

let index = 0;
for await (const line of createInterface(process.stdin)) {
    process.stdout.write(`${JSON.stringify(await run(JSON.parse(line), index))}\n`);
    index += 1;
}
