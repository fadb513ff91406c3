// After every line of a recorded session the service can be cut off, and goes on: the log of one real session is
// copied under new ids, each copy one line shorter, with what a crash leaves beside it (a row that says running, posts
// still in the inbox). One start of the service then brings every copy to its end, with nothing lost or done twice.
import assert from "node:assert/strict";
import { chown, mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { pathToFileURL } from "node:url";
import { RUNTIME } from "../support/host-driver.mjs";
import { Session, startJob, textOf } from "../support/job.mjs";
import { serviceMissing } from "../support/service.mjs";

const FIRST = 'SAY "first answer"';
const SECOND = 'SAY "Two." CALL bash {"command":"echo a"} ;; bash {"command":"echo b"} '
    + 'THEN CALL bash {"command":"echo c"} THEN SAY "all done"';

const ofType = (events, type) => events.filter((event) => event.type === type);

/** Ids that differ from the original in their last three characters, and from each other. */
function cloneId(id, n) {
    const alphabet = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    const other = alphabet[(alphabet.indexOf(id.at(-3)) + 1) % 32];
    return id.slice(0, -3) + other + alphabet[Math.floor(n / 32)] + alphabet[n % 32];
}

describe("a service cut off after any line", { skip: serviceMissing }, () => {
    let data;
    let job;
    let original;
    let lines;

    before(async () => {
        data = await mkdtemp(path.join(tmpdir(), "log-resume-"));
        await rm(data, { recursive: true }); // the service makes its own
        job = await startJob({ data });
        original = await job.session();
        await original.run(FIRST);
        await original.run(SECOND);
        await job.service.stop();
        const text = await readFile(logFile(original.id), "utf8");
        lines = text.split("\n").slice(0, -1);
    });
    after(async () => {
        await job?.stop();
        await rm(data, { recursive: true, force: true });
    });

    const logFile = (id) => path.join(data, "logs", job.service.tenantId, `${id}.jsonl`);

    /** Control's files belong to control, also when the service runs as root. */
    async function giveTo(file, like) {
        const { uid, gid } = await stat(like);
        await chown(file, uid, gid);
    }

    async function copyLog(id, count) {
        if (count === 0) {
            return; // the file is made with its first line
        }
        const torn = (lines[count] ?? "").slice(0, 20);
        const text = lines.slice(0, count).map((line) => `${line}\n`).join("") + torn;
        await writeFile(logFile(id), text.replaceAll(original.id, id), { mode: 0o600 });
        await giveTo(logFile(id), logFile(original.id));
    }

    /** What each copy's database looks like at the crash. */
    function copyRows(db, id, count) {
        const row = db.prepare("SELECT * FROM sessions WHERE id = ?").get(original.id);
        const copy = { ...row, id, status: "running", stop_reason: null, sandbox_state: "none" };
        const names = Object.keys(copy);
        db.prepare(`INSERT INTO sessions (${names}) VALUES (${names.map(() => "?")})`).run(...Object.values(copy));
        const waiting = lines.slice(count).map((line) => JSON.parse(line))
            .filter((entry) => entry.customType === "pi-managed:inbox").map((entry) => entry.data.event);
        waiting.forEach((event, i) => {
            const ownId = cloneId(event.id, count); // unique in a tenant
            db.prepare("INSERT INTO inbox (tenant_id, session_id, position, event_id, event, created_at)"
                + " VALUES (?, ?, ?, ?, ?, 1)")
                .run(job.service.tenantId, id, i + 1, ownId, JSON.stringify({ ...event, id: ownId }));
        });
    }

    async function makeCopies() {
        const { DatabaseSync } = await import("node:sqlite");
        const file = path.join(data, "control.db");
        const like = await stat(file);
        const db = new DatabaseSync(file);
        const copies = [];
        for (let count = 0; count <= lines.length; count += 1) {
            const id = cloneId(original.id, count);
            await copyLog(id, count);
            copyRows(db, id, count);
            copies.push({ count, session: new Session(job, { id }) });
        }
        db.close(); // writes everything back, so that no file of ours stays beside it
        assert.deepEqual([(await stat(file)).uid, (await stat(file)).gid], [like.uid, like.gid]);
        return copies;
    }

    async function waitForEnd({ session }) {
        const stream = await session.stream({ lastEventId: "0" });
        let posts = 0;
        await stream.until((frame) => {
            posts += frame.type === "user.message" ? 1 : 0;
            return posts === 2 && frame.type === "session.status_idle";
        });
        await stream.close();
    }

    function checkEvents(events, where) {
        assert.deepEqual(events.map((e) => e.seq), events.map((_, i) => i + 1), where);
        assert.deepEqual(ofType(events, "user.message").map(textOf), [FIRST, SECOND], where);
        assert.ok(ofType(events, "user.message").every((e) => e.processedAt !== null), where);
        const uses = ofType(events, "agent.tool_use").map((e) => e.toolCallId);
        const results = ofType(events, "agent.tool_result").map((e) => e.toolCallId);
        assert.equal(uses.length, 3, where);
        assert.deepEqual([...results].sort(), [...uses].sort(), where);
        assert.deepEqual(ofType(events, "agent.message").map(textOf), ["first answer", "Two.", "all done"], where);
        const starts = ofType(events, "span.model_request_start").map((e) => e.requestNumber);
        assert.deepEqual(starts, starts.map((_, i) => i + 1), where);
        assert.equal(ofType(events, "span.model_request_end").length, starts.length, where);
        assert.equal(ofType(events, "session.status_run_started").length,
            ofType(events, "session.status_idle").length, where);
        assert.deepEqual(events.at(-1).stopReason, { type: "end_turn" }, where);
    }

    /** The log that came out of it, opened by the real SDK: the whole conversation, each part once. */
    async function checkLog(pi, id, where) {
        const text = await readFile(logFile(id), "utf8");
        const entries = text.split("\n").slice(0, -1).map((line) => JSON.parse(line));
        const { messages } = pi.SessionManager.inMemory("/workspace", { id }, entries).buildSessionContext();
        const roles = messages.map((m) => m.role).filter((role) => role !== "system");
        assert.deepEqual(roles, ["user", "assistant", "user", "assistant", "toolResult", "toolResult", "assistant",
            "toolResult", "assistant"], where);
    }

    test("is brought to its end, whichever line was the last", async () => {
        const pi = await import(pathToFileURL(path.join(RUNTIME, "pi/dist/bundle/index.js")));
        assert.ok(lines.length >= 25, `${lines.length} lines`);
        const copies = await makeCopies();
        await job.service.start();
        for (const copy of copies) {
            const kind = copy.count ? JSON.parse(lines[copy.count - 1]) : { type: "nothing" };
            const where = `${copy.count} of ${lines.length} lines, the last ${kind.customType ?? kind.message?.role ?? kind.type}`;
            await waitForEnd(copy).catch((error) => assert.fail(`${where}: ${error.message}`));
            checkEvents(await copy.session.events(), where);
            await checkLog(pi, copy.session.id, where);
            assert.equal((await copy.session.get()).status, "idle", where);
        }
        const before = await original.events(); // the one that was whole is as it was
        assert.equal(ofType(before, "session.status_idle").length, 2);
    });
});
