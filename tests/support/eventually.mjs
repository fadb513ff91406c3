// Waiting for what the service shows only when asked, and not being surprised by midnight.
import assert from "node:assert/strict";
import { setTimeout as pause } from "node:timers/promises";

/** Long enough for a machine that does much else; it is spent only when a test fails. */
export const PATIENCE_MS = 120_000;
const BETWEEN_MS = 10;

/** Asks again until the answer satisfies, and returns it; in the end says what was seen last. */
export async function eventually(what, ask, satisfies) {
    for (const deadline = Date.now() + PATIENCE_MS; ;) {
        const answer = await ask();
        if (satisfies(answer)) {
            return answer;
        }
        assert.ok(Date.now() < deadline, `${what}: last seen ${JSON.stringify(answer)}`);
        await pause(BETWEEN_MS);
    }
}

const today = () => new Date().toISOString().slice(0, 10);

/** Runs what counts by the day. Once 00:00 UTC has passed in the middle its numbers mean nothing: then it runs again. */
export async function inOneDay(run) {
    const day = today();
    try {
        return await run();
    } catch (error) {
        if (today() === day) {
            throw error;
        }
        return run();
    }
}
