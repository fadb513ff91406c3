// Requests a client of each protocol would send, and a strict reader of what comes back, for the
// tests of the scripted model server.
import assert from "node:assert/strict";

const OPENAI_TOOL = (name) => ({ type: "function", function: { name, parameters: {} } });

/** One request with a user text, in each protocol. */
export const CLIENTS = {
    "openai-completions": {
        path: "/v1/chat/completions",
        body: (text) => ({
            model: "m",
            stream: true,
            stream_options: { include_usage: true },
            messages: [{ role: "user", content: text }],
            tools: [OPENAI_TOOL("bash")],
        }),
    },
    "anthropic-messages": {
        path: "/v1/messages?beta=true",
        body: (text) => ({
            model: "m",
            stream: true,
            max_tokens: 100,
            messages: [{ role: "user", content: [{ type: "text", text, cache_control: {} }] }],
            tools: [{ name: "bash", input_schema: {} }],
        }),
    },
    "openai-responses": {
        path: "/v1/responses",
        body: (text) => ({
            model: "m",
            stream: true,
            include: ["reasoning.encrypted_content"],
            input: [{ role: "user", content: [{ type: "input_text", text }] }],
            tools: [{ type: "function", name: "bash" }],
        }),
    },
    "google-generative-ai": {
        path: "/v1beta/models/m:streamGenerateContent?alt=sse",
        body: (text) => ({
            contents: [{ role: "user", parts: [{ text }] }],
            tools: [{ functionDeclarations: [{ name: "bash" }] }],
        }),
    },
};
export const APIS = Object.keys(CLIENTS);

export function post(server, api, text, { signal, headers } = {}) {
    return fetch(server.url + CLIENTS[api].path, {
        method: "POST",
        headers: { "content-type": "application/json", ...headers },
        body: JSON.stringify(CLIENTS[api].body(text)),
        signal,
    });
}

export async function frames(response) {
    assert.equal(response.status, 200);
    assert.match(response.headers.get("content-type"), /^text\/event-stream/);
    return parseFrames(await response.text());
}

/** Strict on purpose: what a lenient parser would forgive fails here. */
export function parseFrames(text) {
    const eol = text.includes("\r\n") ? "\r\n" : "\n";
    assert.ok(text.endsWith(eol + eol), "the stream ends with a whole frame");
    return text.slice(0, -2 * eol.length).split(eol + eol).map((frame) => {
        const lines = frame.split(eol);
        const event = lines.length === 2 ? lines.shift().replace(/^event: /, "") : undefined;
        const data = lines[0].replace(/^data: /, "");
        assert.equal(lines.length, 1);
        return { event, data: data === "[DONE]" ? data : JSON.parse(data) };
    });
}

/** The body as far as it came, and whether it broke off. */
export async function readAll(response) {
    const decoder = new TextDecoder();
    let text = "";
    try {
        for await (const chunk of response.body) {
            text += decoder.decode(chunk, { stream: true });
        }
        return { text, broken: false };
    } catch {
        return { text, broken: true };
    }
}
