// Where root runs the tests: what a service does with sandboxes once more as a plain user, who has fewer rights.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { chownSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { describe, test } from "node:test";
import { SERVICE_PROGRAM, serviceMissing } from "../support/service.mjs";

const PLAIN_UID = 12345;
const AS_USER = ["--reuid", `${PLAIN_UID}`, "--regid", `${PLAIN_UID}`, "--clear-groups"];
const FILES = ["sandbox", "capacity", "mounts"];

/** A reason why it cannot be tried, else false. */
function cannotRun() {
    if (process.getuid() !== 0) return "the other tests run as a plain user already";
    if (serviceMissing) return serviceMissing;
    const doctor = spawnSync("setpriv", [...AS_USER, SERVICE_PROGRAM, "doctor", "--json"], { encoding: "utf8" });
    try {
        return JSON.parse(doctor.stdout).providers.some((one) => one.usable) ? false : "a plain user has no sandboxes here";
    } catch {
        return `user ${PLAIN_UID} cannot reach ${SERVICE_PROGRAM}`;
    }
}

describe("as a plain user", { skip: cannotRun() }, () => {
    for (const file of FILES)
        test(file, async (t) => {
            const home = mkdtempSync(path.join(tmpdir(), "pi-managed-plain-"));
            chownSync(home, PLAIN_UID, PLAIN_UID);
            t.after(() => rmSync(home, { recursive: true, force: true }));
            const env = { ...process.env, HOME: home, TMPDIR: home, PI_MANAGED_BIN: SERVICE_PROGRAM };
            delete env.NODE_TEST_CONTEXT; // or it would not run as a test of its own
            const child = spawn("setpriv", [...AS_USER, process.execPath, "--test", "--test-reporter=tap",
                `tests/e2e/${file}.test.mjs`], { env, stdio: ["ignore", "pipe", "inherit"] });
            let out = "";
            child.stdout.on("data", (data) => { out += data; });
            const [status] = await once(child, "close");
            assert.equal(status, 0, out);
            assert.match(out, /^# fail 0$/m);
            assert.ok(Number(/^# pass (\d+)$/m.exec(out)?.[1]) > 0, out);
        });
});
