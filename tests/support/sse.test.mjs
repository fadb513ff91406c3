// The SSE parser of the black-box tests against the WHATWG vectors, at every split of the bytes.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, test } from "node:test";
import { SseParser } from "./sse.mjs";

const file = new URL("../vectors/sse_vectors.json", import.meta.url);
const { vectors } = JSON.parse(readFileSync(file, "utf8"));

function parse(chunks) {
    const parser = new SseParser();
    const frames = chunks.flatMap((chunk) => parser.push(chunk));
    return frames.map(({ type, data, lastEventId }) => ({ type, data, lastEventId }));
}

describe("WHATWG vectors", () => {
    assert.ok(vectors.length >= 45);
    for (const { name, stream, events } of vectors) {
        test(name, () => {
            const bytes = Buffer.from(stream, "utf8");
            assert.deepEqual(parse([bytes]), events, "whole");
            assert.deepEqual(parse([...bytes].map((byte) => Buffer.of(byte))), events, "by bytes");
            for (let at = 1; at < bytes.length; at += 1) {
                const halves = [bytes.subarray(0, at), bytes.subarray(at)];
                assert.deepEqual(parse(halves), events, `split at ${at}`);
            }
        });
    }
});

test("own ids, comments and retry are told apart", () => {
    const comments = [];
    const parser = new SseParser({ onComment: (text) => comments.push(text) });
    const frames = parser.push(Buffer.from("retry: 3000\n: hb\nid: 1\ndata: a\n\ndata: b\n\n"));
    assert.deepEqual(frames.map(({ id, lastEventId }) => [id, lastEventId]),
        [["1", "1"], [undefined, "1"]]);
    assert.deepEqual(comments, [" hb"]);
    assert.equal(parser.retry, 3000);
});

test("a final CR dispatches at once, without waiting for a LF", () => {
    assert.equal(new SseParser().push(Buffer.from("data: x\r\r")).length, 1);
});
