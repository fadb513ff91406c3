// How long a message takes to reach the model, and what an idle session costs, in one run:
//   warm   POST user.message on an idle, open session → the model server has the request
//   cold   the same on a new session (the host opens it first)
//   direct the same client sending one HTTP request to the model server itself, as the yardstick
// and control's memory over a number of idle sessions. Prints medians and ratios.
import { readFileSync, readdirSync } from "node:fs";
import { startJob } from "../support/job.mjs";

const ROUNDS = Number(process.env.ROUNDS ?? 40);
const IDLE_SESSIONS = Number(process.env.SESSIONS ?? 200);

const median = (values) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)];
const ms = (value) => `${value.toFixed(1)} ms`;

function controlOf(parentPid) {
    for (const name of readdirSync("/proc").filter((one) => /^\d+$/.test(one))) {
        try {
            if (readFileSync(`/proc/${name}/cmdline`, "latin1").includes("--role\0control")
                && readFileSync(`/proc/${name}/stat`, "latin1").includes(`) S ${parentPid} `)) {
                return name;
            }
        } catch { /* ended */ }
    }
    throw new Error("control not found");
}

function rssKb(pid) {
    return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))[1]);
}

async function timeToModel(job, session, text) {
    const idle = await session.stream({ lastEventId: "999999999" });
    const arrived = job.model.waitForRequest((request) => request.userText === text);
    const begun = performance.now();
    await session.say(text);
    await arrived;
    const taken = performance.now() - begun;
    await idle.until((frame) => frame.type === "session.status_idle");
    await idle.close();
    return taken;
}

async function direct(job, n) {
    const body = JSON.stringify({ model: "m", stream: true, messages: [{ role: "user", content: `SAY direct ${n}` }] });
    const arrived = job.model.waitForRequest((request) => request.userText === `SAY direct ${n}`);
    const begun = performance.now();
    const reply = fetch(`${job.model.baseUrl("openai-completions")}/chat/completions`,
        { method: "POST", headers: { "content-type": "application/json" }, body });
    await arrived;
    const taken = performance.now() - begun;
    await (await reply).text();
    return taken;
}

const job = await startJob();
try {
    const session = await job.session();
    await timeToModel(job, session, "SAY warm-up");
    const warm = [], cold = [], yardstick = [];
    for (let n = 0; n < ROUNDS; n++) {
        warm.push(await timeToModel(job, session, `SAY warm ${n}`));
        cold.push(await timeToModel(job, await job.session(), `SAY cold ${n}`));
        yardstick.push(await direct(job, n));
    }
    console.log(`POST user.message → model request: warm ${ms(median(warm))}, cold ${ms(median(cold))}, `
        + `direct request ${ms(median(yardstick))}; warm/direct ${(median(warm) / median(yardstick)).toFixed(1)}x`);

    const control = controlOf(job.service.pid);
    const before = rssKb(control);
    const agent = await job.agent();
    const environment = await job.environment();
    for (let n = 0; n < IDLE_SESSIONS; n++) {
        await job.service.ok("POST", "/v1/sessions", { agent: agent.id, environmentId: environment.id });
    }
    const after = rssKb(control);
    console.log(`control: ${(before / 1024).toFixed(1)} MB RSS after ${2 * ROUNDS + 1} turns; `
        + `${IDLE_SESSIONS} more idle sessions: +${after - before} kB, `
        + `${(((after - before) * 1024) / IDLE_SESSIONS).toFixed(0)} bytes a session`);
} finally {
    await job.stop();
}
