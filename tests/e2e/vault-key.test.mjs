// The vaults' key pair: another one, one that broke off, a backup with it and one without (docs/operations.md).
import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, unlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { startJob } from "../support/job.mjs";
import { SERVICE_PROGRAM, serviceMissing, startService } from "../support/service.mjs";

const rotate = (data) => execFileSync(SERVICE_PROGRAM, ["vault", "rotate-key", "--data", data], { encoding: "utf8" });

describe("the vaults' key pair", { skip: serviceMissing }, () => {
    let job;
    let session;
    const keyFile = () => path.join(job.service.data, "keys/vault.key");
    before(async () => {
        job = await startJob();
        const vault = await job.service.ok("POST", "/v1/vaults", { name: "drill" });
        await job.service.ok("POST", `/v1/vaults/${vault.id}/credentials`,
            { kind: "model_provider_key", baseUrl: job.model.url, apiKey: "sk-drill" });
        session = await job.session({ more: { vaultIds: [vault.id] } });
        await worksWithKey();
    });
    after(() => job?.stop());

    async function worksWithKey() {
        const events = await session.run("SAY hi");
        assert.deepEqual(events.at(-1).stopReason, { type: "end_turn" });
        assert.equal(job.model.requests.at(-1).headers.authorization, "Bearer sk-drill");
    }

    test("it is for its owner only", () => {
        assert.equal(statSync(keyFile()).mode & 0o777, 0o600);
        assert.equal(statSync(path.dirname(keyFile())).mode & 0o777, 0o700);
    });

    test("it is not changed under a running service", async () => {
        const before = readFileSync(keyFile(), "utf8");
        await assert.rejects(promisify(execFile)(SERVICE_PROGRAM, ["vault", "rotate-key", "--data", job.service.data]));
        assert.equal(readFileSync(keyFile(), "utf8"), before);
    });

    test("another one opens what was sealed before", async () => {
        const before = readFileSync(keyFile(), "utf8");
        await job.service.kill9();
        assert.match(rotate(job.service.data), /1 credential is sealed/);
        assert.notEqual(readFileSync(keyFile(), "utf8"), before);
        assert.equal(statSync(keyFile()).mode & 0o777, 0o600);
        assert.equal(existsSync(`${keyFile()}.next`), false);
        await job.service.restart();
        await worksWithKey();
    });

    test("a change that broke off leaves every credential usable, and can be run again", async () => {
        const old = readFileSync(keyFile(), "utf8");
        await job.service.kill9();
        rotate(job.service.data);
        execFileSync("cp", ["--preserve=mode,ownership", keyFile(), `${keyFile()}.next`]);
        execFileSync("sh", ["-c", `printf %s '${old.trim()}' > '${keyFile()}'`]); // sealed anew, old key in place
        await job.service.restart();
        await worksWithKey();
        await job.service.kill9();
        rotate(job.service.data);
        assert.equal(existsSync(`${keyFile()}.next`), false);
        await job.service.restart();
        await worksWithKey();
    });

    test("a backup without the key fails closed, with the key it works", async () => {
        await job.service.kill9();
        const copy = mkdtempSync(path.join(tmpdir(), "drill-"));
        const data = path.join(copy, "data");
        execFileSync("cp", ["-a", job.service.data, data]);
        const { host } = new URL(job.model.url);
        const options = { data, apiKey: job.service.apiKey, args: ["--allow-private", host] };
        try {
            unlinkSync(path.join(data, "keys/vault.key"));
            const without = await startService(options);
            const events = await runOn(without);
            assert.equal(events.find((event) => event.type === "session.error").error.code, "credential_refused");
            assert.deepEqual(events.at(-1).stopReason, { type: "error" });
            await without.stop();
            execFileSync("cp", ["-a", keyFile(), path.join(data, "keys/vault.key")]);
            const whole = await startService(options);
            const again = await runOn(whole);
            assert.deepEqual(again.at(-1).stopReason, { type: "end_turn" });
            assert.equal(job.model.requests.at(-1).headers.authorization, "Bearer sk-drill");
            await whole.stop();
        } finally {
            rmSync(copy, { recursive: true, force: true });
            await job.service.restart();
        }
    });

    async function runOn(service) {
        const { data } = await service.ok("GET", `${session.path}/events?limit=1000&order=asc`);
        const stream = await service.stream(session.id, { lastEventId: String(data.at(-1).seq) });
        await service.ok("POST", `${session.path}/events`, { type: "user.message", content: "SAY hi" });
        const frames = await stream.until((frame) => frame.type === "session.status_idle");
        await stream.close();
        return frames.map((frame) => frame.data);
    }
});
