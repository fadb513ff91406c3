// Rows with equal times, in every list of the contract (CASES of other systems: skipped or repeated across pages):
// each row once, in both directions, also while rows come and go; a cursor is good only where it came from.
import assert from "node:assert/strict";
import path from "node:path";
import { DatabaseSync } from "node:sqlite";
import { after, before, describe, test } from "node:test";
import { theContract } from "../support/contract.mjs";
import { Tenant } from "./makers.mjs";
import { allPages, assertProblem, createTenant, startService } from "./support.mjs";

const INSTANT = 1_796_040_000_000;
const COUNTS = { "/v1/sessions": 500 };
const COUNT = 40, PAGE = 7;

const isList = ({ method, parameters }) => method === "get" && parameters.some((one) => one.name === "cursor");
const lists = theContract.operations().filter((one) => isList(one) && !one.path.includes("{"))
    .map(({ path: list }) => list).filter((list) => theContract.find("POST", list));

let service, owner, stranger;
const made = new Map();

/** All rows get the same time, as if the clock had stood still; the service is stopped meanwhile. */
function freeze() {
    const db = new DatabaseSync(path.join(service.data, "control.db"));
    for (const list of lists) {
        const table = list.split("/").at(-1).replaceAll("-", "_");
        const { changes } = db.prepare(`UPDATE ${table} SET created_at = ?`).run(INSTANT);
        assert.ok(changes >= COUNT, `${table}: ${changes}`);
    }
    db.close();
}

before(async () => {
    service = await startService();
    owner = new Tenant(service, { key: service.apiKey });
    stranger = new Tenant(service, { key: (await createTenant(service, "stranger")).apiKey });
    for (const list of lists) {
        const ids = [];
        for (let i = 0; i < (COUNTS[list] ?? COUNT); i += 20) {
            ids.push(...await Promise.all(Array.from({ length: 20 }, () => owner.make(list))));
        }
        made.set(list, ids);
    }
    await service.restart({}, freeze);
});
after(() => service?.stop());

test("there are lists", () => assert.ok(lists.length >= 4));

for (const list of lists) {
    describe(`pages of ${list}`, () => {
        const ids = (rows) => rows.map((row) => row.id);
        const pages = (query) => allPages(service, `${list}${query}`, PAGE);
        const page = (query) => service.ok("GET", `${list}?limit=${PAGE}${query}`);

        test("have each row once, and the same ones backwards", async () => {
            const newest = ids(await pages(""));
            assert.equal(new Set(newest).size, newest.length, "none twice");
            made.get(list).forEach((id) => assert.ok(newest.includes(id), `${id} is missing`));
            assert.deepEqual(ids(await pages("?order=asc")), [...newest].reverse());
            assert.deepEqual(ids((await service.ok("GET", `${list}?limit=100`)).data), newest.slice(0, 100));
        });

        test("go on where they stopped while rows come and go", async () => {
            const all = ids(await pages(""));
            const first = await page("");
            const cursor = `&cursor=${encodeURIComponent(first.nextCursor)}`;
            await owner.make(list); // newer than all: before the first page
            const removed = first.data.at(-1).id; // what the cursor points at
            if (theContract.find("DELETE", `${list}/${removed}`)) {
                await service.request("DELETE", `${list}/${removed}`);
            }
            assert.deepEqual(ids((await page(cursor)).data), all.slice(PAGE, 2 * PAGE));
        });

        test("end with no cursor, and never give half a page before", async () => {
            const one = await service.ok("GET", `${list}?limit=1`);
            assert.equal(one.hasMore, true);
            const rows = await pages("");
            const last = await service.ok("GET", `${list}?limit=100&order=asc`);
            assert.equal(last.data.length, Math.min(100, rows.length));
        });

        test("take no cursor of another order, list or tenant, and no forged one", async () => {
            const { nextCursor } = await page("");
            const bad = async (target, options) =>
                assertProblem(await service.request("GET", target, options), 400, "invalid_cursor");
            const cursor = `cursor=${encodeURIComponent(nextCursor)}`;
            await bad(`${list}?limit=${PAGE}&order=asc&${cursor}`);
            await bad(`${list}?limit=${PAGE}&${cursor}`, stranger.options);
            await bad(`${lists.find((other) => other !== list)}?${cursor}`);
            const middle = nextCursor.length >> 1;
            for (const forged of ["x", nextCursor.slice(1), `${nextCursor}A`, nextCursor.slice(0, middle)
                + (nextCursor[middle] === "A" ? "B" : "A") + nextCursor.slice(middle + 1)]) {
                await bad(`${list}?cursor=${encodeURIComponent(forged)}`);
            }
        });
    });
}
