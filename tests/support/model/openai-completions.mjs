// OpenAI chat completions: POST */chat/completions, unnamed SSE events, `[DONE]` at the end.
// Usage comes in a last chunk without choices, only if the request asks for it, and prompt_tokens
// includes the cached ones. Thinking goes out as `reasoning_content`, as several servers of this
// protocol do; it has no signature.
import { BadRequest, contentText, Conversation } from "./conversation.mjs";
import { randomId } from "./tokens.mjs";

const FINISH = { stop: "stop", length: "length", toolUse: "tool_calls" };

export const openaiCompletions = {
    api: "openai-completions",
    auth: { header: "authorization", prefix: "Bearer " },
    requestIdHeader: "x-request-id",
    eol: "\n",

    route: (path) => (/\/chat\/completions$/.test(path) ? {} : null),
    lists: (path, headers) => /\/v1\/models$/.test(path) && headers["anthropic-version"] === undefined,
    writesCache: () => false,

    parse(body) {
        if (body.stream !== true) {
            throw new BadRequest("the scripted model only streams: set `stream` to true");
        }
        const conversation = new Conversation();
        conversation.tools = (body.tools ?? []).map((tool) => tool.function?.name ?? tool.name);
        (body.messages ?? []).forEach((message, i) => addMessage(conversation, message, i));
        return conversation;
    },

    error(status, message) {
        const type = status === 429 ? "rate_limit_error"
            : status < 500 ? "invalid_request_error" : "server_error";
        return { error: { message, type, param: null, code: ERROR_CODES[status] ?? null } };
    },

    stream: (request) => new Stream(request),
};

const ERROR_CODES = { 401: "invalid_api_key", 404: "model_not_found", 429: "rate_limit_exceeded" };

function addMessage(conversation, message, i) {
    const text = contentText(message.content);
    switch (message.role) {
    case "system":
    case "developer":
        return conversation.addSystem(text);
    case "user":
        return conversation.addUser(message.content);
    case "tool":
        return conversation.addResult({ id: message.tool_call_id, text });
    case "assistant":
        conversation.addText(text);
        for (const call of message.tool_calls ?? []) {
            JSON.parse(call.function.arguments);
            conversation.addCall({ id: call.id, name: call.function.name });
        }
        return undefined;
    default:
        throw new BadRequest(`messages[${i}]: unknown role ${JSON.stringify(message.role)}`);
    }
}

class Stream {
    constructor({ body, usage }) {
        this.body = body;
        this.usage = usage;
        this.wantsUsage = body.stream_options?.include_usage === true;
        this.head = {
            id: randomId("chatcmpl-", 29),
            object: "chat.completion.chunk",
            created: Math.floor(Date.now() / 1000),
            model: body.model,
            service_tier: "default",
            system_fingerprint: "fp_scripted",
        };
    }

    #chunk(delta, finish = null) {
        const choices = [{ index: 0, delta, logprobs: null, finish_reason: finish }];
        return { data: { ...this.head, choices, ...(this.wantsUsage && { usage: null }) } };
    }

    start() {
        return [this.#chunk({ role: "assistant", content: "", refusal: null })];
    }

    open(part) {
        if (part.kind !== "call") {
            return [];
        }
        part.id ??= randomId("call_");
        const named = { name: part.name, arguments: "" };
        const call = { index: part.callIndex, id: part.id, type: "function", function: named };
        return [this.#chunk({ tool_calls: [call] })];
    }

    delta(part, piece) {
        const deltas = {
            think: { reasoning_content: piece },
            say: { content: piece },
            call: { tool_calls: [{ index: part.callIndex, function: { arguments: piece } }] },
        };
        return [this.#chunk(deltas[part.kind])];
    }

    close() {
        return [];
    }

    finish(stop) {
        const frames = [this.#chunk({}, FINISH[stop])];
        if (this.wantsUsage) {
            frames.push({ data: { ...this.head, choices: [], usage: wireUsage(this.usage) } });
        }
        return [...frames, { data: "[DONE]" }];
    }

    error(message) {
        return [{ data: openaiCompletions.error(500, message) }];
    }
}

function wireUsage({ input, cacheRead, cacheWrite, output, reasoning }) {
    const prompt = input + cacheRead + cacheWrite;
    return {
        prompt_tokens: prompt,
        completion_tokens: output,
        total_tokens: prompt + output,
        prompt_tokens_details: {
            cached_tokens: cacheRead,
            audio_tokens: 0,
            ...(cacheWrite > 0 && { cache_write_tokens: cacheWrite }),
        },
        completion_tokens_details: {
            reasoning_tokens: reasoning,
            audio_tokens: 0,
            accepted_prediction_tokens: 0,
            rejected_prediction_tokens: 0,
        },
    };
}
