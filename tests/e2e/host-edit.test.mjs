// R54: the diff and patch the host makes for `edit` are those of Pi's own tool, for the same change.
import assert from "node:assert/strict";
import { test } from "node:test";
import { remoteTools } from "../../harness/tools.mjs";
import { RUNTIME } from "../support/host-driver.mjs";

const pi = await import(`${RUNTIME}/pi/dist/bundle/index.js`);

const lines = (n, from = 1) => Array.from({ length: n }, (_, i) => `line ${i + from}`).join("\n");

const CASES = [
    ["a line in a small file", "one\ntwo\nthree\n", [{ oldText: "two", newText: "2" }]],
    ["the first and last of many", `${lines(300)}\n`, [
        { oldText: "line 1\n", newText: "first\n" }, { oldText: "line 300", newText: "last" }]],
    ["close together", `${lines(40)}\n`, [
        { oldText: "line 10\n", newText: "" }, { oldText: "line 14\n", newText: "14\n14b\n" }]],
    ["far apart in a long file", `${lines(5000)}\n`, [
        { oldText: "line 2000\n", newText: "x\n" }, { oldText: "line 4000\n", newText: "y\nz\n" }]],
    ["no newline at the end", "a\nb", [{ oldText: "b", newText: "c" }]],
    ["carriage returns and a byte order mark", "\ufeffa\r\nb\r\nc\r\n", [{ oldText: "b", newText: "B\nBB" }]],
    ["repeated lines", `${"same\n".repeat(50)}other\n${"same\n".repeat(50)}`, [
        { oldText: "other\n", newText: "same\nsame\n" }]],
    ["fuzzy quotes", "say \u201chello\u201d   \nx\n", [{ oldText: 'say "hello"', newText: "bye" }]],
];

/** What Pi's tool does with a file that is only in memory: its details and the texts around them. */
async function byPi(content, edits) {
    let written;
    const tool = pi.createEditToolDefinition("/nowhere", {
        operations: {
            access: async () => {},
            readFile: async () => Buffer.from(content),
            writeFile: async (_, text) => { written = text; },
        },
    });
    const result = await tool.execute("call", { path: "f.txt", edits });
    return { details: result.details, written };
}

/** As hands reports a file: without a byte order mark, with LF. */
function plain(text) {
    return text.replace(/^\ufeff/, "").replace(/\r\n?/g, "\n");
}

for (const [name, content, edits] of CASES) {
    test(name, async () => {
        const { details, written } = await byPi(content, edits);
        const run = async () => ({
            content: [], isError: false,
            details: { oldText: plain(content), newText: plain(written) },
        });
        const [tool] = remoteTools(pi, ["edit"], "/workspace", run);
        const result = await tool.execute("call", { path: "f.txt", edits });
        assert.deepEqual(result.details, details);
    });
}
