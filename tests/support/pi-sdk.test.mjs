// The real Pi SDK against the scripted model server, in all four protocols. Needs Pi's bundle and
// its Node: `make setup` puts them into build/runtime, or PI_BUNDLE and NODE24 name them.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { createInterface } from "node:readline";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import { APIS } from "./model-client.mjs";
import { loadScript, startModelServer } from "./model-server.mjs";

const fromHere = (target) => fileURLToPath(new URL(target, import.meta.url));
const NODE = process.env.NODE24 ?? fromHere("../../build/runtime/node/bin/node");
const BUNDLE = process.env.PI_BUNDLE ?? fromHere("../../build/runtime/pi/dist/bundle/index.js");
const missing = [NODE, BUNDLE].filter((file) => !existsSync(file));
const skip = missing.length > 0 && `run \`make setup\`: ${missing.join(" and ")} not found`;

let server;
let child;
let replies;
before(async () => {
    if (skip) {
        return;
    }
    server = await startModelServer();
    child = spawn(NODE, [fromHere("pi-drive.mjs"), BUNDLE],
        { stdio: ["pipe", "pipe", "inherit"], env: { PATH: process.env.PATH, HOME: "/none" } });
    replies = createInterface(child.stdout)[Symbol.asyncIterator]();
});
after(async () => {
    if (skip) {
        return;
    }
    child.stdin.end();
    await once(child, "exit");
    await server.close();
});

async function drive(api, prompts, options) {
    const job = { api, baseUrl: server.baseUrl(api), prompts, ...options };
    child.stdin.write(`${JSON.stringify(job)}\n`);
    const { value, done } = await replies.next();
    assert.ok(!done, "the Pi host died");
    const { messages, deltas, ran } = JSON.parse(value);
    return { deltas, ran, messages: messages.filter(({ role }) => role !== "system") };
}

/** [role, [block type, its text or name]…] a message. */
function outline({ role, content }) {
    const blocks = content.map((b) => [b.type, b.thinking ?? b.text ?? b.name]);
    return [role, ...blocks];
}

/** A cut at every byte takes minutes: `make test-full` does it, `make test` takes every fifth. */
const EVERY = process.env.PI_MANAGED_TEST_FULL === "yes" ? 1 : 5;

/** How many bytes at the end of a stream may be missing when the call had come whole: the counts and
 *  [DONE] after finish_reason, or the blank line after the last event. */
const LAST_WORDS = {
    "openai-completions": 520, "anthropic-messages": 2, "openai-responses": 2,
    "google-generative-ai": 4,
};

for (const api of APIS) {
    describe(`Pi with ${api}`, { skip }, () => {
        test("thinks, says, calls in parallel, reads results, answers, remembers", async () => {
            const script = 'THINK two calls needed SAY I will call. CALL echo {"text":"a b"} ;; '
                + "broken {} THEN SAY The tools said: $RESULT";
            const { messages, deltas } = await drive(api, [script, "SAY Once more."],
                { thinkingLevel: "medium" });
            assert.deepEqual(messages.map(outline), [
                ["user", ["text", script]],
                ["assistant", ["thinking", "two calls needed"], ["text", "I will call."],
                    ["toolCall", "echo"], ["toolCall", "broken"]],
                ["toolResult", ["text", "echo: a b"]],
                ["toolResult", ["text", "it broke"]],
                ["assistant", ["text", "The tools said: echo: a b\nit broke"]],
                ["user", ["text", "SAY Once more."]],
                ["assistant", ["text", "Once more."]],
            ]);
            const answers = messages.filter(({ role }) => role === "assistant");
            assert.deepEqual(answers.map((m) => m.stopReason), ["toolUse", "stop", "stop"]);
            assert.deepEqual(answers[0].content[2].arguments, { text: "a b" });
            assert.ok(deltas.filter((type) => type === "text_delta").length > 5, "it streams");
            assert.ok(deltas.includes("thinking_delta"));
            if (api !== "openai-completions") {
                assert.ok(answers[0].content[0].thinkingSignature, "thinking is signed");
            }
        });

        test("reads usage as it was scripted, in disjoint numbers", async () => {
            const usage = { input: 7, cacheRead: 500, cacheWrite: 90, output: 60, reasoning: 20 };
            const { messages } = await drive(api,
                [`THINK a SAY b USAGE ${JSON.stringify(usage)}`], { thinkingLevel: "low" });
            const seen = messages.at(-1).usage;
            const countsWrites = api !== "google-generative-ai";
            assert.equal(seen.input, countsWrites ? 7 : 97);
            assert.equal(seen.cacheWrite, countsWrites ? 90 : 0);
            assert.equal(seen.cacheRead, 500);
            assert.equal(seen.output, 60);
            assert.equal(seen.totalTokens, 657);
            assert.ok(seen.cost.total > 0);
        });

        test("a cut inside tool arguments never runs the tool", async () => {
            const { messages } = await drive(api,
                ['CALL echo {"text":"never run this, it was cut off before the end"} CUT ARGS']);
            assert.equal(messages.at(-1).stopReason, "error");
            assert.ok(!messages.some(({ role }) => role === "toolResult"));
        });

        test("a stream cut at any byte never runs the tool that was not called whole", async () => {
            const script = 'CALL echo {"text":"not to be cut"} THEN SAY done';
            await drive(api, [script]);
            const whole = server.requests.at(-2).sentBytes;
            for (let at = 0; at < whole; at += EVERY) {
                const how = at % 2 ? " CLEAN" : "";
                const { messages, ran } = await drive(api,
                    [script.replace("THEN", `CUT AT ${at}${how} THEN`)]);
                const { stopReason } = messages.find(({ role }) => role === "assistant");
                const where = `${at} of ${whole} bytes${how}`;
                if (stopReason === "toolUse") {
                    assert.ok(whole - at <= LAST_WORDS[api], `${where} passed for an answer`);
                } else {
                    assert.equal(stopReason, "error", where);
                    assert.equal(ran, 0, where);
                }
            }
        });

        test("an end without the last event is an error, not an answer", async () => {
            const { messages } = await drive(api, ["SAY half an answer CUT CLEAN"]);
            assert.equal(messages.at(-1).stopReason, "error");
        });

        test("retries what the provider calls overloaded", async () => {
            const status = api === "anthropic-messages" ? 529 : 503;
            const { messages } = await drive(api, [`FAIL ${status} TIMES 2 SAY made it ${api}`],
                { retries: 3 });
            assert.deepEqual(outline(messages.at(-1)), ["assistant", ["text", `made it ${api}`]]);
        });

        test("a connection cut before the first byte is retried", async () => {
            const { messages } = await drive(api, [`CUT EARLY TIMES 1 SAY after all ${api}`],
                { retries: 1 });
            assert.deepEqual(outline(messages.at(-1)), ["assistant", ["text", `after all ${api}`]]);
        });

        test("plays the demo to its end", async () => {
            const demo = await loadScript("demo");
            server.setScript((request) => ({ ...demo(request), slow: 0 }));
            const { messages } = await drive(api, ["Show me something."], { thinkingLevel: "low" });
            server.setScript(undefined);
            const called = messages.flatMap((m) => m.content.filter((b) => b.type === "toolCall"));
            assert.deepEqual(called.map((call) => call.name), ["write", "bash"]);
            const closing = messages.at(-1).content[0].text;
            assert.match(closing, /^Done\..*checksum \d+ \(\d+ cells alive\)/s);
        });

        test("leaves a stalled stream when it is aborted", async () => {
            const text = `SAY stalled ${api} HANG`;
            const { messages } = await drive(api, [text], { abortOn: "text_delta" });
            assert.equal(messages.at(-1).stopReason, "aborted");
            const request = await server.waitForRequest((r) => r.userText === text);
            assert.equal(await request.done, "left");
        });
    });
}
