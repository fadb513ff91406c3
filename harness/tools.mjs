// The seven tools as Pi declares them; executing one is a single call to control (R3). Pi's own
// execute() would touch this machine's files even with remote operations, so none of it is kept.

import { fileURLToPath } from "node:url";
import { toJsonLine } from "./protocol.mjs";

/** Not there, beneath a folder that this process may look into. */
const NO_FOLDER = fileURLToPath(new URL("nothing", import.meta.url));

const FACTORIES = {
    read: "createReadToolDefinition",
    write: "createWriteToolDefinition",
    edit: "createEditToolDefinition",
    bash: "createBashToolDefinition",
    grep: "createGrepToolDefinition",
    find: "createFindToolDefinition",
    ls: "createLsToolDefinition",
};

/** What Pi shows of a tool to the model and the checks of its arguments: everything but the doing. */
const KEPT = [
    "name", "label", "description", "promptSnippet", "parameters", "outputSchema",
    "prepareArguments", "constrainedSampling",
];

/** R45: the sandbox has no PI_* variables, so the rule that speaks of them goes. */
function guidelines(definition) {
    return (definition.promptGuidelines ?? []).filter((rule) => !rule.includes("PI_*"));
}

/**
 * @param names which of the seven
 * @param run   ({call, name, input, signal}) → promise of {content, details?, isError}
 */
export function remoteTools(pi, names, cwd, run) {
    return names.map((name) => {
        if (!Object.hasOwn(FACTORIES, name)) {
            throw new Error(`unknown tool: ${name}`);
        }
        const definition = pi[FACTORIES[name]](cwd);
        const kept = KEPT.filter((key) => definition[key] !== undefined);
        return {
            ...Object.fromEntries(kept.map((key) => [key, definition[key]])),
            promptGuidelines: guidelines(definition),
            async execute(call, input, signal) {
                const result = await run({ call, name, input, signal });
                return name === "edit" ? withDiff(pi, result, input) : plain(result);
            },
        };
    });
}

function plain({ content, details, isError }) {
    return { content, details, isError };
}

/** R54: hands returns the old and new text of the file; diff and patch are made by Pi's code. */
async function withDiff(pi, result, { path, edits }) {
    const { oldText, newText, ...rest } = result.details ?? {};
    if (typeof oldText !== "string" || typeof newText !== "string") {
        return plain(result);
    }
    const details = await editAgain(pi, oldText, edits)
        ?? { ...pi.generateDiffString(oldText, newText), patch: pi.generateUnifiedPatch("", oldText, newText) };
    const patch = details.patch.replace(/^--- .*\n\+\+\+ .*\n/, () => `--- ${path}\n+++ ${path}\n`);
    return plain({ ...result, details: { ...rest, ...details, patch } });
}

let edited = 0;

/**
 * Pi's edit tool on the old text in memory: its diff looks only around the replacements, so it can differ
 * from one made of the two texts. The name is one that no file here has (Pi looks it up, and lets edits of one
 * name wait for each other across all sessions). Undefined if Pi would not have made this edit.
 */
async function editAgain(pi, oldText, edits) {
    edited += 1;
    const operations = {
        access: async () => {}, readFile: async () => Buffer.from(oldText), writeFile: async () => {},
    };
    const tool = pi.createEditToolDefinition(NO_FOLDER, { operations });
    try {
        return (await tool.execute("edit", { path: `edit-${edited}`, edits })).details;
    } catch {
        return undefined;
    }
}

/** Came from a sandbox, where anything may have been made of it; one bad result must not end the host. */
export function readResult(line) {
    let result;
    try {
        result = JSON.parse(line.toString("utf8"));
    } catch {
        result = null;
    }
    const { content, details, isError } = result ?? {};
    const whole = Array.isArray(content) && content.every(isBlock)
        && (details === undefined || details === null || typeof details === "object");
    if (!whole) {
        const text = "The tool's result was not in the right form and is lost.";
        return { content: [{ type: "text", text }], isError: true };
    }
    return { content, details: details ?? undefined, isError: isError === true };
}

function isBlock(block) {
    return (block?.type === "text" && typeof block.text === "string")
        || (block?.type === "image" && typeof block.data === "string" && typeof block.mimeType === "string");
}

/** Tool calls waiting for control's answer, by session and call id. */
export class Calls {
    #waiting = new Map();
    #outbox;
    #session;

    constructor(outbox, session) {
        this.#outbox = outbox;
        this.#session = session;
    }

    run({ call, name, input, signal }) {
        return new Promise((resolve, reject) => {
            const giveUp = () => {
                this.#waiting.delete(call);
                this.#outbox.send({ t: "tool_cancel", session: this.#session, call });
                reject(new Error("Interrupted: the call was stopped, its effects are unknown."));
            };
            if (signal?.aborted) {
                reject(new Error("Interrupted before it ran."));
                return;
            }
            if (this.#waiting.has(call)) { // a model can use an id twice in one answer
                reject(new Error("This call was not run: another call has the same id."));
                return;
            }
            signal?.addEventListener("abort", giveUp, { once: true });
            this.#waiting.set(call, (result) => {
                signal?.removeEventListener("abort", giveUp);
                resolve(result);
            });
            this.#outbox.send({ t: "tool", session: this.#session, call, name },
                toJsonLine(input ?? {}));
        });
    }

    /** A result nobody waits for (late, after an abort) is dropped. */
    answer(call, result) {
        const resolve = this.#waiting.get(call);
        this.#waiting.delete(call);
        resolve?.(result);
    }
}
