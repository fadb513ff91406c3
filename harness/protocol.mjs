// The wire between control and this host (src/harness/protocol.h): envelope lines, each followed by
// the raw lines it announces. Only LF ends a line; U+2028 and friends are text.
import { Buffer } from "node:buffer";

export const ENVELOPE_MAX = 1024 * 1024;
export const LINE_MAX = 96 * 1024 * 1024;
const LINES_MAX = 1_000_000;
const LF = 0x0a;

/** Text of a JSON line with lone surrogates replaced: control and providers refuse them (R13). */
export function toJsonLine(value) {
    const text = JSON.stringify(value);
    // JSON.stringify escapes lone surrogates and nothing else above U+001F.
    return text.includes("\\ud") ? text.replace(/\\(?:u(d[89a-f][0-9a-f]{2})|[^])/g,
        (escape, surrogate) => surrogate ? "\ufffd" : escape) : text;
}

export class ProtocolError extends Error {}

/** Turns bytes into messages: onMessage(envelope, lines) with lines as Buffers. */
export class Decoder {
    #onMessage;
    #pieces = [];
    #size = 0;
    #envelope = null;
    #lines = [];
    #missing = 0;

    constructor(onMessage) {
        this.#onMessage = onMessage;
    }

    push(chunk) {
        let from = 0;
        for (let at = chunk.indexOf(LF); at >= 0; at = chunk.indexOf(LF, from)) {
            this.#keep(chunk.subarray(from, at));
            from = at + 1;
            this.#line();
        }
        if (from < chunk.length) {
            this.#keep(chunk.subarray(from));
        }
    }

    #keep(piece) {
        this.#size += piece.length;
        if (this.#size > (this.#envelope ? LINE_MAX : ENVELOPE_MAX)) {
            throw new ProtocolError(`a line of more than ${this.#size} bytes`);
        }
        this.#pieces.push(piece);
    }

    #line() {
        const line = this.#pieces.length === 1 ? this.#pieces[0] : Buffer.concat(this.#pieces);
        this.#pieces = [];
        this.#size = 0;
        if (this.#envelope) {
            this.#lines.push(line);
            this.#missing -= 1;
        } else {
            this.#envelope = parseEnvelope(line);
            this.#missing = this.#envelope.lines ?? 0;
        }
        if (this.#missing === 0) {
            const [envelope, lines] = [this.#envelope, this.#lines];
            this.#envelope = null;
            this.#lines = [];
            this.#onMessage(envelope, lines);
        }
    }
}

function parseEnvelope(line) {
    let envelope;
    try {
        envelope = JSON.parse(line.toString("utf8"));
    } catch {
        throw new ProtocolError("an envelope that is not JSON");
    }
    const lines = envelope?.lines ?? 0;
    if (typeof envelope !== "object" || envelope === null || Array.isArray(envelope)
        || !Number.isInteger(lines) || lines < 0 || lines > LINES_MAX) {
        throw new ProtocolError("an envelope that is not a message");
    }
    return envelope;
}

/**
 * What goes to control, in order. While the socket is full, text deltas that follow each other in
 * one block of one session become one delta, so a slow reader costs at most the text of the answers.
 * `writable()` resolves when there is room: model streams are read no faster than that.
 */
export class Outbox {
    #socket;
    #queue = [];
    #lastOf = new Map();
    #full = false;
    #room = null;
    /** How many messages there were so far. */
    said = 0;

    constructor(socket) {
        this.#socket = socket;
        socket.on("drain", () => this.#drain());
    }

    send(envelope, line) {
        const head = line === undefined ? envelope : { ...envelope, lines: 1 };
        this.#put({ text: `${toJsonLine(head)}\n${line === undefined ? "" : `${line}\n`}` },
            envelope.session);
    }

    delta(envelope) {
        const last = this.#full ? this.#lastOf.get(envelope.session) : undefined;
        const before = last?.delta;
        if (before && before.kind === envelope.kind && before.index === envelope.index) {
            before.text += envelope.text;
            return;
        }
        this.#put({ delta: envelope }, envelope.session);
    }

    writable() {
        if (!this.#full) {
            return Promise.resolve();
        }
        this.#room ??= deferred();
        return this.#room.promise;
    }

    #put(item, session) {
        this.said += 1;
        if (!this.#full) {
            this.#full = !this.#socket.write(textOf(item));
            return;
        }
        this.#queue.push(item);
        if (session !== undefined) {
            this.#lastOf.set(session, item);
        }
    }

    #drain() {
        this.#full = false;
        let sent = 0;
        while (sent < this.#queue.length && !this.#full) {
            this.#full = !this.#socket.write(textOf(this.#queue[sent]));
            sent += 1;
        }
        this.#queue.splice(0, sent);
        if (this.#queue.length === 0) {
            this.#lastOf.clear();
        }
        if (!this.#full) {
            this.#room?.resolve();
            this.#room = null;
        }
    }
}

function textOf(item) {
    return item.text ?? `${toJsonLine(item.delta)}\n`;
}

function deferred() {
    let resolve;
    const promise = new Promise((done) => { resolve = done; });
    return { promise, resolve };
}
