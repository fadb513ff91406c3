// Black-box tests of the service: starts the real binary on a data directory and a free port.
//
//   const service = await startService({ args: ["--allow-private", "127.0.0.1"] });
//   const agent = await service.ok("POST", "/v1/agents", { … });   the body of a 2xx, or throws
//   const reply = await service.request("GET", "/v1/nope");        {status, headers, text, body}
//   const stream = await service.stream(sessionId, { eventDeltas: "agent.message" });
//   const events = await stream.until((frame) => frame.type === "session.status_idle");
//   await service.kill9(); await service.restart(); await service.stop();
//
// Every exchange and every frame is checked against contracts/openapi.yaml (contract.mjs).
//
// The program is build/pi-managed, or PI_MANAGED_BIN. A test that starts a service must stop it:
// stop() fails if the service did not end cleanly (a sanitizer's report is such an end). Nothing
// here waits by the clock; every wait ends with what is waited for or with an error that says what
// was seen instead.
import { execFile, execFileSync, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import http from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { theContract } from "./contract.mjs";
import { EventStream } from "./sse.mjs";
import { PATIENCE_MS } from "./eventually.mjs";

const READY = /pi-managed listening on (https?:\/\/\S+)/;
const API_KEY = /\bpmk_[0-9A-Za-z]{12}_[0-9A-Za-z]{49}\b/;
const OUTPUT_KEPT = 64 * 1024;
const SANITIZER = /(?:Address|Leak|Thread|UndefinedBehavior)Sanitizer|runtime error:/;

export const SERVICE_PROGRAM = process.env.PI_MANAGED_BIN
    ?? fileURLToPath(new URL("../../build/pi-managed", import.meta.url));

/** A reason for `skip` when the service is not built, else false. */
export const serviceMissing = !existsSync(SERVICE_PROGRAM)
    && `run \`make\`: ${SERVICE_PROGRAM} not found (PI_MANAGED_BIN names another)`;

/**
 * @param options.args   more arguments for `serve`
 * @param options.env    more environment; no model key is inherited
 * @param options.data   data directory; without it a temporary one, removed by stop()
 * @param options.apiKey key of an existing data directory
 * @param options.contract null: what is asked is a double that has no contract
 * @param options.init   false: let `serve` make the tenant and take the key that it prints
 */
export async function startService(options = {}) {
    const service = new Service(options);
    try {
        await service.start();
    } catch (error) {
        await service.abandon();
        throw error;
    }
    return service;
}

const running = new Set();
process.once("exit", () => running.forEach((child) => child.kill("SIGKILL")));

class Service {
    apiKey;
    tenantId;
    url;
    data;
    onExchange; // called with every exchange; for tests of the contract
    onFrame;
    #contract;
    #options;
    #ownsData;
    #process;
    #agent;
    #killed = false;

    constructor(options) {
        this.#options = options;
        this.#contract = options.contract === undefined ? theContract : options.contract;
        this.#ownsData = options.data === undefined;
        this.data = options.data ?? mkdtempSync(path.join(tmpdir(), "pi-managed-test-"));
        this.apiKey = options.apiKey;
    }

    get pid() {
        return this.#process.child.pid;
    }

    /** What the service wrote to stdout and stderr, the newest 64 KiB. */
    get output() {
        return this.#process.output;
    }

    async start() {
        const isNew = !existsSync(this.data) || readdirSync(this.data).length === 0;
        if (isNew && this.#options.init !== false) {
            await this.#init();
        }
        const { args = [], env } = this.#options;
        // Sandboxes of tests use little of what they are promised: on a small machine they fit all the same.
        const room = args.includes("--sandbox-memory") ? [] : ["--sandbox-memory", "1000000"];
        const all = ["serve", "--data", this.data, "--listen", "127.0.0.1:0", ...room, ...args];
        this.#process = new Process(all, environment(env));
        this.#killed = false;
        [, this.url] = await this.#process.waitFor(READY, PATIENCE_MS);
        this.apiKey ??= API_KEY.exec(this.output)?.[0];
        this.#agent = new http.Agent({ keepAlive: true });
    }

    async #init() {
        const run = promisify(execFile);
        const args = ["init", "--data", this.data, "--json"];
        const { stdout } = await run(SERVICE_PROGRAM, args, { env: environment() });
        ({ tenantId: this.tenantId, apiKey: this.apiKey } = JSON.parse(stdout));
    }

    /** After a start that failed: nothing may stay behind. */
    async abandon() {
        if (this.#process) {
            this.#process.child.kill("SIGKILL");
            await this.#process.ended(PATIENCE_MS);
        }
        this.#cleanUp();
    }

    /** The first match of pattern in the output, past or to come. */
    waitForOutput(pattern, timeoutMs = PATIENCE_MS) {
        return this.#process.waitFor(pattern, timeoutMs);
    }

    /** SIGTERM and a clean end (or none at all after kill9). Its sandboxes go, and a temporary data directory. */
    async stop() {
        try {
            await this.#end();
        } finally {
            this.#cleanUp();
        }
    }

    async #end() {
        this.#agent.destroy();
        if (this.#killed) {
            return;
        }
        this.#process.child.kill("SIGTERM");
        const ended = await this.#process.ended(PATIENCE_MS);
        if (ended.code !== 0) {
            const how = ended.timedOut
                ? `did not stop in ${PATIENCE_MS} ms` : `ended with ${endText(ended)}`;
            throw new Error(`the service ${how}; its output:\n${this.output}`);
        }
        if (SANITIZER.test(this.output)) { // of a role: the parent's own end does not show it
            throw new Error(`a sanitizer spoke; the service's output:\n${this.output}`);
        }
    }

    #cleanUp() {
        removeSandboxes(this.data);
        if (this.#ownsData) {
            rmSync(this.data, { recursive: true, force: true });
        }
    }

    /** SIGKILL to the parent process; its roles are to follow it. */
    async kill9() {
        this.#killed = true;
        this.#agent.destroy();
        this.#process.child.kill("SIGKILL");
        await this.#process.ended(PATIENCE_MS);
    }

    /** Starts it again on the same data (after whileStopped()), after a clean stop or kill9(); the url is a new one. */
    async restart(changes = {}, whileStopped = () => {}) {
        await this.#end();
        await whileStopped();
        this.#options = { ...this.#options, ...changes };
        await this.start();
    }

    /**
     * One request; the path goes out as it is written. body: undefined, a string or Buffer as it
     * is, anything else as JSON. key: null sends none. → {status, headers, text, body}; its body is
     * the parsed JSON or undefined. What the contract does not allow throws.
     */
    async request(method, target, { body, headers = {}, key = this.apiKey } = {}) {
        const raw = typeof body === "string" || Buffer.isBuffer(body);
        const payload = body === undefined || raw ? body : JSON.stringify(body);
        const response = await this.#send(method, target, payload, {
            ...(payload !== undefined && {
                "content-type": "application/json",
                "content-length": Buffer.byteLength(payload),
            }),
            ...(key && { authorization: `Bearer ${key}` }),
            ...headers,
        });
        const reply = await readReply(response);
        const sent = body === undefined || raw ? body : JSON.parse(payload);
        const exchange = { method, target, body: sent, headers };
        this.#contract?.checkExchange(exchange, reply);
        this.onExchange?.(exchange, reply);
        return reply;
    }

    /** The body of a 2xx reply; anything else throws what the service said. */
    async ok(method, target, body, options) {
        const reply = await this.request(method, target, { body, ...options });
        if (reply.status < 200 || reply.status > 299) {
            throw new Error(`${method} ${target} gave ${reply.status}: ${reply.text}`);
        }
        return reply.body;
    }

    /**
     * A GET on a kept connection that turns out to be dead goes out again, as with any HTTP client:
     * the connection may have been that of a control process that was just killed.
     */
    #send(method, target, payload, headers) {
        const { hostname, port } = new URL(this.url);
        return new Promise((resolve, reject) => {
            const request = http.request({ method, path: target, hostname, port, headers, agent: this.#agent });
            request.once("response", resolve)
                .once("error", (error) => {
                    const again = method === "GET" && request.reusedSocket && error.code === "ECONNRESET";
                    again ? resolve(this.#send(method, target, payload, headers)) : reject(error);
                })
                .end(payload);
        });
    }

    /**
     * The event stream of a session. Resolves once the service has answered 200, so whatever is
     * posted afterwards is seen; any other answer throws (error.reply holds it).
     * @param options.lastEventId  string or number, sent as Last-Event-ID
     * @param options.eventDeltas  event type or list of them
     * @param options.query        more query parameters, an object
     */
    async stream(sessionId, { lastEventId, eventDeltas, query, key = this.apiKey, headers } = {}) {
        const deltas = [eventDeltas ?? []].flat();
        const all = new URLSearchParams({
            ...(deltas.length > 0 && { eventDeltas: deltas.join(",") }), ...query,
        });
        const target = `/v1/sessions/${sessionId}/stream${all.size > 0 ? `?${all}` : ""}`;
        const response = await this.#send("GET", target, undefined, {
            accept: "text/event-stream",
            ...(key && { authorization: `Bearer ${key}` }),
            ...(lastEventId !== undefined && { "last-event-id": String(lastEventId) }),
            ...headers,
        });
        if (response.statusCode !== 200) {
            const reply = await readReply(response);
            const error = new Error(`GET ${target} gave ${reply.status}: ${reply.text}`);
            throw Object.assign(error, { reply });
        }
        const exchange = { method: "GET", target, headers: {
            ...(lastEventId !== undefined && { "last-event-id": lastEventId }), ...headers } };
        this.#contract?.checkRequest(exchange.method, target, exchange);
        this.onExchange?.(exchange, { status: 200, headers: response.headers, text: "…" });
        return new EventStream(response, (frame) => {
            this.#contract?.checkFrame(frame);
            this.onFrame?.(frame);
        });
    }
}

/** Sandboxes outlive the service by design; without its data nobody could ever stop them. */
function removeSandboxes(data) {
    const folder = path.join(data, "sandboxes");
    if (existsSync(folder) && readdirSync(folder).length > 0) {
        const args = ["sandbox", "rm", "all", "--data", data];
        execFileSync(SERVICE_PROGRAM, args, { env: environment(), stdio: "pipe" });
    }
}

function endText({ code, signal }) {
    return signal ?? `status ${code}`;
}

/** Only what a program needs; PI_MANAGED_* and sanitizer options go through, model keys do not. */
function environment(more) {
    const names = Object.keys(process.env).filter((name) =>
        ["PATH", "HOME", "LANG", "TZ", "TMPDIR"].includes(name)
        || /^PI_MANAGED_(?!BIN$|API_KEY$|URL$)|^[A-Z]+SAN_OPTIONS$/.test(name));
    return { ...Object.fromEntries(names.map((name) => [name, process.env[name]])), ...more };
}

class Process {
    output = "";
    exit;
    #watchers = new Set();

    constructor(args, env) {
        this.child = spawn(SERVICE_PROGRAM, args, { env, stdio: ["ignore", "pipe", "pipe"] });
        running.add(this.child);
        for (const stream of [this.child.stdout, this.child.stderr]) {
            stream.setEncoding("utf8").on("data", (text) => {
                this.output = (this.output + text).slice(-OUTPUT_KEPT);
                this.#changed();
            });
        }
        this.child.once("error", (error) => this.#over({ code: null, signal: error.message }));
        this.child.once("exit", (code, signal) => this.#over({ code, signal }));
    }

    #over(exit) {
        this.exit ??= exit;
        running.delete(this.child);
        this.#changed();
    }

    #changed() {
        this.#watchers.forEach((watch) => watch());
    }

    /** look() is asked now and at each change, until it returns something or throws. */
    #watch(look, timeoutMs, onTimeout) {
        return new Promise((resolve, reject) => {
            const end = (settle, value) => {
                clearTimeout(timer);
                this.#watchers.delete(watch);
                settle(value);
            };
            const watch = () => {
                try {
                    const found = look();
                    return found && end(resolve, found);
                } catch (error) {
                    return end(reject, error);
                }
            };
            const timer = setTimeout(() => end(...onTimeout(resolve, reject)), timeoutMs);
            this.#watchers.add(watch);
            watch();
        });
    }

    waitFor(pattern, timeoutMs) {
        const said = () => `its output:\n${this.output || "(none)"}`;
        const look = () => {
            const found = pattern.exec(this.output);
            if (!found && this.exit) {
                throw new Error(`the service ended with ${endText(this.exit)} before it wrote `
                    + `${pattern}; ${said()}`);
            }
            return found;
        };
        return this.#watch(look, timeoutMs, (_, reject) => [reject,
            new Error(`the service did not write ${pattern} in ${timeoutMs} ms; ${said()}`)]);
    }

    /** The exit, {code, signal}; after timeoutMs it is killed, and the exit has timedOut. */
    ended(timeoutMs) {
        return this.#watch(() => this.exit, timeoutMs, (resolve) => {
            this.child.kill("SIGKILL");
            return [resolve, { code: null, timedOut: true }];
        });
    }
}

async function readReply(response) {
    const chunks = [];
    for await (const chunk of response) {
        chunks.push(chunk);
    }
    const text = Buffer.concat(chunks).toString("utf8");
    const isJson = /[/+]json\b/.test(response.headers["content-type"] ?? "");
    return {
        status: response.statusCode,
        headers: response.headers,
        text,
        body: isJson && text ? JSON.parse(text) : undefined,
    };
}
