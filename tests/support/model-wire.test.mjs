// The scripted model server: the shape of each protocol's stream, against what providers send.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { CLIENTS, frames, parseFrames, post } from "./model-client.mjs";
import { startModelServer } from "./model-server.mjs";

let server;
before(async () => (server = await startModelServer()));
after(() => server.close());

const ALL_KINDS = 'THINK a b SAY c CALL bash {"command":"x"} ;; bash {} '
    + 'USAGE {"input":1,"cacheRead":20,"cacheWrite":300,"output":4000,"reasoning":1000}';

describe("wire shapes", () => {
    test("openai-completions", async () => {
        const all = await frames(await post(server, "openai-completions", ALL_KINDS));
        assert.equal(all.pop().data, "[DONE]");
        assert.ok(all.every(({ event }) => event === undefined), "events have no name");
        const last = all.pop().data;
        assert.deepEqual(last.choices, []);
        assert.equal(last.usage.prompt_tokens, 321);
        assert.equal(last.usage.prompt_tokens_details.cached_tokens, 20);
        assert.equal(last.usage.prompt_tokens_details.cache_write_tokens, 300);
        assert.equal(last.usage.completion_tokens, 4000);
        assert.equal(last.usage.completion_tokens_details.reasoning_tokens, 1000);
        assert.equal(last.usage.total_tokens, 4321);
        assert.ok(all.every(({ data }) => data.object === "chat.completion.chunk"
            && data.id === last.id && data.model === "m" && data.usage === null));
        const deltas = all.map(({ data }) => data.choices[0].delta);
        assert.deepEqual(deltas.shift(), { role: "assistant", content: "", refusal: null });
        assert.deepEqual(deltas.splice(0, 3), [
            { reasoning_content: "a" }, { reasoning_content: " b" }, { content: "c" },
        ]);
        const ids = deltas.map((d) => d.tool_calls?.[0].id).filter(Boolean);
        assert.equal(new Set(ids).size, 2);
        assert.deepEqual(deltas, [
            call(0, { id: ids[0], type: "function" }, { name: "bash", arguments: "" }),
            call(0, {}, { arguments: '{"comma' }),
            call(0, {}, { arguments: 'nd":"x"' }),
            call(0, {}, { arguments: "}" }),
            call(1, { id: ids[1], type: "function" }, { name: "bash", arguments: "" }),
            call(1, {}, { arguments: "{}" }),
            {},
        ]);
        const reasons = all.map(({ data }) => data.choices[0].finish_reason);
        assert.deepEqual(reasons.filter(Boolean), ["tool_calls"]);
        assert.equal(reasons.at(-1), "tool_calls");
    });

    function call(index, fields, fn) {
        return { tool_calls: [{ index, ...fields, function: fn }] };
    }

    test("openai-completions without include_usage sends no usage", async () => {
        const body = CLIENTS["openai-completions"].body("SAY x");
        delete body.stream_options;
        const response = await fetch(`${server.url}/v1/chat/completions`,
            { method: "POST", body: JSON.stringify(body) });
        assert.doesNotMatch(await response.text(), /usage/);
    });

    test("anthropic-messages", async () => {
        const all = await frames(await post(server, "anthropic-messages", ALL_KINDS));
        assert.ok(all.every(({ event, data }) => event === data.type));
        const data = all.map((frame) => frame.data);
        const { message } = data[0];
        assert.equal(message.usage.input_tokens, 1);
        assert.equal(message.usage.cache_read_input_tokens, 20);
        assert.equal(message.usage.cache_creation_input_tokens, 300);
        assert.equal(message.usage.output_tokens, 1);
        assert.deepEqual(message.content, []);
        const signature = data.find((d) => d.delta?.signature)?.delta.signature;
        assert.match(signature, /^[A-Za-z0-9+/]{43}=$/);
        const ids = data.map((d) => d.content_block?.id).filter(Boolean);
        const delta = (index, fields) => ({ type: "content_block_delta", index, delta: fields });
        const start = (index, content_block) => (
            { type: "content_block_start", index, content_block });
        const stop = (index) => ({ type: "content_block_stop", index });
        const json = (index, partial_json) => (
            delta(index, { type: "input_json_delta", partial_json }));
        assert.deepEqual(data.slice(1), [
            start(0, { type: "thinking", thinking: "", signature: "" }),
            { type: "ping" },
            delta(0, { type: "thinking_delta", thinking: "a" }),
            delta(0, { type: "thinking_delta", thinking: " b" }),
            delta(0, { type: "signature_delta", signature }),
            stop(0),
            start(1, { type: "text", text: "" }),
            delta(1, { type: "text_delta", text: "c" }),
            stop(1),
            start(2, { type: "tool_use", id: ids[0], name: "bash", input: {} }),
            json(2, ""), json(2, '{"comma'), json(2, 'nd":"x"'), json(2, "}"),
            stop(2),
            start(3, { type: "tool_use", id: ids[1], name: "bash", input: {} }),
            json(3, ""), json(3, "{}"),
            stop(3),
            {
                type: "message_delta",
                delta: { stop_reason: "tool_use", stop_sequence: null },
                usage: {
                    input_tokens: 1,
                    cache_creation_input_tokens: 300,
                    cache_read_input_tokens: 20,
                    output_tokens: 4000,
                },
            },
            { type: "message_stop" },
        ]);
    });

    test("openai-responses", async () => {
        const all = await frames(await post(server, "openai-responses", ALL_KINDS));
        assert.ok(all.every(({ event, data }, i) =>
            event === data.type && data.sequence_number === i));
        const item = (n) => [
            "response.output_item.added",
            ...Array(n).fill("response.function_call_arguments.delta"),
            "response.function_call_arguments.done",
            "response.output_item.done",
        ];
        assert.deepEqual(all.map(({ event }) => event), [
            "response.created", "response.in_progress",
            "response.output_item.added", "response.reasoning_summary_part.added",
            "response.reasoning_summary_text.delta", "response.reasoning_summary_text.delta",
            "response.reasoning_summary_text.done", "response.reasoning_summary_part.done",
            "response.output_item.done",
            "response.output_item.added", "response.content_part.added",
            "response.output_text.delta", "response.output_text.done",
            "response.content_part.done", "response.output_item.done",
            ...item(3), ...item(1),
            "response.completed",
        ]);
        const { response } = all.at(-1).data;
        assert.equal(response.status, "completed");
        assert.deepEqual(response.output.map(({ type }) => type),
            ["reasoning", "message", "function_call", "function_call"]);
        assert.equal(response.output[0].summary[0].text, "a b");
        assert.match(response.output[0].encrypted_content, /=$/);
        assert.equal(response.output[1].content[0].text, "c");
        assert.equal(response.output[2].arguments, '{"command":"x"}');
        assert.notEqual(response.output[2].call_id, response.output[3].call_id);
        assert.deepEqual(response.usage, {
            input_tokens: 321,
            input_tokens_details: { cached_tokens: 20, cache_write_tokens: 300 },
            output_tokens: 4000,
            output_tokens_details: { reasoning_tokens: 1000 },
            total_tokens: 4321,
        });
    });

    test("google-generative-ai", async () => {
        const response = await post(server, "google-generative-ai", ALL_KINDS);
        const text = await response.text();
        assert.ok(!/[^\r]\n/.test(text), "every line ends with CRLF");
        const data = parseFrames(text).map((frame) => frame.data);
        const parts = data.flatMap((d) => d.candidates[0].content.parts);
        const [, , thought, , first, second] = parts;
        assert.deepEqual(parts, [
            { text: "a", thought: true },
            { text: " b", thought: true },
            { text: "", thought: true, thoughtSignature: thought.thoughtSignature },
            { text: "c" },
            { functionCall: { name: "bash", args: { command: "x" } },
                thoughtSignature: first.thoughtSignature },
            { functionCall: { name: "bash", args: {} } },
        ]);
        assert.ok(thought.thoughtSignature && first.thoughtSignature && second);
        assert.deepEqual(data.map((d) => d.candidates[0].finishReason).filter(Boolean), ["STOP"]);
        const { usageMetadata: usage, modelVersion } = data.at(-1);
        assert.equal(modelVersion, "m");
        assert.equal(data.at(-1).candidates[0].finishReason, "STOP");
        assert.equal(usage.promptTokenCount, 321);
        assert.equal(usage.cachedContentTokenCount, 20);
        assert.equal(usage.candidatesTokenCount, 3000);
        assert.equal(usage.thoughtsTokenCount, 1000);
        assert.equal(usage.totalTokenCount, 4321);
    });
});
