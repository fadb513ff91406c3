// OpenAI responses: POST */responses, named SSE events with a sequence number, no `[DONE]`.
// Usage stands in the last event (response.completed or .incomplete); input_tokens includes the
// cached ones. Thinking is a reasoning item: a summary, and encrypted_content if the request
// includes it; an item that comes back changed is refused.
import { BadRequest, checkSignature, contentText, Conversation, sign } from "./conversation.mjs";
import { randomId } from "./tokens.mjs";

const ITEM_PREFIX = { think: "rs_", say: "msg_", call: "fc_" };

export const openaiResponses = {
    api: "openai-responses",
    auth: { header: "authorization", prefix: "Bearer " },
    requestIdHeader: "x-request-id",
    eol: "\n",

    route: (path) => (/\/responses$/.test(path) ? {} : null),
    lists: (path, headers) => /\/v1\/models$/.test(path) && headers["anthropic-version"] === undefined,
    writesCache: () => false,

    parse(body) {
        if (body.stream !== true) {
            throw new BadRequest("the scripted model only streams: set `stream` to true");
        }
        const conversation = new Conversation();
        conversation.addSystem(body.instructions ?? "");
        conversation.tools = (body.tools ?? []).map((tool) => tool.name);
        const input = typeof body.input === "string"
            ? [{ role: "user", content: body.input }] : body.input ?? [];
        input.forEach((item, i) => addItem(conversation, item, `input[${i}]`));
        return conversation;
    },

    error(status, message) {
        const type = status < 500 ? "invalid_request_error" : "server_error";
        const code = status === 401 ? "invalid_api_key"
            : status === 429 ? "rate_limit_exceeded" : null;
        return { error: { message, type, param: null, code } };
    },

    stream: (request) => new Stream(request),
};

function addItem(conversation, item, where) {
    switch (item.type ?? "message") {
    case "message":
        return addMessage(conversation, item, where);
    case "reasoning":
        checkReasoning(item, where);
        return conversation.addThinking();
    case "function_call":
        JSON.parse(item.arguments);
        return conversation.addCall({ id: item.call_id, name: item.name });
    case "function_call_output":
        return conversation.addResult({ id: item.call_id, text: contentText(item.output) });
    case "configuration_update":
        return undefined;
    default:
        throw new BadRequest(`${where}: unexpected item ${JSON.stringify(item.type)}`);
    }
}

function addMessage(conversation, { role, content }, where) {
    const text = contentText(content);
    switch (role) {
    case "system":
    case "developer":
        return conversation.addSystem(text);
    case "user":
        return conversation.addUser(content);
    case "assistant":
        return conversation.addText(text);
    default:
        throw new BadRequest(`${where}: unknown role ${JSON.stringify(role)}`);
    }
}

function checkReasoning(item, where) {
    if (item.encrypted_content) {
        checkSignature(contentText(item.summary), item.encrypted_content, where);
    }
}

class Stream {
    constructor({ body, usage }) {
        this.body = body;
        this.usage = usage;
        this.sequence = 0;
        this.output = [];
        this.response = {
            id: randomId("resp_", 48),
            object: "response",
            created_at: Math.floor(Date.now() / 1000),
            status: "in_progress",
            error: null,
            incomplete_details: null,
            instructions: body.instructions ?? null,
            model: body.model,
            output: [],
            parallel_tool_calls: true,
            store: body.store ?? true,
            usage: null,
        };
    }

    #event(type, fields) {
        return { event: type, data: { type, ...fields, sequence_number: this.sequence++ } };
    }

    #partEvent(type, part, fields) {
        return this.#event(type, { item_id: part.id, output_index: part.index, ...fields });
    }

    start() {
        const { response } = this;
        return [
            this.#event("response.created", { response }),
            this.#event("response.in_progress", { response }),
        ];
    }

    open(part) {
        part.id ??= randomId(ITEM_PREFIX[part.kind], 48);
        part.callId ??= randomId("call_");
        const item = this.#item(part, "in_progress", "");
        const added = this.#event("response.output_item.added", { output_index: part.index, item });
        if (part.kind === "think") {
            const fields = { summary_index: 0, part: { type: "summary_text", text: "" } };
            return [added, this.#partEvent("response.reasoning_summary_part.added", part, fields)];
        }
        if (part.kind === "say") {
            const fields = { content_index: 0, part: outputText("") };
            return [added, this.#partEvent("response.content_part.added", part, fields)];
        }
        return [added];
    }

    delta(part, piece) {
        const [type, fields] = {
            think: ["response.reasoning_summary_text.delta", { summary_index: 0 }],
            say: ["response.output_text.delta", { content_index: 0, logprobs: [] }],
            call: ["response.function_call_arguments.delta", {}],
        }[part.kind];
        return [this.#partEvent(type, part, { ...fields, delta: piece })];
    }

    close(part) {
        const item = this.#item(part, "completed", part.text);
        this.output.push(item);
        return [
            ...this.#closing(part),
            this.#event("response.output_item.done", { output_index: part.index, item }),
        ];
    }

    #closing(part) {
        const { text } = part;
        if (part.kind === "think") {
            const at = { summary_index: 0 };
            const summary = { type: "summary_text", text };
            return [
                this.#partEvent("response.reasoning_summary_text.done", part, { ...at, text }),
                this.#partEvent("response.reasoning_summary_part.done", part,
                    { ...at, part: summary }),
            ];
        }
        if (part.kind === "say") {
            const at = { content_index: 0 };
            return [
                this.#partEvent("response.output_text.done", part, { ...at, logprobs: [], text }),
                this.#partEvent("response.content_part.done", part,
                    { ...at, part: outputText(text) }),
            ];
        }
        const done = { name: part.name, arguments: text };
        return [this.#partEvent("response.function_call_arguments.done", part, done)];
    }

    #item(part, status, text) {
        const { id } = part;
        const whole = status === "completed";
        switch (part.kind) {
        case "think":
            return {
                id,
                type: "reasoning",
                summary: whole ? [{ type: "summary_text", text }] : [],
                ...(this.#encrypts() && { encrypted_content: whole ? sign(text) : "" }),
            };
        case "say":
            return {
                id,
                type: "message",
                status,
                role: "assistant",
                content: whole ? [outputText(text)] : [],
            };
        default:
            return {
                id,
                type: "function_call",
                status,
                arguments: text,
                call_id: part.callId,
                name: part.name,
            };
        }
    }

    #encrypts() {
        return this.body.include?.includes("reasoning.encrypted_content") === true;
    }

    finish(stop) {
        const incomplete = stop === "length";
        const status = incomplete ? "incomplete" : "completed";
        const response = {
            ...this.response,
            status,
            incomplete_details: incomplete ? { reason: "max_output_tokens" } : null,
            output: this.output,
            usage: wireUsage(this.usage),
        };
        return [this.#event(`response.${status}`, { response })];
    }

    error(message) {
        return [this.#event("error", { code: "server_error", message, param: null })];
    }
}

function outputText(text) {
    return { type: "output_text", annotations: [], logprobs: [], text };
}

function wireUsage({ input, cacheRead, cacheWrite, output, reasoning }) {
    const total = input + cacheRead + cacheWrite;
    return {
        input_tokens: total,
        input_tokens_details: {
            cached_tokens: cacheRead,
            ...(cacheWrite > 0 && { cache_write_tokens: cacheWrite }),
        },
        output_tokens: output,
        output_tokens_details: { reasoning_tokens: reasoning },
        total_tokens: total + output,
    };
}
