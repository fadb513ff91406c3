// Images: an admin imports a tiny root file system, environments name it, the agent's tools work in it.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import {
    chmodSync, cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { startJob, textOf } from "../support/job.mjs";
import { SERVICE_PROGRAM, serviceMissing } from "../support/service.mjs";

const BUSYBOX = "/bin/busybox";
const APPLETS = ["sh", "ls", "cat", "echo", "stat", "id", "touch", "head"];
const run = promisify(execFile);
const call = (tool, args) => `CALL ${tool} ${JSON.stringify(args)}`;
const resultOf = (events) => textOf(events.find((event) => event.type === "agent.tool_result"));
const missing = serviceMissing
    || (!existsSync(BUSYBOX) && "no static busybox here: apt-get install busybox-static");

/** A root file system whose programs are all one static busybox. */
function makeRoot(folder, release) {
    for (const sub of ["bin", "etc", "usr/share"]) {
        mkdirSync(path.join(folder, sub), { recursive: true });
    }
    cpSync(BUSYBOX, path.join(folder, "bin/busybox"), { dereference: true });
    chmodSync(path.join(folder, "bin/busybox"), 0o4755);
    for (const applet of APPLETS) {
        symlinkSync("busybox", path.join(folder, "bin", applet));
    }
    writeFileSync(path.join(folder, "etc/release"), `${release}\n`);
    symlinkSync("/etc", path.join(folder, "proc")); // a trap: the sandbox has its own
}

describe("images", { skip: missing }, () => {
    let job, work, data;
    before(async () => {
        job = await startJob();
        data = job.service.data;
        work = mkdtempSync(path.join(tmpdir(), "pi-managed-images-"));
        makeRoot(path.join(work, "one"), "tiny one");
        makeRoot(path.join(work, "two"), "tiny two");
    });
    after(async () => {
        await job?.stop();
        if (work) {
            rmSync(work, { recursive: true, force: true });
        }
    });

    const image = async (...words) => {
        const [verb, ...rest] = words;
        const done = await run(SERVICE_PROGRAM, ["image", verb, "--data", data, ...rest], { env: {} });
        return done.stdout;
    };
    const fails = (pattern, ...words) => assert.rejects(image(...words), (error) => {
        assert.match(error.stderr, pattern);
        assert.equal(error.code, 1);
        return true;
    });
    const listed = async () => (await image("list", "--json")).split("\n").filter(Boolean)
        .map((line) => JSON.parse(line));

    test("import, list, remove; two names of one tree have one digest", async () => {
        await image("import", "pair:a", `dir:${work}/one`);
        await image("import", "pair:b", `dir:${work}/one`);
        const [a, b] = (await listed()).filter((row) => row.name === "pair");
        assert.equal(a.digest, b.digest);
        assert.match(a.digest, /^sha256:[0-9a-f]{64}$/);
        assert.equal(a.source, `dir:${work}/one`);
        assert.match(await image("remove", "pair:a"), /removed/);
        assert.deepEqual((await listed()).filter((row) => row.name === "pair").map((r) => r.tag), ["b"]);
        await image("remove", "pair:b");
        assert.ok(!existsSync(path.join(data, "images/pair")), "nothing is left of it");
        await fails(/there is no image pair:b/, "remove", "pair:b");
    });

    /** What docker save writes of an image with one layer. */
    async function save(folder, config) {
        mkdirSync(folder);
        await run("tar", ["-C", path.join(work, "one"), "-cf", path.join(folder, "layer.tar"), "."]);
        const sha256 = (bytes) => createHash("sha256").update(bytes).digest("hex");
        const text = JSON.stringify({
            architecture: { x64: "amd64", arm64: "arm64" }[process.arch], os: "linux", config,
            rootfs: { type: "layers", diff_ids: [`sha256:${sha256(readFileSync(path.join(folder, "layer.tar")))}`] },
        });
        writeFileSync(path.join(folder, `${sha256(text)}.json`), text);
        writeFileSync(path.join(folder, "manifest.json"),
            JSON.stringify([{ Config: `${sha256(text)}.json`, RepoTags: ["x:1"], Layers: ["layer.tar"] }]));
    }

    test("an image's ENV is in force, its USER and WORKDIR are said not to be", async () => {
        await save(path.join(work, "saved"), { User: "app", WorkingDir: "/srv/app",
            Env: ["PATH=/bin:/special", "GREETING=hi = there", "HOME=/elsewhere", "EMPTY="] });
        const { stderr } = await run(SERVICE_PROGRAM,
            ["image", "import", "--data", data, "envy", `oci:${work}/saved`], { env: {} });
        assert.match(stderr, /names the user app: .* runs as its root/);
        assert.match(stderr, /names the folder \/srv\/app: tools work in \/workspace/);
        const session = await job.session({ environment: { image: "envy" } });
        const events = await session.run(`${call("bash", { command: "echo $PATH:$GREETING:$HOME:$USER:${EMPTY-unset}:$LANG; id -u; pwd" })} THEN SAY ok`);
        assert.match(resultOf(events), /^\/bin:\/special:hi = there:\/root:root::C\.UTF-8\n0\n\/workspace/);
        await save(path.join(work, "odd"), { Env: ["NO VALUE"] });
        await fails(/Env has an entry that is no NAME=VALUE/, "import", "odd", `oci:${work}/odd`);
    });

    test("clear refusals: no source, a bad name, a source that is not there", async () => {
        await fails(/must be dir:PATH, tar:PATH or oci:PATH/, "import", "a", "docker.io/debian");
        await fails(/is no image name/, "import", "A/b", `dir:${work}/one`);
        await fails(/built-in image/, "import", "host", `dir:${work}/one`);
        await fails(/open \/nonexistent: No such file/, "import", "a", "tar:/nonexistent");
        await fails(/more than 3 entries/, "import", "a", `dir:${work}/one`, "--max-entries", "3");
        assert.deepEqual((await listed()).filter((row) => row.name === "a"), []);
        assert.deepEqual(readdirSync(path.join(data, "images")).filter((n) => /^\.(new|old)-/.test(n)), []);
    });

    test("a session's tools see the image's own files and programs, not the host's", async () => {
        await image("import", "tiny", `dir:${work}/one`);
        const session = await job.session({ environment: { image: "tiny" } });
        const events = await session.run(`${call("bash", {
            command: "cat /etc/release; ls /usr /bin/bash; ls /proc/self/fd >/dev/null && echo proc; "
                + "touch /etc/mine && echo written; pwd",
        })} THEN SAY ok`);
        const text = resultOf(events);
        assert.match(text, /^tiny one\n/);
        assert.match(text, /share/);
        assert.match(text, /bash: No such file/);
        assert.match(text, /proc\nwritten\n\/workspace/);
        const read = await session.run(`${call("read", { path: "/etc/release" })} THEN SAY ok`);
        assert.match(resultOf(read), /tiny one/);
        const inImage = (await listed()).find((row) => row.name === "tiny");
        assert.equal(inImage.sandboxes, 1);
        const rootfs = path.join(data, "images/tiny", inImage.digest.slice(7), "rootfs");
        assert.ok(!existsSync(path.join(rootfs, "etc/mine")), "the image itself stays as it is");
    });

    test("a sandbox keeps its image when the tag moves or goes; its files go with the last", async () => {
        await image("import", "moving", `dir:${work}/one`);
        const session = await job.session({ environment: { image: "moving", idleTimeout: 1 } });
        const release = `${call("bash", { command: "cat /etc/release" })} THEN SAY ok`;
        assert.match(resultOf(await session.run(release)), /tiny one/);
        await image("import", "moving", `dir:${work}/two`);
        const other = await job.session({ environment: { image: "moving:latest" } });
        assert.match(resultOf(await other.run(release)), /tiny two/);
        while ((await session.get()).sandbox.state !== "stopped") {
            await new Promise(setImmediate);
        }
        assert.match(resultOf(await session.run(release)), /tiny one/, "started again on the same files");
        assert.match(await image("remove", "moving"), /1 sandboxes still use its files/);
        assert.match(resultOf(await other.run(release)), /tiny two/);
        await job.service.request("DELETE", session.path);
        await job.service.request("DELETE", other.path);
        assert.ok(!existsSync(path.join(data, "images/moving")), "nothing is left of it");
    });

    test("an image that is not in the store: the session says so, and works once it is there", async () => {
        const session = await job.session({ environment: { image: "late:1" } });
        const events = await session.run(`${call("bash", { command: "cat /etc/release" })} THEN SAY no`);
        const said = JSON.stringify(events);
        assert.match(said, /there is no image late:1 in the image store/);
        await image("import", "late:1", `dir:${work}/two`);
        const again = await session.run(`${call("bash", { command: "cat /etc/release" })} THEN SAY ok`);
        assert.match(resultOf(again), /tiny two/);
    });
});
