// Plays one turn of a script into an HTTP response, token by token, in the protocol of its encoder.
import { finished } from "node:stream/promises";
import { setTimeout as pause } from "node:timers/promises";
import { isFault } from "./script.mjs";
import { pieces } from "./tokens.mjs";

/** The frame as bytes on the wire. */
export function frameText({ event, data }, eol = "\n") {
    const name = event ? `event: ${event}${eol}` : "";
    return `${name}data: ${typeof data === "string" ? data : JSON.stringify(data)}${eol}${eol}`;
}

/**
 * @param encoder  one row of the protocol table
 * @param stream   encoder.stream(…) of this request
 * @param turn     see script.mjs
 * @param response node's ServerResponse; its head is written here
 * @param gone     AbortSignal: the client has left
 * @param stalled  called at HANG; the promise it returns ends the stall
 * @returns {outcome, sent}: outcome "finished", "left" (the client went away), "cut" or "error"
 *          (scripted); sent: bytes of the body
 */
export async function play({ encoder, stream, turn, response, gone, stalled }) {
    const player = new Player(encoder, stream, turn, response, gone);
    const outcome = await player.run(stalled).catch((error) => {
        if (gone.aborted) {
            return "left";
        }
        throw error;
    });
    return { outcome, sent: player.sent };
}

class Player {
    constructor(encoder, stream, turn, response, gone) {
        Object.assign(this, { encoder, stream, turn, response, gone });
    }

    /** Bytes of the body that were handed over so far. */
    sent = 0;

    async run(stalled) {
        this.stalled = stalled;
        this.response.writeHead(200, {
            "content-type": this.turn.type ?? "text/event-stream; charset=utf-8",
            "cache-control": "no-cache",
        });
        this.response.flushHeaders();
        try {
            return await this.#play();
        } catch (error) {
            if (error instanceof CutHere) {
                return this.#cut(error.how);
            }
            throw error;
        }
    }

    async #play() {
        await this.#write("");
        await this.#send(this.stream.start());
        for (const part of this.#numbered()) {
            if (part.kind === "error") {
                await this.#send(this.stream.error(part.text));
                this.response.end();
                return "error";
            }
            await this.#part(part);
        }
        await this.#send(this.stream.finish(this.#stop()));
        await this.#end();
        return "finished";
    }

    async #end() {
        const { trail } = this.turn;
        if (trail && !trail.beyond) {
            await this.#write(Buffer.from(trail.text, "latin1"));
        }
        const { socket } = this.response;
        this.response.end();
        await finished(this.response);
        if (trail?.beyond) {
            socket.write(Buffer.from(trail.text, "latin1"));
        }
    }

    /** One part of the turn, a block of the answer or something that goes wrong. */
    async #part(part) {
        switch (part.kind) {
        case "hang":
            await this.stalled();
            return this.gone.throwIfAborted();
        case "cut":
            throw new CutHere(part.cut);
        case "raw":
            return this.#write(Buffer.from(part.text, "latin1"));
        case "pings":
            return this.#pings(part.count);
        case "long":
            return this.#long(part);
        default:
            return this.#block(part);
        }
    }

    async #pings(count) {
        const frames = this.stream.ping?.();
        for (let i = 0; i < count; i += 1) {
            await (frames ? this.#send(frames) : this.#write(`: ping${this.encoder.eol.repeat(2)}`));
        }
    }

    async #long({ length, junk, index }) {
        const letters = "x".repeat(length);
        if (junk) {
            return this.#write(`data: ${letters}${this.encoder.eol.repeat(2)}`);
        }
        const part = { kind: "say", text: letters, index };
        await this.#send(this.stream.open(part));
        await this.#send(this.stream.delta(part, letters));
        return this.#send(this.stream.close(part));
    }

    /** Blocks count from 0, calls among themselves too. A stall before any block gets a text. */
    #numbered() {
        let { parts } = this.turn;
        const isBlock = (part) => part.kind === "long" ? !part.junk
            : !isFault(part) && part.kind !== "pings";
        if (parts.length === 0 || (isFault(parts[0]) && !isBlock(parts[0]))) {
            parts = [{ kind: "say", text: "This is the start of an answer" }, ...parts];
        }
        let index = 0;
        let callIndex = 0;
        return parts.map((part) => ({
            ...part,
            ...(isBlock(part) && { index: index++ }),
            ...(part.kind === "call" && { callIndex: callIndex++ }),
        }));
    }

    #stop() {
        const calls = this.turn.parts.some((part) => part.kind === "call");
        return this.turn.stop ?? (calls ? "toolUse" : "stop");
    }

    /** Sends one block, or half of it if the connection is to be cut in its arguments. */
    async #block(part) {
        const tokens = pieces(part.text);
        const slowMs = part.slowMs ?? this.turn.slowMs;
        const upTo = part.cut ? Math.ceil(tokens.length / 2) : tokens.length;
        await this.#send(this.stream.open(part));
        for (const token of tokens.slice(0, upTo)) {
            if (slowMs > 0) {
                await pause(slowMs, undefined, { signal: this.gone });
            }
            await this.#send(this.stream.delta(part, token));
        }
        if (part.cut) {
            await this.#write(this.stream.halfCall?.(part) ?? "");
            throw new CutHere(part.cut);
        }
        await this.#send(this.stream.close(part));
    }

    async #cut(how) {
        if (how === "clean") {
            this.response.end();
            await finished(this.response);
        } else {
            this.response.destroy();
        }
        return "cut";
    }

    async #send(frames) {
        for (const frame of frames) {
            await this.#write(frameText(frame, this.encoder.eol));
        }
    }

    /** The turn's faults at a byte happen on the way. */
    async #write(data) {
        let bytes = Buffer.from(data);
        await this.#faultsHere();
        while (bytes.length > 0) {
            const stops = [this.turn.hangAt, this.turn.cutAt?.bytes].filter((at) => at > this.sent);
            const room = Math.min(this.turn.chunk, ...stops.map((at) => at - this.sent));
            await this.#hand(bytes.subarray(0, room));
            bytes = bytes.subarray(room);
            await this.#faultsHere();
        }
    }

    async #faultsHere() {
        if (this.sent === this.turn.hangAt) {
            this.turn = { ...this.turn, hangAt: null };
            await this.stalled();
            this.gone.throwIfAborted();
        }
        if (this.sent === this.turn.cutAt?.bytes) {
            throw new CutHere(this.turn.cutAt.how);
        }
    }

    /** Waits until the kernel has the bytes, so that a cut comes after them, never instead. */
    #hand(bytes) {
        this.gone.throwIfAborted();
        this.sent += bytes.length;
        return new Promise((resolve, reject) => {
            this.gone.addEventListener("abort", reject, { once: true });
            this.response.write(bytes, (error) => {
                this.gone.removeEventListener("abort", reject);
                return error ? reject(error) : resolve();
            });
        });
    }
}

/** The connection is to be cut at this place. */
class CutHere extends Error {
    constructor(how) {
        super("cut");
        this.how = how;
    }
}
