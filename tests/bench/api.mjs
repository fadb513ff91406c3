// The API under load, in one run with a yardstick: the same handlers on Fastify and better-sqlite3 (WAL,
// synchronous=FULL), or Node's own SQLite where better-sqlite3 cannot be compiled. Ratios count, the machine may be busy.
//   create   POST /v1/sessions, durable before the answer      get   GET /v1/sessions/:id
//   list     GET /v1/sessions?limit=20 with 100,000 sessions   streams   memory of control for each idle event stream
// The yardstick's packages are fetched by npm, pinned, into build/bench/yardstick; without Fastify it is left out.
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { fileURLToPath } from "node:url";
import { startService } from "../support/service.mjs";

const MS = Number(process.env.BENCH_MS ?? 3000);
const SESSIONS = Number(process.env.SESSIONS ?? 100_000);
const STREAMS = Number(process.env.STREAMS ?? 10_000);
const CONNECTIONS = 64;
const root = fileURLToPath(new URL("../..", import.meta.url));
const load = path.join(root, "build/tests/support/load");
const yard = path.join(root, "build/bench/yardstick");
const FASTIFY = "fastify@5.12.8", SQLITE = "better-sqlite3@12.11.1";

execFileSync("make", ["-C", root, "build/tests/support/load"], { stdio: "ignore" });

const requestText = (method, target, key, body) => {
    const text = body === undefined ? "" : JSON.stringify(body);
    return `${method} ${target} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${key}\r\n${body === undefined ? ""
        : `Content-Type: application/json\r\nContent-Length: ${Buffer.byteLength(text)}\r\n`}\r\n${text}`;
};

function run(url, request, connections = CONNECTIONS) {
    const { stdout, status, stderr } = spawnSync(load, [new URL(url).port, String(connections), String(MS)],
        { input: request, encoding: "utf8" });
    if (status !== 0) {
        throw new Error(`load: ${stderr}`);
    }
    const result = JSON.parse(stdout);
    if (result.errors > 0) {
        throw new Error(`${result.errors} of ${result.requests} were refused`);
    }
    return result;
}

const rssKb = (pid) => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))[1]);

function controlOf(parent) {
    return readdirSync("/proc").filter((one) => /^\d+$/.test(one)).find((pid) => {
        try {
            return readFileSync(`/proc/${pid}/cmdline`, "latin1").includes("--role\0control")
                && readFileSync(`/proc/${pid}/stat`, "latin1").includes(`) S ${parent} `);
        } catch {
            return false; // it ended meanwhile
        }
    });
}

/** Copies of one session's row, so that the table has as many as wanted. */
function fill(file, id, count) {
    const db = new DatabaseSync(file);
    const row = db.prepare("SELECT * FROM sessions WHERE id = ?").get(id);
    const names = Object.keys(row);
    const insert = db.prepare(`INSERT INTO sessions (${names}) VALUES (${names.map(() => "?")})`);
    db.exec("BEGIN");
    for (let i = 0; i < count; i++) {
        const own = { ...row, created_at: row.created_at - i, id: `${id.slice(0, 15)}${String(i).padStart(16, "0")}` };
        insert.run(...Object.values(own));
    }
    db.exec("COMMIT");
    db.close();
}

const print = (name, ours, yardstick) => {
    const show = ({ perSecond, p99Ms }) => `${perSecond.toFixed(0)}/s, p99 ${p99Ms.toFixed(1)} ms`;
    console.log(`${name.padEnd(22)} ${show(ours)}${yardstick
        ? `   yardstick ${show(yardstick)}   ${(ours.perSecond / yardstick.perSecond).toFixed(2)} times` : ""}`);
};

/** Puts a package into the yardstick's folder; false, after saying why, when it cannot be had. */
function install(name) {
    if (existsSync(path.join(yard, "node_modules", name.split("@")[0], "package.json"))) {
        return true;
    }
    mkdirSync(yard, { recursive: true });
    const { status, stderr } = spawnSync("npm", ["install", "--prefix", yard, "--no-audit", "--no-fund", "--save-exact", name],
        { encoding: "utf8", timeout: 300_000 });
    if (status !== 0) {
        console.log(`npm cannot install ${name}: ${(stderr ?? "").trim().split("\n").at(-1) || "it took more than 5 minutes"}`);
    }
    return status === 0;
}

async function startYardstick() {
    if (!install(FASTIFY)) {
        console.log("so there is no yardstick");
        return undefined;
    }
    if (process.env.BETTER_SQLITE3 === "no" || !install(SQLITE)) {
        console.log("the yardstick uses Node's own SQLite");
    }
    const data = mkdtempSync(path.join(tmpdir(), "yardstick-"));
    const server = spawn(process.execPath, [path.join(root, "tests/bench/yardstick.cjs"), yard, path.join(data, "y.db")],
        { stdio: ["ignore", "pipe", "inherit"] });
    const port = await new Promise((resolve, reject) => {
        server.stdout.once("data", (text) => resolve(String(text).trim()));
        server.once("exit", () => reject(new Error("the yardstick ended")));
    });
    return { url: `http://127.0.0.1:${port}`, file: path.join(data, "y.db"), stop: () => {
        server.removeAllListeners("exit");
        server.kill("SIGKILL");
        rmSync(data, { recursive: true });
    } };
}

async function measureYardstick() {
    const server = await startYardstick();
    if (!server) {
        return {};
    }
    try {
        const post = async (target, body) => (await fetch(server.url + target, { method: "POST", body: JSON.stringify(body),
            headers: { "content-type": "application/json", authorization: "Bearer key" } })).json();
        const { id } = await post("/v1/sessions", BODY);
        const create = run(server.url, requestText("POST", "/v1/sessions", "key", BODY));
        const get = run(server.url, requestText("GET", `/v1/sessions/${id}`, "key"));
        fill(server.file, id, SESSIONS);
        const list = run(server.url, requestText("GET", "/v1/sessions?limit=20", "key"));
        return { create, get, list };
    } finally {
        server.stop();
    }
}

const BODY = { agent: "agent_01MCC5RM008WXF1W76TSSHS283", environmentId: "env_01MCC5RM008WXF1W76TSSHS283", title: "a session",
    metadata: { from: "bench" } };

async function streams(service, session, tls) {
    const pid = controlOf(service.pid), before = rssKb(pid);
    const held = spawn(load, [new URL(service.url).port, String(STREAMS), "hold"], { stdio: ["pipe", "pipe", "inherit"] });
    held.stdin.end(requestText("GET", `/v1/sessions/${session.id}/stream`, service.apiKey));
    await new Promise((resolve, reject) => {
        held.stdout.once("data", resolve);
        held.once("exit", () => reject(new Error("the streams broke")));
    });
    const each = (rssKb(pid) - before) / STREAMS;
    held.removeAllListeners("exit");
    held.kill("SIGKILL");
    console.log(`${`idle streams${tls}`.padEnd(22)} ${STREAMS}, ${each.toFixed(1)} KB each`);
}

const yardstick = await measureYardstick();
const service = await startService();
try {
    const agent = await service.ok("POST", "/v1/agents", { name: "bench", model: { provider: "local", id: "m",
        api: "openai-completions", baseUrl: "http://127.0.0.1:9/v1" } });
    const environment = await service.ok("POST", "/v1/environments", { name: "bench" });
    const body = { ...BODY, agent: agent.id, environmentId: environment.id };
    const session = await service.ok("POST", "/v1/sessions", body);
    const { apiKey } = service;
    print("durable creates", run(service.url, requestText("POST", "/v1/sessions", apiKey, body)), yardstick.create);
    print("get", run(service.url, requestText("GET", `/v1/sessions/${session.id}`, apiKey)), yardstick.get);
    const limited = Number(/Max open files\s+\d+\s+(\d+)/.exec(readFileSync("/proc/self/limits", "utf8"))[1]);
    if (limited > STREAMS + 1000) {
        await streams(service, session, "");
    } else {
        console.log(`idle streams           left out: ${STREAMS} need more than the ${limited} open files allowed`);
    }
    await service.kill9();
    fill(path.join(service.data, "control.db"), session.id, SESSIONS);
    await service.restart();
    await service.ok("GET", "/v1/sessions");
    print(`list of ${SESSIONS}`, run(service.url, requestText("GET", "/v1/sessions?limit=20", apiKey)), yardstick.list);
} finally {
    await service.stop();
}
