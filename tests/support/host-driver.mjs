// Drives harness/host.mjs as control does, over a socket pair, without the launcher's confinement:
// test equipment for tests/e2e/host-*.test.mjs. The gateway is a unix socket that hands requests to a
// model server, as the broker's would, without keys or tokens (it remembers the tokens it saw, and how much the
// host had said before each request).
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import http from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { PATIENCE_MS } from "./eventually.mjs";

const ROOT = path.join(path.dirname(fileURLToPath(import.meta.url)), "../..");
export const RUNTIME = path.join(ROOT, "build/runtime");
const NODE = path.join(RUNTIME, "node/bin/node");

/** A gateway socket in front of `upstream` (a URL): {socket, tokens, close()}. */
export async function startGateway(upstream) {
    const dir = await mkdtemp(path.join(tmpdir(), "gateway-"));
    const socket = path.join(dir, "gateway.sock");
    const gateway = { socket, tokens: [], said: [], paths: [], upstream };
    const server = http.createServer((request, response) => forward(gateway, request, response));
    await new Promise((resolve) => server.listen(socket, resolve));
    gateway.close = async () => {
        server.closeAllConnections();
        await new Promise((resolve) => server.close(resolve));
        await rm(dir, { recursive: true });
    };
    return gateway;
}

function forward(gateway, request, response) {
    if (request.method === "GET") { // a warm-up: it has no token
        response.writeHead(401).end();
        return;
    }
    gateway.tokens.push(request.headers["x-pi-session"]);
    gateway.said.push(Number(request.headers["x-pi-said"]));
    gateway.paths.push(request.url);
    const target = new URL(gateway.upstream);
    const onward = http.request({
        host: target.hostname,
        port: target.port,
        path: target.pathname.replace(/\/$/, "") + request.url,
        method: request.method,
        headers: request.headers,
    }, (answer) => {
        response.writeHead(answer.statusCode, answer.headers);
        answer.pipe(response);
        answer.on("error", () => response.destroy());
    });
    onward.on("error", () => response.destroy());
    response.on("close", () => onward.destroy());
    request.pipe(onward);
}

/** Starts a host and waits for its hello. */
export async function startHost(gateway, { node = NODE, args = [], quiet = false } = {}) {
    const child = spawn(node, [...args, path.join(ROOT, "harness/host.mjs"), RUNTIME, gateway.socket],
        { env: { HOME: "/nonexistent", PI_OFFLINE: "1" }, cwd: "/",
            stdio: ["ignore", "ignore", quiet ? "ignore" : "inherit", "pipe"] });
    const host = new HostDriver(child);
    host.hello = await host.next((m) => m.t === "hello");
    return host;
}

export class HostDriver {
    received = [];
    #waiters = new Set();
    #rest = Buffer.alloc(0);
    #partial = null;
    #nextId = 1;
    #tools = new Map();

    constructor(child) {
        this.child = child;
        this.socket = child.stdio[3];
        this.socket.on("data", (chunk) => this.#data(chunk));
        this.socket.on("error", () => {});
        this.exited = once(child, "exit");
        this.exited.then(([code, signal]) => this.#ended(`exit code ${code ?? signal}`));
    }

    /** Answers tool calls of a name: (input, message) → {content, details?, isError} or text. */
    onTool(name, answer) {
        this.#tools.set(name, answer);
    }

    write(envelope, ...lines) {
        const head = lines.length > 0 ? { ...envelope, lines: lines.length } : envelope;
        const texts = lines.map((l) => typeof l === "string" ? l : JSON.stringify(l));
        this.socket.write([JSON.stringify(head), ...texts].map((l) => `${l}\n`).join(""));
    }

    /** Sends an op and returns its reply (a failed one too). */
    async ask(envelope, ...lines) {
        const id = this.#nextId++;
        this.write({ ...envelope, id }, ...lines);
        return this.next((m) => m.t === "reply" && m.id === id);
    }

    /** As ask(), but a failed reply throws. */
    async call(envelope, ...lines) {
        const reply = await this.ask(envelope, ...lines);
        if (!reply.ok) {
            throw new Error(`${envelope.op}: ${reply.error}`);
        }
        return reply;
    }

    open(session, { log = [], ...more } = {}) {
        return this.call({
            op: "open", session, cwd: "/workspace", token: `token-${session}`,
            thinkingLevel: null, systemPrompt: "You are a test.", tools: ["bash", "read", "write"],
            ...more,
        }, ...log);
    }

    /** Prompts and waits until the run is over: the settled message. */
    async run(session, text) {
        const from = this.received.length;
        await this.call({ op: "prompt", session }, [{ type: "text", text }]);
        return this.settled(session, from);
    }

    settled(session, from = 0) {
        return this.next((m) => m.t === "settled" && m.session === session, from);
    }

    answer(session, call, result) {
        this.write({ op: "tool_result", session, call }, result);
    }

    /** The first message, past (from an index) or to come, for which predicate is true. */
    next(predicate, from = 0) {
        const found = this.received.slice(from).find(predicate);
        if (found) {
            return Promise.resolve(found);
        }
        return new Promise((resolve, reject) => {
            const waiter = {
                predicate,
                resolve: (m) => (clearTimeout(timer), resolve(m)),
                reject: (e) => (clearTimeout(timer), reject(e)),
            };
            const timer = setTimeout(() => {
                this.#waiters.delete(waiter);
                const seen = this.received.slice(-12).map((m) => JSON.stringify(m).slice(0, 300));
                reject(new Error(`no such message from the host: ${predicate}\n${seen.join("\n")}`));
            }, PATIENCE_MS).unref();
            this.#waiters.add(waiter);
        });
    }

    entries(session) {
        return this.received.filter((m) => m.t === "entry" && m.session === session)
            .map((m) => JSON.parse(m.body[0]));
    }

    /** The session's log as lines of text. */
    log(session) {
        return this.received.filter((m) => m.t === "entry" && m.session === session)
            .map((m) => m.body[0]);
    }

    deltas(session) {
        return this.received.filter((m) => m.t === "delta" && m.session === session);
    }

    async stop() {
        this.child.kill("SIGKILL");
        await this.exited;
    }

    #data(chunk) {
        this.#rest = Buffer.concat([this.#rest, chunk]);
        for (let at = this.#rest.indexOf(10); at >= 0; at = this.#rest.indexOf(10)) {
            this.#line(this.#rest.subarray(0, at).toString("utf8"));
            this.#rest = this.#rest.subarray(at + 1);
        }
    }

    #line(text) {
        if (this.#partial) {
            this.#partial.body.push(text);
        } else {
            this.#partial = { ...JSON.parse(text), body: [] };
        }
        if (this.#partial.body.length === (this.#partial.lines ?? 0)) {
            const message = this.#partial;
            this.#partial = null;
            this.#message(message);
        }
    }

    #message(message) {
        this.received.push(message);
        for (const waiter of this.#waiters) {
            if (waiter.predicate(message)) {
                this.#waiters.delete(waiter);
                waiter.resolve(message);
            }
        }
        if (message.t === "tool" && this.#tools.has(message.name)) {
            this.#answerTool(message);
        }
    }

    async #answerTool(message) {
        const result = await this.#tools.get(message.name)(JSON.parse(message.body[0]), message);
        const whole = typeof result === "string"
            ? { content: [{ type: "text", text: result }], isError: false } : result;
        this.answer(message.session, message.call, whole);
    }

    #ended(why) {
        for (const waiter of this.#waiters) {
            waiter.reject(new Error(`the host ended: ${why}`));
        }
        this.#waiters.clear();
    }
}
