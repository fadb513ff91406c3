// Plays one turn of a script into an HTTP response, token by token, in the protocol of its encoder.
import { finished } from "node:stream/promises";
import { setTimeout as pause } from "node:timers/promises";
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
 * @returns "finished", "left" (the client went away), "cut" or "error" (scripted)
 */
export async function play({ encoder, stream, turn, response, gone, stalled }) {
    const player = new Player(encoder, stream, turn, response, gone);
    try {
        return await player.run(stalled);
    } catch (error) {
        if (gone.aborted) {
            return "left";
        }
        throw error;
    }
}

class Player {
    constructor(encoder, stream, turn, response, gone) {
        Object.assign(this, { encoder, stream, turn, response, gone });
    }

    async run(stalled) {
        this.response.writeHead(200, {
            "content-type": "text/event-stream; charset=utf-8",
            "cache-control": "no-cache",
        });
        await this.#send(this.stream.start());
        for (const part of this.#numbered()) {
            if (part.kind === "hang") {
                await stalled();
                this.gone.throwIfAborted();
            } else if (part.kind === "cut") {
                return this.#cut(part.cut);
            } else if (part.kind === "error") {
                await this.#send(this.stream.error(part.text));
                this.response.end();
                return "error";
            } else if (await this.#part(part)) {
                return this.#cut(part.cut);
            }
        }
        await this.#send(this.stream.finish(this.#stop()));
        this.response.end();
        await finished(this.response);
        return "finished";
    }

    /** Blocks count from 0, calls among themselves too. A stall before any block gets a text. */
    #numbered() {
        const faults = ["hang", "cut", "error"];
        let { parts } = this.turn;
        if (parts.length === 0 || faults.includes(parts[0].kind)) {
            parts = [{ kind: "say", text: "This is the start of an answer" }, ...parts];
        }
        let index = 0;
        let callIndex = 0;
        return parts.map((part) => ({
            ...part,
            ...(!faults.includes(part.kind) && { index: index++ }),
            ...(part.kind === "call" && { callIndex: callIndex++ }),
        }));
    }

    #stop() {
        const calls = this.turn.parts.some((part) => part.kind === "call");
        return this.turn.stop ?? (calls ? "toolUse" : "stop");
    }

    /** Sends one block; true if the connection is to be cut in the middle of its arguments. */
    async #part(part) {
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
            return true;
        }
        await this.#send(this.stream.close(part));
        return false;
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

    /** Waits until the kernel has the bytes, so that a cut comes after them, never instead. */
    #write(text) {
        this.gone.throwIfAborted();
        return new Promise((resolve, reject) => {
            this.gone.addEventListener("abort", reject, { once: true });
            this.response.write(text, (error) => {
                this.gone.removeEventListener("abort", reject);
                return error ? reject(error) : resolve();
            });
        });
    }
}
