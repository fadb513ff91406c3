// harness/protocol.mjs: bytes to messages and back, and what a slow reader costs.
import assert from "node:assert/strict";
import { EventEmitter } from "node:events";
import { test } from "node:test";
import { Decoder, ENVELOPE_MAX, Outbox, ProtocolError, toJsonLine } from "../../harness/protocol.mjs";

function decode(text, step) {
    const got = [];
    const decoder = new Decoder((envelope, lines) => got.push([envelope, lines.map(String)]));
    const bytes = Buffer.from(text);
    for (let at = 0; at < bytes.length; at += step) {
        decoder.push(bytes.subarray(at, at + step));
    }
    return got;
}

test("messages come out whole wherever the bytes are cut", () => {
    const text = '{"op":"a"}\n{"op":"b","lines":2}\n{"x":"\u2028\u2029\u0085ü"}\n\n{"op":"c","lines":0}\n';
    const whole = [
        [{ op: "a" }, []],
        [{ op: "b", lines: 2 }, ['{"x":"\u2028\u2029\u0085ü"}', ""]],
        [{ op: "c", lines: 0 }, []],
    ];
    for (let step = 1; step <= Buffer.byteLength(text); step += 1) {
        assert.deepEqual(decode(text, step), whole);
    }
});

test("what is not the protocol is refused", () => {
    for (const bad of ["\n", "nonsense\n", "[]\n", "null\n", '"x"\n',
        '{"lines":-1}\n', '{"lines":0.5}\n', '{"lines":1e9}\n']) {
        assert.throws(() => decode(bad, 100), ProtocolError, bad);
    }
    assert.throws(() => decode(" ".repeat(ENVELOPE_MAX + 1), 4096), ProtocolError);
});

test("lone surrogates are replaced, and nothing that only looks like one", () => {
    const values = ["\ud83d", "a\udc00b", "\ud83d\ude00", "\\ud83d", "\\\\ud83d\ud83d", "\u0001\u001f", "ud83d"];
    for (const value of values) {
        const line = toJsonLine({ value });
        assert.equal(JSON.parse(line).value, value.toWellFormed());
        assert.doesNotMatch(JSON.parse(line).value, /\p{Surrogate}/u);
    }
});

/** Takes `room` messages, then says it is full until drained. */
class SlowSocket extends EventEmitter {
    written = [];
    room = 0;

    write(text) {
        this.written.push(...text.trimEnd().split("\n").map((line) => JSON.parse(line)));
        this.room -= 1;
        return this.room > 0;
    }

    drain(room) {
        this.room = room;
        this.emit("drain");
    }
}

const text = (session, index, words) => ({ t: "delta", session, kind: "text", index, text: words });

test("while the socket is full, text of one block is joined and all else keeps its order", async () => {
    const socket = new SlowSocket();
    const outbox = new Outbox(socket);
    outbox.send({ t: "first" }); // now it is full
    for (const word of ["a", "b", "c"]) {
        outbox.delta(text("s1", 0, word));
        outbox.delta(text("s2", 0, word));
    }
    outbox.delta(text("s1", 1, "d"));
    outbox.send({ t: "entry", session: "s1" }, "{}");
    outbox.delta(text("s1", 1, "e"));
    let writable = false;
    const room = outbox.writable().then(() => { writable = true; });
    socket.drain(2);
    await Promise.resolve();
    assert.equal(writable, false);
    socket.drain(100);
    await room;
    assert.deepEqual(socket.written, [
        { t: "first" }, text("s1", 0, "abc"), text("s2", 0, "abc"), text("s1", 1, "d"),
        { t: "entry", session: "s1", lines: 1 }, {}, text("s1", 1, "e"),
    ]);
});
