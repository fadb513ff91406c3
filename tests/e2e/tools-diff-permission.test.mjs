// The seven tools where the file system says no, and links and special files, against Pi's own. As nobody:
// root is refused nothing.
import { spawnSync } from "node:child_process";
import fs from "node:fs";
import path from "node:path";
import { describe } from "node:test";
import { becomeNobody, noFd, same } from "../support/tool-pair.mjs";

becomeNobody();

// Modes by name, the deepest first so that a folder is closed last.
const modes = (wanted) => ({
    prepare: (folder) => {
        for (const [name, mode] of Object.entries(wanted)) fs.chmodSync(path.join(folder, name), mode);
    },
});
const closedFile = modes({ "a.txt": 0o000 });
const readOnlyFile = modes({ "a.txt": 0o444 });
const closedFolder = modes({ d: 0o000 });
const readOnlyFolder = modes({ d: 0o555 });
const listOnlyFolder = modes({ d: 0o444 }); // names can be seen, nothing behind them
const files = { "a.txt": "one\ntwo\n", "d/b.txt": "one\n", "e/c.txt": "one\n" };
const fifo = { prepare: (folder) => spawnSync("mkfifo", [path.join(folder, "pipe")]) };

describe("read", () => {
    const read = (name, input, more) => same(name, "read", { path: input }, files, more);
    read("a closed file", "a.txt", closedFile);
    read("in a closed folder", "d/b.txt", closedFolder);
    read("a missing file in a closed folder", "d/none.txt", closedFolder);
    read("in a folder that lists only", "d/b.txt", listOnlyFolder);
    read("a closed folder", "d", closedFolder);
});

describe("write", () => {
    const write = (name, input, more) => same(name, "write", { path: input, content: "new" }, files, more);
    write("a read-only file", "a.txt", readOnlyFile);
    write("a closed file", "a.txt", closedFile);
    write("into a closed folder", "d/b.txt", closedFolder);
    write("a new file into a read-only folder", "d/new.txt", readOnlyFolder);
    write("an old file in a read-only folder", "d/b.txt", readOnlyFolder);
    write("below a read-only folder", "d/x/y.txt", readOnlyFolder);
    write("below a closed folder", "d/x/y.txt", closedFolder);
    write("over /proc/version", "/proc/version");
});

describe("edit", () => {
    const edit = (name, input, more) =>
        same(name, "edit", { path: input, edits: [{ oldText: "one", newText: "1" }] }, files, more);
    edit("a read-only file", "a.txt", readOnlyFile);
    edit("a closed file", "a.txt", closedFile);
    edit("in a closed folder", "d/b.txt", closedFolder);
    edit("in a read-only folder", "d/b.txt", readOnlyFolder);
    edit("/proc/version", "/proc/version");
    same("through a link", "edit", { path: "l", edits: [{ oldText: "one", newText: "1" }] }, { ...files, l: { link: "a.txt" } });
});

describe("ls", () => {
    const ls = (name, input, more) => same(name, "ls", { path: input }, files, more);
    ls("a closed folder", "d", closedFolder);
    ls("beside a closed folder", ".", closedFolder);
    ls("a folder that lists only", "d", listOnlyFolder);
    ls("below a closed folder", "d/x", closedFolder);
    same("a fifo", "ls", {}, files, fifo);
});

describe("grep", () => {
    const grep = (name, input, more) => same(name, "grep", { pattern: "one", ...input }, files, more);
    grep("a closed file by name", { path: "a.txt" }, closedFile);
    grep("beside a closed file", {}, closedFile);
    grep("beside a closed folder", {}, closedFolder);
    grep("a closed folder", { path: "d" }, listOnlyFolder);
    grep("in a closed folder", { path: "d/b.txt" }, closedFolder);
    same("beside a fifo", "grep", { pattern: "one" }, { "a.txt": "one\n" }, fifo);
});

describe("find", () => {
    const find = (name, input, more) => same(name, "find", { pattern: "*", ...input }, files, { skip: noFd, ...more });
    find("beside a closed folder", {}, closedFolder);
    find("a closed folder", { path: "d" }, closedFolder);
    find("in a closed folder", { path: "d/x" }, closedFolder);
    find("a folder that lists only", {}, listOnlyFolder);
    find("closed rules", {}, { prepare: (folder) => fs.writeFileSync(path.join(folder, ".gitignore"), "*.txt\n", { mode: 0 }) });
    same("a fifo", "find", { pattern: "*" }, files, { skip: noFd, ...fifo });
});

describe("bash", () => {
    const bash = (name, command, more) => same(name, "bash", { command }, files, more);
    bash("a closed file", "cat a.txt", closedFile);
    bash("a program without its right to run", "./a.txt", modes({ "a.txt": 0o644 }));
    bash("a folder as program", "./d");
    bash("a closed working folder below", "cd d && ls", closedFolder);
});
