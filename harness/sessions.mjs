// One Pi AgentSession per opened session: translates the protocol's ops into calls on it and its
// events and log entries into messages. Decides nothing; what happens next is control's business.
import { DefaultPrompts } from "./prompt.mjs";
import { toJsonLine } from "./protocol.mjs";
import { Calls, remoteTools } from "./tools.mjs";
import { workdirResources } from "./workdir.mjs";

const ALL_TOOLS = ["read", "bash", "edit", "write", "grep", "find", "ls"];
const NOWHERE = "/nonexistent";

/**
 * Pi asks again at once when an answer breaks off; control holds the request until its backoff is over and counts
 * (R24). The SDKs never do by themselves, and wait for as long as the broker does: a request may be held through
 * several backoffs. Nothing sent in the background; nothing about this machine.
 */
const SETTINGS = {
    httpIdleTimeoutMs: 0,
    retry: { enabled: true, maxRetries: 4, baseDelayMs: 50, provider: { maxRetries: 0 } },
    cacheWarming: "off",
    enableInstallTelemetry: false,
    images: { autoResize: false },
};

export class Sessions {
    #pi;
    #models;
    #outbox;
    #open = new Map();
    #prompts = new DefaultPrompts((names) => this.#renderDefaultPrompt(names));

    constructor(pi, models, outbox) {
        this.#pi = pi;
        this.#models = models;
        this.#outbox = outbox;
    }

    async open(request, lines) {
        if (this.#open.has(request.session)) {
            throw new Error(`session ${request.session} is open already`);
        }
        const session = new HostedSession(request.session, this.#outbox);
        this.#open.set(request.session, session);
        try {
            await session.start(this.#pi, await this.#options(request, lines));
        } catch (error) {
            this.#open.delete(request.session);
            throw error;
        }
    }

    get(id) {
        const session = this.#open.get(id);
        if (!session) {
            throw new Error(`session ${id} is not open in this host`);
        }
        return session;
    }

    async close(id) {
        const session = this.get(id);
        this.#open.delete(id);
        await session.close();
    }

    answer(id, call, result) {
        this.#open.get(id)?.calls.answer(call, result);
    }

    async #options(request, lines) {
        const { session, cwd, token, model, thinkingLevel, systemPrompt, tools, workdirLines = 0 } = request;
        const level = thinkingLevel ?? undefined;
        const ofLog = lines.length - workdirLines;
        return {
            id: session,
            cwd,
            entries: lines.slice(0, ofLog).map((line) => JSON.parse(line.toString("utf8"))),
            model: await this.#models.forSession(model, token, level),
            modelRuntime: this.#models.runtime,
            thinkingLevel: level,
            systemPrompt: systemPrompt ?? await this.#prompts.forTools(tools),
            tools,
            workdir: workdirResources(this.#pi, lines.slice(ofLog), cwd),
        };
    }

    async #renderDefaultPrompt(names) {
        const cwd = "/workspace";
        const { session } = await this.#pi.createAgentSession({
            cwd,
            agentDir: NOWHERE,
            model: this.#models.runtime.getModels()[0],
            modelRuntime: this.#models.runtime,
            sessionManager: this.#pi.SessionManager.inMemory(cwd),
            resourceLoader: resources(this.#pi, undefined, { agentsFiles: [], skills: [] }),
            settingsManager: this.#pi.SettingsManager.inMemory({ ...SETTINGS }),
            tools: names,
            customTools: remoteTools(this.#pi, names, cwd, () => Promise.reject(new Error("no"))),
        });
        const text = session.systemPrompt;
        session.dispose();
        return text;
    }

    /** Loads what a first request needs, so that the first real one does not wait for it. */
    async warm(models) {
        for (const [index, model] of models.entries()) {
            const silent = { send() {}, delta() {} };
            const session = new HostedSession(`warm-${index}`, silent);
            const request = {
                session: `warm-${index}`, cwd: "/workspace", token: "warm", model, tools: ALL_TOOLS,
            };
            await session.start(this.#pi, await this.#options(request, []));
            await session.prompt([{ type: "text", text: "warm" }]);
            await session.finished;
            await session.close();
        }
    }
}

class HostedSession {
    #id;
    #outbox;
    #pi;
    #session;
    #settled = true;
    #failure;
    #halves = new Map();
    finished = Promise.resolve();

    constructor(id, outbox) {
        this.#id = id;
        this.#outbox = outbox;
        this.calls = new Calls(outbox, id);
    }

    async start(pi, options) {
        const { id, cwd, entries, model, modelRuntime, thinkingLevel, systemPrompt, tools, workdir } = options;
        const fresh = entries.length === 0;
        const manager = pi.SessionManager.inMemory(cwd, { id }, entries);
        this.#streamEntries(manager);
        if (fresh) {
            this.#entry(manager.getHeader());
        }
        const { session } = await pi.createAgentSession({
            cwd,
            agentDir: NOWHERE,
            model,
            modelRuntime,
            thinkingLevel,
            sessionManager: manager,
            resourceLoader: resources(pi, systemPrompt, workdir),
            settingsManager: pi.SettingsManager.inMemory({ ...SETTINGS }),
            tools,
            customTools: remoteTools(pi, tools, cwd, (call) => this.calls.run(call)),
        });
        this.#pi = pi;
        this.#session = session;
        refuseLocalTools(session);
        if (!fresh) {
            recordModel(manager, model);
        }
        session.subscribe((event) => this.#on(event));
    }

    /** Resolves when the run has started; the run itself goes on. `note`: the model is told this first. */
    async prompt(blocks, note) {
        const { text, images } = split(blocks);
        if (note) {
            const message = { customType: "pi-managed:note", content: note, display: false };
            await this.#session.sendCustomMessage(message, { triggerTurn: false });
        }
        return this.#run(() => this.#session.prompt(text, {
            images, expandPromptTemplates: false, source: "rpc",
        }));
    }

    async steer(blocks) {
        if (!this.#session.isStreaming) {
            throw new Error("nothing is running: send a prompt instead");
        }
        const { text, images } = split(blocks);
        await this.#session.prompt(text, {
            images, expandPromptTemplates: false, source: "rpc", streamingBehavior: "steer",
        });
    }

    /** R26: gives open calls their results, then lets the run go on. */
    resume(note, results) {
        if (this.#session.isStreaming) {
            throw new Error("the run is still going on");
        }
        for (const message of results) {
            this.#session.sessionManager.appendMessage(message);
        }
        if (results.length > 0) {
            this.#session.refreshContext();
        }
        this.#dropFailed();
        if (note !== null && note !== undefined) {
            const message = { customType: "pi-managed:resume", content: note, display: false };
            return this.#run(() => this.#session.sendCustomMessage(message, { triggerTurn: true }));
        }
        const last = this.#session.messages.at(-1)?.role;
        if (last === undefined || last === "assistant" || last === "system") {
            throw new Error(`nothing to go on with: the last message is ${last ?? "missing"}`);
        }
        return this.#run(() => continueRun(this.#session));
    }

    /** Pi's own retry leaves the answer that failed out of what it sends next; so does ours. */
    #dropFailed() {
        const last = this.#session.messages.at(-1);
        if (last?.role === "assistant" && last.stopReason === "error") {
            this.#session._omitRecoveryAttempt(last);
        }
    }

    async abort() {
        this.#session.clearQueue();
        await this.#session.abort();
    }

    async close() {
        if (this.#session.isStreaming) {
            await this.abort();
        }
        this.#session.dispose();
    }

    /**
     * Resolves once the run is going: Pi may first compact the conversation, which takes a model request that
     * an abort must be able to stop.
     */
    #run(begin) {
        if (this.#session.isStreaming) {
            throw new Error("a run is going on already: steer it or wait for it to settle");
        }
        this.#settled = false;
        this.#failure = undefined;
        const run = begin();
        return new Promise((resolve, reject) => {
            let accepted = false;
            const accept = () => {
                accepted = this.#session.isStreaming || this.#settled;
                return accepted ? resolve() : ended || setImmediate(accept);
            };
            let ended = false;
            this.finished = run.then(() => undefined, (error) => error).then((error) => {
                ended = true;
                if (accepted || !error) {
                    this.#settle(false, error?.message);
                    resolve();
                } else {
                    this.#settled = true;
                    reject(error);
                }
            });
            accept();
        });
    }

    /** Once per run: Pi says so, or its run ended in an exception without saying so. */
    #settle(aborted, error) {
        if (this.#settled) {
            return;
        }
        this.#settled = true;
        this.#session.clearQueue();
        const text = error ?? this.#failure;
        this.#outbox.send({
            t: "settled", session: this.#id, aborted, ...(text && !aborted && { error: text }),
        });
    }

    #streamEntries(manager) {
        const append = manager._appendEntry.bind(manager);
        manager._appendEntry = (entry) => {
            append(entry);
            this.#entry(entry);
        };
    }

    #entry(entry) {
        this.#outbox.send({ t: "entry", session: this.#id }, toJsonLine(entry));
    }

    #on(event) {
        switch (event.type) {
        case "message_start":
            if (event.message.role === "assistant") {
                this.#halves.clear();
                this.#delta("message_start", 0, "");
            }
            break;
        case "message_update":
            this.#update(event.assistantMessageEvent);
            break;
        case "message_end":
            if (event.message.role === "assistant") {
                this.#failure = failureOf(event.message);
                this.#delta(this.#failure ? "discarded" : "message_end", 0, "");
            }
            break;
        case "auto_retry_start":
        case "summarization_retry_scheduled":
            this.#outbox.send({
                t: "retry", session: this.#id, attempt: event.attempt,
                maxAttempts: event.maxAttempts, delayMs: event.delayMs, error: event.errorMessage,
            });
            break;
        case "agent_settled":
            this.#settle(event.aborted);
            break;
        default:
        }
    }

    #update({ type, contentIndex, delta }) {
        if (type === "thinking_start") {
            this.#delta("thinking_start", contentIndex, "");
        } else if (type === "text_delta") {
            const text = this.#wholePoints(contentIndex, delta);
            if (text !== "") {
                this.#delta("text", contentIndex, text);
            }
        }
    }

    /** A provider may cut a surrogate pair in two: the first half waits for the second (R18). */
    #wholePoints(index, delta) {
        const text = (this.#halves.get(index) ?? "") + delta;
        const cut = /[\ud800-\udbff]$/.test(text) ? text.length - 1 : text.length;
        this.#halves.set(index, text.slice(cut));
        return text.slice(0, cut);
    }

    #delta(kind, index, text) {
        this.#outbox.delta({ t: "delta", session: this.#id, kind, index, text });
    }
}

function failureOf({ stopReason, errorMessage }) {
    return stopReason === "error" ? errorMessage || "the model request failed" : undefined;
}

/** Pi's user message is a text and images behind it. */
function split(blocks) {
    const text = blocks.filter((b) => b.type === "text").map((b) => b.text).join("\n");
    const images = blocks.filter((b) => b.type === "image")
        .map(({ data, mimeType }) => ({ type: "image", data, mimeType }));
    return { text, images: images.length > 0 ? images : undefined };
}

/** Nothing is looked for on this machine; context files and skills are those of the sandbox. */
function resources(pi, systemPrompt, { agentsFiles, skills }) {
    return {
        getExtensions: () => ({ extensions: [], errors: [], runtime: pi.createExtensionRuntime() }),
        getSkills: () => ({ skills, diagnostics: [] }),
        getPrompts: () => ({ prompts: [], diagnostics: [] }),
        getThemes: () => ({ themes: [], diagnostics: [] }),
        getAgentsFiles: () => ({ agentsFiles }),
        getSystemPrompt: () => systemPrompt,
        getSystemPromptSource: () => undefined,
        getAppendSystemPrompt: () => [],
        getAppendSystemPromptSources: () => [],
        extendResources() {},
        async reload() {},
    };
}

/** R3, structurally: a tool that would run here is a reason not to open the session. */
function refuseLocalTools(session) {
    const active = new Set(session.getActiveToolNames());
    for (const { name, sourceInfo } of session.getAllTools()) {
        if (active.has(name) && sourceInfo?.source === "builtin") {
            throw new Error(`the tool ${name} would run in the host`);
        }
    }
}

/** The agent's model changed since the log was written: say so in the log, as /model does. */
function recordModel(manager, { provider, id }) {
    const last = manager.getBranch().findLast((entry) => entry.type === "model_change");
    if (last && (last.provider !== provider || last.modelId !== id)) {
        manager.appendModelChange(provider, id);
    }
}

/**
 * Lets an interrupted run go on with no new message, with the whole life of a run around it (prompt
 * and tool changes, compaction, agent_settled), which agent.continue() alone would leave out.
 */
function continueRun(session) {
    const { agent } = session;
    const nothing = {
        role: "custom", customType: "pi-managed:continue", content: [], display: false,
        timestamp: Date.now(),
    };
    agent.prompt = (messages) => {
        delete agent.prompt;
        return agent.prompt(messages.filter((message) => message !== nothing));
    };
    return session._startRun({ messageType: "custom", message: nothing })
        .finally(() => { delete agent.prompt; });
}
