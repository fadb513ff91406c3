// Google generateContent: POST */models/<id>:streamGenerateContent?alt=sse. Unnamed SSE events with
// CRLF line ends; the stream just ends after a chunk with finishReason. Function calls come whole.
// usageMetadata is on every chunk and the last one counts; promptTokenCount includes the cached
// tokens, candidatesTokenCount excludes the thoughts, and there is no count for cache writes.
// Thought signatures that come back changed are refused.
import { BadRequest, checkSignature, contentText, Conversation, sign } from "./conversation.mjs";
import { randomId } from "./tokens.mjs";

const FINISH = { stop: "STOP", length: "MAX_TOKENS", toolUse: "STOP" };
const STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
};

export const googleGenerativeAi = {
    api: "google-generative-ai",
    auth: { header: "x-goog-api-key", prefix: "" },
    eol: "\r\n",

    route(path, query) {
        const model = /\/models\/([^/]+):streamGenerateContent$/.exec(path)?.[1];
        return model && query.get("alt") === "sse" ? { model: decodeURIComponent(model) } : null;
    },
    lists: (path) => /\/v1beta\/models$/.test(path),
    /** A key that Google does not know is no 401. */
    refuseKey(key) {
        const [status, reason] = key ? [400, "API_KEY_INVALID"] : [403, "FORBIDDEN"];
        const { error } = this.error(status, "API key not valid. Please pass a valid API key.");
        return [status, { error: { ...error, details: [{ reason }] } }];
    },
    writesCache: () => false,

    parse(body) {
        const conversation = new Conversation();
        conversation.addSystem(contentText(body.systemInstruction?.parts));
        conversation.tools = (body.tools ?? [])
            .flatMap((tool) => tool.functionDeclarations ?? []).map((tool) => tool.name);
        (body.contents ?? []).forEach(({ role, parts }, i) => {
            (parts ?? []).forEach((part, j) => {
                addPart(conversation, role, part, `contents[${i}].parts[${j}]`);
            });
        });
        return conversation;
    },

    error(status, message) {
        const fallback = status < 500 ? STATUS[400] : "INTERNAL";
        return { error: { code: status, message, status: STATUS[status] ?? fallback } };
    },

    stream: (request) => new Stream(request),
};

function addPart(conversation, role, part, where) {
    if (part.thoughtSignature !== undefined) {
        checkSignature(part.text ?? part.functionCall?.name, part.thoughtSignature, where);
    }
    if (part.functionResponse) {
        const { id, name, response } = part.functionResponse;
        return conversation.addResult({
            ...(id !== undefined && { id }),
            name,
            text: String(response?.error ?? response?.output ?? JSON.stringify(response)),
            isError: response?.error !== undefined,
        });
    }
    if (part.functionCall) {
        const { id, name } = part.functionCall;
        return conversation.addCall({ ...(id !== undefined && { id }), name });
    }
    if (part.inlineData) {
        return undefined;
    }
    if (part.text === undefined) {
        throw new BadRequest(`${where}: unknown kind of part ${Object.keys(part)}`);
    }
    if (role === "model") {
        return part.thought ? conversation.addThinking() : conversation.addText(part.text);
    }
    return conversation.addUser(part.text);
}

class Stream {
    constructor({ model, usage }) {
        this.usage = usage;
        this.tail = { modelVersion: model, responseId: randomId("", 22) };
        this.held = [];
    }

    #chunk(parts, finishReason) {
        const content = { parts, role: "model" };
        const candidate = { content, ...(finishReason && { finishReason }), index: 0 };
        const usageMetadata = wireUsage(this.usage, Boolean(finishReason));
        return { data: { candidates: [candidate], usageMetadata, ...this.tail } };
    }

    start() {
        return [];
    }

    open() {
        return this.#flush();
    }

    delta(part, piece) {
        const parts = {
            think: [{ text: piece, thought: true }],
            say: [{ text: piece }],
        }[part.kind];
        return parts ? [this.#chunk(parts)] : [];
    }

    close(part) {
        if (part.kind === "think") {
            const signed = { text: "", thought: true, thoughtSignature: sign(part.text) };
            return [this.#chunk([signed])];
        }
        if (part.kind === "call") {
            this.held = [callPart(part)];
        }
        return [];
    }

    /** Raw text for a connection that breaks in the middle of a call's arguments. */
    halfCall(part) {
        const text = `data: ${JSON.stringify(this.#chunk([callPart(part)]).data)}`;
        return text.slice(0, text.indexOf('"args":') + '"args":'.length + part.text.length / 2);
    }

    finish(stop) {
        const parts = this.held.length > 0 ? this.held : [{ text: "" }];
        return [this.#chunk(parts, FINISH[stop])];
    }

    /** The last call waits for the end of the turn: it shares its chunk with finishReason. */
    #flush() {
        const parts = this.held.splice(0);
        return parts.length > 0 ? [this.#chunk(parts)] : [];
    }

    error(message) {
        return [{ data: googleGenerativeAi.error(503, message) }];
    }
}

function callPart({ name, text, callIndex }) {
    const functionCall = { name, args: JSON.parse(text) };
    return { functionCall, ...(callIndex === 0 && { thoughtSignature: sign(name) }) };
}

function wireUsage({ input, cacheRead, cacheWrite, output, reasoning }, last) {
    const prompt = input + cacheRead + cacheWrite;
    return {
        promptTokenCount: prompt,
        ...(last && { candidatesTokenCount: output - reasoning }),
        totalTokenCount: prompt + (last ? output : 0),
        ...(cacheRead > 0 && { cachedContentTokenCount: cacheRead }),
        promptTokensDetails: [{ modality: "TEXT", tokenCount: prompt }],
        ...(last && reasoning > 0 && { thoughtsTokenCount: reasoning }),
    };
}
