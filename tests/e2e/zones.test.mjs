// The zones as the operating system sees them: what each role of a running service may do. As root also that
// they cannot reach each other's files.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync, readdirSync, readlinkSync, statSync } from "node:fs";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { serviceMissing, startService } from "../support/service.mjs";

const isRoot = process.getuid() === 0;

function statusOf(pid) {
    const text = readFileSync(`/proc/${pid}/status`, "utf8");
    return Object.fromEntries(text.split("\n").filter(Boolean).map((line) => line.split(/:\s+/)));
}

const CONFINED = ["broker", "control", "host"]; // makers keep what sandboxes need

/** The confined role processes that this service's parent started. */
function rolesOf(service) {
    const roles = {};
    for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
        try {
            const words = readFileSync(`/proc/${pid}/cmdline`, "latin1").split("\0");
            if (CONFINED.includes(words[2]) && Number(statusOf(pid).PPid) === service.pid) {
                roles[words[2]] ??= pid;
            }
        } catch {
            // it ended meanwhile
        }
    }
    return roles;
}

describe("zones", { skip: serviceMissing }, () => {
    let service;
    let roles;
    before(async () => {
        service = await startService({ env: { ANTHROPIC_API_KEY: "sk-ant-secret", LEFT: "over" } });
        while ((await service.request("GET", "/readyz")).status !== 200) { /* until the spare host is there */ }
        roles = rolesOf(service);
    });
    after(() => service?.stop());

    test("control, broker and a host run", () => {
        assert.deepEqual(Object.keys(roles).sort(), CONFINED);
    });

    test("no role has a capability or can gain one", () => {
        for (const [name, pid] of Object.entries(roles)) {
            const status = statusOf(pid);
            const none = isRoot ? ["CapPrm", "CapEff", "CapBnd", "CapAmb"] : ["CapPrm", "CapEff", "CapAmb"];
            none.forEach((set) => assert.equal(BigInt(`0x${status[set]}`), 0n, `${name} ${set}`));
            assert.equal(status.NoNewPrivs, "1", name);
        }
    });

    test("a role's environment has nothing of the service's", { skip: !isRoot && "/proc is closed" }, () => {
        for (const name of ["control", "broker"]) {
            const names = readFileSync(`/proc/${roles[name]}/environ`, "latin1").split("\0").filter(Boolean)
                .map((entry) => entry.split("=")[0]).filter((word) => !/^[AT]SAN_OPTIONS$/.test(word));
            assert.deepEqual(names.sort(), ["LANG", "PATH"]);
        }
    });

    test("the broker has no file of the data directory open", { skip: !isRoot && "/proc is closed" }, () => {
        const open = readdirSync(`/proc/${roles.broker}/fd`).map((fd) => {
            try {
                return readlinkSync(`/proc/${roles.broker}/fd/${fd}`);
            } catch {
                return "";
            }
        });
        assert.deepEqual(open.filter((name) => /control\.db|\/logs\/|\/keys\//.test(name)), []);
    });

    test("each has its own user id and its own mounts", { skip: !isRoot && "needs root" }, () => {
        const ids = Object.values(roles).map((pid) => statusOf(pid).Uid.split(/\s+/));
        ids.forEach((four) => assert.equal(new Set(four).size, 1));
        const uids = ids.map(([uid]) => uid);
        assert.equal(new Set([...uids, "0"]).size, uids.length + 1);
        const mounts = Object.values(roles).map((pid) => readlinkSync(`/proc/${pid}/ns/mnt`));
        assert.equal(new Set([...mounts, readlinkSync("/proc/self/ns/mnt")]).size, mounts.length + 1);
        for (const pid of Object.values(roles)) {
            assert.deepEqual(statusOf(pid).Groups?.trim() ?? "", "");
        }
    });

    test("code is read-only where roles see it", { skip: !isRoot && "needs root" }, () => {
        const lines = readFileSync(`/proc/${roles.control}/mountinfo`, "utf8").split("\n");
        const runtime = lines.find((line) => line.includes(" /run/pi-managed/runtime "));
        assert.match(runtime, / ro,nosuid,nodev/);
    });

    test("control's user cannot open the vault's key, nor replace it", { skip: !isRoot && "needs root" }, () => {
        const uid = statSync(path.join(service.data, "control.db")).uid;
        const as = (script) => spawnSync("setpriv", ["--reuid", uid, "--regid", uid, "--clear-groups", "sh", "-c",
            script], { cwd: service.data, encoding: "utf8" });
        assert.notEqual(as("cat keys/vault.key").status, 0);
        assert.notEqual(as("cat first-key").status, 0);
        assert.notEqual(as("mv keys elsewhere").status, 0);
        assert.notEqual(as("mv sandboxes elsewhere").status, 0);
        assert.equal(as("cat control.db >/dev/null").status, 0, "but its own database it can");
    });

    test("the broker's user can read nothing of the data directory", { skip: !isRoot && "needs root" }, () => {
        const uid = statusOf(roles.broker).Uid.split(/\s+/)[0];
        const result = spawnSync("setpriv", ["--reuid", uid, "--regid", uid, "--clear-groups", "ls", service.data]);
        assert.notEqual(result.status, 0);
    });

    test("roles do not outlive a parent that is killed", async () => {
        const pids = Object.values(roles);
        await service.kill9();
        const gone = (pid) => {
            try {
                return statusOf(pid).State.startsWith("Z");
            } catch {
                return true;
            }
        };
        const until = performance.now() + 10_000;
        while (!pids.every(gone)) {
            assert.ok(performance.now() < until, `roles still run: ${pids.filter((pid) => !gone(pid))}`);
            await new Promise(setImmediate);
        }
    });
});
