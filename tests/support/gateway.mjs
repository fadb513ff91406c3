// The model gateway by itself (gateway_driver.c), and a provider that keeps what it gets as bytes.
//
//   const gateway = await startGateway(t, { baseUrl, api });   gateway.ends, gateway.end(n), gateway.state()
//   const answer = await ask(gateway.socket, rawRequest);      {status, head, headers, body (Buffer), broken}
//   const provider = await startProvider(t, (request) => ({ head, pieces }));   provider.requests, .push(bytes)
//
// Both end with the test t (anything with after(fn)).
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

export const KEY = "the-real-key-of-the-provider";
export const TOKEN = "a".repeat(64);

const SERVICE = process.env.PI_MANAGED_BIN ?? fileURLToPath(new URL("../../build/pi-managed", import.meta.url));
const DRIVER = path.join(path.dirname(SERVICE), "tests/support/gateway_driver");

/** A reason for `skip` when the driver is not built, else false. */
export const gatewayMissing = !existsSync(DRIVER) && `run \`make ${path.relative(".", DRIVER)}\``;

export async function startGateway(t, { baseUrl, api = "openai-completions", model = "m", caFile }) {
    const folder = mkdtempSync(path.join(tmpdir(), "gateway-"));
    const socket = path.join(folder, "s");
    const child = spawn(DRIVER, [socket, baseUrl, api, model, "tenant_a", KEY, caFile ?? []].flat(),
        { stdio: ["pipe", "pipe", "inherit"] });
    const gateway = new Gateway(child, folder, socket);
    t.after(() => gateway.stop());
    await gateway.ready;
    return gateway;
}

class Gateway {
    ends = []; // the last request_end of each request
    failures = []; // of attempts before it
    #waiters = [];
    #states = [];

    constructor(child, folder, socket) {
        Object.assign(this, { child, folder, socket, pid: child.pid });
        this.ready = new Promise((resolve, reject) => {
            child.once("exit", (code) => reject(new Error(`the gateway ended with ${code}`)));
            createInterface(child.stdout).on("line", (line) =>
                line === "ready" ? resolve() : this.#line(JSON.parse(line)));
        });
        this.ready.catch(() => {});
    }

    #line(message) {
        if (message.holding) {
            this.failures.push(message);
        } else if (message.op === "request_end") {
            this.ends.push(message);
            this.#waiters.forEach((wake) => wake());
        } else {
            this.#states.shift()(message);
        }
    }

    /** The n-th request_end, from 1. */
    async end(n) {
        while (this.ends.length < n) {
            await new Promise((resolve) => this.#waiters.push(resolve));
            this.#waiters = [];
        }
        return this.ends[n - 1];
    }

    /** {fds, heap, rss} of the process. */
    state() {
        this.child.stdin.write("state\n");
        return new Promise((resolve) => this.#states.push(resolve));
    }

    async stop() {
        this.child.stdin.end();
        const [code] = await once(this.child, "exit");
        rmSync(this.folder, { recursive: true, force: true });
        if (code !== 0) {
            throw new Error(`the gateway ended with ${code}`);
        }
    }
}

/** Sends bytes to a unix socket or port and reads one answer to its end. */
export async function ask(where, bytes) {
    const connection = net.connect(typeof where === "string" ? { path: where } : { port: where });
    connection.on("error", () => {});
    connection.write(bytes);
    const parts = [];
    for await (const part of connection) {
        parts.push(part);
    }
    return parseAnswer(Buffer.concat(parts));
}

export function rawRequest({ target, headers, body }) {
    const lines = headers.map(([name, value]) => `${name}: ${value}\r\n`).join("");
    const head = `POST ${target} HTTP/1.1\r\nHost: gateway\r\nx-pi-session: ${TOKEN}\r\nConnection: close\r\n`
        + `${lines}Content-Length: ${Buffer.byteLength(body)}\r\n\r\n`;
    return Buffer.concat([Buffer.from(head), Buffer.from(body)]);
}

function parseHead(bytes) {
    const end = bytes.indexOf("\r\n\r\n");
    const head = bytes.toString("latin1", 0, end);
    const [first, ...lines] = head.split("\r\n");
    const headers = lines.map((line) => {
        const colon = line.indexOf(":");
        return [line.slice(0, colon), line.slice(colon + 1).trim()];
    });
    return { first, headers, head, rest: bytes.subarray(end + 4) };
}

const valueOf = (headers, name) => headers.find(([n]) => n.toLowerCase() === name)?.[1];

function parseAnswer(bytes) {
    if (bytes.indexOf("\r\n\r\n") < 0) {
        return { status: 0, headers: [], body: Buffer.alloc(0), broken: true };
    }
    const { first, headers, head, rest } = parseHead(bytes);
    const status = Number(first.split(" ")[1]);
    if (/chunked/i.test(valueOf(headers, "transfer-encoding") ?? "")) {
        return { status, headers, head, ...dechunk(rest) };
    }
    const length = Number(valueOf(headers, "content-length") ?? rest.length);
    return { status, headers, head, body: rest, broken: rest.length < length };
}

function dechunk(bytes) {
    const parts = [];
    for (let at = 0; ;) {
        const eol = bytes.indexOf("\r\n", at);
        const size = eol < 0 ? NaN : parseInt(bytes.toString("latin1", at, eol), 16);
        if (size === 0) {
            return { body: Buffer.concat(parts), broken: false };
        }
        const end = eol + 2 + size;
        if (!(end + 2 <= bytes.length)) {
            parts.push(bytes.subarray(eol + 2, Math.min(end || 0, bytes.length)));
            return { body: Buffer.concat(parts), broken: true };
        }
        parts.push(bytes.subarray(eol + 2, end));
        at = end + 2;
    }
}

/**
 * A server that answers each request with respond(request) = {head: text, pieces: [Buffer], close?}; the pieces
 * are written one by one. push() writes on the newest connection, asked or not. Each of .requests: {first, headers, body (Buffer)}.
 */
export async function startProvider(t, respond) {
    const provider = { requests: [], connections: 0 };
    const open = new Set();
    const server = net.createServer((connection) => {
        let bytes = Buffer.alloc(0);
        provider.connections += 1;
        open.add(connection);
        connection.once("close", () => open.delete(connection));
        connection.setNoDelay().on("error", () => {});
        connection.on("data", async (part) => {
            bytes = Buffer.concat([bytes, part]);
            if (bytes.indexOf("\r\n\r\n") < 0) {
                return;
            }
            const { first, headers, rest } = parseHead(bytes);
            const length = Number(valueOf(headers, "content-length") ?? 0);
            if (rest.length < length) {
                return;
            }
            bytes = rest.subarray(length);
            const request = { first, headers, body: Buffer.from(rest.subarray(0, length)) };
            provider.requests.push(request);
            await answer(connection, respond(request));
        });
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    provider.port = server.address().port;
    provider.url = `http://127.0.0.1:${provider.port}`;
    provider.push = (more) => new Promise((resolve) => [...open].at(-1).write(more, resolve));
    t.after(() => {
        server.close();
        open.forEach((connection) => connection.destroy());
    });
    return provider;
}

async function answer(connection, { head, pieces = [], close }) {
    const write = (bytes) => new Promise((resolve) => connection.write(bytes, resolve));
    await write(head);
    for (const piece of pieces) {
        await write(piece);
    }
    if (close) {
        connection.end();
    }
}

/** bytes as chunks of the given sizes, over and over, and the last chunk. */
export function chunked(bytes, sizes = [16384]) {
    const pieces = [];
    for (let at = 0, i = 0; at < bytes.length; i += 1) {
        const part = bytes.subarray(at, at + sizes[i % sizes.length]);
        pieces.push(Buffer.concat([Buffer.from(`${part.length.toString(16)}\r\n`), part, Buffer.from("\r\n")]));
        at += part.length;
    }
    return [...pieces, Buffer.from("0\r\n\r\n")];
}
