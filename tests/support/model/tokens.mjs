// Tokens of the scripted model: how an answer is cut into pieces, and what a request costs.
// Usage is kept disjoint ({input, cacheRead, cacheWrite, output, reasoning}; reasoning is part of
// output); each protocol adds up what it reports together.
import { randomBytes } from "node:crypto";

const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/** Ids are random: a conversation outlives the server, and its call ids must stay unique. */
export function randomId(prefix, length = 24) {
    return prefix + Array.from(randomBytes(length), (b) => ALPHABET[b % 62]).join("");
}

/** text in pieces of about a token; joined they are text again, and no code point is cut. */
export function pieces(text) {
    return text.match(/\s*\S{1,7}|\s+/gu) ?? [];
}

function count(text) {
    return Math.ceil(Buffer.byteLength(text) / 4);
}

/** What was sent before the newest answer is read from the cache, the rest is new. */
export function usageOf(conversation, parts, { writesCache }) {
    const { messages } = conversation;
    const newestAnswer = messages.findLastIndex((m) => m.role === "assistant");
    const fixed = count(conversation.system + conversation.tools.join(" ")) + 8;
    const cost = (list) => list.reduce((sum, m) => sum + 4 + count(JSON.stringify(m)), 0);
    const cacheRead = newestAnswer < 0 ? 0 : fixed + cost(messages.slice(0, newestAnswer));
    const fresh = fixed + cost(messages) - cacheRead;
    const spent = (kinds) => parts
        .filter((part) => kinds.includes(part.kind))
        .reduce((sum, part) => sum + count((part.name ?? "") + part.text), 0);
    const reasoning = spent(["think"]);
    return {
        input: writesCache ? Math.min(4, fresh) : fresh,
        cacheRead,
        cacheWrite: writesCache ? Math.max(0, fresh - 4) : 0,
        output: reasoning + spent(["say", "call"]) + 1,
        reasoning,
    };
}
