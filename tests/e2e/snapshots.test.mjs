// R35 for snapshots: what a crash left half made, or without anybody who knows of it, goes at the next start of the
// service; what a person made by name stays.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { existsSync, readFileSync, readdirSync, readlinkSync, writeFileSync } from "node:fs";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { eventually } from "../support/eventually.mjs";
import { SERVICE_PROGRAM, serviceMissing, startService } from "../support/service.mjs";

const ENVIRONMENT = { PATH: process.env.PATH, ASAN_OPTIONS: process.env.ASAN_OPTIONS ?? "", TERM: "vt100" };
const TRIES = 20;

describe("snapshots after a crash", { skip: serviceMissing }, () => {
    let service;
    before(async () => {
        service = await startService();
    });
    after(() => service?.stop());

    const words = (verb, args, command = []) => ["sandbox", verb, ...args, "--data", service.data,
        ...(command.length > 0 ? ["--", ...command] : [])];

    function cli(verb, args, command) {
        const done = spawnSync(SERVICE_PROGRAM, words(verb, args, command), { env: ENVIRONMENT, encoding: "utf8" });
        assert.equal(done.status, 0, `${verb} ${args}: ${done.stderr}`);
        return done.stdout;
    }

    const folders = () => readdirSync(path.join(service.data, "sandboxes")).filter((name) => name.startsWith("snap_"));
    const file = (id, name) => path.join(service.data, "sandboxes", id, name);

    function newSnapshot(name) {
        const known = folders();
        cli("snapshot", ["model", name]);
        return folders().find((id) => !known.includes(id));
    }

    /** Kills -9 whoever makes a snapshot, in the middle of its work; its id. */
    async function killedHalfWay() {
        for (let i = 0; i < TRIES; i++) {
            const known = folders();
            const child = spawn(SERVICE_PROGRAM, words("snapshot", ["model", `half-${i}`]), { env: ENVIRONMENT, stdio: "ignore" });
            const gone = new Promise((resolve) => child.once("exit", resolve));
            const id = await eventually("its folder", () => folders().find((one) => !known.includes(one)), Boolean);
            await eventually("its first files", () => existsSync(file(id, "half-made")) || existsSync(file(id, "spec.json")), Boolean);
            kill(child.pid);
            await gone;
            await eventually("its end", () => makersOf(id), (pids) => pids.length === 0);
            if (existsSync(file(id, "half-made")) && !existsSync(file(id, "spec.json"))) {
                return id;
            }
            if (existsSync(file(id, "spec.json"))) {
                cli("rm", [`half-${i}`]); // it was quicker
            }
        }
        throw new Error(`${TRIES} snapshots were made before they could be killed`);
    }

    test("what is half made, and what nobody knows of, goes; what has a name stays, and can be used", async () => {
        let kept, orphan, half;
        await service.restart({}, async () => {
            const script = "echo one >f; i=0; while [ $i -lt 3000 ]; do echo $i >n$i; i=$((i+1)); done";
            cli("run", ["--keep", "--name", "model"], ["sh", "-c", script]);
            kept = newSnapshot("kept");
            orphan = newSnapshot("orphan");
            half = await killedHalfWay();
            const spec = JSON.parse(readFileSync(file(orphan, "spec.json"), "utf8"));
            // As the service makes them: it died before it wrote down that it has one.
            writeFileSync(file(orphan, "spec.json"), JSON.stringify({ ...spec, tenant: service.tenantId }));
            assert.ok([kept, orphan, half].every((id) => folders().includes(id)));
        });
        await eventually("the rest of the snapshots", folders, (ids) => !ids.includes(half) && !ids.includes(orphan));
        assert.ok(folders().includes(kept));
        await service.restart({}, () => {
            cli("fork", ["kept", "again"]);
            assert.equal(cli("exec", ["again"], ["sh", "-c", "cat f; ls | wc -l"]), "one\n3001\n");
            cli("rm", ["all"]);
            assert.deepEqual(folders(), []);
        });
    });
});

/** And all its descendants, which have sessions of their own. */
function kill(pid) {
    const all = [pid];
    for (const one of all) {
        try {
            all.push(...readFileSync(`/proc/${one}/task/${one}/children`, "utf8").split(" ").filter(Boolean).map(Number));
        } catch { /* it is gone */ }
    }
    for (const one of all) {
        try {
            process.kill(one, "SIGKILL");
        } catch { /* it is gone */ }
    }
}

/** Processes that still hold something in the folder of this snapshot. */
function makersOf(id) {
    return readdirSync("/proc").filter((pid) => /^\d+$/.test(pid)).filter((pid) => {
        try {
            return readdirSync(`/proc/${pid}/fd`).some((fd) => linkOf(`/proc/${pid}/fd/${fd}`).includes(id));
        } catch {
            return false; // it is gone
        }
    });
}

function linkOf(file) {
    try {
        return readlinkSync(file);
    } catch {
        return ""; // closed meanwhile
    }
}
