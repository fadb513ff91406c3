// A host is only a cache: from any prefix of a log the next host restores the same conversation and goes on.
// Each crash leaves some prefix of lines, so all of them are tried.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { startGateway, startHost } from "../support/host-driver.mjs";
import { startModelServer } from "../support/model-server.mjs";

const MODELS = {
    "openai-completions": { provider: "groq", id: "llama-3.1-8b-instant" },
    "anthropic-messages": { provider: "anthropic", id: "claude-haiku-4-5" },
};
const INTERRUPTED = "Interrupted by a restart: its effects are unknown.";

const roleOf = (entry) => entry.message?.role;
const textOf = ({ content }) => typeof content === "string" ? content
    : content.filter((c) => c.type === "text").map((c) => c.text).join("");

/** Calls of the last assistant message without a result, as control finds them. */
function openCalls(entries) {
    const messages = entries.filter((e) => e.type === "message").map((e) => e.message);
    const at = messages.findLastIndex((m) => m.role === "assistant");
    const answered = new Set(messages.slice(at + 1).map((m) => m.toolCallId));
    return at < 0 ? [] : messages[at].content.filter((c) => c.type === "toolCall" && !answered.has(c.id));
}

function interruptedResult({ id, name }) {
    return {
        role: "toolResult", toolCallId: id, toolName: name, isError: true, timestamp: Date.now(),
        content: [{ type: "text", text: INTERRUPTED }],
    };
}

/** What the model is told, without what differs between requests: role and texts of each message. */
function told(request) {
    return request.conversation.messages.map((m) => ({
        role: m.role, text: m.text ?? "", results: (m.results ?? []).map((r) => r.text),
    }));
}

for (const [api, model] of Object.entries(MODELS)) {
    describe(`after a crash, over ${api}`, () => {
        let server;
        let gateway;
        let host;
        let log;

        before(async () => {
            server = await startModelServer();
            gateway = await startGateway(server.baseUrl(api));
            host = await startHost(gateway);
            host.onTool("bash", ({ command }) => `did ${command}`);
            await host.open("sess_log", { model });
            await host.run("sess_log", "SAY Hello there");
            await host.run("sess_log",
                'SAY Two things. CALL bash {"command":"a"} ;; bash {"command":"b"} '
                    + 'THEN CALL bash {"command":"c"} THEN SAY $RESULT');
            log = host.log("sess_log");
        });
        after(async () => {
            await host?.stop();
            await gateway?.close();
            await server?.close();
        });

        /** Opens the prefix in the host, as a new session with the log's own id. */
        async function reopen(count) {
            await host.ask({ op: "close", session: "sess_log" });
            const from = host.received.length;
            await host.open("sess_log", { model, log: log.slice(0, count) });
            return from;
        }

        function newEntries(from) {
            return host.received.slice(from).filter((m) => m.t === "entry").map((m) => JSON.parse(m.body[0]));
        }

        test("every prefix of the log is gone on with, and nothing of it is lost or said twice", async () => {
            const all = log.map((line) => JSON.parse(line));
            assert.equal(all.length, 13);
            for (let count = 3; count <= all.length; count += 1) {
                const entries = all.slice(0, count);
                const role = roleOf(entries.at(-1));
                const calls = openCalls(entries);
                const from = await reopen(count);
                const asked = server.requests.length;
                if (calls.length > 0) {
                    await host.call({ op: "resume", session: "sess_log", note: "You were interrupted." },
                        ...calls.map(interruptedResult));
                } else if (role === "user" || role === "toolResult") {
                    await host.call({ op: "resume", session: "sess_log", note: null });
                } else {
                    await host.call({ op: "prompt", session: "sess_log" }, [{ type: "text", text: "go on" }]);
                }
                const settled = await host.settled("sess_log", from);
                assert.equal(settled.error, undefined, `prefix of ${count} lines`);
                const added = newEntries(from);
                assert.equal(added[0].parentId, entries.at(-1).id, `prefix of ${count} lines`);
                checkTold(told(server.requests[asked]), entries, calls);
            }
        });

        function checkTold(messages, entries, calls) {
            const before = entries.filter((e) => ["user", "assistant"].includes(roleOf(e)));
            const texts = before.map((e) => textOf(e.message));
            const said = messages.filter((m) => m.role !== "tool").map((m) => m.text);
            assert.deepEqual(said.slice(0, texts.length), texts);
            const results = entries.filter((e) => roleOf(e) === "toolResult").map((e) => textOf(e.message));
            const expected = [...results, ...calls.map(() => INTERRUPTED)];
            assert.deepEqual(messages.flatMap((m) => m.results), expected);
        }

        test("a note is told to the model but is no message of the user's", async () => {
            const count = log.findIndex((line) => line.includes('"toolUse"')) + 1;
            const from = await reopen(count);
            const asked = server.requests.length;
            await host.call({ op: "resume", session: "sess_log", note: "Processes did not survive." },
                ...openCalls(log.slice(0, count).map((l) => JSON.parse(l))).map(interruptedResult));
            await host.settled("sess_log", from);
            const note = newEntries(from).find((e) => e.type === "custom_message");
            assert.deepEqual([note.customType, note.display, note.content],
                ["pi-managed:resume", false, "Processes did not survive."]);
            assert.match(server.requests[asked].body, /Processes did not survive\./);
        });

        test("going on without a note adds nothing but the answer", async () => {
            const count = log.findIndex((line) => line.includes("did b")) + 1;
            const from = await reopen(count);
            await host.call({ op: "resume", session: "sess_log", note: null });
            await host.settled("sess_log", from);
            assert.deepEqual(newEntries(from).map((e) => roleOf(e)), ["assistant", "toolResult", "assistant"]);
        });

        test("an answer that failed is left out of what is sent again", async () => {
            const count = log.findIndex((line) => JSON.parse(line).message?.role === "user") + 1;
            const entry = JSON.parse(log[count - 1]);
            const failed = {
                type: "message", id: "fa11ed00", parentId: entry.id, timestamp: entry.timestamp,
                message: {
                    role: "assistant", content: [{ type: "text", text: "half an ans" }], api, provider: model.provider,
                    model: model.id, stopReason: "error", errorMessage: "terminated", timestamp: Date.now(),
                    usage: {
                        input: 1, output: 1, cacheRead: 0, cacheWrite: 0, totalTokens: 2,
                        cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 },
                    },
                },
            };
            await host.ask({ op: "close", session: "sess_log" });
            await host.open("sess_log", { model, log: [...log.slice(0, count), JSON.stringify(failed)] });
            const from = host.received.length;
            const asked = server.requests.length;
            await host.call({ op: "resume", session: "sess_log", note: null });
            assert.equal((await host.settled("sess_log", from)).error, undefined);
            assert.deepEqual(told(server.requests[asked]).map((m) => m.role), ["user"]);
            const added = newEntries(from);
            assert.equal(added[0].type, "context_edit");
            assert.equal(added.at(-1).message.stopReason, "stop");
        });

        test("a log that waits for the user has nothing to go on with", async () => {
            await reopen(log.length);
            const reply = await host.ask({ op: "resume", session: "sess_log", note: null });
            assert.deepEqual([reply.ok, reply.error], [false, "nothing to go on with: the last message is assistant"]);
        });

        test("a header alone is a session whose host died at once", async () => {
            const from = await reopen(1);
            await host.run("sess_log", "SAY hi");
            assert.equal(newEntries(from)[0].type, "model_change");
            assert.equal(newEntries(from).some((e) => e.type === "session"), false);
        });

        test("another model than the log's is written into the log", async () => {
            const other = { custom: true, id: "other", api, baseUrl: "http://models.example.com" };
            await host.ask({ op: "close", session: "sess_log" });
            const from = host.received.length;
            await host.open("sess_log", { model: other, log });
            const change = newEntries(from).find((e) => e.type === "model_change");
            assert.equal(change.modelId, "other");
            await host.run("sess_log", "SAY hi");
            assert.equal(newEntries(from).at(-1).message.model, "other");
        });
    });
}
