// The tools of pi-hands against Pi's own, in the same folder, one after the other: same text, same error,
// same details, same files afterwards.
import assert from "node:assert/strict";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { pathToFileURL } from "node:url";
import { startHands } from "../support/hands-driver.mjs";

const root = fs.mkdtempSync(path.join(os.tmpdir(), "pm-tools-"));
const cwd = path.join(root, "work");
process.env.HOME = path.join(root, "home");
const pi = await import(pathToFileURL(path.resolve("build/runtime/pi/dist/bundle/index.js")));

const tools = {
    bash: pi.createBashTool(cwd, { exposeSessionEnvironment: false }),
    read: pi.createReadTool(cwd, { autoResizeImages: false }),
    write: pi.createWriteTool(cwd),
    edit: pi.createEditTool(cwd),
    ls: pi.createLsTool(cwd),
};
let hands;
before(async () => {
    hands = await startHands(root, { HOME: process.env.HOME, PATH: process.env.PATH });
});
after(async () => {
    await hands?.stop();
    fs.rmSync(root, { recursive: true, force: true });
});

function reset(files) {
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

function tree(folder = cwd) {
    const found = {};
    for (const entry of fs.readdirSync(folder, { recursive: true, withFileTypes: true })) {
        const file = path.join(entry.parentPath, entry.name);
        if (entry.isFile()) found[file] = fs.readFileSync(file).toString("base64");
        else if (entry.isDirectory()) found[file] = "folder";
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

async function runPi(tool, input) {
    try {
        const prepared = tools[tool].prepareArguments?.(structuredClone(input)) ?? input;
        const { content, details, isError = false } = await tools[tool].execute("id", prepared);
        return { content, details, isError };
    } catch (error) {
        return { content: [{ type: "text", text: error.message }], details: undefined, isError: true };
    }
}

async function runHands(tool, input) {
    const { content, details, isError } = await hands.call(tool, input, cwd);
    if (typeof details?.oldText !== "string") return { content, details, isError };
    const shown = pi.generateDiffString(details.oldText, details.newText);
    const patch = pi.generateUnifiedPatch(input.path, details.oldText, details.newText);
    return { content, details: { diff: shown.diff, patch, firstChangedLine: shown.firstChangedLine }, isError };
}

function same(name, tool, input, files = {}) {
    test(name, async () => {
        reset(files);
        const expected = withoutPaths(await runPi(tool, input));
        const expectedTree = tree();
        reset(files);
        const actual = withoutPaths(await runHands(tool, input));
        assert.deepEqual(actual, expected);
        assert.deepEqual(tree(), expectedTree);
    });
}

const lines = (n, width = 0) => Array.from({ length: n }, (_, i) => `${i + 1}`.padEnd(width, "x")).join("\n");

describe("bash", () => {
    const bash = (name, command, more = {}, files) => same(name, "bash", { command, ...more }, files);
    bash("output", "echo hello");
    bash("no output", "true");
    bash("no newline at the end", "printf abc");
    bash("exit code", "echo out; exit 3");
    bash("exit code without output", "exit 3");
    bash("killed by a signal", "echo x; kill -9 $$");
    bash("a missing command", "no-such-command-here");
    bash("a syntax error", "if then");
    bash("standard error only", "echo oops >&2");
    bash("the working folder", "pwd; ls", {}, { "a.txt": "a" });
    bash("unicode", "echo 'grüße 🚀 日本'");
    bash("NUL in the output", "printf 'a\\0b\\n'");
    bash("NUL in the command", "printf a\0b");
    bash("NUL and both quotes in the command", `echo "it's"\0`);
    bash("bytes that are no UTF-8", "printf 'a\\xff\\xc3(\\xe2\\x82 \\xf0\\x9f\\x98 end\\xe2\\x82'");
    bash("a byte order mark", "printf '\\xef\\xbb\\xbfx\\xef\\xbb\\xbfy'");
    bash("2000 lines", "seq 1 2000");
    bash("2001 lines", "seq 1 2001");
    bash("2001 lines and no last newline", "seq 1 2000; printf end");
    bash("more than 50 KB in few lines", "for i in $(seq 1 100); do printf '%01000d\\n' $i; done");
    bash("exactly 50 KB", "printf '%051200d' 7");
    bash("50 KB and a newline", "printf '%051200d\\n' 7");
    bash("one line far over 50 KB", "printf '%0150000d' 7");
    bash("one line far over 50 KB, ended", "printf '%0150000d\\n' 7");
    bash("a line of 50.25 KB", "printf '%051456d' 7");
    bash("a line of 1.25 MB", "printf '%01310720d' 7");
    bash("a long line of multibyte text", "for i in $(seq 1 9000); do printf 'äöü日'; done");
    bash("too many lines and a failure", "seq 1 5000; exit 9");
    bash("many empty lines", "for i in $(seq 1 2500); do echo; done");
    bash("a timeout", "echo before; sleep 30", { timeout: 0.2 });
    bash("a timeout without output", "sleep 30", { timeout: 0.25 });
    bash("timeout zero", "true", { timeout: 0 });
    bash("timeout too large", "true", { timeout: 2147484 });
    bash("a background child", "sleep 30 & echo started");
    bash("standard input is empty", "cat; echo done");
});

describe("read", () => {
    const read = (name, input, files) => same(name, "read", input, files);
    read("a file", { path: "a.txt" }, { "a.txt": "one\ntwo\n" });
    read("an empty file", { path: "a.txt" }, { "a.txt": "" });
    read("a missing file", { path: "none.txt" });
    read("a folder", { path: "d" }, { d: null });
    read("below a file", { path: "a.txt/b" }, { "a.txt": "x" });
    read("a dangling link", { path: "l" }, { l: { link: "nowhere" } });
    read("a link to itself", { path: "l" }, { l: { link: "l" } });
    read("a name too long", { path: "n".repeat(300) });
    read("NUL in the name", { path: "a\0b" });
    read("offset", { path: "a.txt", offset: 3 }, { "a.txt": lines(5) });
    read("offset and limit", { path: "a.txt", offset: 2, limit: 2 }, { "a.txt": lines(9) });
    read("limit to the end", { path: "a.txt", offset: 4, limit: 6 }, { "a.txt": lines(9) });
    read("limit one short of the end", { path: "a.txt", limit: 9 }, { "a.txt": `${lines(9)}\n` });
    read("limit 0", { path: "a.txt", limit: 0 }, { "a.txt": lines(9) });
    read("limit -1", { path: "a.txt", limit: -1 }, { "a.txt": lines(9) });
    read("offset 0", { path: "a.txt", offset: 0 }, { "a.txt": lines(3) });
    read("offset -4", { path: "a.txt", offset: -4 }, { "a.txt": lines(3) });
    read("offset beyond the end", { path: "a.txt", offset: 11 }, { "a.txt": lines(9) });
    read("offset just behind a last newline", { path: "a.txt", offset: 2 }, { "a.txt": "one\n" });
    read("2000 lines", { path: "a.txt" }, { "a.txt": lines(2000) });
    read("2000 lines and a newline", { path: "a.txt" }, { "a.txt": `${lines(2000)}\n` });
    read("2001 lines", { path: "a.txt" }, { "a.txt": lines(2001) });
    read("5000 lines from 100 on", { path: "a.txt", offset: 100 }, { "a.txt": lines(5000) });
    read("limit beyond the cap", { path: "a.txt", limit: 3000 }, { "a.txt": lines(5000) });
    read("more than 50 KB", { path: "a.txt" }, { "a.txt": lines(400, 200) });
    read("exactly 50 KB", { path: "a.txt" }, { "a.txt": "x".repeat(51200) });
    read("exactly 50 KB, an empty line, more", { path: "a.txt" }, { "a.txt": `${"x".repeat(51200)}\n\nfoo` });
    read("50 KB and a newline", { path: "a.txt" }, { "a.txt": `${"x".repeat(51200)}\n` });
    read("a first line too long", { path: "a.txt" }, { "a.txt": `${"x".repeat(60000)}\nfoo` });
    read("a third line too long", { path: "a.txt", offset: 3 }, { "a.txt": `1\n2\n${"é".repeat(60000)}\nfoo` });
    read("a second line too long", { path: "a.txt" }, { "a.txt": `1\n${"x".repeat(90000)}\nfoo` });
    read("CRLF", { path: "a.txt" }, { "a.txt": "one\r\ntwo\r\n" });
    read("a byte order mark", { path: "a.txt" }, { "a.txt": "\ufeffone\n" });
    read("bytes that are no UTF-8", { path: "a.bin" }, { "a.bin": Buffer.from("00ff41c328e28280f09f98e2", "hex") });
    read("NUL in the content", { path: "a.bin" }, { "a.bin": "a\0b\n" });
    read("an absolute path", { path: path.join(cwd, "a.txt") }, { "a.txt": "x" });
    read("dots in the path", { path: "./d/../a.txt" }, { "a.txt": "x", d: null });
    read("an at sign before the path", { path: "@a.txt" }, { "a.txt": "x" });
    read("a no-break space in the path", { path: "a\u00a0b.txt" }, { "a b.txt": "x" });
    read("a curly quote in the name", { path: "it's.txt" }, { "it\u2019s.txt": "x" });
    read("a decomposed name", { path: "\u00e9.txt" }, { "e\u0301.txt": "x" });
    read("a narrow space before PM", { path: "Shot 1.20 PM.txt" }, { "Shot 1.20\u202fPM.txt": "x" });
    read("a file URL", { path: `file://${cwd}/a%20b.txt` }, { "a b.txt": "x" });
    read("home", { path: "~/none" });
    const png = Buffer.from("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==", "base64");
    read("a PNG", { path: "a.png" }, { "a.png": png });
    read("a PNG by another name", { path: "a.txt" }, { "a.txt": png });
    read("a GIF", { path: "a.gif" }, { "a.gif": Buffer.concat([Buffer.from("GIF89a"), Buffer.alloc(40, 7)]) });
    read("a JPEG head", { path: "a.jpg" }, { "a.jpg": Buffer.from("ffd8ffe000104a46", "hex") });
    read("a WEBP head", { path: "a.webp" }, { "a.webp": Buffer.from("RIFF\0\0\0\0WEBPVP8 ", "latin1") });
    read("text in a file called .png", { path: "a.png" }, { "a.png": "not an image" });
    read("the first bytes of a PNG only", { path: "a.png" }, { "a.png": png.subarray(0, 10) });
});

describe("write", () => {
    const write = (name, input, files) => same(name, "write", input, files);
    write("a new file", { path: "a.txt", content: "one\n" });
    write("over an old one", { path: "a.txt", content: "two" }, { "a.txt": "something longer" });
    write("in new folders", { path: "x/y/z.txt", content: "deep" });
    write("empty", { path: "a.txt", content: "" });
    write("unicode, CRLF and NUL", { path: "a.txt", content: "grüße\r\n🚀\0\ufeff" });
    write("to a folder", { path: "d", content: "x" }, { d: null });
    write("below a file", { path: "a.txt/b.txt", content: "x" }, { "a.txt": "x" });
    write("further below a file", { path: "a.txt/b/c.txt", content: "x" }, { "a.txt": "x" });
    write("through a link", { path: "l", content: "x" }, { l: { link: "a.txt" }, "a.txt": "old" });
    write("through a dangling link", { path: "l", content: "x" }, { l: { link: "new.txt" } });
    write("through a link to itself", { path: "l", content: "x" }, { l: { link: "l" } });
    write("below a link to itself", { path: "l/a", content: "x" }, { l: { link: "l" } });
    write("a name too long", { path: `${"n".repeat(300)}`, content: "x" });
    write("below a name too long", { path: `${"n".repeat(300)}/a`, content: "x" });
    write("NUL in the name", { path: "a\0b", content: "x" });
    write("at home", { path: "~/w.txt", content: "x" });
    write("a megabyte", { path: "a.txt", content: "0123456789abcdef".repeat(65536) });
    write("to /dev/full", { path: "/dev/full", content: "x" });
});

describe("edit", () => {
    const edit = (name, edits, content, file = "a.txt") =>
        same(name, "edit", { path: file, edits: edits.map(([oldText, newText]) => ({ oldText, newText })) },
            content === undefined ? {} : { "a.txt": content });
    edit("one place", [["two", "2"]], "one\ntwo\nthree\n");
    edit("two places", [["three", "3"], ["one", "1"]], "one\ntwo\nthree\n");
    edit("not found", [["four", "4"]], "one\ntwo\n");
    edit("the second not found", [["one", "1"], ["four", "4"]], "one\ntwo\n");
    edit("found twice", [["o", "0"]], "one\ntwo\n");
    edit("the second found twice", [["one", "1"], ["t", "T"]], "one two three");
    edit("empty old text", [["", "x"]], "one");
    edit("empty old text among others", [["one", "1"], ["", "x"]], "one");
    edit("no change", [["one", "one"]], "one\n");
    edit("no change by several", [["one", "one"], ["two", "two"]], "one two");
    edit("overlap", [["abcd", "x"], ["cdef", "y"]], "abcdef");
    edit("side by side", [["abc", "x"], ["def", "y"]], "abcdef");
    edit("no edits", [], "one");
    edit("a missing file", [["a", "b"]], undefined, "none.txt");
    edit("a folder", [["a", "b"]], "x", ".");
    edit("NUL in the name", [["a", "b"]], "x", "a\0b");
    edit("CRLF", [["two", "2\nzwei"]], "one\r\ntwo\r\nthree\r\n");
    edit("LF in the old text over CRLF", [["one\ntwo", "1\n2"]], "one\r\ntwo\r\nthree\r\n");
    edit("mixed line ends", [["b", "B\nbb"], ["d", "D\ndd"]], "a\r\nb\r\nc\nd\ne\r\n");
    edit("classic Mac line ends", [["two", "2\nzwei"]], "one\rtwo\rthree");
    edit("a lone CR in a line", [["b", "B\n"]], "a\rb\nc\n");
    edit("a seam of CR and LF", [["x", ""]], "a\rx\nb\n");
    edit("the last line without a newline", [["b", "B\nC"]], "a\r\nb");
    edit("a byte order mark", [["one", "1"]], "\ufeffone\n");
    edit("a byte order mark and CRLF", [["one", "1\n2"]], "\ufeffone\r\ntwo\r\n");
    edit("unicode", [["日本", "🚀"]], "grüße 日本 ende\n");
    edit("NUL in the content", [["b", "B"]], "a\0b\n");
    edit("bytes that are no UTF-8", [["b", "B"]], Buffer.from("ff62fe0a", "hex"));
    edit("smart quotes in the file", [['say "hi"', "say hello"]], "x\nsay \u201chi\u201d  \ny  \n");
    edit("a dash in the file", [["a-b", "c"]], "keep\u2014 \na\u2013b\nkeep\u2014 \n");
    edit("blanks at the line end of the file", [["one\ntwo", "1\n2"]], "zero  \none  \ntwo\t\nthree  \n");
    edit("blanks at the line end of the old text", [["one  \ntwo", "1"]], "one\ntwo\n");
    edit("full-width letters", [["ABC", "x"]], "\uff21\uff22\uff23 y\nz\n");
    edit("a ligature", [["file", "x"]], "a \ufb01le b\n");
    edit("a no-break space", [["a b", "c"]], "a\u00a0b \n");
    edit("exact once, tolerantly twice", [["a-b", "c"]], "a-b\na\u2013b\n");
    edit("only blanks as old text", [["  ", "x"]], "a  b\n");
    edit("only blanks as old text, tiny file", [["  ", "x"]], "  ");
    edit("tolerant with CRLF", [["one\ntwo", "1\n2"]], "zero \r\none \r\ntwo\r\nthree \r\n");
    edit("two tolerant edits of one line", [["a-b", "1"], ["c-d", "2"]], "k \na\u2013b c\u2013d \nk \n");
    edit("tolerant edits of neighbouring lines", [["a-b\nc", "1"], ["d-e", "2"]], "k \na\u2013b\nc d\u2013e \nk \n");
    edit("no change by a tolerant edit", [["a-b", "a-b"]], "a\u2013b\n");
    edit("everything removed", [["one\n", ""]], "one\n");
    edit("a change far down", [["777", "seven"]], `${lines(1000)}\n`);
    edit("two changes far apart", [["100", "hundred"], ["900", "nine"]].map(([a, b]) => [`\n${a}\n`, `\n${b}\n`]), lines(1000));
});

describe("ls", () => {
    const ls = (name, input, files) => same(name, "ls", input, files);
    const many = (n, name = (i) => `f${i}`) => Object.fromEntries(Array.from({ length: n }, (_, i) => [name(i), ""]));
    const named = (...names) => Object.fromEntries(names.map((name) => [name, ""]));
    ls("the working folder", {}, { "b.txt": "", "a.txt": "", c: null });
    ls("an empty path", { path: "" }, { "a.txt": "" });
    ls("a folder", { path: "d" }, { "d/x": "", "d/y/z": "" });
    ls("an absolute path", { path: cwd }, { "a.txt": "" });
    ls("an empty folder", { path: "d" }, { d: null });
    ls("a missing folder", { path: "none" });
    ls("a file", { path: "a.txt" }, { "a.txt": "" });
    ls("below a file", { path: "a.txt/b" }, { "a.txt": "" });
    ls("NUL in the name", { path: "a\0b" });
    ls("a name too long", { path: "n".repeat(300) });
    ls("home", { path: "~" });
    ls("dots in the path", { path: "d/../e/." }, { d: null, "e/x": "" });
    ls("dot files", {}, { ".a": "", ".b/c": "", "a": "", "..c": "" });
    ls("capitals", {}, named("B", "a", "A", "b", "_", "Z", "z", "aB", "Ab", "AB", "ab"));
    ls("signs and digits", {}, named(...[..."_-,;:!?.'\"()[]{}@*&#%`^+<=>|~$0123456789 aZ"].map((c) => `${c}x`)));
    ls("numbers by their digits", {}, named("10", "9", "1", "02", "a10", "a9"));
    ls("accents", {}, named("\u00e9", "e", "f", "e\u0301a", "\u00c9b", "ea", "eb", "\u00fc", "u", "v", "z", "\u00f8", "o", "p", "\u00f3"));
    ls("two letters in one", {}, named("ae", "\u00e6", "af", "\u00e1e", "a\u00e9", "\u01fd", "ss", "\u00df", "st", "\ufb01", "fi", "fj", "\u0153", "oe", "of"));
    ls("scripts", {}, named("\u03b1", "\u03b2", "\u0430", "\u0431", "\u0451", "\u0435", "\u05d0", "a", "\u3042", "\u30a2", "\u3044", "\u65e5", "\u672c", "\u{1f680}", "\u{1f600}", "\u2192", "1"));
    ls("names equal but for invisible signs", {}, named("a\u200bb", "ab", "a\u00adb", "ac"));
    ls("CR and LF in names", {}, named("a\nb", "a\rb", "ab"));
    ls("links", {}, { f: "", d: null, "l1": { link: "f" }, "l2": { link: "d" }, "l3": { link: "none" }, "l4": { link: "l4" } });
    ls("only dangling links", {}, { l: { link: "none" } });
    ls("through a link", { path: "l" }, { "d/x": "", l: { link: "d" } });
    ls("a link to itself", { path: "l" }, { l: { link: "l" } });
    ls("limit", { limit: 2 }, many(5));
    ls("limit just enough", { limit: 5 }, many(5));
    ls("limit 0", { limit: 0 }, many(3));
    ls("limit -3", { limit: -3 }, many(3));
    ls("limit 2.9", { limit: 2.9 }, many(5));
    ls("limit and a dangling link behind it", { limit: 1 }, { a: "", l: { link: "none" } });
    ls("500 entries", {}, many(500));
    ls("501 entries", {}, many(501));
    ls("more than 50 KB", { limit: 1000 }, many(400, (i) => `${i}`.padEnd(200, "x")));
    ls("more than 50 KB and the limit", { limit: 300 }, many(400, (i) => `${i}`.padEnd(200, "x")));
    ls("the root", { path: "/" });
});
