// The built-in demo: asked for anything, the model writes a small program, runs it with the tools
// it was given, and reports what the tools really returned. It has worked out the program's
// checksum by itself, so a made-up, missing or wrong output is found out and said.
// The program is sh and awk: they are in every image, Python is not.

const SIZE = { width: 32, height: 10, generations: 40 };
export const FILE = "/workspace/life.sh";
const SLOW_MS = 15; /* a token, so that a person sees it stream */
const CODE_SLOW_MS = 2;

/** Gliders and a blinker, as [x, y]. */
const SEED = [
    [1, 0], [2, 1], [0, 2], [1, 2], [2, 2],
    [19, 1], [20, 2], [18, 3], [19, 3], [20, 3],
    [26, 5], [27, 5], [28, 5],
];

export const PROGRAM = `#!/bin/sh
# Conway's Game of Life on a small round world: what leaves on the right comes back on the left.
exec awk -v width=${SIZE.width} -v height=${SIZE.height} -v generations=${SIZE.generations} '
function neighbours(x, y,    dx, dy, n) {
    for (dy = -1; dy <= 1; dy++)
        for (dx = -1; dx <= 1; dx++)
            if (dx || dy)
                n += alive[(x + dx + width) % width, (y + dy + height) % height]
    return n
}
function show(generation,    x, y, line) {
    print "generation " generation
    for (y = 0; y < height; y++) {
        line = "  "
        for (x = 0; x < width; x++)
            line = line (alive[x, y] ? "#" : ".")
        print line
    }
}
function step(    x, y, n, next_alive) {
    for (y = 0; y < height; y++)
        for (x = 0; x < width; x++) {
            n = neighbours(x, y)
            next_alive[x, y] = (n == 3 || (n == 2 && alive[x, y])) ? 1 : 0
        }
    for (y = 0; y < height; y++)
        for (x = 0; x < width; x++)
            alive[x, y] = next_alive[x, y]
}
BEGIN {
    count = split("${SEED.map((cell) => cell.join(",")).join(" ")}", seed, " ")
    for (i = 1; i <= count; i++) {
        split(seed[i], at, ",")
        alive[at[1] + 0, at[2] + 0] = 1
    }
    show(0)
    for (g = 1; g <= generations; g++)
        step()
    show(generations)
    for (y = 0; y < height; y++)
        for (x = 0; x < width; x++)
            if (alive[x, y]) {
                cells++
                sum += (x + 1) * (y + 1) * (x + 1)
            }
    print "checksum " sum " (" cells + 0 " cells alive)"
}' </dev/null
`;

/** The task in words, exact enough that any right program prints the same last line. */
export const RULES = `The world is ${SIZE.width} wide and ${SIZE.height} high, and round: what leaves on one side comes back
on the other. At first only these cells [x, y] are alive, counted from 0 at the top left:
${SEED.map(([x, y]) => `[${x},${y}]`).join(" ")}
Print the world, let it run for ${SIZE.generations} generations, and print it again. Then let each living
cell count (x+1) * (y+1) * (x+1), and print as the last line: checksum SUM (COUNT cells alive)`;

/** What the program must print in its last line, by another way than the program's. */
export function expectedLine() {
    const { width, height, generations } = SIZE;
    let alive = new Set(SEED.map(([x, y]) => y * width + x));
    for (let g = 0; g < generations; g += 1) {
        const counts = new Map();
        for (const cell of alive) {
            for (const [dx, dy] of NEIGHBOURS) {
                const x = ((cell % width) + dx + width) % width;
                const y = (Math.floor(cell / width) + dy + height) % height;
                counts.set(y * width + x, (counts.get(y * width + x) ?? 0) + 1);
            }
        }
        const lives = ([cell, n]) => n === 3 || (n === 2 && alive.has(cell));
        alive = new Set([...counts].filter(lives).map(([cell]) => cell));
    }
    const weight = (cell) => ((cell % width) + 1) ** 2 * (Math.floor(cell / width) + 1);
    const sum = [...alive].reduce((total, cell) => total + weight(cell), 0);
    return `checksum ${sum} (${alive.size} cells alive)`;
}

const NEIGHBOURS = [[-1, -1], [0, -1], [1, -1], [-1, 0], [1, 0], [-1, 1], [0, 1], [1, 1]];

export default function demo({ conversation }) {
    const { messages, tools } = conversation;
    const step = messages.filter((message) => message.role === "assistant").length;
    const missing = ["write", "bash"].filter((tool) => !tools.includes(tool));
    if (step >= STEPS.length || missing.length > 0 && step > 0) {
        return undefined;
    }
    if (missing.length > 0) {
        return { slow: SLOW_MS, say: `I cannot do this: I was given no ${missing.join(", no ")}.` };
    }
    const results = messages.findLast((message) => message.role === "tool")?.results ?? [];
    return { slow: SLOW_MS, ...STEPS[step](results[0]) };
}

const STEPS = [writeProgram, runProgram, report];

function writeProgram() {
    return {
        think: "A small program that is nice to look at and whose result can be checked. Game of "
            + "Life fits: plain sh and awk, and I can work out the checksum beforehand.",
        say: "I'll write Conway's Game of Life as a small shell and awk program, "
            + `let it run for ${SIZE.generations} generations, and check its last line.`,
        calls: [{ name: "write", args: { path: FILE, content: PROGRAM }, slow: CODE_SLOW_MS }],
    };
}

function runProgram(result) {
    if (failed(result)) {
        return { say: `Writing ${FILE} did not work. The tool said: ${firstLines(result)}` };
    }
    return {
        say: "The file is there. Running it now.",
        calls: [{ name: "bash", args: { command: `sh ${FILE}` } }],
    };
}

function report(result) {
    if (failed(result)) {
        return { say: `Running ${FILE} did not work. The tool said: ${firstLines(result)}` };
    }
    const line = /^checksum .*$/m.exec(result.text)?.[0];
    if (!line) {
        return { say: `The program ran but printed no checksum. It said: ${firstLines(result)}` };
    }
    if (line !== expectedLine()) {
        return { say: `The program printed "${line}", but I expected "${expectedLine()}". `
            + "Something between us is wrong; do not trust this result." };
    }
    return { say: `Done. The program ran in the sandbox and its last line was:\n\n    ${line}\n\n`
        + "That is exactly what I had worked out beforehand. "
        + "One glider crossed the world; the other ran into the blinker and made a traffic "
        + `light. The program is in ${FILE}.` };
}

const FAILURE = /Command (exited with code \d|timed out|aborted)|^Interrupted|No result provided/m;

/** Not every protocol marks errors, so the words of Pi's tools count too. */
function failed(result) {
    return !result || result.isError || FAILURE.test(result.text);
}

function firstLines(result) {
    return (result?.text ?? "nothing at all").split("\n").slice(0, 5).join("\n").slice(0, 500);
}
