// A terminal in a session's sandbox (POST /v1/sessions/:id/shell), as a client of the API has it.
//
//   const shell = await openShell(service, session.id, { rows: 24, cols: 80 });
//   shell.type("ls\n"); await shell.sees(/README/); shell.resize(30, 100);
//   await shell.ended;                     {exit: {code} | {signal}} | {error: {code, message}} | {cut: true}
import http from "node:http";
import https from "node:https";
import { PATIENCE_MS } from "./eventually.mjs";

/** src/hands/frames.h */
export const FRAME = { ERROR: 6, EXEC: 13, STDIN: 14, STDOUT: 15, STDERR: 16, SIGNAL: 17, RESIZE: 18, EXIT: 19 };

export function frame(type, payload = "") {
    const bytes = Buffer.isBuffer(payload) ? payload
        : Buffer.from(typeof payload === "string" ? payload : JSON.stringify(payload));
    const head = Buffer.alloc(5);
    head.writeUInt32LE(bytes.length + 1, 0);
    head[4] = type;
    return Buffer.concat([head, bytes]);
}

/** The upgraded socket, or the reply that was given instead: {socket, head} | {status, body}. */
export function upgrade(service, target, { key = service.apiKey, headers = {}, first } = {}) {
    const { protocol, hostname, port } = new URL(service.url);
    return new Promise((resolve, reject) => {
        const request = (protocol === "https:" ? https : http).request({
            hostname, port, rejectUnauthorized: false, path: target, method: "POST", agent: false,
            headers: { connection: "Upgrade", upgrade: "pi-shell", authorization: `Bearer ${key}`, ...headers },
        });
        request.on("upgrade", (reply, socket, head) => resolve({ status: reply.statusCode, reply, socket, head }));
        request.on("response", async (reply) => {
            const parts = await reply.toArray();
            const text = Buffer.concat(parts).toString();
            resolve({ status: reply.statusCode, headers: reply.headers, body: text ? JSON.parse(text) : null });
        });
        request.on("error", reject);
        request.setTimeout(PATIENCE_MS, () => request.destroy(new Error("no answer to the upgrade")));
        request.end(first);
    });
}

export async function openShell(service, session, { rows = 24, cols = 80, term = "dumb", ...options } = {}) {
    const { status, socket, head, body } = await upgrade(service, `/v1/sessions/${session}/shell`, options);
    if (!socket) {
        throw new Error(`no terminal: ${status} ${JSON.stringify(body)}`);
    }
    const shell = new Shell(socket, head);
    shell.send(FRAME.EXEC, { pty: { rows, cols }, env: { TERM: term } });
    return shell;
}

class Shell {
    screen = ""; // everything it wrote
    #rest;
    #waiting = new Set();
    #outcome = null;

    constructor(socket, head) {
        this.socket = socket;
        this.#rest = head;
        this.ended = new Promise((resolve) => {
            const end = () => resolve(this.#outcome ?? { cut: true });
            socket.on("close", end);
            socket.on("end", () => socket.end());
            socket.on("error", end);
        });
        socket.on("data", (bytes) => this.#take(bytes));
        this.#take(Buffer.alloc(0));
    }

    #take(bytes) {
        this.#rest = Buffer.concat([this.#rest, bytes]);
        while (this.#rest.length >= 4 && this.#rest.length >= 4 + this.#rest.readUInt32LE(0)) {
            const length = this.#rest.readUInt32LE(0), payload = this.#rest.subarray(5, 4 + length);
            this.#frame(this.#rest[4], payload);
            this.#rest = this.#rest.subarray(4 + length);
        }
        this.#waiting.forEach((check) => check());
    }

    #frame(type, payload) {
        if (type === FRAME.STDOUT) {
            this.screen += payload.toString("latin1");
        } else if (type === FRAME.EXIT) {
            this.#end({ exit: JSON.parse(payload) });
        } else if (type === FRAME.ERROR) {
            this.#end({ error: JSON.parse(payload) });
        } else {
            this.#end({ error: { code: `frame ${type}` } });
        }
    }

    #end(outcome) {
        this.#outcome = outcome;
        this.socket.end(); // the client leaves first
    }

    send(type, payload) {
        this.socket.write(frame(type, payload));
    }

    type(text) {
        this.send(FRAME.STDIN, text);
    }

    resize(rows, cols) {
        this.send(FRAME.RESIZE, { rows, cols });
    }

    /** Waits until the screen shows it. */
    sees(pattern) {
        return new Promise((resolve, reject) => {
            const timer = setTimeout(() => finish(reject, new Error(`never saw ${pattern} in ${this.screen}`)), PATIENCE_MS);
            const finish = (settle, value) => {
                clearTimeout(timer);
                this.#waiting.delete(check);
                settle(value);
            };
            const check = () => {
                const match = pattern.exec(this.screen);
                if (match) {
                    finish(resolve, match);
                }
            };
            this.#waiting.add(check);
            this.ended.then((outcome) => finish(reject,
                new Error(`ended with ${JSON.stringify(outcome)} before ${pattern}: ${this.screen}`)));
            check();
        });
    }
}
