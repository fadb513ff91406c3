// What the model gateway costs: time to the first token and per token, MB/s, and memory with 200 streams, against
// the same client talking to the provider directly and against a relay in Node, in one run. The provider and the
// relay are processes of their own; each token carries the time it was sent (all clocks here are one). Then how long
// a whole service is without its broker after kill -9.
//   ROUNDS (100), TOKENS (100), STREAMS (200), MEGABYTES (64), KILLS (5)
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import net from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { startJob } from "../support/job.mjs";
import { descendants } from "../support/processes.mjs";
import { gatewayMissing, rawRequest, startGateway } from "../support/gateway.mjs";

const number = (name, otherwise) => Number(process.env[name] ?? otherwise);
const ROUNDS = number("ROUNDS", 100);
const TOKENS = number("TOKENS", 100);
const STREAMS = number("STREAMS", 200);
const MEGABYTES = number("MEGABYTES", 64);
const KILLS = number("KILLS", 5);
const SSE = { "content-type": "text/event-stream" };
const now = () => Number(process.hrtime.bigint()) / 1e6;

/** tokens: TOKENS events a millisecond apart; flood: MEGABYTES of events; hold: one event, then silence. */
function provider(tls) {
    const event = (content) => `data: ${JSON.stringify({ choices: [{ delta: { content } }] })}\n\n`;
    const block = event("x".repeat(16_000)).repeat(4);
    const answers = {
        tokens(response) {
            let left = TOKENS;
            const timer = setInterval(() => {
                response.write(event(`@${now()}@`));
                left -= 1;
                if (left === 0) {
                    clearInterval(timer);
                    response.end("data: [DONE]\n\n");
                }
            }, 1);
        },
        async flood(response) {
            for (let sent = 0; sent < MEGABYTES << 20; sent += block.length) {
                if (!response.write(block)) {
                    await once(response, "drain");
                }
            }
            response.end("data: [DONE]\n\n");
        },
        hold: (response) => response.write(event("held")),
    };
    const serve = (request, response) => {
        let body = "";
        request.on("data", (part) => (body += part)).on("end", () => {
            response.writeHead(200, SSE);
            answers[JSON.parse(body).what](response);
        });
    };
    const [key, cert] = tls ? [`${tls}/key`, `${tls}/cert`].map((file) => readFileSync(file)) : [];
    const server = tls ? https.createServer({ key, cert }, serve) : http.createServer(serve);
    server.listen(0, "127.0.0.1", () => console.log(server.address().port));
}

function makeCertificate() {
    const folder = mkdtempSync(path.join(tmpdir(), "bench-broker-"));
    execFileSync("openssl", ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1",
        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
        "-keyout", `${folder}/key`, "-out", `${folder}/cert`], { stdio: "ignore" });
    return folder;
}

/** What one would write without the broker: a proxy that pipes both ways. */
function relay(port) {
    const agent = new http.Agent({ keepAlive: true });
    const server = http.createServer((request, response) => {
        const { method, url, headers } = request;
        const up = http.request({ port, host: "127.0.0.1", method, path: url, agent,
            headers: { ...headers, authorization: "Bearer key" } }, (answer) => {
            response.writeHead(answer.statusCode, answer.headers);
            answer.pipe(response);
        });
        request.pipe(up);
        response.on("close", () => up.destroy());
    });
    server.listen(0, "127.0.0.1", () => console.log(server.address().port));
}

async function startChild(...args) {
    const child = spawn(process.execPath, [fileURLToPath(import.meta.url), ...args],
        { stdio: ["ignore", "pipe", "inherit"], env: process.env });
    const [line] = await once(createInterface(child.stdout), "line");
    return { pid: child.pid, port: Number(line), stop: () => child.kill() };
}

function request(what) {
    const body = JSON.stringify({ model: "m", stream: true, what });
    return rawRequest({ target: "/v1/chat/completions", headers: [["Content-Type", "application/json"]], body });
}

function open(where, what) {
    const connection = net.connect(typeof where === "string" ? { path: where } : { port: where });
    connection.setNoDelay().on("error", () => {});
    connection.write(request(what));
    return connection;
}

/** {first: ms to the first token, token: [ms on the way, each]} */
async function stream(where) {
    const begun = now();
    const connection = open(where, "tokens");
    const token = [];
    let first;
    let text = "";
    for await (const part of connection) {
        const at = now();
        text += part.toString("latin1");
        for (let stamp; (stamp = /@([\d.]+)@/.exec(text)); text = text.slice(stamp.index + stamp[0].length)) {
            first ??= at - begun;
            token.push(at - Number(stamp[1]));
        }
        if (text.includes("[DONE]")) {
            break;
        }
    }
    return { first, token };
}

async function flood(where) {
    const begun = now();
    let bytes = 0;
    for await (const part of open(where, "flood")) {
        bytes += part.length;
        if (part.includes("[DONE]")) {
            break;
        }
    }
    return bytes / 1e6 / ((now() - begun) / 1000);
}

async function hold(where) {
    const connections = await Promise.all(Array.from({ length: STREAMS }, async () => {
        const connection = open(where, "hold");
        for (let text = ""; !text.includes("held");) {
            const [part] = await once(connection, "data");
            text += part;
        }
        return connection;
    }));
    return () => connections.forEach((connection) => connection.destroy());
}

const residentMb = (pid) => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))[1]) / 1024;
/** Of all its threads; the kernel counts in hundredths of a second. */
const processorMs = (pid) => readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1].split(" ").slice(11, 13)
    .reduce((sum, ticks) => sum + Number(ticks) * 10, 0);
const sorted = (values) => values.toSorted((a, b) => a - b);
const quantile = (values, q) => sorted(values)[Math.min(values.length - 1, Math.floor(values.length * q))];
const median = (values) => quantile(values, 0.5);
const ms = (value) => `${value.toFixed(2)} ms`;

async function latencies(ways) {
    const seen = Object.fromEntries(Object.keys(ways).map((name) => [name, { first: [], token: [] }]));
    for (let round = 0; round < ROUNDS; round += 1) {
        for (const [name, where] of Object.entries(ways)) { // side by side: the machine may be busy now and then
            const { first, token } = await stream(where);
            seen[name].first.push(first);
            seen[name].token.push(...token);
        }
    }
    for (const [name, { first, token }] of Object.entries(seen)) {
        const added = name === "direct" ? "" : `   added ${ms(median(first) - median(seen.direct.first))} to the first, `
            + `${ms(median(token) - median(seen.direct.token))} to each`;
        console.log(`${name.padEnd(8)} first token ${ms(median(first))}, token ${ms(median(token))} `
            + `(p99 ${ms(quantile(token, 0.99))})${added}`);
    }
}

async function throughput(ways, pids) {
    const speed = Object.fromEntries(Object.keys(ways).map((name) => [name, []]));
    const busy = Object.fromEntries(Object.keys(ways).map((name) => [name, []]));
    for (let round = 0; round < 3; round += 1) {
        for (const [name, where] of Object.entries(ways)) {
            const before = pids[name] && processorMs(pids[name]);
            speed[name].push(await flood(where));
            busy[name].push(pids[name] ? (processorMs(pids[name]) - before) / (MEGABYTES * 1.048576) : 0);
        }
    }
    for (const [name, values] of Object.entries(speed)) {
        console.log(`${name.padEnd(8)} ${median(values).toFixed(0)} MB/s, `
            + `${(median(values) / median(speed.direct)).toFixed(2)} of direct`
            + (pids[name] ? `, ${ms(median(busy[name]))} of processor time a MB` : ""));
    }
}

async function memory(ways, pids) {
    for (const [name, pid] of Object.entries(pids)) {
        const before = residentMb(pid);
        const end = await hold(ways[name]);
        console.log(`${name.padEnd(8)} ${STREAMS} streams: ${residentMb(pid).toFixed(0)} MB resident (${before.toFixed(0)} before)`);
        end();
    }
}

/** As in real life: the way to the provider is TLS. */
async function memoryWithTls() {
    const stops = [];
    const folder = makeCertificate();
    const model = await startChild("provider", folder);
    const gateway = await startGateway({ after: (stop) => stops.push(stop) },
        { baseUrl: `https://localhost:${model.port}/v1`, caFile: `${folder}/cert` });
    await memory({ "with TLS": gateway.socket }, { "with TLS": gateway.pid });
    await stops[0]();
    model.stop();
    rmSync(folder, { recursive: true });
}

async function restarts() {
    const job = await startJob();
    const { service } = job;
    const taken = [];
    for (let kill = 1; kill <= KILLS; kill += 1) {
        const { pid } = descendants(service.pid).find(({ command }) => command.includes("--role broker"));
        const begun = now();
        process.kill(pid, "SIGKILL");
        await service.waitForOutput(new RegExp(`(the broker is ready[^]*){${kill + 1}}`));
        // The first restart is at once; killed again and again, it is held back for longer and longer.
        const heldBack = Number([...service.output.matchAll(/broker died .* again in (\d+) ms/g)].at(-1)[1]);
        taken.push(now() - begun - heldBack);
    }
    await job.stop();
    console.log(`broker   back ${ms(median(taken))} after kill -9 (at most ${ms(Math.max(...taken))})`);
}

async function main() {
    if (gatewayMissing) {
        throw new Error(gatewayMissing);
    }
    const stops = [];
    const model = await startChild("provider");
    const node = await startChild("relay", String(model.port));
    const gateway = await startGateway({ after: (stop) => stops.push(stop) },
        { baseUrl: `http://127.0.0.1:${model.port}/v1` });
    const ways = { direct: model.port, gateway: gateway.socket, node: node.port };
    const pids = { gateway: gateway.pid, node: node.pid };
    await memory(ways, pids); // first: what a flood left behind is none of it
    await memoryWithTls();
    await latencies(ways);
    await throughput(ways, pids);
    for (const stop of [...stops, node.stop, model.stop]) {
        await stop();
    }
    await restarts();
}

const [role, port] = process.argv.slice(2);
await ({ provider: () => provider(port), relay: () => relay(Number(port)), undefined: main })[role]();
