// Many clients at once: posts, streams, interrupts, withdrawals and deletions that race each other.
// Nothing is lost or doubled, and afterwards the processes hold no more than before.
import assert from "node:assert/strict";
import { existsSync, readFileSync, readdirSync } from "node:fs";
import http from "node:http";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { eventually } from "../support/eventually.mjs";
import { startJob, textOf, types } from "../support/job.mjs";
import { descendants } from "../support/processes.mjs";
import { SERVICE_PROGRAM, serviceMissing } from "../support/service.mjs";

const isIdle = (frame) => frame.type === "session.status_idle";
const call = (command) => `CALL bash ${JSON.stringify({ command })}`;
const times = (count, make) => Array.from({ length: count }, (_, index) => make(index));
const allAtOnce = (count, make) => Promise.all(times(count, make));

const whole = (events) =>
    assert.deepEqual(events.map((event) => event.seq), events.map((_, index) => index + 1));

/** Reads frames until the last posted message is processed and the session is idle again. */
async function atRest(session) {
    return eventually(`${session.id} comes to rest`, async () => {
        const events = await session.events();
        const waiting = events.filter((one) => one.type === "user.message" && !one.processedAt);
        const { status } = await session.get();
        const last = events.findLast((one) => one.type !== "user.interrupt"); // one that came when idle does nothing
        return { status, waiting: waiting.length, last, events };
    }, (seen) => seen.status === "idle" && seen.waiting === 0 && isIdle(seen.last ?? {}))
        .then(({ events }) => events);
}

describe("storms", { skip: serviceMissing }, () => {
    let job, service;
    before(async () => {
        job = await startJob();
        service = job.service;
    });
    after(() => job?.stop());

    const remove = (session) => service.request("DELETE", session.path);

    test("100 posts at once to one session: each once, in the order of their acceptance, all answered", async () => {
        const session = await job.session();
        const posted = await allAtOnce(100, (index) => session.say(`SAY answer ${index}`));
        const events = await atRest(session);
        whole(events);
        const messages = events.filter((event) => event.type === "user.message");
        assert.deepEqual(messages.map((event) => event.id).sort(), posted.map(({ data }) => data[0].id).sort());
        const asked = messages.map((event) => textOf(event).replace("SAY ", ""));
        const answered = events.filter((event) => event.type === "agent.message").map(textOf);
        assert.deepEqual(answered, asked);
    });

    test("50 sessions made and run at once all reach idle with their own result", async () => {
        await allAtOnce(50, async (index) => {
            const session = await job.session();
            await session.say(`${call(`echo mine-${index}`)} THEN SAY "saw $RESULT"`);
            const events = await atRest(session);
            whole(events);
            assert.match(textOf(events.find((event) => event.type === "agent.message")), new RegExp(`saw mine-${index}\\b`));
            assert.deepEqual(events.at(-1).stopReason, { type: "end_turn" });
            assert.equal((await remove(session)).status, 204);
        });
    });

    test("a storm of interrupts and messages ends idle; the next turn works", async () => {
        const session = await job.session();
        await session.say(`${call("sleep 600")} THEN SAY never`);
        await allAtOnce(60, (index) => index % 3 === 0
            ? session.say(`${call("sleep 600")} THEN SAY never`) : session.interrupt());
        await eventually("idle", async () => {
            await session.interrupt();
            return session.get();
        }, ({ status }) => status === "idle");
        const events = await atRest(session);
        whole(events);
        const uses = events.filter((event) => event.type === "agent.tool_use").map((event) => event.toolCallId);
        const results = events.filter((event) => event.type === "agent.tool_result").map((event) => event.toolCallId);
        assert.deepEqual(results.sort(), uses.sort());
        const next = await session.run("SAY alive");
        assert.equal(textOf(next.findLast((event) => event.type === "agent.message")), "alive");
    });

    test("a withdrawal and the turn race: withdrawn means never processed, refused means processed", async () => {
        const session = await job.session();
        const posted = [];
        const replies = [];
        await allAtOnce(30, async (index) => {
            const { data: [event] } = await session.say(`SAY "answer ${index}."`);
            posted.push({ id: event.id, index });
            replies.push({ index, status: (await service.request("DELETE", `${session.path}/events/${event.id}`)).status });
        });
        const events = await atRest(session);
        whole(events);
        const answers = events.filter((event) => event.type === "agent.message").map(textOf);
        for (const { index, status } of replies) {
            assert.ok([204, 409].includes(status), `status ${status}`);
            const count = answers.filter((text) => text === `answer ${index}.`).length;
            assert.equal(count, status === 204 ? 0 : 1, `answer ${index}: withdrawal gave ${status}`);
        }
    });

    test("deletion races posts, streams, interrupts and itself: 2xx or 404, and nothing stays", async () => {
        await allAtOnce(20, async () => {
            const session = await job.session();
            const streams = await allAtOnce(3, () => session.stream());
            await session.say(`${call("sleep 600")} THEN SAY never`);
            const replies = await Promise.all([
                remove(session),
                ...times(3, () => service.request("POST", `${session.path}/events`, { body: { type: "user.message", content: "SAY x" } })),
                service.request("POST", `${session.path}/events`, { body: { type: "user.interrupt" } }),
                service.request("GET", `${session.path}/events`),
                remove(session),
            ]);
            for (const { status, text } of replies) {
                assert.ok([200, 202, 204, 404].includes(status), `${status}: ${text}`);
            }
            assert.equal(replies.filter((reply, index) => [0, 6].includes(index) && reply.status === 204).length, 1);
            await Promise.all(streams.map(async (stream) => {
                await stream.until((frame) => frame.type === "session.deleted");
                assert.equal((await stream.next()).done, true);
            }));
            assert.equal((await service.request("GET", session.path)).status, 404);
            assert.ok(!existsSync(path.join(service.data, "sandboxes", session.id)), "its sandbox is there");
        });
    });

    test("a sandbox that was about to start when its session was deleted does not come back", async () => {
        await allAtOnce(40, async (index) => {
            const session = await job.session();
            await session.say(index % 2 ? "SAY hi" : `${call("echo hi")} THEN SAY done`);
            assert.equal((await remove(session)).status, 204);
        });
        await (await job.session()).run(`${call("echo hi")} THEN SAY done`); // whatever was under way is over
        const live = (await service.ok("GET", "/v1/sessions?limit=100")).data.map((one) => one.id);
        const left = readdirSync(path.join(service.data, "sandboxes"))
            .filter((id) => !id.startsWith(".") && !live.includes(id));
        assert.deepEqual(left, []);
    });

    test("200 streams while a turn runs: each gets the same persisted events", async () => {
        const session = await job.session();
        const streams = await allAtOnce(200, () => session.stream({ eventDeltas: "agent.message" }));
        await session.say(`SLOW 1 SAY some words for everyone ${call("echo hi")} THEN SAY done`);
        const seen = await Promise.all(streams.map(async (stream) => {
            const frames = await stream.until(isIdle);
            await stream.close();
            return frames.filter((frame) => frame.id).map((frame) => frame.data.id).join();
        }));
        assert.equal(new Set(seen).size, 1);
        assert.equal(seen[0].split(",").length, (await session.events()).length);
    });

    test("a client that never reads is hung up on and holds up nobody", async () => {
        const session = await job.session();
        const { hostname, port } = new URL(service.url);
        const deaf = await new Promise((resolve, reject) => {
            http.get({ hostname, port, path: `${session.path}/stream?eventDeltas=agent.tool_result`, agent: false,
                headers: { authorization: `Bearer ${service.apiKey}` } }, resolve).once("error", reject);
        });
        deaf.pause();
        const stream = await session.stream();
        const noise = `${call("for i in $(seq 40); do head -c 100000 /dev/zero | tr '\\\\0' x; echo; sleep 0.01; done")} THEN SAY done`;
        await session.say(noise);
        const frames = await stream.until(isIdle);
        assert.deepEqual(frames.at(-1).data.stopReason, { type: "end_turn" });
        const again = await session.run("SAY more");
        assert.ok(types(again).includes("agent.message"));
        await stream.close();
        deaf.destroy();
    });

    test("reconnecting in the middle of a turn, again and again, shows each event once", async () => {
        const session = await job.session();
        const seen = [];
        await session.say(`SLOW 5 SAY one two three ${call("echo a; sleep 0.2")} THEN THINK hm ${call("echo b")} ;; bash {"command":"echo c"} THEN SAY done`);
        for (let last = 0, over = false; !over;) {
            const stream = await session.stream({ lastEventId: last });
            const frames = await stream.until((frame) => frame.id !== undefined);
            await stream.close();
            const { data } = frames.at(-1);
            seen.push(data);
            last = data.seq;
            over = data.type === "session.status_idle";
        }
        assert.deepEqual(seen.map((event) => event.id), (await session.events()).map((event) => event.id));
    });

    /** Descriptors, threads and resident memory of the service's processes, sandboxes not counted. */
    function holdings() {
        const total = { fds: 0, threads: 0, processes: 0, rssMiB: 0 };
        for (const { pid, command } of [{ pid: service.pid, command: "serve" }, ...descendants(service.pid)]) {
            if (!/serve|--role|host\.mjs/.test(command)) {
                continue;
            }
            try {
                const status = readFileSync(`/proc/${pid}/status`, "latin1");
                const number = (name) => Number(new RegExp(`${name}:\\s+(\\d+)`).exec(status)?.[1] ?? 0);
                total.fds += readdirSync(`/proc/${pid}/fd`).length;
                total.threads += number("Threads");
                total.rssMiB += Math.round(number("VmRSS") / 1024);
                total.processes++;
            } catch (error) {
                if (!["ENOENT", "ESRCH"].includes(error.code)) { // a maker ends at any time
                    throw error;
                }
            }
        }
        return total;
    }

    test("sessions that come and go leave no descriptor, thread, process or sandbox behind", async (t) => {
        const round = async () => {
            const session = await job.session();
            const stream = await session.stream();
            await session.say(`${call("echo hi")} THEN SAY done`);
            await stream.until(isIdle);
            assert.equal((await remove(session)).status, 204);
            await stream.until((frame) => frame.type === "session.deleted");
            await stream.close();
        };
        const rounds = async (count) => {
            for (let done = 0; done < count; done += 5) {
                await allAtOnce(5, round);
            }
        };
        await rounds(20);
        const early = holdings();
        await rounds(60);
        const late = await eventually("as little is held as before", async () => holdings(), (now) =>
            now.fds <= early.fds + 10 && now.threads <= early.threads + 6 && now.processes <= early.processes + 1);
        t.diagnostic(`early ${JSON.stringify(early)}, late ${JSON.stringify(late)}`);
        const sanitized = /\/(address|thread)\//.test(SERVICE_PROGRAM); // it keeps freed memory, and finds leaks itself
        assert.ok(sanitized || late.rssMiB < early.rssMiB + 60, `memory grew: ${JSON.stringify({ early, late })}`);
    });
});
