// Files of a session's resources lie in its working directory before anything runs there, byte by byte, once.
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { after, before, describe, test } from "node:test";
import { Session, startJob, textOf, types } from "../support/job.mjs";
import { serviceMissing } from "../support/service.mjs";

describe("resources", { skip: serviceMissing }, () => {
    let job, agent, environment;
    before(async () => {
        job = await startJob();
        [agent, environment] = [await job.agent(), await job.environment()];
    });
    after(() => job?.stop());

    function upload(name, content) {
        const head = `--b\r\nContent-Disposition: form-data; name="file"; filename="${name}"\r\n\r\n`;
        const body = Buffer.concat([Buffer.from(head), Buffer.from(content), Buffer.from("\r\n--b--\r\n")]);
        return job.service.ok("POST", "/v1/files", body,
            { headers: { "content-type": "multipart/form-data; boundary=b" } });
    }
    const session = async (resources) => new Session(job, await job.service.ok("POST", "/v1/sessions",
        { agent: agent.id, environmentId: environment.id, resources }));
    async function run(one, command) {
        const events = await one.run(`CALL bash ${JSON.stringify({ command })} THEN SAY done`);
        return textOf(events.find((event) => event.type === "agent.tool_result"));
    }
    const of = ({ id }, path) => ({ type: "file", fileId: id, ...(path && { path }) });

    test("are there from the first command on, whatever they hold and are called", async () => {
        const big = randomBytes(5_000_001), sum = createHash("sha256").update(big).digest("hex");
        const odd = "a 'b' \"c\" $d -e.txt";
        const one = await session([
            of(await upload("notes.txt", "hello\n")), of(await upload("big.bin", big), "/workspace/in/deep/big"),
            of(await upload("empty", "")), of(await upload("x", "odd"), odd),
        ]);
        assert.deepEqual(one.resource.resources.map(({ path }) => path),
            ["/workspace/notes.txt", "/workspace/in/deep/big", "/workspace/empty", `/workspace/${odd}`]);
        assert.deepEqual((await one.get()).resources, one.resource.resources);
        assert.ok(!JSON.stringify(one.resource).includes('"key"'));
        assert.match(await run(one, `cat notes.txt *e.txt; sha256sum < in/deep/big; stat -c %s empty`),
            new RegExp(`^hello\nodd${sum} +-\n0\n`));
    });

    test("what the agent does to them stays, over a stop and in a fork", async () => {
        const one = await session([of(await upload("a.txt", "first"), "a.txt"), of(await upload("b.txt", "b"))]);
        await run(one, "echo changed > a.txt; rm b.txt");
        await job.service.restart();
        assert.match(await run(one, "cat a.txt; ls | wc -l"), /^changed\n1\n/);
        const fork = new Session(job, await job.service.ok("POST", `${one.path}/fork`, {}));
        assert.match(await run(fork, "cat a.txt; ls | wc -l"), /^changed\n1\n/);
        const bare = new Session(job, await job.service.ok("POST", `${one.path}/fork`, { files: "none" }));
        assert.match(await run(bare, "cat a.txt b.txt"), /^firstb/);
    });

    test("context files among them are known to the first turn", async () => {
        const one = await session([of(await upload("AGENTS.md", "Say please."))]);
        await one.run("SAY hello");
        assert.match(JSON.stringify(job.model.requests.at(-1).parsed.messages[0]), /Say please\./);
    });

    test("one that is gone is named, and nothing runs without it", async () => {
        const file = await upload("gone.txt", "x");
        const one = await session([of(file)]);
        await job.service.ok("DELETE", `/v1/files/${file.id}`);
        const events = await one.run('CALL bash {"command":"touch ran"} THEN SAY done');
        const result = events.find((event) => event.type === "agent.tool_result");
        assert.equal(result.isError, true);
        assert.match(textOf(result), new RegExp(`${file.id}.*deleted`));
        assert.ok(types(events).includes("session.error"));
    });
});
