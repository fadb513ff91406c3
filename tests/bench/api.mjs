// The API under load, in turn with a yardstick: the same handlers on Fastify and better-sqlite3 (WAL, synchronous=FULL),
// or Node's own SQLite where better-sqlite3 cannot be compiled. Both answer with the same agents. Ratios count, the
// machine may be busy: each number is the best of ROUNDS, in which the two take turns; processor time says most then.
//   create   POST /v1/sessions, durable before the answer      get   GET /v1/sessions/:id
//   list     GET /v1/sessions?limit=20 with 100,000 sessions   streams   memory of control for each idle event stream
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { chmodSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import https from "node:https";
import { tmpdir } from "node:os";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import tls from "node:tls";
import { fileURLToPath } from "node:url";
import { eventually } from "../support/eventually.mjs";
import { startService } from "../support/service.mjs";
import { startYardstick } from "../support/yardstick.mjs";

const MS = Number(process.env.BENCH_MS ?? 1000);
const ROUNDS = Number(process.env.ROUNDS ?? 5);
const SESSIONS = Number(process.env.SESSIONS ?? 100_000);
const STREAMS = Number(process.env.STREAMS ?? 10_000);
const TLS_STREAMS = 1000;
const CONNECTIONS = 64;
const root = fileURLToPath(new URL("../..", import.meta.url));
const load = path.join(root, "build/tests/support/load");

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

/** Processor time that the process has used, in microseconds. */
function cpuUs(pid) {
    const [user, system] = readFileSync(`/proc/${pid}/stat`, "latin1").split(") ").at(-1).split(" ").slice(11, 13);
    return (Number(user) + Number(system)) * 10_000;
}

const show = ({ perSecond, p99Ms, cpu }) =>
    `${perSecond.toFixed(0)}/s, p99 ${p99Ms.toFixed(1)} ms${cpu === undefined ? "" : `, ${cpu.toFixed(0)} µs of processor each`}`;
const print = (name, text) => console.log(`${name.padEnd(24)} ${text}`);
const best = (results) => results.sort((a, b) => b.perSecond - a.perSecond)[0];

/** The same request to both, in turn. */
function compare(name, service, yardstick, method, target, body) {
    const ours = [], theirs = [], control = controlOf(service.pid);
    const once = (one, pid, key) => {
        const before = cpuUs(pid);
        const result = run(one.url, requestText(method, target(one), key, body?.(one)));
        return { ...result, cpu: (cpuUs(pid) - before) / result.requests };
    };
    for (let round = 0; round < ROUNDS; round++) {
        if (yardstick) {
            theirs.push(once(yardstick, yardstick.pid, "key"));
        }
        ours.push(once(service, control, service.apiKey));
    }
    const one = best(ours), other = best(theirs);
    print(name, show(one));
    if (other) {
        print("  the yardstick", `${show(other)}: ${(one.perSecond / other.perSecond).toFixed(2)} times, `
            + `${(other.cpu / one.cpu).toFixed(2)} times by processor`);
    }
}

/** What is measured on either: an agent, an environment and a session of them. */
async function prepare(service) {
    const agent = await service.ok("POST", "/v1/agents", { name: "bench", model: { provider: "local", id: "m",
        api: "openai-completions", baseUrl: "http://127.0.0.1:9/v1" } });
    const environment = await service.ok("POST", "/v1/environments", { name: "bench" });
    service.body = { agent: agent.id, environmentId: environment.id, ...REST };
    service.session = await service.ok("POST", "/v1/sessions", service.body);
}

async function prepareYardstick(agent) {
    const yardstick = await startYardstick(agent);
    if (yardstick) {
        yardstick.body = { agent: "agent_01MCC5RM008WXF1W76TSSHS283", environmentId: "env_01MCC5RM008WXF1W76TSSHS283", ...REST };
        const reply = await fetch(`${yardstick.url}/v1/sessions`, { method: "POST", body: JSON.stringify(yardstick.body),
            headers: { "content-type": "application/json", authorization: "Bearer key" } });
        yardstick.session = await reply.json();
    }
    return yardstick;
}

const REST = { title: "a session", metadata: { from: "bench" } };
const streamRequest = (service) => requestText("GET", `/v1/sessions/${service.session.id}/stream`, service.apiKey);
const getRequest = (service) => requestText("GET", `/v1/sessions/${service.session.id}`, service.apiKey);

async function streams(service) {
    const pid = controlOf(service.pid), before = rssKb(pid);
    const held = spawn(load, [new URL(service.url).port, String(STREAMS), "hold"], { stdio: ["pipe", "pipe", "inherit"] });
    held.stdin.end(streamRequest(service));
    await new Promise((resolve, reject) => {
        held.stdout.once("data", resolve);
        held.once("exit", () => reject(new Error("the streams broke")));
    });
    print("idle streams", `${STREAMS}, ${((rssKb(pid) - before) / STREAMS).toFixed(1)} KB each`);
    print("get beside them", show(run(service.url, getRequest(service))));
    held.removeAllListeners("exit");
    held.kill("SIGKILL");
}

/** The service over TLS, as far as prepare() needs it. */
const secure = ({ url, apiKey }) => ({ url, apiKey, ok: (method, target, body) => new Promise((resolve, reject) => {
    https.request(url + target, { method, rejectUnauthorized: false, headers: { authorization: `Bearer ${apiKey}`,
        "content-type": "application/json" } }, async (reply) => resolve(JSON.parse(Buffer.concat(await reply.toArray()))))
        .once("error", reject).end(JSON.stringify(body));
}) });

function openTlsStream(port, request) {
    const socket = tls.connect({ port, host: "127.0.0.1", rejectUnauthorized: false }, () => socket.write(request));
    return new Promise((resolve, reject) => {
        socket.once("data", () => resolve(socket)).once("error", reject);
    });
}

async function tlsStreams() {
    const folder = mkdtempSync(path.join(tmpdir(), "bench-tls-")), key = path.join(folder, "key"), cert = path.join(folder, "cert");
    execFileSync("openssl", ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
        "-subj", "/CN=localhost", "-keyout", key, "-out", cert], { stdio: "pipe" });
    chmodSync(key, 0o600);
    const service = await startService({ args: ["--tls-cert", cert, "--tls-key", key] });
    try {
        const one = secure(service);
        await prepare(one);
        const pid = controlOf(service.pid), before = rssKb(pid), sockets = [];
        for (let i = 0; i < TLS_STREAMS; i++) {
            sockets.push(await openTlsStream(Number(new URL(one.url).port), streamRequest(one)));
        }
        print("idle streams with TLS", `${TLS_STREAMS}, ${((rssKb(pid) - before) / TLS_STREAMS).toFixed(1)} KB each`);
        sockets.forEach((socket) => socket.destroy());
    } finally {
        await service.stop();
        rmSync(folder, { recursive: true });
    }
}

const service = await startService();
let yardstick;
try {
    await prepare(service);
    yardstick = await prepareYardstick(service.session.agent);
    compare("durable creates", service, yardstick, "POST", () => "/v1/sessions", (one) => one.body);
    compare("get", service, yardstick, "GET", (one) => `/v1/sessions/${one.session.id}`);
    const limited = Number(/Max open files\s+\d+\s+(\d+)/.exec(readFileSync("/proc/self/limits", "utf8"))[1]);
    if (limited > STREAMS + 1000) {
        await streams(service);
    } else {
        print("idle streams", `left out: ${STREAMS} need more than the ${limited} open files allowed`);
    }
    await service.kill9();
    fill(path.join(service.data, "control.db"), service.session.id, SESSIONS);
    if (yardstick) {
        fill(yardstick.file, yardstick.session.id, SESSIONS);
    }
    const filledAt = Date.now();
    await service.restart();
    await eventually("the start's copy of the database", () => statSync(path.join(service.data, "objects/system/control.db")).mtimeMs,
        (at) => at > filledAt); // it takes a processor for a while
    compare(`list of ${SESSIONS}`, service, yardstick, "GET", () => "/v1/sessions?limit=20");
} finally {
    yardstick?.stop();
    await service.stop();
}
await tlsStreams();
