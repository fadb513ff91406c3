// What tests/bench/api.mjs compares with: the same handlers on Fastify and better-sqlite3 (tests/bench/yardstick.cjs).
// npm fetches the packages, pinned, into build/bench/yardstick; better-sqlite3 is compiled there once, in a minute or a
// few, against the headers that come with the pinned Node.
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../..", import.meta.url));
const folder = path.join(root, "build/bench/yardstick");
const FASTIFY = { spec: "fastify@5.12.8", mark: "fastify/package.json" };
const SQLITE = { spec: "better-sqlite3@12.11.1", mark: "better-sqlite3/build/Release/better_sqlite3.node" };
const INSTALL_MS = 1_200_000; // a compiler on a busy machine

/** Compilers get the headers of the Node that runs this, and only one of them runs. */
function buildEnvironment() {
    const node = path.dirname(path.dirname(process.execPath));
    const headers = existsSync(path.join(node, "include/node/node.h")) ? { npm_config_nodedir: node } : {};
    return { ...process.env, ...headers, npm_config_build_from_source: "true", JOBS: "1", CFLAGS: "-O2", CXXFLAGS: "-O2",
        PATH: `${path.dirname(process.execPath)}:${process.env.PATH}` };
}

/** Undefined when the package is there, else why not. */
function install({ spec, mark }) {
    const there = () => existsSync(path.join(folder, "node_modules", mark));
    if (there()) {
        return undefined;
    }
    mkdirSync(folder, { recursive: true });
    console.log(`installing ${spec} for the yardstick …`);
    const { error, stderr } = spawnSync("npm", ["install", "--prefix", folder, "--no-audit", "--no-fund", "--save-exact", spec],
        { encoding: "utf8", timeout: INSTALL_MS, env: buildEnvironment() });
    if (there()) {
        return undefined;
    }
    const lines = (stderr ?? "").trim().split("\n");
    const reason = lines.find((line) => /\*\*\*|error: |ERR! stack|network|code E/.test(line)) ?? lines[0];
    return error?.message ?? `npm install ${spec}: ${reason}`;
}

/**
 * Starts it with one agent and one environment, whose sessions hold `agent`; says what it is made of.
 * Undefined, after saying why, when Fastify cannot be had.
 */
export async function startYardstick(agent) {
    const missing = install(FASTIFY);
    if (missing) {
        console.log(`no yardstick: ${missing}`);
        return undefined;
    }
    const uncompiled = process.env.BETTER_SQLITE3 === "no" ? "BETTER_SQLITE3=no" : install(SQLITE);
    const data = mkdtempSync(path.join(tmpdir(), "yardstick-"));
    const file = path.join(data, "y.db");
    const server = spawn(process.execPath, [path.join(root, "tests/bench/yardstick.cjs"), folder, file,
        uncompiled ? "node:sqlite" : "better-sqlite3", JSON.stringify(agent)], { stdio: ["ignore", "pipe", "inherit"] });
    const port = await new Promise((resolve, reject) => {
        server.stdout.once("data", (text) => resolve(String(text).trim()));
        server.once("exit", () => reject(new Error("the yardstick ended")));
    });
    console.log(`the yardstick is ${FASTIFY.spec} on ${uncompiled ? `Node's own SQLite (${uncompiled})` : SQLITE.spec}`);
    return { url: `http://127.0.0.1:${port}`, pid: server.pid, file, stop: () => {
        server.removeAllListeners("exit");
        server.kill("SIGKILL");
        rmSync(data, { recursive: true });
    } };
}
