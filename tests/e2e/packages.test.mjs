// Packages of environments (§6.2): installed into a derived image, once, through the broker's proxy to
// the hosts an operator named; a failure is the session's error and nothing falls back. The image's
// package managers are scripts that fetch from a server of the test, as the real ones do.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import {
    chmodSync, cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync,
} from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { assertPaths } from "../api/support.mjs";
import { eventually } from "../support/eventually.mjs";
import { startJob, textOf } from "../support/job.mjs";
import { SERVICE_PROGRAM, serviceMissing } from "../support/service.mjs";

const BUSYBOX = "/bin/busybox";
const APPLETS = ["sh", "ls", "cat", "echo", "stat", "id", "rm", "wget", "tail", "mkdir", "chmod", "ln", "touch",
    "chown", "mv", "env", "sleep"];
const run = promisify(execFile);
const call = (command) => `CALL bash ${JSON.stringify({ command })}`;
const resultOf = (events) => textOf(events.find((event) => event.type === "agent.tool_result"));
const missing = serviceMissing
    || (!existsSync(BUSYBOX) && "no static busybox here: apt-get install busybox-static");

/** Fetches each name from the mirror and puts what comes into place; changes the image in every way a layer can. */
const aptGet = (mirror) => `#!/bin/sh
set -e
for word; do
    case $word in
    update) wget -q -O /etc/index ${mirror}/index; exit 0 ;;
    install | -*) ;;
    *=*|*::*) ;;
    *)  wget -q -O /usr/bin/$word ${mirror}/$word || { echo "E: Unable to locate package $word" >&2; exit 100; }
        chmod 755 /usr/bin/$word ;;
    esac
done
rm -r /opt/old; mkdir /opt/old; echo new > /opt/old/new
rm /etc/gone
ln -s /etc/release /etc/link
echo changed >> /etc/release
echo setuid > /usr/bin/marked; chown 7:8 /usr/bin/marked || true; chmod 4751 /usr/bin/marked
`;

/** What npm and pip are told behind --, from the proxy that they are told of. */
const installer = (mirror, wanted) => `#!/bin/sh
set -e
[ "$*" = "-m pip --version" ] && exit 0
proxy= names=
for word; do
    case $word in
    --proxy=*) proxy=\${word#*=} ;;
    http://127.0.0.1:3128) proxy=$word ;;
    --) names=yes ;;
    *) [ -n "$names" ] || continue
       http_proxy=$proxy wget -q -O /usr/bin/\${word%%[@=]*} ${mirror}/\${word%%[@=]*} || {
           echo "ERROR: No matching distribution found for $word"; exit 1; }
       chmod 755 /usr/bin/\${word%%[@=]*}; echo "${wanted} $word" >> /etc/installed ;;
    esac
done
[ -n "$names" ]
`;

function makeRoot(folder, mirror) {
    for (const sub of ["bin", "etc", "usr/bin", "opt/old"]) {
        mkdirSync(path.join(folder, sub), { recursive: true });
    }
    cpSync(BUSYBOX, path.join(folder, "bin/busybox"), { dereference: true });
    for (const applet of APPLETS) {
        symlinkSync("busybox", path.join(folder, "bin", applet));
    }
    writeFileSync(path.join(folder, "etc/release"), "tiny\n");
    writeFileSync(path.join(folder, "etc/gone"), "");
    writeFileSync(path.join(folder, "opt/old/old"), "");
    writeFileSync(path.join(folder, "bin/apt-get"), aptGet(mirror));
    chmodSync(path.join(folder, "bin/apt-get"), 0o755);
}

function addInstallers(folder, mirror) {
    for (const [name, wanted] of [["npm", "npm"], ["python3", "pip"]]) {
        writeFileSync(path.join(folder, "bin", name), installer(mirror, wanted));
        chmodSync(path.join(folder, "bin", name), 0o755);
    }
}

/** A package mirror that counts what it was asked for. */
async function startMirror() {
    const asked = [];
    const server = createServer((request, response) => {
        asked.push(request.url);
        const name = request.url.slice(1);
        if (!/^(index|hello|world|slow)$/.test(name)) {
            response.writeHead(404).end("no such package");
            return;
        }
        response.end(`#!/bin/sh\necho ${name} ${request.headers["user-agent"] ? "came" : ""}\n`);
    });
    await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address();
    return { asked, port, url: `http://127.0.0.1:${port}`, close: () => new Promise((done) => server.close(done)) };
}

describe("packages of an environment", { skip: missing }, () => {
    let job, mirror, work;
    before(async () => {
        mirror = await startMirror();
        work = mkdtempSync(path.join(tmpdir(), "pi-managed-packages-"));
        makeRoot(path.join(work, "root"), mirror.url);
        makeRoot(path.join(work, "elsewhere"), "http://127.0.0.1:9");
        job = await startJob({
            allowPrivate: "127.0.0.1",
            args: ["--package-hosts", `127.0.0.1:${mirror.port}`, "--allow-image", `${work}/root`],
        });
        await image("import", "tiny", `dir:${work}/root`);
        await image("import", "elsewhere", `dir:${work}/elsewhere`);
    });
    after(async () => {
        await job?.stop();
        await mirror?.close();
        if (work) {
            rmSync(work, { recursive: true, force: true });
        }
    });

    const image = async (verb, ...rest) =>
        (await run(SERVICE_PROGRAM, ["image", verb, "--data", job.service.data, ...rest], { env: {} })).stdout;
    const listed = async (name) => (await image("list", "--json")).split("\n").filter(Boolean)
        .map((line) => JSON.parse(line)).filter((row) => row.name === name);
    const session = (packages, name = "tiny") => job.session({ environment: { image: name, packages } });
    const ask = async (one, command) => resultOf(await one.run(`${call(command)} THEN SAY ok`));
    const asked = (name) => mirror.asked.filter((url) => url === `/${name}`).length;

    const failure = async (one) => {
        const events = await one.run(`${call("echo must not run")} THEN SAY ok`);
        assert.doesNotMatch(JSON.stringify(events), /must not run\\n/);
        const error = events.find((event) => event.type === "session.error");
        assert.ok(error, JSON.stringify(events));
        return JSON.stringify(error);
    };

    test("they are there, and all that installing them changed", async () => {
        const one = await session({ apt: ["hello"] });
        const answer = await ask(one, "hello; cat /etc/release /etc/link; ls /opt/old; "
            + "stat -c '%a %u %g' /usr/bin/marked; ls /etc/gone || echo whited out");
        assert.match(answer, /hello came\ntiny\nchanged\ntiny\nchanged\nnew\n4751 (\d \d)\n[^]*whited out/);
        if (process.getuid() === 0) { // else a sandbox has one id
            assert.match(answer, /4751 7 8/);
        }
        const [row] = await listed("baked");
        assert.equal(row.source, "tiny + apt:hello ");
        assert.equal(row.sandboxes, 1);
        const { image: made } = (await job.service.ok("GET", `${one.path}/sandbox`));
        assert.equal(made, `baked:${row.tag}`);
    });

    test("all three kinds in one image; one that fails is named with its reason", async () => {
        const root = path.join(work, "three");
        makeRoot(root, mirror.url);
        addInstallers(root, mirror.url);
        await image("import", "three", `dir:${root}`);
        const one = await session({ apt: ["slow"], npm: ["world@1.0.0"], pip: ["hello==2"] }, "three");
        assert.match(await ask(one, "slow; world; hello; cat /etc/installed"),
            /slow came\nworld came\nhello came\nnpm world@1\.0\.0\npip hello==2/);
        assert.match(await failure(await session({ pip: ["nosuch"] }, "three")),
            /packages\.pip could not be installed: ERROR: No matching distribution found for nosuch/);
    });

    test("equal wishes share one image, whatever their order; the image beneath is as it was", async () => {
        const before = asked("world");
        const wishes = [["hello", "world"], ["world", "hello"], ["world", "hello", "world"]];
        const sessions = await Promise.all(wishes.map((apt) => session({ apt })));
        const answers = await Promise.all(sessions.map((one) => ask(one, "world; hello")));
        answers.forEach((answer) => assert.match(answer, /world came\nhello came/));
        assert.equal(asked("world"), before + 1);
        const plain = await session(null);
        assert.match(await ask(plain, "cat /etc/release; ls /opt/old /usr/bin"), /^tiny\n[^]*old/);
        assert.doesNotMatch(await ask(plain, "ls /usr/bin"), /hello|marked/);
    });

    test("a session keeps its image over a stop, even when the one beneath moved on", async () => {
        const one = await job.session({ environment: { image: "tiny", packages: { apt: ["hello"] }, idleTimeout: 1 } });
        await ask(one, "echo mine > /root/note");
        writeFileSync(path.join(work, "root/etc/extra"), "x");
        await image("import", "tiny", `dir:${work}/root`);
        await eventually("the sandbox stops", async () => (await one.get()).sandbox.state, (state) => state === "stopped");
        assert.match(await ask(one, "hello; cat /root/note; ls /etc/extra || echo not"), /hello came\nmine\n[^]*not/);
        const other = await session({ apt: ["hello"] });
        assert.match(await ask(other, "hello; ls /etc/extra"), /hello came\n\/etc\/extra/);
        assert.ok((await listed("baked")).length >= 2);
    });

    test("a package that does not exist is the session's error, in the package manager's words", async () => {
        assert.match(await failure(await session({ apt: ["nosuch"] })),
            /packages\.apt could not be installed: E: Unable to locate package nosuch/);
        const sandboxes = readdirSync(path.join(job.service.data, "sandboxes"));
        assert.ok(!sandboxes.some((name) => name.startsWith("build_")), `nothing is left of it: ${sandboxes}`);
        assert.ok(!(await listed("baked")).some((row) => row.source.includes("nosuch")));
    });

    test("a package manager that the image lacks is named", async () => {
        assert.match(await failure(await session({ npm: ["left"] })), /packages\.npm .*the image has no npm/);
    });

    test("the build reaches the named hosts and nothing else", async () => {
        // An address that would answer, were it asked: the model's.
        const model = new URL(job.model.url);
        assert.match(await failure(await session({ apt: ["hello"] }, "elsewhere")), /packages\.apt could not be installed/);
        const root = path.join(work, "model");
        makeRoot(root, model.origin);
        await image("import", "model", `dir:${root}`);
        const requests = job.model.requests.length;
        assert.match(await failure(await session({ apt: ["hello"] }, "model")), /packages\.apt could not be installed/);
        const own = job.model.requests.slice(requests).filter((request) => request.path === "/index");
        assert.deepEqual(own, []);
    });

    test("a session's own sandbox has no way out, with packages or without", async () => {
        const one = await session({ apt: ["hello"] });
        const fetch = `wget -q -T 5 -O - ${mirror.url}/hello && echo reached`;
        const before = asked("hello");
        const answer = await ask(one, `http_proxy=http://127.0.0.1:3128 ${fetch}; ${fetch}; echo end`);
        assert.match(answer, /end/);
        assert.doesNotMatch(answer, /reached/);
        assert.equal(asked("hello"), before);
    });

    test("refused at the door: packages on host, options, paths and URLs as names", async () => {
        const post = (body) => job.service.request("POST", "/v1/environments", { body: { name: `e${Math.random()}`, ...body } });
        await assertPaths(await post({ packages: { apt: ["jq"] } }), ["/packages"], "packages_need_image");
        for (const apt of ["-o", "jq; rm", "../x", "http://x", "jq-", "", "JQ", "jq=1 2", "a\n"]) {
            await assertPaths(await post({ image: "tiny", packages: { apt: [apt] } }), ["/packages/apt/0"], "invalid_package");
        }
        for (const npm of ["--global", "git+https://x/y", "user/repo", "file:x", "../x", "a@b/c", "@a", "a b"]) {
            await assertPaths(await post({ image: "tiny", packages: { npm: [npm] } }), ["/packages/npm/0"], "invalid_package");
        }
        for (const pip of ["-r", "x @ http://y", "./x", "a==1,b", "a;b", "a[", "a[]"]) {
            await assertPaths(await post({ image: "tiny", packages: { pip: [pip] } }), ["/packages/pip/0"], "invalid_package");
        }
        await assertPaths(await post({ image: "tiny", packages: { gem: ["x"] } }), ["/packages/gem"]);
        const good = { apt: ["g++", "libc6:i386", "jq=1.6-2.1+deb12u1", null].slice(0, 3),
            npm: ["typescript", "@types/node@22.1.0", "a@^5", "a@latest"], pip: ["requests", "uvicorn[standard]==0.30.1", "numpy>=2"] };
        const made = await post({ image: "tiny", packages: good });
        assert.equal(made.status, 201, made.text);
        assert.deepEqual(made.body.packages, good);
        const host = await job.service.request("PATCH", `/v1/environments/${made.body.id}`, { body: { image: "host" } });
        await assertPaths(host, ["/packages"], "packages_need_image");
    });

    test("a path that the operator allowed is an image; others are not", async () => {
        const one = await session(null, `dir:${work}/root`);
        assert.match(await ask(one, "cat /etc/release"), /^tiny/);
        assert.match((await job.service.ok("GET", `${one.path}/sandbox`)).image, /^local:/);
        symlinkSync(path.join(work, "elsewhere"), path.join(work, "root/way-out"));
        for (const bad of [`dir:${work}/elsewhere`, `dir:${work}/root/../elsewhere`, `dir:${work}/rootless`, "dir:/"]) {
            const reply = await job.service.request("POST", "/v1/environments", { body: { name: `e${Math.random()}`, image: bad } });
            await assertPaths(reply, ["/image"], "image_not_allowed");
        }
        assert.match(await failure(await session(null, `dir:${work}/root/way-out`)), /not beneath a path of --allow-image/);
    });

    test("image prune removes derived images that no sandbox uses", async () => {
        const one = await session({ apt: ["hello", "world"] });
        await ask(one, "hello");
        const used = (await listed("baked")).filter((row) => row.sandboxes > 0);
        await image("prune");
        assert.deepEqual((await listed("baked")).map((row) => row.tag).sort(), used.map((row) => row.tag).sort());
        for (const each of (await job.service.ok("GET", "/v1/sessions?limit=100")).data) {
            await job.service.request("DELETE", `/v1/sessions/${each.id}`);
        }
        await image("prune");
        assert.deepEqual([...await listed("baked"), ...await listed("local")], []);
        assert.equal((await listed("tiny")).length, 1);
    });
});
