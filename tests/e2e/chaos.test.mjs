// kill -9 of random processes at random moments while several sessions work, are queued to, steered
// and interrupted. Afterwards nothing that was accepted is lost and nothing ran twice. The seed is
// printed; CHAOS_SEED=n plays the same choices again (the moments still depend on the machine).
import assert from "node:assert/strict";
import { existsSync, readFileSync, readdirSync } from "node:fs";
import path from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { after, before, describe, test } from "node:test";
import { startJob, textOf } from "../support/job.mjs";
import { descendants } from "../support/processes.mjs";
import { serviceMissing } from "../support/service.mjs";

const SEED = Number(process.env.CHAOS_SEED ?? Date.now() % 1_000_000);
const SESSIONS = 5;
const TURNS = 6; // a session
const KILLS = 14;
const LIMIT_MS = 45_000; // for the sessions to come to rest after the last kill

/** mulberry32: a small generator whose whole state is the seed. */
function randomOf(seed) {
    let state = seed >>> 0;
    const next = () => {
        state = (state + 0x6d2b79f5) >>> 0;
        let t = Math.imul(state ^ (state >>> 15), state | 1);
        t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
        return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
    };
    return {
        below: (n) => Math.floor(next() * n),
        pick: (list) => list[Math.floor(next() * list.length)],
    };
}

/** The service's own processes by role; sandboxes are not among them. */
function rolesOf(service) {
    const all = descendants(service.pid);
    const matching = (pattern) => all.filter(({ command }) => pattern.test(command)).map(({ pid }) => pid);
    return {
        control: matching(/--role control/),
        broker: matching(/--role broker/),
        host: matching(/host\.mjs/),
    };
}

/** The first processes of sandboxes that run. */
function sandboxesOf(service) {
    const folder = path.join(service.data, "sandboxes");
    return readdirSync(folder).map((name) => path.join(folder, name, "run.json")).filter(existsSync)
        .map((file) => JSON.parse(readFileSync(file, "utf8")).pid);
}

function killAll(pids) {
    for (const pid of pids) {
        try {
            process.kill(pid, "SIGKILL");
        } catch (error) {
            if (error.code !== "ESRCH") {
                throw error;
            }
        }
    }
}

describe(`chaos (CHAOS_SEED=${SEED})`, { skip: serviceMissing }, () => {
    const random = randomOf(SEED);
    let job;
    let keys = 0;
    before(async () => {
        job = await startJob();
    });
    after(() => job?.stop());

    /** A request that a killed service did not answer is made again; its key makes it count once. */
    async function insist(ask) {
        for (const deadline = Date.now() + LIMIT_MS; ;) {
            try {
                return await ask();
            } catch (error) {
                assert.ok(Date.now() < deadline, `still: ${error.message}`);
                await pause(50); // what answers may be starting
            }
        }
    }

    const post = (session, event) => {
        const headers = { "idempotency-key": `chaos-${keys++}` };
        return insist(async () => {
            const target = `${session.path}/events`;
            const { data } = await job.service.ok("POST", target, event, { headers });
            return data[0].id;
        });
    };

    const bash = (token, work) =>
        `bash ${JSON.stringify({ command: `echo ${token} >> /workspace/ran; ${work}; echo ${token}` })}`;

    /** A turn of a random kind; every tool call leaves its own token in /workspace/ran. */
    function script(name) {
        const nap = () => `sleep 0.${random.below(7)}`;
        return random.pick([
            () => `SAY ${name}`,
            () => `SLOW 20 THINK about ${name} SAY "a longer answer to ${name} that takes its time"`,
            () => `CALL ${bash(`${name}a`, nap())} THEN SAY done ${name}`,
            () => `CALL ${bash(`${name}a`, nap())} ;; ${bash(`${name}b`, nap())} ;; ${bash(`${name}c`, nap())} THEN SAY done ${name}`,
            () => `THINK hard CALL ${bash(`${name}a`, nap())} THEN CALL ${bash(`${name}b`, nap())} THEN SAY done ${name}`,
        ])();
    }

    async function talk(session, number) {
        session.posted = [];
        for (let turn = 0; turn < TURNS; turn++) {
            const content = script(`s${number}t${turn}`);
            session.posted.push(await post(session, { type: "user.message", content }));
            await pause(random.below(1200));
            const extra = random.below(10);
            if (extra === 0) {
                await post(session, { type: "user.interrupt" });
            } else if (extra < 3) {
                const steer = { type: "user.message", content: "please hurry", deliverAs: "steer" };
                session.posted.push(await post(session, steer));
            }
        }
    }

    async function strike() {
        const service = job.service;
        const victim = random.pick(["control", "control", "broker", "host", "host", "sandbox", "parent", "all"]);
        const roles = { ...rolesOf(service), sandbox: sandboxesOf(service) };
        if (victim === "parent" || victim === "all") {
            if (victim === "all") {
                killAll([...roles.control, ...roles.broker, ...roles.host]);
            }
            await service.kill9();
            await service.restart();
        } else if (roles[victim].length > 0) {
            killAll([random.pick(roles[victim])]);
        }
        return victim;
    }

    const atRest = (session) => insist(async () => {
        const { status } = await session.get();
        const events = await session.events();
        const waiting = events.filter((one) => one.type === "user.message" && !one.processedAt);
        assert.ok(status === "idle" && events.at(-1).type === "session.status_idle"
            && waiting.length === 0 && session.posted.every((id) => events.some((one) => one.id === id)),
            `${session.id} is ${status}, ${waiting.length} wait, its last: ${JSON.stringify(events.at(-1))}`);
        return events;
    });

    function checkLog(session, events) {
        assert.deepEqual(events.map((one) => one.seq), events.map((_, index) => index + 1));
        const count = (type, pick) => events.filter((one) => one.type === type).map(pick).sort();
        assert.deepEqual(count("user.message", (one) => one.id), [...session.posted].sort());
        assert.deepEqual(count("agent.tool_result", (one) => one.toolCallId),
            count("agent.tool_use", (one) => one.toolCallId));
    }

    /** What a result reports has happened, once; what was interrupted, once at most. */
    function checkFiles(events, ran) {
        const uses = events.filter((one) => one.type === "agent.tool_use" && /echo s\d/.test(one.input?.command));
        for (const use of uses) {
            const token = /echo (\S+)/.exec(use.input.command)[1];
            const times = ran.filter((line) => line === token).length;
            const result = events.find((one) => one.type === "agent.tool_result" && one.toolCallId === use.toolCallId);
            assert.ok(times <= 1, `${token} ran ${times} times`);
            assert.ok(result.isError || times === 1, `${token} is reported done and is not`);
        }
        const tokens = uses.map((use) => /echo (\S+)/.exec(use.input.command)[1]);
        assert.deepEqual(ran.filter((line) => !tokens.includes(line)), [], "ran without a tool_use");
    }

    test("what was accepted is done once, whoever dies", { timeout: 150_000 }, async (t) => {
        const sessions = await Promise.all(Array.from({ length: SESSIONS }, () => job.session()));
        const talks = sessions.map(talk);
        const struck = [];
        for (let kill = 0; kill < KILLS; kill++) {
            await pause(100 + random.below(900));
            struck.push(await strike());
        }
        await Promise.all(talks);
        t.diagnostic(`struck: ${struck.join(" ")}`);
        for (const session of sessions) {
            // A turn that ended in an error leaves what is queued to the next message.
            session.posted.push(await post(session, {
                type: "user.message", content: `CALL bash {"command":"cat /workspace/ran"} THEN SAY end`,
            }));
        }
        for (const session of sessions) {
            const events = await atRest(session);
            checkLog(session, events);
            const ran = textOf(events.findLast((one) => one.type === "agent.tool_result"));
            checkFiles(events, ran.split("\n").filter((line) => /^s\d/.test(line)));
        }
    });
});
