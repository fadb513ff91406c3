// Writes src/hands/collate_table.inc: the order in which Pi's ls sorts names (localeCompare of the
// pinned Node), for the letters and signs that file names are made of. Run it when Node changes:
//   build/runtime/node/bin/node tools/collate-table.mjs > src/hands/collate_table.inc
const compare = (sensitivity) => new Intl.Collator("en-US", { sensitivity }).compare;
const base = compare("base");
const accent = compare("accent");
const variant = compare("variant");
const RANGES = [[0, 0x5ff], [0x2000, 0x2bff], [0x3000, 0x30ff], [0xfe00, 0xfe0f], [0xfeff, 0xfeff], [0x1f000, 0x1faff]];
// Sorted as two letters each; collate.c takes them apart.
const EXPANDED = new Set(["æ", "œ", "ß"]);

function characters() {
    const found = [];
    for (const [first, last] of RANGES)
        for (let code = first; code <= last; code++) {
            const c = String.fromCodePoint(code);
            const plain = c.normalize("NFKD") === c && c.toLowerCase() === c && !EXPANDED.has(c);
            if (plain && !/\p{Cn}/u.test(c)) found.push(c);
        }
    return found;
}

// How a character differs from the one before it in the order.
function step(before, c) {
    if (before === undefined || base(before, c) !== 0) return "PRIMARY";
    if (accent(before, c) !== 0) return "SECONDARY";
    return variant(before, c) !== 0 ? "TERTIARY" : "SAME";
}

function runs(list, kind) {
    const found = [];
    list.forEach((c, i) => {
        const code = c.codePointAt(0);
        const how = kind ?? step(list[i - 1], c);
        const last = found.at(-1);
        if (last && code === last.code + last.n && how === last.how && how !== "SAME") last.n += 1;
        else found.push({ code, n: 1, how });
    });
    return found;
}

const all = characters();
const ignored = all.filter((c) => variant(c, "") === 0);
const marks = all.filter((c) => variant(c, "") !== 0 && base(c, "") === 0).sort(variant);
const others = all.filter((c) => base(c, "") !== 0).sort(variant);
const rows = [...runs(ignored, "IGNORED"), ...runs(marks, "MARK"), ...runs(others)];
const cells = rows.map(({ code, n, how }) => `{0x${code.toString(16)}, ${n}, ${how}},`);
console.log("/* Made by tools/collate-table.mjs: runs of characters in sorting order. */");
let line = "   ";
for (const cell of cells) {
    if (line.length + 1 + cell.length > 100) {
        console.log(line);
        line = "   ";
    }
    line += ` ${cell}`;
}
console.log(line);
