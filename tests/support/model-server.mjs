#!/usr/bin/env node
// A scripted model server: test equipment, not part of the service. It speaks the streaming APIs
// openai-completions, anthropic-messages, openai-responses and google-generative-ai as the
// providers do, refuses what they refuse, and answers by a script.
//
//   node tests/support/model-server.mjs [--listen ADDR:PORT] [--script demo|FILE] [--log FILE]
//                                       [--api-key KEY] [--replay SESSION.jsonl]
//   prints `model server on http://ADDR:PORT`
//
//   const m = await startModelServer({ script?, log?, listen?, apiKey? });
//   m.url  m.baseUrl(api)  m.requests  m.waitForRequest(predicate)  m.setScript(script)
//   m.release()  m.close()
//
// Scripts: (1) none: directives in the user's text, grammar in model/script.mjs. (2) an array of
// steps, one a request, or a function (request) → step | promise; steps are described at toTurn()
// in model/script.mjs. A function may return undefined to leave the request to the directives.
// (3) a FILE: an .mjs whose default export is one of these, or a .json array; `demo` names
// model/scripts/demo.mjs.
//
// --replay plays the model of a recorded session log back (model/replay.mjs): give a new session the
// same messages, and it goes the way the recorded one went.
//
// Each of m.requests: {index, api, model, method, path, headers, body (text), parsed (JSON),
// conversation, userText, outcome, sentBytes, done, stalled, release}. done is a promise of the outcome:
// finished, left (the client went away), cut, error, failed (an HTTP error by script) or refused
// (the request was not valid). stalled is a promise too: a HANG is reached, and release() ends it.
//
// GET of the list of models (what tells whether a key is good) wants m.listKey, apiKey unless it is set; without
// one it is open to all. m.lists: {api, headers} of each. m.onList(list), if set, is awaited first and may
// return {status, headers} to be answered.
//
// From another process: POST /control/release ends all stalls, GET /control/requests lists.
import { createWriteStream, readFileSync } from "node:fs";
import http from "node:http";
import path from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { anthropicMessages } from "./model/anthropic-messages.mjs";
import { BadRequest } from "./model/conversation.mjs";
import { googleGenerativeAi } from "./model/google-generative-ai.mjs";
import { openaiCompletions } from "./model/openai-completions.mjs";
import { openaiResponses } from "./model/openai-responses.mjs";
import { play } from "./model/play.mjs";
import { replay } from "./model/replay.mjs";
import { directiveTurn, ScriptError, toTurn, withoutFaults } from "./model/script.mjs";
import { randomId, usageOf } from "./model/tokens.mjs";

const PROTOCOLS = [openaiCompletions, anthropicMessages, openaiResponses, googleGenerativeAi];

/** What a client puts before the protocol's path: Pi's `baseUrl`. */
const BASE_PATHS = {
    "openai-completions": "/v1",
    "anthropic-messages": "",
    "openai-responses": "/v1",
    "google-generative-ai": "/v1beta",
};

const WAIT_MS = 20_000;
const CLIENT_LEFT = ["EPIPE", "ECONNRESET"];

export async function startModelServer(options = {}) {
    const server = new ModelServer(options);
    await server.listen(options.listen ?? "127.0.0.1:0");
    return server;
}

class ModelServer {
    requests = [];
    lists = [];
    listKey;
    onList;
    #script;
    #apiKey;
    #log;
    #waiters = new Set();
    #stalls = new Set();
    #seen = new Map();
    #http = http.createServer((request, response) => this.#serve(request, response));

    constructor({ script, log, apiKey }) {
        this.#apiKey = apiKey;
        this.listKey = apiKey;
        this.#log = log && createWriteStream(log, { flags: "a" });
        this.setScript(script);
    }

    async listen(address) {
        const [, host, port] = /^\[?(.*?)\]?:(\d+)$/.exec(address)
            ?? fail(`--listen needs ADDR:PORT, not ${address}`);
        await new Promise((resolve, reject) => {
            this.#http.once("error", reject).listen(Number(port), host, resolve);
        });
        const bound = this.#http.address();
        const name = bound.family === "IPv6" ? `[${bound.address}]` : bound.address;
        this.url = `http://${name}:${bound.port}`;
    }

    baseUrl(api) {
        return this.url + BASE_PATHS[api];
    }

    /** undefined: directives in the user text. A list is used up one step a request. */
    setScript(script) {
        if (Array.isArray(script)) {
            const steps = [...script];
            this.#script = (request) => {
                const step = steps.shift() ?? fail("script: the list of steps is used up");
                return typeof step === "function" ? step(request) : step;
            };
        } else {
            this.#script = script ?? (() => undefined);
        }
    }

    /** The first request, past or to come, for which predicate(request) is true. */
    waitForRequest(predicate = () => true, { timeoutMs = WAIT_MS } = {}) {
        const found = this.requests.find(predicate);
        if (found) {
            return Promise.resolve(found);
        }
        return new Promise((resolve, reject) => {
            const waiter = { predicate, resolve: (r) => (clearTimeout(timer), resolve(r)) };
            const timer = setTimeout(() => {
                this.#waiters.delete(waiter);
                const seen = this.requests.map((r) => `${r.api} ${JSON.stringify(r.userText)}`);
                reject(new Error(`no such model request in ${timeoutMs} ms: ${predicate}; `
                    + `seen: [${seen.join(", ")}]`));
            }, timeoutMs);
            this.#waiters.add(waiter);
        });
    }

    /** Ends every stall; those answers are then played to their end. */
    release() {
        this.#stalls.forEach((end) => end());
    }

    async close() {
        this.release();
        this.#http.closeAllConnections();
        await new Promise((resolve) => this.#http.close(resolve));
        if (this.#log) {
            await new Promise((resolve) => this.#log.end(resolve));
        }
    }

    async #serve(request, response) {
        const url = new URL(request.url, "http://model");
        let body = "";
        try {
            for await (const chunk of request.setEncoding("utf8")) {
                body += chunk;
            }
        } catch {
            return;
        }
        if (url.pathname.startsWith("/control/")) {
            this.#control(request, url, response);
            return;
        }
        const lister = request.method === "GET"
            && PROTOCOLS.find((encoder) => encoder.lists(url.pathname, request.headers));
        if (lister) {
            await this.#list(lister, request.headers, response);
            return;
        }
        const routes = PROTOCOLS.map((encoder) => ({
            encoder, route: encoder.route(url.pathname, url.searchParams),
        }));
        const match = request.method === "POST" && routes.find(({ route }) => route);
        if (!match) {
            sendJson(response, 404, { error: `no model API at ${request.method} ${url.pathname}` });
            return;
        }
        await this.#answer(match.encoder, match.route, request, response, body);
    }

    async #list(encoder, headers, response) {
        const list = { api: encoder.api, headers };
        this.lists.push(list);
        const scripted = await this.onList?.(list);
        const { header, prefix } = encoder.auth;
        if (scripted) {
            response.writeHead(scripted.status, scripted.headers).end();
        } else if (this.listKey === undefined || headers[header] === prefix + this.listKey) {
            sendJson(response, 200, { data: [{ id: "scripted-1" }] });
        } else {
            const [status, body] = encoder.refuseKey?.(headers[header])
                ?? [401, encoder.error(401, `invalid API key ${headers[header]}`)];
            sendJson(response, status, body);
        }
    }

    async #answer(encoder, route, request, response, body) {
        const gone = new AbortController();
        response.on("close", () => !response.writableFinished && gone.abort());
        const record = this.#record(encoder, route, request, body);
        const settle = deferred();
        if (encoder.requestIdHeader) {
            response.setHeader(encoder.requestIdHeader, randomId("req_"));
        }
        record.done = settle.promise;
        try {
            this.#understand(encoder, record);
            this.#announce(record);
            record.outcome = await this.#perform(encoder, record, response, gone.signal);
        } catch (error) {
            this.#announce(record);
            record.outcome = "refused";
            record.refusal = error.message;
            refuse(encoder, response, error);
        }
        settle.resolve(record.outcome);
    }

    #record(encoder, route, request, body) {
        const stall = deferred();
        const record = {
            index: this.requests.length,
            api: encoder.api,
            model: route.model,
            method: request.method,
            path: request.url,
            headers: request.headers,
            body,
            parsed: undefined,
            conversation: undefined,
            userText: "",
            outcome: undefined,
            stalled: stall.promise,
        };
        Object.defineProperty(record, "reachStall", { value: stall.resolve });
        this.requests.push(record);
        return record;
    }

    /** Fills in what the body says; throws what the provider would answer. */
    #understand(encoder, record) {
        const { header, prefix } = encoder.auth;
        try {
            record.parsed = JSON.parse(record.body);
        } catch (error) {
            throw new BadRequest(`the body is not JSON: ${error.message}`);
        }
        if (this.#apiKey && record.headers[header] !== prefix + this.#apiKey) {
            throw Object.assign(new BadRequest(`invalid API key in ${header}`), { status: 401 });
        }
        record.model ??= record.parsed.model;
        if (typeof record.model !== "string" || record.model === "") {
            throw new BadRequest("the request names no model");
        }
        record.conversation = encoder.parse(record.parsed);
        record.userText = record.conversation.userText;
        record.conversation.check();
    }

    /** Only once a request is understood (or refused) do those who wait for it hear of it. */
    #announce(record) {
        if (record.announced) {
            return;
        }
        Object.defineProperty(record, "announced", { value: true });
        const at = new Date().toISOString();
        this.#log?.write(`${JSON.stringify({ at, ...loggable(record) })}\n`);
        for (const waiter of this.#waiters) {
            if (waiter.predicate(record)) {
                this.#waiters.delete(waiter);
                waiter.resolve(record);
            }
        }
    }

    async #perform(encoder, record, response, gone) {
        const step = await this.#script(record);
        const turn = this.#withoutSpentFaults(record, step === undefined
            ? directiveTurn(record.conversation) : toTurn(step));
        if (turn.early === "cut") {
            response.destroy();
            return "cut";
        }
        if (turn.early === "hang") {
            await this.#stall(record, gone);
            if (gone.aborted) {
                return "left";
            }
        }
        if (turn.fail) {
            sendFailure(encoder, response, turn.fail);
            return "failed";
        }
        const usage = {
            ...usageOf(record.conversation, turn.parts.filter((part) => part.text !== undefined),
                { writesCache: encoder.writesCache(record.body) }),
            ...turn.usage,
        };
        const stream = encoder.stream({ body: record.parsed, model: record.model, usage });
        const stalled = () => this.#stall(record, gone);
        const { outcome, sent } = await play({ encoder, stream, turn, response, gone, stalled });
        record.sentBytes = sent;
        return outcome;
    }

    /** TIMES n: the same request gets the turn's faults n times, then the turn without them. */
    #withoutSpentFaults(record, turn) {
        if (turn.times === Infinity) {
            return turn;
        }
        const { messages } = record.conversation;
        const key = JSON.stringify([record.model, messages.map((m) => m.text ?? m.results)]);
        const seen = (this.#seen.get(key) ?? 0) + 1;
        this.#seen.set(key, seen);
        if (seen <= turn.times) {
            return turn;
        }
        return withoutFaults(turn);
    }

    async #stall(record, gone) {
        const stall = deferred();
        gone.addEventListener("abort", stall.resolve, { once: true });
        this.#stalls.add(stall.resolve);
        record.release = stall.resolve;
        record.reachStall();
        await stall.promise;
        this.#stalls.delete(stall.resolve);
    }

    #control(request, url, response) {
        if (request.method === "POST" && url.pathname === "/control/release") {
            this.release();
            sendJson(response, 200, {});
        } else if (request.method === "GET" && url.pathname === "/control/requests") {
            sendJson(response, 200, { data: this.requests.map(loggable) });
        } else {
            sendJson(response, 404, { error: "POST /control/release or GET /control/requests" });
        }
    }
}

function loggable({ index, api, model, method, path: target, headers, parsed, outcome }) {
    return { index, api, model, method, path: target, headers, outcome, body: parsed };
}

function refuse(encoder, response, error) {
    const known = error instanceof BadRequest || error instanceof ScriptError;
    if (!known && !CLIENT_LEFT.includes(error.code)) {
        console.error(error);
    }
    if (response.headersSent) {
        response.destroy();
        return;
    }
    const status = error.status ?? (known ? 400 : 500);
    sendJson(response, status, encoder.error(status, error.message));
}

function sendFailure(encoder, response, { status, retryAfter, message, headers, type, body }) {
    if (retryAfter !== undefined) {
        response.setHeader("retry-after", String(retryAfter));
    }
    for (const [name, value] of Object.entries(headers ?? {})) {
        response.setHeader(name, value);
    }
    if (body === undefined) {
        const text = message ?? `scripted failure ${status}`;
        sendJson(response, status, encoder.error(status, text));
    } else {
        response.writeHead(status, type && { "content-type": type });
        response.end(body);
    }
}

function sendJson(response, status, body) {
    response.writeHead(status, { "content-type": "application/json" });
    response.end(JSON.stringify(body));
}

function deferred() {
    const made = {};
    made.promise = new Promise((resolve) => (made.resolve = resolve));
    return made;
}

function fail(message) {
    throw new ScriptError(message);
}

/** `demo`, an .mjs with a default export, or a .json list. */
export async function loadScript(name) {
    if (name === "demo") {
        return (await import("./model/scripts/demo.mjs")).default;
    }
    if (name.endsWith(".json")) {
        return JSON.parse(readFileSync(name, "utf8"));
    }
    return (await import(pathToFileURL(path.resolve(name)))).default;
}

async function main() {
    const { values } = parseArgs({
        options: {
            listen: { type: "string", default: "127.0.0.1:0" },
            script: { type: "string" },
            log: { type: "string" },
            "api-key": { type: "string" },
            replay: { type: "string" },
        },
    });
    if (values.script && values.replay) {
        fail("--script and --replay exclude each other");
    }
    const script = values.replay ? replay(readFileSync(values.replay, "utf8"))
        : values.script && await loadScript(values.script);
    const server = await startModelServer({ ...values, apiKey: values["api-key"], script });
    for (const signal of ["SIGTERM", "SIGINT"]) {
        process.once(signal, () => server.close().then(() => process.exit(0)));
    }
    console.log(`model server on ${server.url}`);
}

if (process.argv[1] && import.meta.url === pathToFileURL(path.resolve(process.argv[1])).href) {
    main().catch((error) => {
        console.error(`model server: ${error.message}`);
        process.exit(1);
    });
}
