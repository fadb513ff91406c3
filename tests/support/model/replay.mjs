// A recorded session log played back as the model: a user's bug report becomes a test.
//
//   const script = replay(readFileSync("session.jsonl", "utf8"));   Pi's JSONL, as `export` gives it
//   const model = await startModelServer({ script });
//   for (const prompt of script.prompts) { … send it to a new session … }
//
// Given the same messages, a session gets the recorded answers: text, thinking, calls, the counts of
// tokens, and what went wrong. Which answer is due is read from the request alone (how many answers
// stand in it, since which summary, to which message), so several sessions may play; where several
// answers were given to one request (errors and their retries), they come in order, over and over.
import { isSummaryRequest, ScriptError } from "./script.mjs";

/** Of a summary, in the request that follows it. */
const RECOGNISED_BY = 400;

/** @returns a script (request) → step with .prompts: the user's messages, in order */
export function replay(text) {
    const lines = activePath(parseLines(text));
    const answers = recordedAnswers(lines);
    if (answers.length === 0) {
        throw new ScriptError("replay: the log holds no answer of a model");
    }
    const summaries = lines.filter((line) => line.type === "compaction").map((line) => line.summary);
    const served = new Map();
    const script = ({ conversation }) => {
        if (isSummaryRequest(conversation)) {
            const nth = countUp(served, "summaries");
            return { say: summaries[nth] ?? fail(`no ${nth + 1}. summary was recorded`) };
        }
        const { place, what } = placeOf(conversation, summaries);
        const here = answers.filter((answer) => answer.place === place);
        const same = here.filter(({ prompt }) => prompt === conversation.userText);
        const choices = same.length > 0 ? same : here;
        const nth = countUp(served, `${place} ${conversation.userText}`);
        return choices[nth % choices.length]?.step ?? fail(`no answer to ${what}`);
    };
    script.prompts = lines.map(promptOf).filter((prompt) => prompt !== undefined);
    return script;
}

function fail(message) {
    throw new ScriptError(`replay: the session has left the recorded one: ${message}`);
}

/** Lines that are not JSON objects, a torn last one among them, are passed over, as Pi does. */
function parseLines(text) {
    return text.split("\n").flatMap((line) => {
        try {
            const entry = JSON.parse(line);
            return entry && typeof entry === "object" ? [entry] : [];
        } catch {
            return [];
        }
    });
}

/** From the root to the newest entry; what the service notes beside them (custom lines) is no part. */
function activePath(entries) {
    const tree = entries.filter(({ type, id }) => type !== "session" && type !== "custom" && id);
    const byId = new Map(entries.map((entry) => [entry.id, entry]));
    const path = [];
    for (let at = tree.at(-1); at && !path.includes(at); at = byId.get(at.parentId)) {
        path.unshift(at);
    }
    return path;
}

function promptOf({ type, message }) {
    if (type !== "message" || message?.role !== "user") {
        return undefined;
    }
    return typeof message.content === "string" ? message.content
        : message.content.map((block) => block.text ?? "").join("");
}

/** Answers with the message they follow and their place: how many answers the request held, and since
 *  which summary. */
function recordedAnswers(lines) {
    const answers = [];
    lines.forEach((line, i) => {
        if (line.type === "message" && line.message?.role === "assistant") {
            const before = lines.slice(0, i);
            const prompt = before.map(promptOf).findLast((text) => text !== undefined);
            answers.push({ place: recordedPlace(before), prompt, step: stepOf(line.message) });
        }
    });
    return answers;
}

function recordedPlace(before) {
    const last = before.findLastIndex((line) => line.type === "compaction");
    const kept = before.findIndex((line) => line.id === before[last]?.firstKeptEntryId);
    const held = last < 0 ? before : before.slice(kept < 0 ? last : kept);
    const summaries = before.filter((line) => line.type === "compaction").length;
    const removed = before.filter(({ type, replacement }) => type === "context_edit" && replacement === null)
        .map((edit) => edit.targetId);
    return `${summaries}:${held.filter((e) => isHeldAnswer(e) && !removed.includes(e.id)).length}`;
}

/** Pi leaves answers that failed or were interrupted out of the next request, and some (cut at the
 *  token limit) by an entry of its own. */
function isHeldAnswer({ type, message }) {
    return type === "message" && message?.role === "assistant"
        && message.stopReason !== "error" && message.stopReason !== "aborted";
}

function placeOf({ messages, system }, summaries) {
    const texts = [system, ...messages.map((message) => message.text ?? "")];
    const holds = (summary) => texts.some((text) => text.includes(summary.slice(0, RECOGNISED_BY)));
    const since = summaries.findLastIndex(holds) + 1;
    const count = messages.filter((message) => message.role === "assistant").length;
    return {
        place: `${since}:${count}`,
        what: `a request with ${count} answers in it${since ? ` since summary ${since}` : ""}`,
    };
}

function countUp(counts, key) {
    const before = counts.get(key) ?? 0;
    counts.set(key, before + 1);
    return before;
}

function stepOf({ content, usage, stopReason, errorMessage }) {
    const blocks = typeof content === "string" ? [{ type: "text", text: content }] : content ?? [];
    const parts = blocks.flatMap(partOf);
    const step = { parts, ...(usage && { usage: usageOf(usage) }) };
    switch (stopReason) {
    case "length":
        return { ...step, stop: "length" };
    case "aborted":
        return { ...step, parts: [...parts, { kind: "hang" }] };
    case "error":
        return failedStep(step, errorMessage ?? "error");
    default:
        return step;
    }
}

function partOf(block) {
    switch (block?.type) {
    case "thinking":
        return block.thinking ? [{ kind: "think", text: block.thinking }] : [];
    case "text":
        return block.text ? [{ kind: "say", text: block.text }] : [];
    case "toolCall":
        return [{ kind: "call", name: block.name, text: JSON.stringify(block.arguments ?? {}) }];
    default:
        return [];
    }
}

/** An error before any text was the provider's HTTP status, if its message begins with one. */
function failedStep(step, message) {
    const status = Number(/^\D{0,12}([45]\d\d)\b/.exec(message)?.[1]);
    return status && step.parts.length === 0
        ? { fail: { status, message } }
        : { ...step, parts: [...step.parts, { kind: "error", text: message }] };
}

function usageOf({ input, output, cacheRead, cacheWrite, reasoning }) {
    const counts = { input, output, cacheRead, cacheWrite, reasoning };
    return Object.fromEntries(Object.entries(counts).filter(([, count]) => Number.isInteger(count)));
}
