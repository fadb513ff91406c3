// The main job in a few lines: a service with a scripted model behind it, and sessions on it.
//
//   const job = await startJob();                          service + model
//   const session = await job.session({ api: "anthropic-messages" });
//   const events = await session.run("CALL bash {…}");     posts, waits for the turn's end
//   await job.stop();
import { startModelServer } from "./model-server.mjs";
import { startService } from "./service.mjs";

export const APIS = ["openai-completions", "anthropic-messages", "openai-responses",
    "google-generative-ai"];

export async function startJob(options = {}) {
    const model = await startModelServer(options.model ?? {});
    const { port } = new URL(model.url);
    try {
        const service = await startService({
            ...options,
            args: ["--allow-private", options.allowPrivate ?? `127.0.0.1:${port}`,
                ...(options.args ?? [])],
        });
        return new Job(service, model);
    } catch (error) {
        await model.close();
        throw error;
    }
}

let names = 0;
const uniqueName = (what) => `${what} ${process.pid}-${++names}`;

class Job {
    constructor(service, model) {
        this.service = service;
        this.model = model;
    }

    async agent(fields = {}) {
        const { api = "openai-completions", model = {}, ...rest } = fields;
        return this.service.ok("POST", "/v1/agents", {
            name: uniqueName("agent"),
            model: {
                provider: "scripted", id: "scripted-1", api, baseUrl: this.model.baseUrl(api),
                cost: { input: 1, output: 2, cacheRead: 0.1, cacheWrite: 1.25 }, ...model,
            },
            ...rest,
        });
    }

    environment(fields = {}) {
        return this.service.ok("POST", "/v1/environments", { name: uniqueName("env"), ...fields });
    }

    /** `more`: members of the session itself; the rest is the agent's. */
    async session({ environment = {}, more = {}, ...agentFields } = {}) {
        const agent = await this.agent(agentFields);
        const env = await this.environment(environment);
        const body = { agent: agent.id, environmentId: env.id, ...more };
        return new Session(this, await this.service.ok("POST", "/v1/sessions", body));
    }

    async stop() {
        await this.model.close();
        await this.service.stop();
    }
}

export class Session {
    constructor(job, resource) {
        this.job = job;
        this.id = resource.id;
        this.resource = resource;
    }

    get path() {
        return `/v1/sessions/${this.id}`;
    }

    stream(options) {
        return this.job.service.stream(this.id, options);
    }

    post(event) {
        return this.job.service.ok("POST", `${this.path}/events`, event);
    }

    say(content, more = {}) {
        return this.post({ type: "user.message", content, ...more });
    }

    interrupt() {
        return this.post({ type: "user.interrupt" });
    }

    get() {
        return this.job.service.ok("GET", this.path);
    }

    async events() {
        const { data } = await this.job.service.ok("GET",
            `${this.path}/events?limit=1000&order=asc`);
        return data;
    }

    async entries() {
        const { data } = await this.job.service.ok("GET",
            `${this.path}/entries?limit=1000&order=asc`);
        return data.map((row) => row.entry);
    }

    /** Posts a message and returns the turn's events up to session.status_idle. */
    async run(content, options = {}) {
        const before = (await this.events()).at(-1)?.seq ?? 0;
        const stream = await this.stream({ lastEventId: String(before), ...options });
        try {
            await this.say(content);
            const frames = await stream.until((frame) => frame.type === "session.status_idle");
            return frames.map((frame) => frame.data);
        } finally {
            stream.close();
        }
    }
}

export const types = (events) => events.map((event) => event.type);
export const textOf = (event) => event.content.map((block) => block.text ?? "").join("");
