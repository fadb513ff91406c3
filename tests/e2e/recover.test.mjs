// What the object store is for (§28): the service loses its logs, its database, or both, and every idle session is
// there again, whole, with its key, its agent and its place in the conversation.
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { eventually } from "../support/eventually.mjs";
import { startJob } from "../support/job.mjs";
import { serviceMissing } from "../support/service.mjs";

const DATABASE = ["control.db", "control.db-wal", "control.db-shm"];

describe("a service that lost its data", { skip: serviceMissing }, () => {
    let base;
    let data;
    let objects;
    let job;
    let session;

    before(async () => {
        base = await mkdtemp(path.join(tmpdir(), "recover-"));
        data = path.join(base, "data");
        objects = path.join(base, "objects");
        job = await startJob({ data, args: ["--objects", objects] });
        session = await job.session();
        await session.run('SAY "the first answer"');
    });
    after(async () => {
        await job?.stop();
        await rm(base, { recursive: true, force: true });
    });

    const copies = async (folder) => (await readdir(path.join(objects, folder), { recursive: true }).catch(() => []))
        .filter((name) => name.includes(session.id));
    const read = (folder, name) => readFile(path.join(objects, folder, name)).catch(() => Buffer.alloc(0));
    /** All of the log's lines are in the object store, and the row of the idle session. */
    const isCopied = () => eventually("the session in the object store", async () => {
        const log = await stat(path.join(data, "logs", job.service.tenantId, `${session.id}.jsonl`));
        const segments = await Promise.all((await copies("logs")).map((name) => read("logs", name)));
        const rows = await Promise.all((await copies("sessions")).map((name) => read("sessions", name)));
        return { log: log.size, copied: Buffer.concat(segments).length, rows: String(rows) };
    }, ({ log, copied, rows }) => copied === log && rows.includes('"idle"'));
    const look = async () => ({
        session: await job.service.ok("GET", session.path),
        events: (await job.service.ok("GET", `${session.path}/events?order=asc&limit=1000`)).data,
        entries: (await job.service.ok("GET", `${session.path}/entries`)).data,
        agents: (await job.service.ok("GET", "/v1/agents")).data,
    });
    const lose = async (...names) => {
        for (const name of names) {
            await rm(path.join(data, name), { recursive: true, force: true });
        }
    };

    test("goes on from an idle session whose log it lost", async () => {
        await isCopied();
        const had = await look();
        await job.service.kill9();
        await lose("logs");
        await job.service.restart();
        assert.deepEqual(await look(), had);
    });

    test("goes on when it lost its database, too", async () => {
        const had = await look();
        await job.service.kill9();
        await lose("logs", ...DATABASE);
        await job.service.restart();
        assert.match(job.service.output, /brought back/);
        assert.deepEqual(await look(), had);
        const events = await session.run('SAY "the second answer"');
        assert.match(JSON.stringify(events), /the second answer/);
    });

    test("a session newer than the database's copy comes back with its row", async () => {
        const before = session;
        session = await job.session();
        await session.run('SAY "only the log knows"');
        await isCopied();
        const { session: row, events } = await look();
        await job.service.kill9();
        await lose(...DATABASE);
        await job.service.restart();
        const now = await look();
        const lasting = ({ sandbox, updatedAt, ...rest }) => rest; // its sandbox may have started after the copy
        assert.deepEqual(lasting(now.session), lasting(row));
        assert.deepEqual(now.events, events);
        session = before;
    });

    test("a purged session leaves no copy, and does not come back", async () => {
        await isCopied();
        await job.service.ok("DELETE", `${session.path}?purge=true`);
        assert.deepEqual([...await copies("logs"), ...await copies("sessions")], []);
        await job.service.kill9();
        await job.service.restart();
        const reply = await job.service.request("GET", session.path);
        assert.equal(reply.status, 404);
        assert.ok(!existsSync(path.join(data, "logs", job.service.tenantId, `${session.id}.jsonl`)));
    });

    test("files of the minute that the database lost come back with their names; others' bytes stay for a day", async () => {
        const upload = (name, content) => job.service.ok("POST", "/v1/files",
            `--b\r\ncontent-disposition: form-data; name="file"; filename="${name}"\r\n\r\n${content}\r\n`
            + '--b\r\ncontent-disposition: form-data; name="metadata"\r\n\r\n{"for":"tests"}\r\n--b--\r\n',
            { headers: { "content-type": "multipart/form-data; boundary=b" } });
        const objectOf = (id) => path.join(objects, "files", job.service.tenantId, id);
        const used = async () => (await job.service.ok("GET", "/v1/tenant")).quotas.fileStorageBytes.used;
        const list = async () => (await job.service.ok("GET", "/v1/files")).data;

        const kept = await upload("kept.txt", "kept");
        const gone = await upload("gone.txt", "gone");
        await job.service.restart(); // a clean stop copies the database
        const copy = await readFile(path.join(objects, "system/control.db"));
        const lost = await upload("r\u00e9sum\u00e9.html", "lost");
        await job.service.ok("DELETE", `/v1/files/${gone.id}`);
        const before = [await list(), await used()];
        const [old, young] = ["file_01ARYZ6S41TSV4RRFFQ69G5FAV", lost.id.replace(/.{4}$/, "0000")];
        await job.service.kill9();
        await lose(...DATABASE);
        await writeFile(path.join(objects, "system/control.db"), copy); // whatever was copied since: it is not there
        await writeFile(objectOf(old), "nobody's, of long ago");
        await writeFile(objectOf(young), "nobody's, of now");
        await job.service.restart();
        assert.match(job.service.output, /1 got it back, 1 old ones were removed, 1 stay/);
        const now = await list();
        assert.deepEqual(now.filter((one) => one.id !== gone.id), before[0]);
        assert.equal(now.find((one) => one.id === lost.id).mimeType, "text/html");
        assert.deepEqual(now.find((one) => one.id === lost.id).metadata, { for: "tests" });
        for (const [file, content] of [[lost, "lost"], [kept, "kept"]]) {
            assert.equal((await job.service.request("GET", `/v1/files/${file.id}/content`)).text, content);
        }
        await job.service.ok("DELETE", `/v1/files/${gone.id}`); // its row came back, its bytes did not
        assert.equal(await used(), before[1]);
        assert.ok(!existsSync(objectOf(old)));
        assert.ok(existsSync(objectOf(young)));

        await job.service.kill9(); // and nothing is found a second time
        await job.service.restart();
        assert.deepEqual(await list(), before[0]);
        await job.service.ok("DELETE", `/v1/files/${lost.id}`);
        assert.ok(!existsSync(objectOf(lost.id)));
        assert.deepEqual((await readdir(path.join(objects, "file-records", job.service.tenantId))), [`${kept.id}.json`]);
    });

    test("nothing half-written is left behind", async () => {
        assert.deepEqual(await readdir(path.join(objects, ".tmp")), []);
        assert.deepEqual((await readdir(data)).filter((name) => /\.(copy|part)$/.test(name)), []);
    });
});

test("objects in a folder that somebody else uses are refused", { skip: serviceMissing || process.getuid() !== 0 },
    async () => {
        const { execFile } = await import("node:child_process");
        const { promisify } = await import("node:util");
        const { SERVICE_PROGRAM } = await import("../support/service.mjs");
        const base = await mkdtemp(path.join(tmpdir(), "recover-"));
        try {
            await assert.rejects(promisify(execFile)(SERVICE_PROGRAM,
                ["init", "--data", path.join(base, "data"), "--objects", "/etc"]), /folder of its own/);
            await assert.rejects(promisify(execFile)(SERVICE_PROGRAM,
                ["init", "--data", path.join(base, "data"), "--objects", "s3://bucket"]), /not built yet/);
        } finally {
            await rm(base, { recursive: true, force: true });
        }
    });
