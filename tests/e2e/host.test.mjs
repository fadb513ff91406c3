// The Pi host on the real SDK, driven as control drives it: what the four wire APIs carry, tools as
// calls to control, and the order of what is said.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { startGateway, startHost } from "../support/host-driver.mjs";
import { startModelServer } from "../support/model-server.mjs";

const APIS = {
    "openai-completions": { provider: "groq", id: "openai/gpt-oss-120b" },
    "anthropic-messages": { provider: "anthropic", id: "claude-haiku-4-5" },
    "openai-responses": { provider: "openai", id: "gpt-5" },
    "google-generative-ai": { provider: "google", id: "gemini-2.5-flash" },
};

for (const [api, model] of Object.entries(APIS)) {
    describe(`over ${api}`, () => {
        let server;
        let gateway;
        let host;
        before(async () => {
            server = await startModelServer();
            gateway = await startGateway(server.baseUrl(api));
            host = await startHost(gateway);
        });
        after(async () => {
            await host?.stop();
            await gateway?.close();
            await server?.close();
        });

        test("text streams as deltas and ends in the log", async () => {
            await host.open("sess_text", { model });
            const settled = await host.run("sess_text", "SAY One two three four");
            assert.deepEqual([settled.aborted, settled.error], [false, undefined]);
            const types = host.entries("sess_text").map((e) => e.message?.role ?? e.type);
            assert.deepEqual(types, [
                "session", "model_change", "thinking_level_change", "system", "user", "assistant",
            ]);
            const deltas = host.deltas("sess_text");
            assert.equal(deltas[0].kind, "message_start");
            assert.equal(deltas.at(-1).kind, "message_end");
            const text = deltas.filter((d) => d.kind === "text").map((d) => d.text).join("");
            assert.equal(text, "One two three four");
            assert.equal(textOf(host.entries("sess_text").at(-1).message), text);
        });

        test("a tool call is asked of control once, after its entry is in the log", async () => {
            host.onTool("bash", ({ command }) => `ran ${command}`);
            await host.open("sess_tool", { model });
            await host.run("sess_tool", 'CALL bash {"command":"date"} THEN SAY It is $RESULT');
            const at = host.received.findIndex((m) => m.t === "tool" && m.session === "sess_tool");
            const before = host.received.slice(0, at).findLast((m) => m.t === "entry");
            const entry = JSON.parse(before.body[0]);
            assert.equal(entry.message.stopReason, "toolUse");
            assert.equal(entry.message.content.at(-1).id, host.received[at].call);
            assert.deepEqual(JSON.parse(host.received[at].body[0]), { command: "date" });
            assert.equal(textOf(host.entries("sess_tool").at(-1).message), "It is ran date");
        });

        test("thinking is announced, kept in the log, and not streamed", async () => {
            await host.open("sess_think", { model, thinkingLevel: "high" });
            await host.run("sess_think", "THINK let me see SAY Seen");
            const kinds = host.deltas("sess_think").map((d) => d.kind);
            assert.deepEqual([...new Set(kinds)], ["message_start", "thinking_start", "text", "message_end"]);
            const { content } = host.entries("sess_think").at(-1).message;
            assert.deepEqual(content.map((c) => c.type), ["thinking", "text"]);
            assert.equal(host.deltas("sess_think").some((d) => d.text.includes("let me")), false);
        });

        test("a request that fails is tried again where that can help, saying so; its last error is the run's", async () => {
            await host.open("sess_error", { model });
            // Pi does not take Google's words for 529 for something to try again: control resumes such a run.
            const overloaded = api === "google-generative-ai" ? 1 : 5;
            const tries = { "FAIL 529": overloaded, "FAIL 429 1": 5, "FAIL 401": 1, "SAY Some words CUT": 5, "SAY x ERROR overloaded": 5 };
            for (const [script, times] of Object.entries(tries)) {
                const before = server.requests.length;
                const from = host.received.length;
                await host.call({ op: "prompt", session: "sess_error" }, [{ type: "text", text: script }]);
                assert.ok((await host.settled("sess_error", from)).error, script);
                assert.equal(server.requests.length - before, times, script);
                const retries = host.received.slice(from).filter((one) => one.t === "retry");
                assert.deepEqual(retries.map(({ session, attempt }) => [session, attempt]),
                    Array.from({ length: times - 1 }, (_, index) => ["sess_error", index + 1]), script);
                assert.equal(host.deltas("sess_error").at(-1).kind, "discarded", script);
            }
        });

        test("the gateway hears each session's own token, and the log the catalogue's names", () => {
            assert.deepEqual([...new Set(gateway.tokens)], ["token-sess_text", "token-sess_tool", "token-sess_think",
                "token-sess_error"]);
            const message = host.entries("sess_text").at(-1).message;
            assert.deepEqual([message.provider, message.model, message.api],
                [model.provider, model.id, api]);
        });
    });
}

function textOf(message) {
    return message.content.filter((c) => c.type === "text").map((c) => c.text).join("");
}
