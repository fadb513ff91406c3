// A session with a long log: what is read of it is right, and whoever asks something else meanwhile is answered.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { serviceMissing, startService } from "../support/service.mjs";

const TURNS = 800; // of 8 KB each

/** A log as Pi writes it: every turn reads a file. */
function makeLog() {
    const lines = [];
    let parent = null, count = 0;
    const at = () => new Date(1_790_000_000_000 + count * 100).toISOString();
    const add = (message) => {
        const id = (count++).toString(16).padStart(8, "0");
        lines.push({ type: "message", id, parentId: parent, timestamp: at(), message });
        parent = id;
    };
    lines.push({ type: "session", version: 3, id: "0f0f0f0f-1111-4222-8333-444444444444", timestamp: at(), cwd: "/" });
    const text = 'printf("caf\u00e9 %s\\n", argv[1]);\t// \u2013\n'.repeat(200);
    for (let i = 0; i < TURNS; i++) {
        add({ role: "user", content: [{ type: "text", text: `step ${i}` }], timestamp: 1 });
        add({ role: "assistant", content: [{ type: "text", text: "reading" },
            { type: "toolCall", id: `call_${i}`, name: "read", arguments: { path: "main.c" } }],
        api: "openai-completions", provider: "local", model: "m", stopReason: "toolUse", timestamp: 1 });
        add({ role: "toolResult", toolCallId: `call_${i}`, toolName: "read", content: [{ type: "text", text }],
            isError: false, timestamp: 1 });
        add({ role: "assistant", content: [{ type: "text", text: `done ${i}` }], api: "openai-completions",
            provider: "local", model: "m", stopReason: "stop", timestamp: 1 });
    }
    return lines;
}

describe("a session with a long log", { skip: serviceMissing }, () => {
    const lines = makeLog();
    let service, session, other;
    before(async () => {
        service = await startService();
        const agent = await service.ok("POST", "/v1/agents", { name: "long",
            model: { provider: "local", id: "m", api: "openai-completions", baseUrl: "http://127.0.0.1:9/v1" } });
        const environment = await service.ok("POST", "/v1/environments", { name: "long" });
        const imported = await service.request("POST",
            `/v1/sessions/import?agent=${agent.id}&environmentId=${environment.id}`,
            { body: `${lines.map((one) => JSON.stringify(one)).join("\n")}\n`,
                headers: { "content-type": "application/jsonl" } });
        assert.equal(imported.status, 201, imported.text);
        session = `/v1/sessions/${imported.body.id}`;
        other = await service.ok("POST", "/v1/sessions", { agent: agent.id, environmentId: environment.id });
    });
    after(() => service?.stop());

    const entries = lines.slice(1);
    const messages = entries.map((one) => one.message);

    test("shows its messages whole", async () => {
        assert.deepEqual((await service.ok("GET", `${session}/messages`)).data, messages);
    });

    test("shows pages from its middle and its end", async () => {
        const middle = await service.ok("GET", `${session}/entries?from=2000&limit=2`);
        assert.deepEqual(middle.data.map((one) => one.entry), lines.slice(1999, 2001));
        const last = await service.ok("GET", `${session}/entries?order=desc&limit=2`);
        assert.deepEqual(last.data.map((one) => one.entry), lines.slice(-2).reverse());
        const events = await service.ok("GET", `${session}/events?order=desc&limit=1`);
        assert.equal(events.data[0].content[0].text, `done ${TURNS - 1}`);
    });

    test("answers others while it is forked and read", async () => {
        const under = new Set();
        const ask = (work) => {
            const promise = work.finally(() => under.delete(promise));
            under.add(promise);
            return promise;
        };
        const forks = Array.from({ length: 10 }, () => ask(service.ok("POST", `${session}/fork`, {})));
        const reads = Array.from({ length: 4 }, () => ask(service.ok("GET", `${session}/messages`)));
        const found = await service.ok("GET", `/v1/sessions/${other.id}`);
        assert.equal(found.id, other.id);
        assert.ok(under.size > 0, "all of it was over before another session could be seen");
        for (const fork of await Promise.all(forks)) {
            const page = await service.ok("GET", `/v1/sessions/${fork.id}/entries?from=2&limit=1000`);
            assert.deepEqual(page.data.map((one) => one.entry), entries.slice(0, 1000));
            const end = await service.ok("GET", `/v1/sessions/${fork.id}/entries?order=desc&limit=2`);
            assert.deepEqual([end.data[0].entry.customType, end.data[1].entry],
                ["pi-managed:fork", entries.at(-1)]);
        }
        for (const read of await Promise.all(reads)) {
            assert.equal(read.data.length, messages.length);
        }
    });
});
