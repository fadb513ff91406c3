// packages.pip with the real pip (packages.test.mjs has stand-ins): an image that holds this machine's Debian Python, and
// a package index of the test's own, on loopback, with wheels made here.
import assert from "node:assert/strict";
import { execFile, execFileSync, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { startJob, textOf } from "../support/job.mjs";
import { SERVICE_PROGRAM, serviceMissing } from "../support/service.mjs";

const BUSYBOX = "/bin/busybox";
const APPLETS = ["sh", "cat", "echo", "rm", "tail", "ls", "env"];
const run = promisify(execFile);

const python = (script) => spawnSync("/usr/bin/python3", ["-c", script], { encoding: "utf8" });
/** {program, library, pip}: where Debian's Python is; undefined without its pip. */
function findPython() {
    const script = "import os, sys, pip; print(os.path.realpath('/usr/bin/python3')); print(os.path.dirname(os.__file__)); "
        + "print(os.path.dirname(pip.__file__))";
    const [program, library, pip] = python(script).stdout?.trim().split("\n") ?? [];
    return pip?.startsWith("/usr/lib/") ? { program, library, pip } : undefined;
}
const found = findPython();
const missing = serviceMissing
    || (!existsSync(BUSYBOX) && "no static busybox here: apt-get install busybox-static")
    || (!found && "no Debian Python with pip here: apt-get install python3-pip");

/** Paths of the libraries that a program or module wants. */
function librariesOf(file) {
    const { stdout } = spawnSync("ldd", [file], { encoding: "utf8" });
    return [...stdout.matchAll(/(\/\S+) \(0x/g)].map((match) => match[1]);
}

function makeRoot(root, indexUrl) {
    for (const folder of ["bin", "etc", "usr/bin", "usr/lib/python3/dist-packages", "tmp"]) {
        mkdirSync(path.join(root, folder), { recursive: true });
    }
    cpSync(BUSYBOX, path.join(root, "bin/busybox"), { dereference: true });
    APPLETS.forEach((applet) => symlinkSync("busybox", path.join(root, "bin", applet)));
    const copy = (from, filter) => cpSync(from, path.join(root, from), { recursive: true, dereference: true, filter });
    copy(found.program);
    symlinkSync(path.basename(found.program), path.join(root, "usr/bin/python3"));
    copy(found.library, (file) => !/\/(test|idlelib|lib2to3|ensurepip|config-[^/]+|__pycache__)$/.test(file));
    copy(found.pip, (file) => !file.endsWith("/__pycache__"));
    const modules = path.join(found.library, "lib-dynload");
    const programs = [found.program, ...readdirSync(modules).map((name) => path.join(modules, name))];
    for (const library of new Set(programs.flatMap(librariesOf))) {
        copy(library);
    }
    writeFileSync(path.join(root, "etc/pip.conf"), `[global]\nindex-url = ${indexUrl}/simple\ntrusted-host = 127.0.0.1\n`);
}

/** A wheel is a zip; Python writes it. */
function makeWheel(folder, { name, version, code, requires, script }) {
    const stem = `${name}-${version}`;
    const file = path.join(folder, `${stem}-py3-none-any.whl`);
    const members = {
        [`${name}.py`]: code,
        [`${stem}.dist-info/METADATA`]: `Metadata-Version: 2.1\nName: ${name}\nVersion: ${version}\n`
            + (requires ? `Requires-Dist: ${requires}\n` : ""),
        [`${stem}.dist-info/WHEEL`]: "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        [`${stem}.dist-info/entry_points.txt`]: script ? `[console_scripts]\n${script}\n` : "",
        [`${stem}.dist-info/RECORD`]: "",
    };
    execFileSync("/usr/bin/python3", ["-c", "import json, sys, zipfile\n"
        + "z = zipfile.ZipFile(sys.argv[1], 'w')\n"
        + "[z.writestr(name, text) for name, text in json.load(sys.stdin).items()]\nz.close()", file],
    { input: JSON.stringify(members) });
    return file;
}

/** The simple index (PEP 503) of these wheels; remembers what it was asked. */
async function startIndex(wheels) {
    const asked = [];
    const server = createServer((request, response) => {
        asked.push(request.url);
        const [, kind, name] = request.url.split("/");
        const files = wheels.filter((file) => kind === "simple"
            ? path.basename(file).split("-")[0].replaceAll("_", "-") === name : path.basename(file) === name);
        if (files.length === 0) {
            response.writeHead(404).end();
        } else if (kind === "files") {
            response.end(readFileSync(files[0]));
        } else {
            const link = (file) => `<a href="/files/${path.basename(file)}#sha256=${
                createHash("sha256").update(readFileSync(file)).digest("hex")}">${path.basename(file)}</a>`;
            response.setHeader("content-type", "text/html");
            response.end(`<!DOCTYPE html><html><body>${files.map(link).join("\n")}</body></html>`);
        }
    });
    await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address();
    return { asked, port, url: `http://127.0.0.1:${port}`, close: () => new Promise((done) => server.close(done)) };
}

describe("packages.pip with the real pip", { skip: missing }, () => {
    let job, index, work;
    before(async () => {
        work = mkdtempSync(path.join(tmpdir(), "pi-managed-pip-"));
        index = await startIndex([
            makeWheel(work, { name: "tiny_greeting", version: "1.0", requires: "tiny_words>=2", script: "greet = tiny_greeting:main",
                code: "import tiny_words\ndef main():\n    print('greeting', tiny_words.word)\n" }),
            makeWheel(work, { name: "tiny_words", version: "1.0", code: "word = 'old'\n" }),
            makeWheel(work, { name: "tiny_words", version: "2.1", code: "word = 'hello'\n" }),
        ]);
        makeRoot(path.join(work, "root"), index.url);
        job = await startJob({ allowPrivate: "127.0.0.1", args: ["--package-hosts", `127.0.0.1:${index.port}`] });
        await run(SERVICE_PROGRAM, ["image", "import", "python", `dir:${work}/root`, "--data", job.service.data], { env: {} });
    });
    after(async () => {
        await job?.stop();
        await index?.close();
        if (work) {
            rmSync(work, { recursive: true, force: true });
        }
    });

    const session = (pip) => job.session({ environment: { image: "python", packages: { pip } } });

    test("a wheel, its dependency and its command are there", async () => {
        const one = await session(["tiny-greeting==1.0"]);
        const command = "greet; python3 -c 'import tiny_words; print(tiny_words.__file__)'; python3 -m pip list 2>/dev/null";
        const events = await one.run(`CALL bash ${JSON.stringify({ command })} THEN SAY ok`);
        const result = events.find((event) => event.type === "agent.tool_result");
        assert.ok(result, JSON.stringify(events.filter((event) => event.type === "session.error")));
        assert.match(textOf(result), /^greeting hello\n\/usr\/local\/lib\/\S+\/tiny_words\.py\n[^]*tiny.greeting +1\.0\ntiny.words +2\.1/);
        assert.ok(index.asked.includes("/simple/tiny-greeting/") && index.asked.includes("/simple/tiny-words/"));
    });

    test("what the index does not have is the session's error, in pip's words", async () => {
        const events = await (await session(["tiny-greeting==9"])).run('CALL bash {"command":"echo must not run"} THEN SAY no');
        const { error } = events.find((event) => event.type === "session.error");
        assert.match(error.message, /packages\.pip could not be installed: ERROR: .*tiny-greeting==9/);
    });
});
