// How long an answer may take is the broker's business alone: a request may be held through backoffs of a minute each,
// and slow models think for long. The SDKs inside Pi must not give up before; they tell their limit in a header.
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { APIS, startJob } from "../support/job.mjs";
import { serviceMissing } from "../support/service.mjs";

const HOUR_S = 3600;

describe("a host waits for its model", { skip: serviceMissing }, () => {
    let job;
    before(async () => (job = await startJob()));
    after(() => job?.stop());

    for (const api of APIS) {
        test(`no SDK has a shorter limit of its own: ${api}`, async () => {
            const session = await job.session({ api });
            await session.run("SAY hello");
            const { headers } = job.model.requests.at(-1);
            const told = headers["x-stainless-timeout"] ?? headers["x-server-timeout"];
            if (api !== "google-generative-ai") {
                assert.ok(told, "the header by which we know");
            }
            assert.ok(told === undefined || Number(told) >= HOUR_S, `${told} s`);
        });
    }
});
