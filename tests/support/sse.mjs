// A server-sent events parser that follows the WHATWG algorithm to the letter (the usual libraries
// do not, see tests/vectors/sse_vectors.json). Bytes in, at any boundaries; frames out.
//
// frame = {type, data, lastEventId, id}: type is "message" without an event field; lastEventId is
// what a reconnecting client would send; id is the frame's own id field, undefined without one.
import { PATIENCE_MS } from "./eventually.mjs";

export class SseParser {
    // Node 24's streaming decoder takes away a second byte order mark too, so we do it ourselves.
    #decoder = new TextDecoder("utf-8", { ignoreBOM: true });
    #begun = false;
    #line = "";
    #afterCr = false;
    #lastEventId = "";
    #frames = [];
    #type;
    #data;
    #id;
    #onComment;

    /** onComment(text) is called for each comment line (heartbeats). */
    constructor({ onComment } = {}) {
        this.#onComment = onComment;
        this.#reset();
    }

    /** Set by a valid retry field; milliseconds. */
    retry = undefined;

    /** The frames that these bytes complete. */
    push(bytes) {
        let text = this.#decoder.decode(bytes, { stream: true });
        if (!this.#begun && text !== "") {
            this.#begun = true;
            text = text.replace(/^\ufeff/, "");
        }
        for (const part of text.split(/(\r|\n)/)) {
            if (part === "\r" || part === "\n") {
                this.#endLine(part);
            } else if (part !== "") {
                this.#line += part;
                this.#afterCr = false;
            }
        }
        return this.#frames.splice(0);
    }

    #endLine(end) {
        const isSecondHalf = end === "\n" && this.#afterCr;
        this.#afterCr = end === "\r";
        if (isSecondHalf) {
            return;
        }
        const line = this.#line;
        this.#line = "";
        if (line === "") {
            this.#dispatch();
        } else if (line.startsWith(":")) {
            this.#onComment?.(line.slice(1));
        } else {
            const [, name, value] = /^([^:]*)(?:: ?)?(.*)$/su.exec(line);
            this.#field(name, value);
        }
    }

    #field(name, value) {
        if (name === "data") {
            this.#data.push(value);
        } else if (name === "event") {
            this.#type = value;
        } else if (name === "id" && !value.includes("\0")) {
            this.#id = value;
            this.#lastEventId = value;
        } else if (name === "retry" && /^[0-9]+$/.test(value)) {
            this.retry = Number(value);
        }
    }

    #dispatch() {
        if (this.#data.length > 0) {
            this.#frames.push({
                type: this.#type || "message",
                data: this.#data.join("\n"),
                lastEventId: this.#lastEventId,
                id: this.#id,
            });
        }
        this.#reset();
    }

    #reset() {
        this.#type = "";
        this.#data = [];
        this.#id = undefined;
    }
}


/** The frames of an HTTP response: {type, id (own or undefined), lastEventId, data (parsed JSON)}.
 * until() throws when the stream ends first, or after timeoutMs, and then the stream is closed. */
export class EventStream {
    comments = [];
    #check;
    #response;
    #frames;

    /** check(frame) is called for each frame and may throw. */
    constructor(response, check = () => {}) {
        this.#check = check;
        this.#response = response;
        this.headers = response.headers;
        this.#frames = this.#read();
    }

    async *#read() {
        const parser = new SseParser({ onComment: (text) => this.comments.push(text) });
        for await (const chunk of this.#response) {
            for (const frame of parser.push(chunk)) {
                const parsed = { ...frame, data: JSON.parse(frame.data) };
                this.#check(parsed);
                yield parsed;
            }
        }
    }

    [Symbol.asyncIterator]() {
        return { next: () => this.next(), return: () => this.close() };
    }

    /** {value, done}, as iterators do. */
    next() {
        return this.#frames.next();
    }

    /** The frames up to and with the first that predicate accepts. */
    async until(predicate, { timeoutMs = PATIENCE_MS } = {}) {
        const seen = [];
        let late = false;
        const timer = setTimeout(() => {
            late = true;
            this.#response.destroy();
        }, timeoutMs);
        const types = () => seen.map((frame) => frame.type).join(", ");
        const said = () => `no frame for ${predicate}; seen: [${types()}]`;
        try {
            for (;;) {
                const { value, done } = await this.next();
                if (done) {
                    throw new Error(`the stream ended: ${said()}`);
                }
                seen.push(value);
                if (predicate(value)) {
                    return seen;
                }
            }
        } catch (error) {
            throw late ? new Error(`after ${timeoutMs} ms ${said()}`) : error;
        } finally {
            clearTimeout(timer);
        }
    }

    async close() {
        this.#response.destroy();
        return { value: undefined, done: true };
    }
}
