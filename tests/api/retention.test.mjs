// R29: a deleted session is gone at once for the API; its log stays for the retention time, then goes, too.
import assert from "node:assert/strict";
import { existsSync, watch } from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import { assertProblem, createSession, startService } from "./support.mjs";

let service;
before(async () => { service = await startService(); });
after(() => service?.stop());

const logOf = (id) => path.join(service.data, "logs", service.tenantId, `${id}.jsonl`);
async function sessionWithLog() {
    const { id } = await createSession(service);
    await service.ok("PATCH", `/v1/sessions/${id}`, { title: "written down" });
    assert.ok(existsSync(logOf(id)));
    return id;
}

/** Until the file is gone; the test's own time limit ends it. */
function gone(file) {
    return new Promise((resolve) => {
        const watcher = watch(path.dirname(file), () => existsSync(file) || done());
        const done = () => { watcher.close(); resolve(); };
        if (!existsSync(file)) {
            done();
        }
    });
}

test("a deleted session's log stays, and goes when its time is over", { timeout: 120_000 }, async () => {
    const id = await sessionWithLog(), alive = await sessionWithLog();
    await service.ok("DELETE", `/v1/sessions/${id}`);
    await service.restart();
    assert.ok(existsSync(logOf(id)));
    await service.restart({ args: ["--retention-days", "0"] });
    await gone(logOf(id));
    assert.ok(existsSync(logOf(alive)));
    await service.ok("GET", `/v1/sessions/${alive}`);
    assertProblem(await service.request("GET", `/v1/sessions/${id}`), 404);
    await service.restart({ args: [] });
});

test("purge removes the log at once", async () => {
    const id = await sessionWithLog();
    await service.ok("DELETE", `/v1/sessions/${id}?purge=true`);
    assert.ok(!existsSync(logOf(id)));
    assertProblem(await service.request("DELETE", `/v1/sessions/${id}?purge=true`), 404);
});
