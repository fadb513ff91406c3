// Whatever a provider does wrong once, the session gets its answer, of this attempt or the next, and no tool runs that
// was not called whole (R25).
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { APIS, startJob, textOf } from "../support/job.mjs";
import { serviceMissing } from "../support/service.mjs";

/** The turn goes on as if nothing had been wrong. */
const HARMLESS = ["PINGS 20", 'RAW ": a comment\\n\\n"', 'RAW "\\u00ff\\u0000\\u00fe:\\r\\r"', "LONG 300000", "TYPE text/html",
    'TRAIL BEYOND "HTTP/1.1 200 OK\\r\\n\\r\\n"', "CHUNK 1"];
/** The request is made again, with an answer then. */
const TRIED_AGAIN = ["CUT AT 0", "CUT AT 0 CLEAN", "CUT AT 150", "CUT CLEAN", "CUT ARGS", "CUT EARLY", "FAIL 502 HTML",
    "FAIL 500 EMPTY", "FAIL 200 HTML", "FAIL 429 1", "FAIL 529 EMPTY", "ERROR overloaded"];
/** Nonsense in an answer: some protocols' readers pass over it, for the others it is made again. */
const NONSENSE = ['RAW "data: {not json\\n\\n"', "LONG 100000 JUNK", 'TRAIL "data: {\\"x\\""',
    'RAW "event: message_delta\\ndata: {\\"type\\n\\n"'];

const errorsOf = (events) => events.filter(({ type }) => type === "session.error");
const said = (events) => events.filter(({ type }) => type === "agent.message").map(textOf).join("");

describe("a provider that does it wrong", { skip: serviceMissing }, () => {
    let job;
    before(async () => (job = await startJob()));
    after(() => job?.stop());

    for (const api of APIS) {
        // Which words a script has is the server's way to know a request again: the api makes them differ.
        const turn = async (fault) => {
            const session = await job.session({ api });
            const call = 'CALL bash {"command":"echo ran >> ran; cat ran"}';
            const script = `SAY "${api}: " ${fault} TIMES 1 ${fault === "CUT ARGS" ? call : ""} THEN SAY "made it"`;
            const events = await session.run(fault === "CUT ARGS" ? script : script.replace(" THEN", ""));
            return { session, events };
        };

        test(`${api}: what is only odd does no harm`, async () => {
            await Promise.all(HARMLESS.map(async (fault) => {
                const { events } = await turn(fault);
                assert.deepEqual(errorsOf(events), [], fault);
                assert.match(said(events), /made it$/, fault);
                assert.deepEqual(events.at(-1).stopReason, { type: "end_turn" }, fault);
            }));
        });

        test(`${api}: what failed is tried again`, async () => {
            await Promise.all([...TRIED_AGAIN, ...NONSENSE].map(async (fault) => {
                const { events } = await turn(fault);
                const errors = errorsOf(events);
                assert.ok(errors.every(({ retryStatus }) => retryStatus.type === "retrying"), fault);
                assert.match(said(events), /made it$/, fault);
                assert.deepEqual(events.at(-1).stopReason, { type: "end_turn" }, fault);
                if (fault === "CUT ARGS") {
                    const results = events.filter(({ type }) => type === "agent.tool_result");
                    assert.deepEqual(results.map(textOf), ["ran\n"], "the tool ran once");
                }
            }));
        });

    }
});
