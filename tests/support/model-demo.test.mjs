// The built-in demo script: its program prints what the model worked out, and the closing message
// follows what the tools really returned.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { Conversation } from "./model/conversation.mjs";
import demo, { expectedLine, PROGRAM } from "./model/scripts/demo.mjs";

function conversation(...results) {
    const made = new Conversation();
    made.tools = ["bash", "read", "write"];
    made.addUser("Write something fun and run it.");
    for (const [i, result] of results.entries()) {
        made.addCall({ id: `c${i}`, name: "t" });
        made.addResult({ id: `c${i}`, ...result });
    }
    return { conversation: made };
}
const written = { text: "Successfully wrote to /workspace/life.sh" };

test("the program runs in a plain sh and prints the checksum the model expects", () => {
    const output = execFileSync("sh", ["-s"], { input: PROGRAM, encoding: "utf8" });
    assert.equal(output.trimEnd().split("\n").at(-1), expectedLine());
});

test("it writes, runs, and quotes the line that came back", () => {
    const [first] = demo(conversation()).calls;
    assert.equal(first.name, "write");
    assert.equal(first.args.content, PROGRAM);
    const [second] = demo(conversation(written)).calls;
    assert.deepEqual(second, { name: "bash", args: { command: `sh ${first.args.path}` } });
    const output = { text: `generation 0\n...\n${expectedLine()}\n` };
    const closing = demo(conversation(written, output));
    assert.match(closing.say, /^Done\./);
    assert.ok(closing.say.includes(expectedLine()));
});

test("errors, other output and a wrong checksum are said, never hidden", () => {
    const says = (...results) => {
        const step = demo(conversation(...results));
        assert.equal(step.calls, undefined);
        assert.doesNotMatch(step.say, /Done/);
        return step.say;
    };
    assert.match(says({ text: "EROFS: read-only", isError: true }), /did not work.*EROFS/s);
    assert.match(says(written, { text: "sh: awk: not found\n\nCommand exited with code 127" }),
        /did not work.*awk: not found/s);
    assert.match(says(written, { text: "hello" }), /no checksum.*hello/s);
    assert.match(says(written, { text: "checksum 1 (2 cells alive)" }), /do not trust/);
});

test("without the tools it says so, and later messages go to the directives", () => {
    const bare = conversation();
    bare.conversation.tools = ["read"];
    assert.match(demo(bare).say, /no write, no bash/);
    const later = conversation(written, written);
    later.conversation.addText("Done.");
    later.conversation.addUser("SAY more");
    assert.equal(demo(later), undefined);
});
