// The demo: see tools/demo.sh. Exit status 0 only if the program that the agent wrote ran in the sandbox and
// its output came back.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createWriteStream, mkdtempSync, readFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { FILE, RULES, expectedLine } from "../tests/support/model/scripts/demo.mjs";
import { startModelServer, loadScript } from "../tests/support/model-server.mjs";
import { Screen } from "./demo-screen.mjs";

const PROGRAM = path.resolve(process.env.PI_MANAGED_BIN ?? "build/pi-managed");
const RUN_MS = 300_000;
const START_MS = 60_000;
const STOP_MS = 15_000;

/** Which variable names a provider's key, and the model that Pi itself takes by default there. */
const PROVIDERS = [
    { provider: "anthropic", variable: "ANTHROPIC_API_KEY", id: "claude-opus-5-5" },
    { provider: "openai", variable: "OPENAI_API_KEY", id: "gpt-6.2-sol" },
    { provider: "google", variable: "GEMINI_API_KEY", id: "gemini-4-argon" },
];

const TASK = `Write Conway's Game of Life as a small program in ${FILE}, using only sh and awk.
${RULES}
Run it once with \`sh ${FILE}\` and tell me its last line.`;

const screen = new Screen(process.stdout);
const cleanups = [];

class Failure extends Error {}

function later(ms, message) {
    let timer;
    const promise = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new Failure(message)), ms);
    });
    promise.catch(() => {});
    return { promise, cancel: () => clearTimeout(timer) };
}

async function within(ms, work, message) {
    const limit = later(ms, message);
    try {
        return await Promise.race([work, limit.promise]);
    } finally {
        limit.cancel();
    }
}

/** {model, allowPrivate?}: DEMO_MODEL, else the first provider with a key, else the scripted server. */
async function chooseModel() {
    const wanted = process.env.DEMO_MODEL;
    if (wanted) {
        const slash = wanted.indexOf("/");
        if (slash < 1) {
            throw new Failure(`DEMO_MODEL must be provider/id, not ${wanted}`);
        }
        return { model: { provider: wanted.slice(0, slash), id: wanted.slice(slash + 1) } };
    }
    const found = PROVIDERS.find(({ variable }) => process.env[variable]);
    if (found) {
        return { model: { provider: found.provider, id: found.id } };
    }
    const server = await startModelServer({ script: await loadScript("demo") });
    cleanups.push(() => server.close());
    const api = "openai-completions";
    return {
        scripted: true,
        allowPrivate: new URL(server.url).host,
        model: { provider: "scripted", id: "demo", api, baseUrl: server.baseUrl(api) },
    };
}

async function startService(folder, choice) {
    const log = path.join(folder, "service.log");
    const data = path.join(folder, "data");
    const options = ["serve", "--data", data, "--listen", "127.0.0.1:0", "--log-format", "json"];
    if (choice.allowPrivate) {
        options.push("--allow-private", choice.allowPrivate);
    }
    const child = spawn(PROGRAM, options, { stdio: ["ignore", "pipe", "pipe"] });
    child.stderr.pipe(createWriteStream(log));
    const ended = once(child, "exit");
    cleanups.push(() => stopService(child, ended));
    const line = await within(START_MS, Promise.race([
        once(createInterface(child.stdout), "line").then(([text]) => text),
        ended.then(() => {
            throw new Failure(`the service ended before it listened. ${lastLogLine(log)}`);
        }),
    ]), "the service did not listen within a minute");
    const url = /^pi-managed listening on (\S+)$/.exec(line)?.[1];
    if (!url) {
        throw new Failure(`the service said: ${line}`);
    }
    return { url, log, data, key: readFileSync(path.join(data, "first-key"), "utf8").trim() };
}

async function stopService(child, ended) {
    if (child.exitCode !== null || child.signalCode !== null) {
        return;
    }
    child.kill("SIGTERM");
    await within(STOP_MS, ended, "the service did not stop").catch(() => child.kill("SIGKILL"));
}

function logLines(file) {
    return readFileSync(file, "utf8").split("\n").flatMap((line) => {
        try {
            return [JSON.parse(line)];
        } catch {
            return line ? [{ msg: line }] : [];
        }
    });
}

function lastLogLine(file) {
    return logLines(file).at(-1)?.msg ?? "";
}

/** The first Pi host needs a second or two; with it warm, the stopwatch shows what a service that runs gives. */
async function waitUntilReady({ url, log }) {
    const until = performance.now() + START_MS;
    for (;;) {
        const response = await fetch(`${url}/readyz`);
        const { checks } = await response.json();
        if (response.ok) {
            return;
        }
        if (performance.now() > until) {
            throw new Failure(`the service is not ready: ${JSON.stringify(checks)}. ${lastLogLine(log)}`);
        }
        await new Promise((resolve) => setTimeout(resolve, 50));
    }
}

function client({ url, key }) {
    const headers = { authorization: `Bearer ${key}`, "content-type": "application/json" };
    return async function call(method, target, body) {
        const response = await fetch(url + target, { method, headers, body: body && JSON.stringify(body) });
        if (!response.ok) {
            const problem = await response.json().catch(() => ({}));
            throw new Failure(`${method} ${target}: ${response.status} ${problem.detail ?? ""}`);
        }
        return response.status === 204 ? null : response.json();
    };
}

/** Yields {event, data} of a server-sent event stream. */
async function* streamEvents({ url, key }, target, signal) {
    const response = await fetch(url + target, { headers: { authorization: `Bearer ${key}` }, signal });
    if (!response.ok) {
        throw new Failure(`GET ${target}: ${response.status}`);
    }
    let frame = {};
    let rest = "";
    for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
        const lines = (rest + chunk).split("\n");
        rest = lines.pop();
        for (const line of lines) {
            if (line === "" && frame.data !== undefined) {
                yield { event: frame.event, data: JSON.parse(frame.data) };
                frame = {};
            } else if (!line.startsWith(":")) {
                const colon = line.indexOf(":");
                frame[line.slice(0, colon)] = line.slice(colon + 1).trimStart();
            }
        }
    }
}

/** Shows the session until it is idle; returns what happened. */
async function watch(service, session, startedAt) {
    const seen = { usage: null, results: [], errors: [], firstTokenMs: undefined, stop: undefined };
    const abort = new AbortController();
    const target = `/v1/sessions/${session.id}/stream?eventDeltas=agent.message`;
    try {
        for await (const { event, data } of streamEvents(service, target, abort.signal)) {
            if (event === "event_delta" || event === "agent.thinking") {
                seen.firstTokenMs ??= performance.now() - startedAt;
            }
            if (event === "agent.tool_result") {
                seen.results.push(data);
            } else if (event === "session.error") {
                seen.errors.push(data.error?.message ?? JSON.stringify(data));
            }
            screen.show(event, data);
            if (event === "session.status_idle") {
                seen.stop = data.stopReason?.type;
                return seen;
            }
        }
    } finally {
        abort.abort();
    }
    throw new Failure("the event stream ended before the session was idle");
}

const textOf = (event) => (event.content ?? []).map((block) => block.text ?? "").join("");

/** The proof: the line could only come from the program, run by the bash tool in the sandbox. */
function check(seen) {
    if (seen.stop !== "end_turn") {
        throw new Failure(`the session stopped with ${seen.stop}: ${seen.errors.join("; ")}`);
    }
    const line = expectedLine();
    const proof = seen.results.find((result) => result.name === "bash" && !result.isError
        && textOf(result).split("\n").includes(line));
    if (!proof) {
        throw new Failure(`no tool result holds the line "${line}" that the program must print`);
    }
    return line;
}

function sandboxMs(service, session) {
    const took = (word) => Number(logLines(service.log).find((line) => line.sessionId === session.id
        && line.msg?.startsWith(`sandbox ${word} in`))?.msg.match(/(\d+) ms/)?.[1] ?? NaN);
    return took("created") + took("started");
}

/** The demo leaves nothing running: the idle timeout of one second stops the sandbox, its files stay. */
async function waitForSandboxStop(call, session) {
    const until = performance.now() + STOP_MS;
    for (;;) {
        const { sandbox } = await call("GET", `/v1/sessions/${session.id}`);
        if (sandbox.state !== "running") {
            return;
        }
        if (performance.now() > until) {
            throw new Failure("the idle sandbox was not stopped");
        }
        await new Promise((resolve) => setTimeout(resolve, 100));
    }
}

function run(command, args, env) {
    return new Promise((resolve, reject) => {
        const child = spawn(command, args, { stdio: ["ignore", "ignore", "pipe"], env });
        let text = "";
        child.stderr.on("data", (chunk) => (text += chunk));
        child.on("exit", (code) => (code === 0 ? resolve() : reject(new Failure(text.trim()))));
    });
}

async function main() {
    const folder = mkdtempSync(path.join(os.tmpdir(), "pi-managed-demo-"));
    logs = folder;
    const choice = await chooseModel();
    const service = await startService(folder, choice);
    const call = client(service);
    screen.title(choice);
    await waitUntilReady(service);
    const agent = await call("POST", "/v1/agents", { name: "demo", model: choice.model });
    const environment = await call("POST", "/v1/environments", { name: "demo", idleTimeout: 1 });
    const session = await call("POST", "/v1/sessions",
        { agent: agent.id, environmentId: environment.id, title: "Game of Life" });
    let stopped = false;
    cleanups.push(() => stopped || call("DELETE", `/v1/sessions/${session.id}`));
    screen.task(TASK);
    const startedAt = performance.now();
    const watching = watch(service, session, startedAt);
    watching.catch(() => {});
    await call("POST", `/v1/sessions/${session.id}/events`, { type: "user.message", content: TASK });
    const seen = await within(RUN_MS, watching, "the session was not idle within five minutes");
    const totalMs = performance.now() - startedAt;
    const line = check(seen);
    const { usage, sandbox } = await call("GET", `/v1/sessions/${session.id}`);
    await waitForSandboxStop(call, session);
    stopped = true;
    const file = path.join(folder, `${session.id}.jsonl`);
    await run(PROGRAM, ["export", session.id, "--output", file],
        { PI_MANAGED_URL: service.url, PI_MANAGED_API_KEY: service.key });
    screen.summary({
        line, usage, sandbox, file, folder, session, totalMs,
        firstTokenMs: seen.firstTokenMs,
        sandboxMs: sandboxMs(service, session),
        files: [FILE],
        data: service.data,
        serviceLog: service.log,
    });
}

/** Newest first; what is done once is not done again. */
async function cleanUp() {
    for (let cleanup; (cleanup = cleanups.pop());) {
        await Promise.resolve().then(cleanup).catch((error) => screen.warn(error.message));
    }
}

/** After a failure the logs are what a person needs. */
let logs = "";

let failed = false;
for (const signal of ["SIGINT", "SIGTERM"]) {
    process.once(signal, async () => {
        await cleanUp();
        process.exit(130);
    });
}
try {
    await main();
} catch (error) {
    failed = true;
    screen.failure(`${error instanceof Failure ? error.message : error.stack}${error.cause ? `: ${error.cause.message}` : ""}
The service's log and data are in ${logs}`);
}
await cleanUp();
process.exitCode = failed ? 1 : 0;
