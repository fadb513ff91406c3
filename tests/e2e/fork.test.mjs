// R29: a session forked at an entry has the conversation up to there, its own events, and goes on by itself.
import assert from "node:assert/strict";
import { readdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { pathToFileURL } from "node:url";
import { assertProblem } from "../api/support.mjs";
import { RUNTIME } from "../support/host-driver.mjs";
import { Session, startJob, textOf, types } from "../support/job.mjs";
import { serviceMissing } from "../support/service.mjs";

describe("forks", { skip: serviceMissing }, () => {
    let job, source, entries;
    before(async () => {
        job = await startJob();
        source = await job.session();
        await source.run("SAY one");
        await source.run('CALL bash {"command":"echo two"} THEN SAY got $RESULT');
        entries = await source.entries();
    });
    after(() => job?.stop());

    const request = (session, body, options) =>
        job.service.request("POST", `${session.path}/fork`, { body, ...options });
    async function fork(session, body) {
        const reply = await request(session, body);
        assert.equal(reply.status, 201, reply.text);
        return new Session(job, reply.body);
    }
    const messages = async (session) => (await job.service.ok("GET", `${session.path}/messages`)).data;
    const tree = async (session) => (await job.service.ok("GET", `${session.path}/tree?limit=1000`)).data;
    const piEntries = (list) => list.filter((one) => one.type !== "session"
        && !one.customType?.startsWith("pi-managed:"));
    const withRole = (role, n = 0) => entries.filter((one) => one.message?.role === role)[n];
    const logFiles = () => readdirSync(path.join(job.service.data, "logs"), { recursive: true }).length;

    test("at the leaf it has the whole conversation, new events and no usage", async () => {
        const mine = await fork(source, { title: "Copy" });
        const { resource } = mine;
        assert.deepEqual(resource.forkedFrom,
            { sessionId: source.id, entryId: piEntries(entries).at(-1).id, filesFrom: "live" });
        const original = await source.get();
        assert.deepEqual([resource.title, resource.status, resource.stopReason], ["Copy", "idle", null]);
        for (const member of ["agent", "agentId", "agentVersion", "environmentId", "metadata", "vaultIds"]) {
            assert.deepEqual(resource[member], original[member], member);
        }
        assert.ok(original.usage.inputTokens > 0);
        const nothing = { inputTokens: 0, outputTokens: 0, cacheReadInputTokens: 0, cacheCreationInputTokens: 0,
            costUsd: 0 };
        assert.deepEqual(resource.usage, nothing);
        assert.deepEqual(await job.service.ok("GET", `${mine.path}/usage`), nothing);
        assert.deepEqual(await messages(mine), await messages(source));
        assert.deepEqual(piEntries(await mine.entries()), piEntries(entries));

        const [old, events] = [await source.events(), await mine.events()];
        assert.deepEqual(types(events), [...types(old), "session.forked"]);
        assert.deepEqual(events.map((one) => one.seq), events.map((_, i) => i + 1));
        const ids = new Set(old.map((one) => one.id));
        events.forEach((one) => {
            assert.ok(!ids.has(one.id), "an id of its own");
            assert.equal(one.sessionId, mine.id);
            assert.ok(one.processedAt, one.type);
        });
        assert.deepEqual([events.at(-1).fromSessionId, events.at(-1).filesFrom], [source.id, "live"]);
    });

    test("it goes on by itself, and the other does not notice", async () => {
        const before = await source.events();
        const mine = await fork(source);
        const events = await mine.run("SAY three");
        assert.equal(textOf(events.find((one) => one.type === "agent.message")), "three");
        const said = job.model.requests.at(-1).conversation.messages.filter((one) => one.role === "user");
        assert.equal(said.length, 4, "the model is shown what came before the fork, and that processes are gone");
        assert.deepEqual(await source.events(), before);
        const { usage } = await mine.get();
        assert.ok(usage.inputTokens > 0);
        const all = await mine.events();
        const forkedAt = all.findIndex((one) => one.type === "session.forked");
        assert.equal(all.slice(forkedAt).filter((one) => one.type === "span.model_request_end")
            .reduce((sum, one) => sum + one.usage.inputTokens, 0), usage.inputTokens);
        const again = await fork(mine);
        assert.equal(types(await again.events()).filter((type) => type === "session.forked").length, 1);
        assert.deepEqual(await messages(again), await messages(mine));
    });

    const run = async (session, command) => {
        const events = await session.run(`CALL bash ${JSON.stringify({ command })} THEN SAY done`);
        return textOf(events.find((one) => one.type === "agent.tool_result"));
    };
    const sandboxes = () => readdirSync(path.join(job.service.data, "sandboxes"))
        .filter((name) => name.startsWith("sess_")).sort();

    test("it has the files as they are, and its own from then on", async () => {
        const session = await job.session();
        await run(session, "echo one > a.txt; mkdir d; ln -s ../a.txt d/l; printf '\\0\\377' > b");
        const first = (await session.entries()).find((one) => one.message?.role === "user");
        await run(session, "echo two > a.txt; sleep 300 >/dev/null 2>&1 &");
        const mine = await fork(session, { entryId: first.id });
        assert.equal(mine.resource.forkedFrom.filesFrom, "live");
        assert.equal(mine.resource.sandbox.state, "stopped");
        assert.match(await run(mine, "cat d/l; od -An -tx1 b; pgrep sleep || echo no sleep"),
            /^two\n 00 ff\nno sleep/);
        await run(mine, "echo fork > a.txt");
        assert.match(await run(session, "cat a.txt; pgrep sleep"), /^two\n\d+/);
        assert.equal(mine.resource.id, (await mine.get()).id);
        await job.service.ok("DELETE", session.path);
        assert.match(await run(mine, "cat a.txt"), /^fork/);
    });

    test("no files are taken along when none are wanted or there are none", async () => {
        const bare = await fork(source, { files: "none" });
        assert.equal(bare.resource.forkedFrom.filesFrom, "none");
        assert.match(await run(bare, "ls | wc -l"), /^0/);
        assertProblem(await request(source, { files: "some" }), 400);
    });

    test("in the middle it has what came before, and nothing of the turn after it", async () => {
        const mine = await fork(source, { entryId: withRole("assistant").id, metadata: { a: "b" } });
        assert.deepEqual(mine.resource.metadata, { a: "b" });
        assert.deepEqual((await messages(mine)).map((one) => one.role), ["system", "user", "assistant"]);
        assert.deepEqual(types(await mine.events()), [
            "user.message", "session.status_run_started", "span.model_request_start", "agent.message",
            "span.model_request_end", "session.status_idle", "session.forked"]);
        await mine.run("SAY instead");
        const after = await messages(mine);
        assert.deepEqual(after.map((one) => one.role),
            ["system", "user", "assistant", "custom", "user", "assistant"]);
        assert.match(JSON.stringify(after[3]), /processes .* are gone/);
    });

    test("where a call has no result yet there is none, and the nearest place is named", async () => {
        const called = withRole("assistant", 1);
        assert.equal(called.message.stopReason, "toolUse");
        const problem = assertProblem(await request(source, { entryId: called.id }), 409, "open_tool_calls");
        assert.match(problem.detail, new RegExp(`fork at ${withRole("user", 1).id}$`));
        const mine = await fork(source, { entryId: withRole("user", 1).id });
        assert.equal((await messages(mine)).at(-1).role, "user");
        const answered = await fork(source, { entryId: withRole("toolResult").id });
        assert.equal((await messages(answered)).at(-1).role, "toolResult");
        const events = await answered.run("SAY on");
        assert.equal(events.at(-1).stopReason.type, "end_turn");
    });

    test("of several calls all must be answered", async () => {
        const session = await job.session();
        await session.run('CALL bash {"command":"echo a"} ;; bash {"command":"echo b"} THEN SAY both');
        const all = await session.entries();
        const results = all.filter((one) => one.message?.role === "toolResult");
        assert.equal(results.length, 2);
        assertProblem(await request(session, { entryId: results[0].id }), 409, "open_tool_calls");
        await fork(session, { entryId: results[1].id });
    });

    test("a running session can be forked where it is complete", async () => {
        const session = await job.session();
        await session.run("SAY ready");
        const stream = await session.stream();
        await session.say('CALL bash {"command":"sleep 60"} THEN SAY late');
        await stream.until((frame) => frame.type === "agent.tool_use");
        assertProblem(await request(session), 409, "open_tool_calls");
        const ready = (await session.entries()).find((one) => one.message?.role === "assistant");
        const mine = await fork(session, { entryId: ready.id });
        assert.deepEqual((await messages(mine)).map((one) => one.role), ["system", "user", "assistant"]);
        await session.interrupt();
        await stream.until((frame) => frame.type === "session.status_idle");
        await stream.close();
    });

    test("what is no entry of Pi's is no place", async () => {
        const control = entries.find((one) => one.customType === "pi-managed:inbox");
        for (const entryId of ["nope", control.id, source.id]) {
            assertProblem(await request(source, { entryId }), 404, "entry_not_found");
        }
        assertProblem(await request(source, { entryId: "" }), 400);
        assertProblem(await request(source, { entryId: "a\0" }), 400);
        assertProblem(await request(source, { at: "x" }), 400);
        assertProblem(await request(await job.session()), 409, "nothing_to_fork");
    });

    test("a repeated request makes one fork and leaves nothing else behind", async () => {
        const before = logFiles(), boxes = sandboxes(), options = { headers: { "idempotency-key": "fork-once" } };
        const first = await request(source, { title: "once" }, options);
        const again = await request(source, { title: "once" }, options);
        assert.equal(first.status, 201, first.text);
        assert.equal(again.text, first.text);
        assert.equal(logFiles(), before + 1);
        assert.deepEqual(sandboxes(), [...boxes, first.body.id].sort());
        assertProblem(await request(source, { entryId: "nope" }), 404);
        assert.equal(logFiles(), before + 1);
        assert.equal(sandboxes().length, boxes.length + 1);
    });

    test("the real SDK opens a fork's file with the same conversation", async () => {
        const pi = await import(pathToFileURL(path.join(RUNTIME, "pi/dist/bundle/index.js")));
        const mine = await fork(source);
        const { text } = await job.service.request("GET", `${mine.path}/export`);
        const file = path.join(job.service.data, "fork.jsonl");
        writeFileSync(file, text);
        const manager = pi.SessionManager.open(file, job.service.data, "/workspace");
        assert.deepEqual(JSON.parse(JSON.stringify(manager.buildSessionContext().messages)), await messages(source));
        assert.equal(manager.getHeader().parentSession, source.id);
    });

    test("the tree names the leaf and shows texts; pages of it fit together", async () => {
        const nodes = await tree(source);
        assert.deepEqual(nodes.map((node) => node.position), nodes.map((_, i) => i + 1));
        assert.deepEqual(nodes.filter((node) => node.leaf).map((node) => node.id), [piEntries(entries).at(-1).id]);
        assert.deepEqual(nodes.slice(1).map((node) => [node.id, node.parentId, node.type]),
            entries.slice(1).map((one) => [one.id, one.parentId, one.type]));
        assert.deepEqual([nodes[0].id, nodes[0].type], [null, "session"]);
        const user = nodes.find((node) => node.role === "user");
        assert.equal(user.text, "SAY one");
        const pages = [];
        for (let cursor = ""; cursor !== null;) {
            const page = await job.service.ok("GET", `${source.path}/tree?limit=7${cursor && `&cursor=${cursor}`}`);
            pages.push(...page.data);
            cursor = page.nextCursor;
        }
        assert.deepEqual(pages, nodes);
        const slice = async (list, query) => {
            const { data } = await job.service.ok("GET", `${source.path}/${list}?limit=3&${query}`);
            return data.map((row) => row.position);
        };
        for (const list of ["tree", "entries"]) {
            assert.deepEqual(await slice(list, "from=5"), [5, 6, 7]);
            assert.deepEqual(await slice(list, "from=5&order=desc"), [5, 4, 3]);
            assert.deepEqual(await slice(list, `from=${nodes.length + 1}`), []);
            for (const bad of ["0", "-1", "x", "", "99999999999999999999"]) {
                assertProblem(await job.service.request("GET", `${source.path}/${list}?from=${bad}`), 400);
            }
        }
        const first = await job.service.ok("GET", `${source.path}/entries?from=5&limit=2`);
        const next = await job.service.ok("GET", `${source.path}/entries?from=5&limit=2&cursor=${first.nextCursor}`);
        assert.deepEqual(next.data.map((row) => row.position), [7, 8]);
        const empty = await job.session();
        assert.deepEqual([await tree(empty), await messages(empty)], [[], []]);
    });

    test("texts of the tree are cut between characters", async () => {
        const session = await job.session();
        await session.run(`SAY ok ${"😀".repeat(80)}\0end`);
        const user = (await tree(session)).find((node) => node.role === "user");
        assert.ok(user.text.startsWith("SAY ok 😀") && user.text.endsWith("😀"), user.text);
        assert.ok(Buffer.byteLength(user.text) <= 200);
    });

    test("forks are there after a crash", async () => {
        const mine = await fork(source);
        await job.service.kill9();
        await job.service.restart();
        assert.deepEqual(await messages(mine), await messages(source));
        await mine.run("SAY after");
    });
});
