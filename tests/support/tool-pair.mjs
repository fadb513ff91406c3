// One tool call twice, by Pi's own tools and by pi-hands, in the same folder made anew: same text, same error,
// same details, same files afterwards. Import it once a test file.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { after, before, test } from "node:test";
import { pathToFileURL } from "node:url";
import { startHands } from "./hands-driver.mjs";

const root = fs.mkdtempSync(path.join(os.tmpdir(), "pm-tools-"));
export const cwd = path.join(root, "work");
process.env.HOME = path.join(root, "home");
const bin = path.join(process.env.HOME, ".pi/agent/bin"); // where Pi looks for its programs first
fs.mkdirSync(bin, { recursive: true });
const rg = path.join(bin, "rg");
const program = path.join(bin, "pi-hands");
fs.copyFileSync("build/runtime/rg", rg);
fs.copyFileSync("build/pi-hands", program); // copies: becomeNobody() may not see the build folder

// Pi's find runs fd. Debian 12 has fd 8.6, which obeys .gitignore in repositories only and lacks Pi's
// --no-require-git: there the folder becomes a repository while fd runs, and fd leaves .git out again.
// And fd sorts what it found in its first 100 ms only: a busy machine gets longer.
const FD = `#!/bin/bash
args=() plain=no
for a; do if [ "$a" = --no-require-git ]; then plain=yes; else args+=("$a"); fi; done
if [ $plain = no ] || ! PROGRAM --version | grep -q " 8\\."; then exec PROGRAM --max-buffer-time 60000 "$@"; fi
mkdir WORK/.git
PROGRAM --max-buffer-time 60000 --exclude .git "\${args[@]}"
status=$?
rmdir WORK/.git
exit $status
`;
const installedFd = ["/usr/bin/fdfind", "/usr/bin/fd"].find((file) => fs.existsSync(file));
if (installedFd) fs.writeFileSync(path.join(bin, "fd"), FD.replaceAll("PROGRAM", installedFd).replaceAll("WORK", cwd), { mode: 0o755 });
export const noFd = installedFd ? false : "Pi's find needs fd: apt-get install fd-find";

export const pi = await import(pathToFileURL(path.resolve("build/runtime/pi/dist/bundle/index.js")));

const tools = {
    bash: pi.createBashTool(cwd, { exposeSessionEnvironment: false }),
    read: pi.createReadTool(cwd, { autoResizeImages: false }),
    write: pi.createWriteTool(cwd),
    edit: pi.createEditTool(cwd),
    grep: pi.createGrepTool(cwd),
    find: pi.createFindTool(cwd),
    ls: pi.createLsTool(cwd),
};
export let hands;
before(async () => {
    hands = await startHands(root, { HOME: process.env.HOME, PATH: process.env.PATH }, { program, rg });
});
after(async () => {
    await hands?.stop();
    fs.rmSync(root, { recursive: true, force: true });
});

// For tests of permissions, which root does not meet: this process and pi-hands go on as nobody. Before any test.
export function becomeNobody() {
    if (process.getuid() !== 0) return;
    for (const entry of [".", ...fs.readdirSync(root, { recursive: true })]) fs.lchownSync(path.join(root, entry), 65534, 65534);
    process.setgroups([]);
    process.setgid(65534);
    process.setuid(65534);
}

const makeReadable = () => spawnSync("chmod", ["-R", "u+rwX", cwd]);

export function reset(files) {
    if (fs.existsSync(cwd)) makeReadable();
    fs.rmSync(cwd, { recursive: true, force: true });
    fs.mkdirSync(cwd, { recursive: true });
    fs.mkdirSync(process.env.HOME, { recursive: true });
    for (const [name, content] of Object.entries(files)) {
        const file = path.join(cwd, name);
        fs.mkdirSync(path.dirname(file), { recursive: true });
        if (content !== null && Object.hasOwn(content, "link")) fs.symlinkSync(content.link, file);
        else if (content === null) fs.mkdirSync(file);
        else fs.writeFileSync(file, content);
    }
}

// By hand: readdir's own recursion follows links to folders, and some of these go round.
function tree(folder = cwd, found = {}) {
    for (const entry of fs.readdirSync(folder, { withFileTypes: true })) {
        const file = path.join(folder, entry.name);
        if (entry.name.includes("\ufffd")) continue; // no UTF-8: cannot be opened by this name
        if (entry.isFile()) {
            found[file] = fs.readFileSync(file).toString("base64");
        } else if (entry.isDirectory()) {
            found[file] = "folder";
            tree(file, found);
        }
    }
    return found;
}

// The path of a kept output differs; what it holds must not.
function withoutPaths(value) {
    const kept = [];
    const text = JSON.stringify(value ?? null).replaceAll(/\/[^\s"\])]*pi-bash-[0-9a-f]{16}\.log/g, (file) => {
        kept.push(file);
        return "KEPT";
    });
    const content = kept[0] && fs.readFileSync(kept[0], "utf8");
    if (kept[0]) fs.rmSync(kept[0]);
    return { value: JSON.parse(text), kept: content };
}

export async function runPi(tool, input) {
    try {
        const prepared = tools[tool].prepareArguments?.(structuredClone(input)) ?? input;
        const { content, details, isError = false } = await tools[tool].execute("id", prepared);
        return { content, details, isError };
    } catch (error) {
        return { content: [{ type: "text", text: error.message }], details: undefined, isError: true };
    }
}

export async function runHands(tool, input) {
    const { content, details, isError } = await hands.call(tool, input, cwd);
    if (typeof details?.oldText !== "string") return { content, details, isError };
    const shown = pi.generateDiffString(details.oldText, details.newText);
    const patch = pi.generateUnifiedPatch(input.path, details.oldText, details.newText);
    return { content, details: { diff: shown.diff, patch, firstChangedLine: shown.firstChangedLine }, isError };
}

// `prepare` makes what a table of files cannot; `view` turns a result into what is compared.
export function same(name, tool, input, files = {}, { prepare = () => {}, view = (result) => result, skip } = {}) {
    test(name, { skip }, async () => {
        const once = async (run) => {
            reset(files);
            prepare(cwd);
            return withoutPaths(view(await run(tool, input)));
        };
        const expected = await once(runPi);
        makeReadable();
        const expectedTree = tree();
        const actual = await once(runHands);
        makeReadable();
        assert.deepEqual(actual, expected);
        assert.deepEqual(tree(), expectedTree);
    });
}

export const lines = (n, width = 0) => Array.from({ length: n }, (_, i) => `${i + 1}`.padEnd(width, "x")).join("\n");
// n files of one folder, by number.
export const many = (n, name = (i) => `f${i}`) => Object.fromEntries(Array.from({ length: n }, (_, i) => [name(i), ""]));
export const named = (...names) => Object.fromEntries(names.map((name) => [name, ""]));
