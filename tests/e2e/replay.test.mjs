// A user's bug report becomes a test: a session's exported log is played back as the model, and a new
// session that gets the same messages goes the same way, tools and all.
import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { replay } from "../support/model/replay.mjs";
import { APIS, startJob } from "../support/job.mjs";
import { serviceMissing } from "../support/service.mjs";

const PROMPTS = [
    'THINK look first SAY Looking. CALL bash {"command":"echo one > a; ls"} ;; read {"path":"/etc/hostname"} '
        + 'THEN CALL bash {"command":"false"} THEN SAY "It said: $RESULT"',
    "SAY cut short STOP length",
    'ERROR "it was all nonsense" TIMES 1 SAY "better now"',
    "SAY at last",
];

/** What a session's log says was spoken, without what differs in every run. */
async function spoken(session) {
    const messages = (await session.entries()).filter(({ type }) => type === "message");
    return messages.map(({ message: { role, content, stopReason, isError } }) => ({
        role, stopReason, isError,
        content: [content ?? []].flat().map(({ type, text, thinking, name, arguments: args }) =>
            ({ type, text, thinking, name, args })),
    })).filter(({ role }) => role !== "system");
}

describe("a recorded session played back", { skip: serviceMissing }, () => {
    let job;
    after(() => job?.stop());

    test("gives the same session, whatever API the recorded one spoke", async () => {
        job = await startJob();
        const recorded = await job.session({ api: "anthropic-messages" });
        for (const prompt of PROMPTS) {
            await recorded.run(prompt);
        }
        const log = (await job.service.request("GET", `${recorded.path}/export`)).text;
        const wanted = await spoken(recorded);
        assert.deepEqual(wanted.filter(({ role }) => role === "assistant").map((m) => m.stopReason),
            ["toolUse", "toolUse", "stop", "length", "error", "stop", "stop"]);

        const script = replay(log);
        assert.deepEqual(script.prompts, PROMPTS);
        job.model.setScript(script);
        for (const api of APIS) {
            const played = await job.session({ api });
            for (const prompt of script.prompts) {
                await played.run(prompt);
            }
            assert.deepEqual(await spoken(played), wanted, api);
        }
    });
});
