// Anthropic messages: POST */v1/messages, named SSE events, `message_stop` at the end.
// input_tokens excludes the cache. message_start carries the prompt's usage and a small start value
// for the output; message_delta carries cumulative numbers that replace it. Thinking blocks are
// signed, and a block that comes back changed is refused.
import { BadRequest, checkSignature, contentText, Conversation, sign } from "./conversation.mjs";
import { randomId } from "./tokens.mjs";

const FINISH = { stop: "end_turn", length: "max_tokens", toolUse: "tool_use" };
const ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
};

export const anthropicMessages = {
    api: "anthropic-messages",
    auth: { header: "x-api-key", prefix: "" },
    requestIdHeader: "request-id",
    eol: "\n",

    route: (path) => (/\/v1\/messages$/.test(path) ? {} : null),
    lists: (path, headers) => /\/v1\/models$/.test(path) && headers["anthropic-version"] !== undefined,
    /** Prompts are cached only where the client marked them. */
    writesCache: (raw) => raw.includes('"cache_control"'),

    parse(body) {
        if (body.stream !== true) {
            throw new BadRequest("stream: the scripted model only streams");
        }
        if (!Number.isInteger(body.max_tokens)) {
            throw new BadRequest("max_tokens: Field required");
        }
        const conversation = new Conversation();
        conversation.addSystem(contentText(body.system));
        conversation.tools = (body.tools ?? []).map((tool) => tool.name);
        (body.messages ?? []).forEach((message, i) => addMessage(conversation, message, i));
        return conversation;
    },

    error(status, message) {
        const type = ERROR_TYPES[status] ?? (status < 500 ? ERROR_TYPES[400] : "api_error");
        return { type: "error", error: { type, message }, request_id: randomId("req_") };
    },

    stream: (request) => new Stream(request),
};

function addMessage(conversation, { role, content }, i) {
    const blocks = typeof content === "string" ? [{ type: "text", text: content }] : content ?? [];
    if (role === "system") {
        return conversation.addSystem(contentText(content));
    }
    if (role !== "user" && role !== "assistant") {
        throw new BadRequest(`messages.${i}.role: unknown role ${JSON.stringify(role)}`);
    }
    for (const [j, block] of blocks.entries()) {
        addBlock(conversation, role, block, `messages.${i}.content.${j}`);
    }
    return undefined;
}

function addBlock(conversation, role, block, where) {
    switch (`${role} ${block.type}`) {
    case "user text":
        return conversation.addUser(block.text);
    case "user image":
        return undefined;
    case "user tool_result":
        return conversation.addResult({
            id: block.tool_use_id,
            text: contentText(block.content),
            isError: block.is_error === true,
        });
    case "assistant text":
        if (!block.text) {
            throw new BadRequest(`${where}: text content blocks must be non-empty`);
        }
        return conversation.addText(block.text);
    case "assistant thinking":
        checkSignature(block.thinking, block.signature, where);
        return conversation.addThinking();
    case "assistant tool_use":
        return conversation.addCall({ id: block.id, name: block.name });
    default:
        throw new BadRequest(`${where}: unexpected block ${JSON.stringify(block.type)} of ${role}`);
    }
}

class Stream {
    constructor({ body, usage }) {
        this.body = body;
        this.usage = usage;
        this.pinged = false;
    }

    start() {
        const message = {
            model: this.body.model,
            id: randomId("msg_"),
            type: "message",
            role: "assistant",
            content: [],
            stop_reason: null,
            stop_sequence: null,
            usage: { ...promptUsage(this.usage), output_tokens: 1, service_tier: "standard" },
        };
        return [event("message_start", { message })];
    }

    open(part) {
        const blocks = {
            think: () => ({ type: "thinking", thinking: "", signature: "" }),
            say: () => ({ type: "text", text: "" }),
            call: () => ({ type: "tool_use", id: part.id, name: part.name, input: {} }),
        };
        part.id ??= randomId("toolu_");
        const content_block = blocks[part.kind]();
        const frames = [event("content_block_start", { index: part.index, content_block })];
        if (!this.pinged) {
            this.pinged = true;
            frames.push(...this.ping());
        }
        return part.kind === "call" ? [...frames, ...this.delta(part, "")] : frames;
    }

    ping() {
        return [event("ping", {})];
    }

    delta(part, piece) {
        const deltas = {
            think: { type: "thinking_delta", thinking: piece },
            say: { type: "text_delta", text: piece },
            call: { type: "input_json_delta", partial_json: piece },
        };
        return [event("content_block_delta", { index: part.index, delta: deltas[part.kind] })];
    }

    close(part) {
        const frames = [event("content_block_stop", { index: part.index })];
        if (part.kind === "think") {
            const delta = { type: "signature_delta", signature: sign(part.text) };
            frames.unshift(event("content_block_delta", { index: part.index, delta }));
        }
        return frames;
    }

    finish(stop) {
        const delta = { stop_reason: FINISH[stop], stop_sequence: null };
        const { cache_creation, ...prompt } = promptUsage(this.usage);
        const usage = { ...prompt, output_tokens: this.usage.output };
        return [event("message_delta", { delta, usage }), event("message_stop", {})];
    }

    error(message) {
        const { error } = anthropicMessages.error(529, message);
        return [event("error", { error })];
    }
}

function event(type, fields) {
    return { event: type, data: { type, ...fields } };
}

function promptUsage({ input, cacheRead, cacheWrite }) {
    return {
        input_tokens: input,
        cache_creation_input_tokens: cacheWrite,
        cache_read_input_tokens: cacheRead,
        cache_creation: { ephemeral_5m_input_tokens: cacheWrite, ephemeral_1h_input_tokens: 0 },
    };
}
