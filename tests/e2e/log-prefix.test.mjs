// The log belongs to Pi: control's lines in it change nothing for Pi. Logs recorded from the real host, and logs
// with every kind of entry made by the real SDK, get control's lines by the parent rule; then, after every prefix of
// lines, the real SDK opens the file with the same conversation as without them, and what the service hands to a
// host gives that conversation too. Cut anywhere, as by a crash, and torn in the middle of a line.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { RUNTIME, startGateway, startHost } from "../support/host-driver.mjs";
import { startModelServer } from "../support/model-server.mjs";

const ROOT = path.join(path.dirname(fileURLToPath(import.meta.url)), "../..");
const BUILD = process.env.PI_MANAGED_BIN ? path.dirname(process.env.PI_MANAGED_BIN) : path.join(ROOT, "build");
const CONTEXT_LINES = path.join(BUILD, "tests/support/context_lines");
const TENANT = "tenant_1";
const MODEL = { provider: "groq", id: "llama-3.1-8b-instant" };
const SMALL = {
    custom: true, id: "small", api: "openai-completions", baseUrl: "http://small.example.com", contextWindow: 40_000,
};
const LONG = "word ".repeat(8000);

const pi = await import(pathToFileURL(path.join(RUNTIME, "pi/dist/bundle/index.js")));

let dir;
before(async () => {
    dir = await mkdtemp(path.join(tmpdir(), "log-prefix-"));
    await mkdir(path.join(dir, TENANT));
});
after(() => rm(dir, { recursive: true }));

// ---- control's part of a log ----

const isControl = (entry) => entry.customType?.startsWith("pi-managed:") ?? false;
const roleOf = (entry) => entry.message?.role;

/** Puts control's lines where control would write them, side leaves of the last Pi entry before them. */
class Writer {
    entries = [];
    #leaf = null;
    #lines = 0;
    #requests = 0;
    #posts = 0;

    pi(entry) {
        this.entries.push(entry);
        this.#leaf = entry.id && entry.type !== "session" ? entry.id : this.#leaf;
    }

    control(kind, data) {
        this.entries.push({
            type: "custom", customType: `pi-managed:${kind}`, id: `c${String(this.#lines++).padStart(15, "0")}`,
            parentId: this.#leaf, timestamp: "2026-11-30T12:00:00.000Z", data,
        });
    }

    event(type, more) {
        this.control("event", { event: { type, ...more } });
    }

    post(content) {
        const id = `evt_${this.#posts++}`;
        this.control("inbox", { event: { id, type: "user.message", content } });
        return id;
    }

    request() {
        this.event("span.model_request_start", { requestNumber: ++this.#requests });
    }

    answered() {
        this.event("span.model_request_end", { requestNumber: this.#requests, usage: null });
    }
}

/** Called before and after each Pi entry: what control writes around it. */
const BEFORE = {
    user(w, { content }) {
        const id = w.post(content);
        w.event("session.status_run_started");
        w.control("processed", { eventId: id, at: "2026-11-30T12:00:00.000Z" });
    },
    assistant: (w) => w.request(),
};
const AFTER = {
    assistant(w, { content, stopReason }) {
        w.answered();
        for (const call of content.filter((c) => c.type === "toolCall").slice(1)) {
            w.control("tool_result", { toolCallId: call.id, toolName: call.name, result: { content: [], isError: false } });
        }
        if (stopReason !== "toolUse") {
            w.event("session.status_idle", { stopReason: { type: "end_turn" } });
        }
    },
    toolResult: (w) => w.event("session.updated", {}),
};

function withControlLines(entries) {
    const writer = new Writer();
    for (const entry of entries) {
        BEFORE[roleOf(entry)]?.(writer, entry.message);
        writer.pi(entry);
        AFTER[roleOf(entry)]?.(writer, entry.message);
        if (!entry.message && entry.type !== "session") {
            writer.event("session.updated", { title: entry.type });
        }
    }
    return writer.entries;
}

// ---- opening logs ----

const asJson = (value) => JSON.parse(JSON.stringify(value));
const toText = (entries) => entries.map((e) => `${JSON.stringify(e)}\n`).join("");

function conversation(manager) {
    const { messages, model, thinkingLevel } = manager.buildSessionContext();
    return { messages, model, thinkingLevel };
}

const fromEntries = (entries) =>
    conversation(pi.SessionManager.inMemory("/workspace", { id: "sess_x" }, structuredClone(entries)));

/** The conversation of a log file as Pi reads it, and without a file as the host does. */
function fromFile(file) {
    return conversation(pi.SessionManager.open(file, dir, "/workspace"));
}

const fileOf = (session) => path.join(dir, TENANT, `${session}.jsonl`);

/** What the service hands to a host for each of the sessions: arrays of entries, and on them `messages`: what it
 * says that the model is shown. */
function handedOver(sessions) {
    const text = execFileSync(CONTEXT_LINES, [dir, TENANT],
        { input: sessions.map((s) => `${s}\n`).join(""), maxBuffer: 1 << 30, encoding: "utf8" });
    const lines = text.split("\n");
    const out = [];
    for (let at = 0; out.length < sessions.length;) {
        const n = Number(lines[at]);
        const entries = lines.slice(at + 1, at + 1 + n).map((line) => JSON.parse(line));
        out.push(Object.assign(entries, { messages: JSON.parse(lines[at + 1 + n]) }));
        at += n + 2;
    }
    return out;
}

/** All that is claimed at the top of this file, for one log of Pi's. */
async function checkEveryPrefix(name, piEntries) {
    const all = withControlLines(piEntries);
    assert.ok(all.length > piEntries.length * 1.5);
    const sessions = [];
    for (let n = 1; n <= all.length; n += 1) {
        const session = `${name}-${n}`;
        const next = n < all.length ? JSON.stringify(all[n]) : "";
        const torn = next.slice(0, Math.floor(next.length / 2)); // the crash was in the middle of the next line
        await writeFile(fileOf(session), toText(all.slice(0, n)) + (n % 2 ? torn : ""));
        sessions.push(session);
    }
    const handed = handedOver(sessions);
    for (let n = 1; n <= all.length; n += 1) {
        const prefix = all.slice(0, n);
        const plain = prefix.filter((e) => !isControl(e));
        const where = `${name}, ${n} of ${all.length} lines, the last ${prefix.at(-1).customType ?? prefix.at(-1).type}`;
        if (plain.length === 0) {
            continue; // control always writes the header first
        }
        const expected = fromEntries(plain);
        assert.deepEqual(fromEntries(prefix), expected, `with control's lines: ${where}`);
        assert.deepEqual(fromEntries(handed[n - 1]), expected, `handed to a host: ${where}`);
        assert.deepEqual(handed[n - 1].messages, asJson(expected.messages), `GET messages: ${where}`);
        assert.equal(handed[n - 1].some(isControl), false, where);
        if (plain.some((e) => ["user", "assistant"].includes(roleOf(e)))) {
            assert.deepEqual(fromFile(fileOf(sessions[n - 1])), expected, `as a file: ${where}`);
        }
    }
    return all;
}

// ---- the logs ----

describe("logs of the real host", () => {
    let server;
    let gateway;
    let host;

    before(async () => {
        server = await startModelServer();
        gateway = await startGateway(server.baseUrl("openai-completions"));
        host = await startHost(gateway);
        host.onTool("bash", ({ command }) => `did ${command}`);
    });
    after(async () => {
        await host?.stop();
        await gateway?.close();
        await server?.close();
    });

    async function record(session, prompts, model = MODEL) {
        await host.open(session, { model });
        for (const prompt of prompts) {
            await host.run(session, prompt);
        }
        return host.log(session).map((line) => JSON.parse(line));
    }

    test("tools, several at once and one after the other", async () => {
        const log = await record("sess_tools", [
            "SAY Hello",
            'SAY Two. CALL bash {"command":"a"} ;; bash {"command":"b"} THEN CALL bash {"command":"c"} THEN SAY $RESULT',
            "SAY bye",
        ]);
        assert.equal(log.filter((e) => roleOf(e) === "toolResult").length, 3);
        await checkEveryPrefix("sess_tools", log);
    });

    test("a failed request and one after it", async () => {
        const log = await record("sess_fail", ["SAY Hello", "FAIL 401", "SAY again"]);
        assert.ok(log.some((e) => e.message?.stopReason === "error"));
        await checkEveryPrefix("sess_fail", log);
    });

    test("two compactions", async () => {
        const log = await record("sess_small", [LONG, LONG, LONG, LONG, "SAY in between", LONG, LONG, LONG, "SAY end"], SMALL);
        assert.ok(log.filter((e) => e.type === "compaction").length >= 2);
        await checkEveryPrefix("sess_small", log);
        const whole = `sess_small-${withControlLines(log).length}`;
        const [handed] = handedOver([whole]);
        assert.ok(handed.length < log.length / 2, "what the last compaction cut away is not handed over");
    });

    test("a host goes on from what it is handed", async () => {
        const log = await record("sess_goes_on", ['CALL bash {"command":"a"} THEN SAY $RESULT', "SAY two"]);
        const all = await checkEveryPrefix("sess_goes_on", log);
        const [handed] = handedOver([`sess_goes_on-${all.length}`]);
        await host.open("sess_again", { model: MODEL, log: handed });
        const from = host.received.length;
        await host.run("sess_again", "SAY three");
        const added = host.received.slice(from).filter((m) => m.t === "entry").map((m) => JSON.parse(m.body[0]));
        assert.equal(added[0].parentId, log.at(-1).id);
        assert.deepEqual(server.requests.at(-1).conversation.messages.filter((m) => m.role === "user").length, 3);
    });
});

describe("logs of the real SDK", () => {
    const usage = {
        input: 1, output: 1, cacheRead: 0, cacheWrite: 0, totalTokens: 2,
        cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 },
    };
    let clock = 1_796_040_000_000;
    const user = (text) => ({ role: "user", content: [{ type: "text", text }], timestamp: clock++ });
    let model = "m-1";
    const assistant = (content, stopReason = "stop") => ({
        role: "assistant", content, stopReason, usage, api: "openai-completions", provider: "acme", model,
        timestamp: clock++,
    });
    const say = (text) => assistant([{ type: "text", text }]);
    const call = (id) => ({ type: "toolCall", id, name: "bash", arguments: { command: id } });
    const result = (id) => ({
        role: "toolResult", toolCallId: id, toolName: "bash", content: [{ type: "text", text: id }], isError: false,
        timestamp: clock++,
    });
    const newManager = () => pi.SessionManager.inMemory("/workspace", { id: "sess_x" });
    const changeModel = (manager, id) => {
        model = id;
        manager.appendModelChange("acme", id);
    };
    const entriesOf = (manager) => [manager.getHeader(), ...manager.getEntries()];

    test("every kind of entry", async () => {
        const m = newManager();
        changeModel(m, "m-1");
        m.appendThinkingLevelChange("high");
        m.appendMessage({ role: "system", sections: { preamble: "You are a test." }, timestamp: clock++ });
        const first = m.appendMessage(user("one"));
        m.appendMessage(assistant([{ type: "thinking", thinking: "hm", thinkingSignature: "s" }, call("a"), call("b")], "toolUse"));
        m.appendMessage(result("a"));
        const b = m.appendMessage(result("b"));
        const gone = m.appendMessage(user("to be forgotten"));
        const noted = m.appendCustomMessageEntry("note", [{ type: "text", text: "blocks" }], true, { a: 1 });
        m.appendMessage({ role: "bashExecution", command: "ls", output: "x", exitCode: 0, cancelled: false,
            truncated: false, timestamp: clock++ });
        m.appendLabelChange(first, "here");
        m.appendSessionInfo("A title");
        m.appendCustomEntry("someone-elses", { x: 1 });
        m.appendCustomMessageEntry("note", "told to the model", false);
        m.appendMessage(say("two"));
        m.appendContextEdit(b, { content: "[cut]" });
        m.appendContextEdit(gone, null);
        m.appendContextEdit(noted, { content: "edited" });
        changeModel(m, "m-2");
        m.appendUsage?.({ kind: "compaction", provider: "acme", model: "m-1", usage });
        m.appendMessage({ role: "system", sections: { preamble: "You are another." }, timestamp: clock++ });
        m.appendMessage(user("three"));
        m.appendMessage(assistant([{ type: "text", text: "half" }], "aborted"));
        m.appendThinkingLevelChange("off");
        m.appendMessage(user("four \u2028 \u0000 \u0085"));
        m.appendMessage(say("five"));
        await checkEveryPrefix("sess_kinds", entriesOf(m));
    });

    test("compaction upon compaction, in the middle of a tool pair, and a branch", async () => {
        const m = newManager();
        changeModel(m, "m-1");
        m.appendMessage({ role: "system", sections: { preamble: "You are a test." }, timestamp: clock++ });
        m.appendMessage(user("one"));
        m.appendMessage(say("1"));
        const kept = m.appendMessage(user("two"));
        m.appendMessage(assistant([call("a")], "toolUse"));
        m.appendMessage(result("a"));
        m.appendCompaction("first summary", kept, 1000);
        m.appendMessage(say("2"));
        const second = m.appendMessage(user("three"));
        m.appendMessage(assistant([call("b"), call("c")], "toolUse"));
        m.appendMessage(result("b"));
        m.appendMessage(result("c"));
        m.appendMessage(say("3"));
        m.appendCompaction("second summary", second, 1000);
        changeModel(m, "m-2");
        m.appendMessage(user("four"));
        const fork = m.appendMessage(say("4"));
        m.appendMessage(user("five, left behind"));
        m.appendMessage(say("5, left behind"));
        m.branchWithSummary(fork, "what was left behind");
        m.appendMessage(user("six"));
        m.appendMessage(say("6"));
        m.appendCompaction("third summary", undefined, 1000);
        m.appendMessage(user("seven"));
        await checkEveryPrefix("sess_compact", entriesOf(m));
    });

    test("a log made elsewhere, where control's lines are ancestors", async () => {
        const entries = withControlLines(entriesOf((() => {
            const m = newManager();
            m.appendMessage(user("one"));
            m.appendMessage(say("1"));
            m.appendMessage(user("two"));
            m.appendMessage(say("2"));
            return m;
        })()));
        const chained = entries.map((entry, i) => i === 0 ? entry : { ...entry, parentId: entries[i - 1].id });
        chained[1].parentId = null;
        for (let n = 2; n <= chained.length; n += 1) {
            await writeFile(fileOf(`sess_chained-${n}`), toText(chained.slice(0, n)));
            const [handed] = handedOver([`sess_chained-${n}`]);
            assert.deepEqual(fromEntries(handed), fromEntries(chained.slice(0, n)), `${n} lines`);
            assert.deepEqual(handed.messages, asJson(fromEntries(handed).messages), `${n} lines`);
        }
    });

    test("results of a call on a damaged line stay behind with it", async () => {
        const m = newManager();
        m.appendMessage(user("one"));
        m.appendMessage(assistant([call("a"), call("b")], "toolUse"));
        m.appendMessage(result("a"));
        m.appendMessage(result("b"));
        m.appendMessage(say("1"));
        m.appendMessage(user("two"));
        m.appendMessage(assistant([call("c")], "toolUse"));
        m.appendMessage(result("c"));
        const entries = withControlLines(entriesOf(m));
        for (const [damaged, roles] of [
            ["a", ["user", "assistant", "user", "assistant", "toolResult"]],
            ["c", ["user", "assistant", "toolResult", "toolResult", "assistant", "user"]],
        ]) {
            const at = entries.findIndex((e) => e.message?.content?.some?.((block) => block.id === damaged));
            const lines = entries.map((e, i) => i === at ? "{" : JSON.stringify(e));
            await writeFile(fileOf(`sess_orphan_${damaged}`), `${lines.join("\n")}\n`);
            const [handed] = handedOver([`sess_orphan_${damaged}`]);
            assert.deepEqual(fromEntries(handed).messages.map((message) => message.role), roles);
        }
    });

    test("a damaged line hides only itself", async () => {
        const m = newManager();
        m.appendMessage(user("one"));
        m.appendMessage(say("1"));
        m.appendMessage(user("two"));
        m.appendMessage(say("2"));
        const entries = withControlLines(entriesOf(m));
        const at = entries.findIndex((e) => e.message?.content?.[0]?.text === "1");
        const lines = entries.map((e) => JSON.stringify(e));
        lines[at] = lines[at].slice(0, 40);
        await writeFile(fileOf("sess_damaged"), `${lines.join("\n")}\n`);
        const [handed] = handedOver(["sess_damaged"]);
        const texts = fromEntries(handed).messages.map((message) => message.content[0].text);
        assert.deepEqual(texts, ["one", "two", "2"]);
    });
});
