// Deliverables (§16.6, §21): what the agent leaves in /mnt/session/outputs are files once the session is idle.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { startJob } from "../support/job.mjs";
import { serviceMissing } from "../support/service.mjs";

const bash = (command) => `CALL bash ${JSON.stringify({ command })} THEN SAY "done"`;

describe("a session's outputs", { skip: serviceMissing }, () => {
    let job;
    let session;
    before(async () => {
        job = await startJob();
        session = await job.session();
    });
    after(() => job?.stop());

    const list = async (id = session.id) => (await job.service.ok("GET", `/v1/files?sessionId=${id}&order=asc`)).data
        .toSorted((a, b) => a.path < b.path ? -1 : 1);
    const content = async (file) => (await job.service.request("GET", `/v1/files/${file.id}/content`)).text;
    const storage = async () => (await job.service.ok("GET", "/v1/tenant")).quotas.fileStorageBytes.used;

    test("are none before it did anything", async () => {
        assert.deepEqual(await list(), []);
    });

    test("are files with content, path and session; links and pipes are not", async () => {
        await session.run(bash("cd /mnt/session/outputs && mkdir -p deep/er && echo report > report.txt"
            + " && printf '\\0\\1' > 'deep/er/b in.dat' && ln -s /etc/passwd link && mkfifo pipe && : > empty"));
        const files = await list();
        assert.deepEqual(files.map(({ path, name, sizeBytes, sessionId }) => [path, name, sizeBytes, sessionId]), [
            ["deep/er/b in.dat", "b in.dat", 2, session.id], ["empty", "empty", 0, session.id],
            ["report.txt", "report.txt", 7, session.id]]);
        assert.deepEqual(files.map((one) => one.mimeType),
            ["application/octet-stream", "application/octet-stream", "text/plain"]);
        assert.equal(await content(files[2]), "report\n");
        assert.equal(await content(files[0]), "\0\u0001");
        assert.equal(await storage(), 9);
    });

    test("keep their ids while they do not change; a changed one has a new id, one that is gone is gone", async () => {
        const before = await list();
        assert.deepEqual(await list(), before);
        await session.run(bash("cd /mnt/session/outputs && echo longer report > report.txt && rm empty && echo new > new.txt"));
        const now = await list();
        assert.deepEqual(now.map(({ path }) => path), ["deep/er/b in.dat", "new.txt", "report.txt"]);
        assert.equal(now[0].id, before[0].id);
        assert.notEqual(now[2].id, before[2].id);
        assert.equal(await content(now[2]), "longer report\n");
        for (const gone of [before[1], before[2]]) {
            assert.equal((await job.service.request("GET", `/v1/files/${gone.id}`)).status, 404);
        }
        assert.equal(await storage(), 2 + 4 + 14);
        assert.equal((await job.service.ok("GET", "/v1/files")).data.length, 3);
    });

    test("say what they are by their names, and are served so that no browser runs them", async () => {
        await session.run(bash("cd /mnt/session/outputs && echo '<script>alert(1)</script>' > Page.HTML && echo x > .png"));
        const files = await list();
        const type = (name) => files.find((one) => one.path === name).mimeType;
        assert.deepEqual([type("Page.HTML"), type(".png")], ["text/html", "application/octet-stream"]);
        const { headers } = await job.service.request("GET",
            `/v1/files/${files.find((one) => one.path === "Page.HTML").id}/content`);
        assert.equal(headers["content-type"], "text/html");
        assert.match(headers["content-disposition"], /^attachment;/);
        assert.equal(headers["x-content-type-options"], "nosniff");
    });

    test("are copied a thousand at a time, and what is left out is said", async () => {
        const many = await job.session();
        await many.run(bash("cd /mnt/session/outputs && touch $(seq -w 1 1003) && touch $(printf 'bad\\377')"));
        const target = `/v1/files?sessionId=${many.id}&limit=1`;
        assert.deepEqual((await job.service.ok("GET", target)).outputs, { waiting: 3, leftOut: 1 });
        const whole = await job.service.ok("GET", target);
        assert.deepEqual(whole.outputs, { waiting: 0, leftOut: 1 });
        assert.equal(whole.data[0].name, "1003");
        const next = await job.service.ok("GET", `${target}&cursor=${encodeURIComponent(whole.nextCursor)}`);
        assert.equal(next.outputs, undefined, "only the first page looks into the sandbox");
    });

    test("may have any name: what is shown is plain, what is sent splits no header", async () => {
        const own = await job.session();
        const names = [`a"\\r\\nX-Evil: y`, "back\\\\slash", "\\xff\\xfe.bin", "\\xc3\\xa9.txt", "tab\\there"];
        await own.run(bash(`cd /mnt/session/outputs && for n in ${names.map((name) => `'${name}'`).join(" ")}; do `
            + "printf x > \"$(printf \"$n\")\"; done"));
        const files = await list(own.id);
        assert.ok(files.length >= 4, JSON.stringify(files));
        for (const file of files) {
            assert.doesNotMatch(file.name, /[\0-\x1f\x7f]/);
            assert.ok(file.name.isWellFormed() && file.path.isWellFormed());
            const { headers, text } = await job.service.request("GET", `/v1/files/${file.id}/content`);
            assert.equal(text, "x", file.path);
            assert.match(headers["content-disposition"],
                /^attachment; filename="[ -!#-~]*"; filename\*=UTF-8''[\w.~%-]*$/);
            assert.equal(headers["x-evil"], undefined);
        }
        assert.deepEqual(await list(own.id), files, "and keep their ids");
    });

    test("wait until it is idle", async () => {
        const stream = await session.stream({ lastEventId: "999999999" }); // only what comes
        await session.say(bash("echo a > /mnt/session/outputs/while; sleep 3"));
        await stream.until((frame) => frame.type === "agent.tool_use");
        const reply = await job.service.request("GET", `/v1/files?sessionId=${session.id}`);
        await stream.until((frame) => frame.type === "session.status_idle");
        await stream.close();
        assert.equal(reply.status, 409, reply.text);
        assert.equal(reply.body.code, "session_not_idle");
        assert.ok((await list()).some(({ path }) => path === "while"));
    });

    test("are of one session only, and outlive it", async () => {
        const files = await list();
        assert.deepEqual(await list((await job.session()).id), []);
        assert.equal((await job.service.request("GET", "/v1/files?sessionId=sess_x")).status, 404);
        await job.service.ok("DELETE", session.path);
        assert.equal(await content(files.find(({ path }) => path === "new.txt")), "new\n");
        assert.equal((await job.service.request("GET", `/v1/files?sessionId=${session.id}`)).status, 404);
    });

    test("have the same ids for all who ask at the same time", async () => {
        const other = await job.session();
        await other.run(bash("cd /mnt/session/outputs && for i in $(seq 50); do echo $i > f$i; done"));
        const asked = await Promise.all(Array.from({ length: 6 }, () => job.service.ok("GET",
            `/v1/files?sessionId=${other.id}&limit=100&order=asc`)));
        const ids = asked.map(({ data }) => data.map((file) => file.id));
        assert.equal(ids[0].length, 50);
        for (const one of ids) assert.deepEqual(one, ids[0]);
        await job.service.ok("DELETE", other.path);
    });
});
