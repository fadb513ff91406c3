// Rows with equal times, in every list of the contract (CASES of other systems: skipped or repeated across pages):
// each row once, in both directions, also while rows come and go; a cursor is good only where it came from.
import assert from "node:assert/strict";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { after, before, describe, test } from "node:test";
import { theContract } from "../support/contract.mjs";
import { Tenant } from "./makers.mjs";
import { allPages, assertProblem, createTenant, startService } from "./support.mjs";

const INSTANT = 1_796_040_000_000;
const COUNTS = { "/v1/sessions": 500, "/v1/vaults/{id}/credentials": 18 }; // a vault holds 20
const COUNT = 40, PAGE = 7;
const countOf = (list) => COUNTS[list] ?? COUNT;

const isList = ({ method, parameters }) => method === "get" && parameters.some((one) => one.name === "cursor");
/** Ordered by a number of their own, not by time. */
const NUMBERED = /\/(events|entries|tree|versions)$/;
const lists = theContract.operations().filter((one) => isList(one) && !NUMBERED.test(one.path)).map(({ path: list }) => list);

/** Filters of a list with a value that each takes. */
const VALUES = { name: "x", metadata: "%7B%22a%22%3A%22b%22%7D", includeArchived: "true", status: "idle", agentId: "agent_x",
    environmentId: "env_x", requestId: "x" };
const filtersOf = (list) => theContract.find("GET", list).parameters.filter((one) => one.in === "query")
    .map(({ name }) => [name, VALUES[name]]).filter(([name, value]) => value || assert.ok(PLAIN.includes(name), name));
const PLAIN = ["limit", "cursor", "order", "sessionId"]; // sessionId: of files, a list that a session's outputs make

let service, owner, stranger;
const made = new Map();
const paths = new Map(); // of a list, with the parents it stands below

/** All rows get the same time, as if the clock had stood still; the service is stopped meanwhile. */
function freeze() {
    const db = new DatabaseSync(join(service.data, "control.db"));
    for (const list of lists) {
        const table = list.split("/").at(-1).replaceAll("-", "_");
        const { changes } = db.prepare(`UPDATE ${table} SET created_at = ?`).run(INSTANT);
        assert.ok(changes >= countOf(list), `${table}: ${changes}`);
    }
    db.close();
}

before(async () => {
    service = await startService();
    owner = new Tenant(service, { key: service.apiKey });
    stranger = new Tenant(service, { key: (await createTenant(service, "stranger")).apiKey });
    for (const list of lists) {
        const ids = [];
        paths.set(list, `/${(await owner.segments(list)).join("/")}`);
        for (let left = countOf(list); left > 0; left -= 20) {
            ids.push(...await Promise.all(Array.from({ length: Math.min(left, 20) },
                () => owner.make(list, paths.get(list)))));
        }
        made.set(list, ids);
    }
    await service.restart({}, freeze);
});
after(() => service?.stop());

test("there are lists", () => {
    assert.ok(lists.length >= 7, lists.join());
    assert.ok(lists.some((list) => list.includes("{")));
});

for (const list of lists) {
    describe(`pages of ${list}`, () => {
        const ids = (rows) => rows.map((row) => row.id);
        let path;
        before(() => { path = paths.get(list); });
        const pages = (query) => allPages(service, `${path}${query}`, PAGE);
        const page = (query) => service.ok("GET", `${path}?limit=${PAGE}${query}`);

        test("have each row once, and the same ones backwards", async () => {
            const newest = ids(await pages(""));
            assert.equal(new Set(newest).size, newest.length, "none twice");
            made.get(list).forEach((id) => assert.ok(newest.includes(id), `${id} is missing`));
            assert.deepEqual(ids(await pages("?order=asc")), [...newest].reverse());
            assert.deepEqual(ids((await service.ok("GET", `${path}?limit=100`)).data), newest.slice(0, 100));
        });

        test("go on where they stopped while rows come and go", async () => {
            const all = ids(await pages(""));
            const first = await page("");
            const cursor = `&cursor=${encodeURIComponent(first.nextCursor)}`;
            await owner.make(list, path); // newer than all: before the first page
            const removed = first.data.at(-1).id; // what the cursor points at
            if (theContract.find("DELETE", `${path}/${removed}`)) {
                await service.request("DELETE", `${path}/${removed}`);
            }
            assert.deepEqual(ids((await page(cursor)).data), all.slice(PAGE, 2 * PAGE));
        });

        test("end with no cursor, and never give half a page before", async () => {
            const one = await service.ok("GET", `${path}?limit=1`);
            assert.equal(one.hasMore, true);
            const rows = await pages("");
            const last = await service.ok("GET", `${path}?limit=100&order=asc`);
            assert.equal(last.data.length, Math.min(100, rows.length));
        });

        test("take no cursor of another order, list or tenant, and no forged one", async () => {
            const { nextCursor } = await page("");
            const bad = async (target, options) =>
                assertProblem(await service.request("GET", target, options), 400, "invalid_cursor");
            const cursor = `cursor=${encodeURIComponent(nextCursor)}`;
            await bad(`${path}?limit=${PAGE}&order=asc&${cursor}`);
            if (path === list) { // of another's parent there is no list at all
                await bad(`${path}?limit=${PAGE}&${cursor}`, stranger.options);
            }
            await bad(`${paths.get(lists.find((other) => other !== list))}?${cursor}`);
            for (const [query, value] of filtersOf(list)) {
                await bad(`${path}?limit=${PAGE}&${query}=${value}&${cursor}`);
            }
            const middle = nextCursor.length >> 1;
            for (const forged of ["x", nextCursor.slice(1), `${nextCursor}A`, nextCursor.slice(0, middle)
                + (nextCursor[middle] === "A" ? "B" : "A") + nextCursor.slice(middle + 1)]) {
                await bad(`${path}?cursor=${encodeURIComponent(forged)}`);
            }
        });
    });
}
