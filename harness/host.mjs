// The Pi host: many Pi sessions in one confined process, driven by control over descriptor 3.
//   node host.mjs RUNTIME_DIR GATEWAY_SOCKET [CONFINEMENT_JSON]
// It has no files to write, no network but the gateway's socket, no keys, and runs no tool.
import net from "node:net";
import process from "node:process";
import { pathToFileURL } from "node:url";
import { installGateway } from "./gateway.mjs";
import { Models } from "./models.mjs";
import { Decoder, Outbox, ProtocolError } from "./protocol.mjs";
import { Sessions } from "./sessions.mjs";
import { readResult } from "./tools.mjs";
import { warmUp } from "./warm.mjs";

const [runtimeDir, gatewaySocket, confinement] = process.argv.slice(2);

function importFrom(path) {
    return import(pathToFileURL(`${runtimeDir}/${path}`).href);
}

const OPS = {
    open: (host, request, lines) => host.sessions.open(request, lines),
    prompt: (host, { session, note }, lines) =>
        host.sessions.get(session).prompt(json(lines[0]), note),
    steer: (host, { session }, lines) => host.sessions.get(session).steer(json(lines[0])),
    resume: (host, { session, note }, lines) =>
        host.sessions.get(session).resume(note, lines.map(json)),
    abort: (host, { session }) => host.sessions.get(session).abort(),
    close: (host, { session }) => host.sessions.close(session),
    ping: () => {},
};

class Host {
    #order = new Map();

    constructor(sessions, outbox) {
        this.sessions = sessions;
        this.outbox = outbox;
    }

    handle(envelope, lines) {
        const { op, session } = envelope;
        if (op === "tool_result") {
            this.sessions.answer(session, envelope.call, readResult(lines[0] ?? ""));
        } else {
            this.#inOrder(session, () => this.#perform(envelope, lines));
        }
    }

    /** Ops of one session are begun one after the other, in the order they came. */
    #inOrder(session, task) {
        const run = (this.#order.get(session) ?? Promise.resolve()).then(task);
        this.#order.set(session, run);
        run.then(() => this.#order.get(session) === run && this.#order.delete(session));
    }

    async #perform(envelope, lines) {
        const { op, id } = envelope;
        let error;
        try {
            if (!Object.hasOwn(OPS, op)) {
                throw new Error(`unknown op: ${op}`);
            }
            await OPS[op](this, envelope, lines);
        } catch (caught) {
            error = caught.message;
        }
        if (id !== undefined) {
            this.outbox.send({ t: "reply", id, ok: error === undefined, error });
        }
    }
}

function json(line) {
    if (!line) {
        throw new ProtocolError("a message without its line");
    }
    return JSON.parse(line.toString("utf8"));
}

function die(text) {
    process.stderr.write(`host: ${text}\n`);
    process.exit(1);
}

async function main() {
    const socket = new net.Socket({ fd: 3, readable: true, writable: true });
    socket.pause();
    socket.on("close", () => process.exit(0));
    socket.on("error", () => process.exit(0));
    const outbox = new Outbox(socket);
    const [pi, undici] = await Promise.all([
        importFrom("pi/dist/bundle/index.js"), importFrom("undici/index.js"),
    ]);
    installGateway(undici, gatewaySocket, outbox);
    const models = await Models.create(pi);
    const sessions = new Sessions(pi, models, outbox);
    await warmUp(sessions, models);
    const host = new Host(sessions, outbox);
    const decoder = new Decoder((envelope, lines) => host.handle(envelope, lines));
    socket.on("data", (chunk) => {
        try {
            decoder.push(chunk);
        } catch (error) {
            die(`control sent what is not the protocol: ${error.message}`);
        }
    });
    socket.resume();
    outbox.send({
        t: "hello", version: 1, pi: pi.VERSION, node: process.version, pid: process.pid,
        confinement: JSON.parse(confinement ?? "{}"),
    });
}

/** What went wrong without its message, which may hold what a session said: the log is not the place for it. */
function whereOf(error) {
    const frames = String(error?.stack ?? "").split("\n").filter((line) => /^\s+at /.test(line)).slice(0, 4);
    return `${error?.name ?? typeof error} ${error?.code ?? ""} ${frames.map((f) => f.trim()).join(" < ")}`;
}

// A promise nobody waited for is one session's trouble at most; a stray exception may be everyone's.
process.on("unhandledRejection", (error) => process.stderr.write(`a promise failed: ${whereOf(error)}\n`));
process.on("uncaughtException", (error) => die(whereOf(error)));
await main().catch((error) => die(error.stack));
