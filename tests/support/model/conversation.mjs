// The conversation in a model request, in one form for all protocols:
//   {system, tools: [name], messages: [...], userText}
//   message = {role: "user", text} | {role: "assistant", text, calls: [{id, name}]}
//           | {role: "tool", results: [{id, name?, text, isError?}]}
// Also the checks a real provider makes on it, so that a broken harness is refused here too.
import { createHmac } from "node:crypto";

/** A request the provider would answer with 400. */
export class BadRequest extends Error {}

export class Conversation {
    system = "";
    tools = [];
    messages = [];

    addSystem(text) {
        this.system += (this.system && "\n") + text;
    }

    /** One message per text block: a block that somebody added must not change a script. */
    addUser(content) {
        const blocks = typeof content === "string" ? [{ text: content }] : content ?? [];
        for (const { text } of blocks.filter((block) => typeof block.text === "string")) {
            this.messages.push({ role: "user", text });
        }
    }

    addText(text) {
        this.#last("assistant", () => ({ text: "", calls: [] })).text += text;
    }

    addCall(call) {
        this.#last("assistant", () => ({ text: "", calls: [] })).calls.push(call);
    }

    /** Part of an answer that is neither text nor a call: thinking. */
    addThinking() {
        this.#last("assistant", () => ({ text: "", calls: [] }));
    }

    addResult(result) {
        this.#last("tool", () => ({ results: [] })).results.push(result);
    }

    get userText() {
        return this.messages.findLast((m) => m.role === "user")?.text ?? "";
    }

    #last(role, make) {
        if (this.messages.at(-1)?.role !== role) {
            this.messages.push({ role, ...make() });
        }
        return this.messages.at(-1);
    }

    /** Every call has exactly one result, right after it, and every result a call. */
    check() {
        if (this.messages.length === 0) {
            throw new BadRequest("the request has no messages");
        }
        this.messages.forEach((message, i) => {
            if (message.role === "assistant") {
                checkAnswered(message, this.messages[i + 1], i);
            } else if (message.role === "tool" && this.messages[i - 1]?.role !== "assistant") {
                throw new BadRequest(`message ${i}: a tool result follows no tool call`);
            }
        });
    }
}

function checkAnswered(message, next, i) {
    const wanted = message.calls.map((call) => call.id ?? call.name).sort();
    const results = next?.role === "tool" ? next.results : [];
    const found = results.map((result) => result.id ?? result.name).sort();
    if (wanted.join("\n") !== found.join("\n")) {
        throw new BadRequest(`message ${i}: tool calls [${wanted}] are answered by [${found}]`);
    }
}

/** Text of a content field: a string or blocks with `text`. */
export function contentText(content) {
    if (typeof content === "string") {
        return content;
    }
    return (content ?? []).map((block) => block.text ?? "").filter(Boolean).join("\n");
}

/** What proves that a thinking block came from this model and was not changed since. */
export function sign(text) {
    return createHmac("sha256", "scripted model").update(text).digest("base64");
}

export function checkSignature(text, signature, where) {
    if (signature !== sign(text)) {
        throw new BadRequest(`${where}: invalid signature: the thinking was changed or is foreign`);
    }
}
