// The scripted model plays recorded logs back: which answer is due, and what went wrong then.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { Conversation } from "./model/conversation.mjs";
import { replay } from "./model/replay.mjs";
import { ScriptError } from "./model/script.mjs";

let ids = 0;
const line = (fields, parentId) => ({ id: `e${++ids}`, parentId, ...fields });
const says = (text, more) => ({ type: "message", message: {
    role: "assistant", content: [{ type: "text", text }], stopReason: "stop", ...more } });
const user = (content) => ({ type: "message", message: { role: "user", content } });

/** Lines one after the other, each the child of the one before. */
function log(...lines) {
    let parent = null;
    return [{ type: "session", version: 3, id: "sess_x" }, ...lines].map((fields) => {
        const entry = fields.type === "session" ? fields : line(fields, parent);
        parent = fields.type === "custom" || fields.type === "session" ? parent : entry.id;
        return JSON.stringify(entry);
    }).join("\n");
}

function request(...turns) {
    const conversation = new Conversation();
    conversation.tools = ["bash"];
    for (const [role, text] of turns) {
        role === "user" ? conversation.addUser(text) : conversation.addText(text);
    }
    return { conversation };
}
const said = (step) => step.parts.map((part) => part.text ?? part.kind).join("|");

test("answers come by their place, whoever asks and how often", () => {
    const script = replay(log(user("a"), says("A"), user([{ type: "text", text: "b" }]), says("B")));
    assert.deepEqual(script.prompts, ["a", "b"]);
    for (let i = 0; i < 2; i += 1) {
        assert.equal(said(script(request(["user", "a"]))), "A");
        assert.equal(said(script(request(["user", "a"], ["model", "A"], ["user", "b"]))), "B");
    }
    assert.throws(() => script(request(["user", "a"], ["model", "A"], ["user", "b"], ["model", "B"],
        ["user", "c"])), /replay: the session has left the recorded one: no answer to a request with 2/);
});

test("a failed answer comes first, then its retry", () => {
    const script = replay(log(user("a"),
        says("", { content: [], stopReason: "error", errorMessage: "529 overloaded" }),
        says("half", { stopReason: "error", errorMessage: "terminated" }), says("A")));
    const asked = () => script(request(["user", "a"]));
    assert.deepEqual(asked().fail, { status: 529, message: "529 overloaded" });
    assert.deepEqual(asked().parts, [{ kind: "say", text: "half" }, { kind: "error", text: "terminated" }]);
    assert.equal(said(asked()), "A");
    assert.equal(asked().fail.status, 529, "another session begins anew");
});

test("calls, thinking, the token limit, an interrupt and usage are kept", () => {
    const content = [{ type: "thinking", thinking: "hm" }, { type: "text", text: "do" },
        { type: "toolCall", id: "c", name: "bash", arguments: { command: "ls" } }];
    const usage = { input: 1, output: 2, cacheRead: 3, cacheWrite: 4, cost: { total: 1 } };
    const script = replay(log(user("a"), says("", { content, usage, stopReason: "toolUse" }),
        user("b"), says("long", { stopReason: "length" }), user("c"), says("ha", { stopReason: "aborted" })));
    const first = script(request(["user", "a"]));
    assert.deepEqual(first.parts, [{ kind: "think", text: "hm" }, { kind: "say", text: "do" },
        { kind: "call", name: "bash", text: '{"command":"ls"}' }]);
    assert.deepEqual(first.usage, { input: 1, output: 2, cacheRead: 3, cacheWrite: 4 });
    const second = script(request(["user", "a"], ["model", "x"], ["user", "b"]));
    assert.equal(second.stop, "length");
    const third = script(request(["user", "a"], ["model", "x"], ["user", "b"], ["model", "y"], ["user", "c"]));
    assert.deepEqual(third.parts.map((part) => part.kind), ["say", "hang"]);
});

test("after a summary places are counted from what it kept", () => {
    const kept = line(user("b"), null);
    const lines = log(user("a"), says("A"), kept, says("B"), {
        type: "compaction", summary: "It was about a.", firstKeptEntryId: "later",
    }, user("c"), says("C"), user("d"), says("D")).split("\n");
    const keptId = JSON.parse(lines[3]).id;
    const script = replay(lines.join("\n").replace('"later"', `"${keptId}"`));
    const asking = new Conversation();
    asking.addUser("<conversation>a, A</conversation>");
    assert.deepEqual(script({ conversation: asking }), { say: "It was about a." });
    const after = [["user", "Summary: It was about a."], ["user", "b"], ["model", "B"], ["user", "c"]];
    assert.equal(said(script(request(...after))), "C");
    assert.equal(said(script(request(...after, ["model", "C"], ["user", "d"]))), "D");
});

test("only the branch that was followed counts, and notes of the service do not", () => {
    const all = log(user("a"), says("no")).split("\n");
    const root = JSON.parse(all[1]).id;
    const yes = line(says("yes"), root);
    const note = line({ type: "custom", customType: "pi-managed:event", data: {} }, yes.id);
    const script = replay([...all, JSON.stringify(yes), JSON.stringify(note), '{"torn'].join("\n"));
    assert.equal(said(script(request(["user", "a"]))), "yes");
});

test("a log without answers is refused", () => {
    assert.throws(() => replay(log(user("a"))), ScriptError);
    assert.throws(() => replay("no log at all"), ScriptError);
});

test("every recorded log of the vectors can be played", () => {
    for (const name of ["aborted", "calls", "error", "text", "turn-with-tools"]) {
        const file = new URL(`../vectors/projection/${name}.jsonl`, import.meta.url);
        const script = replay(readFileSync(file, "utf8"));
        assert.ok(script(request(["user", script.prompts[0]])).parts ?? true, name);
    }
});
