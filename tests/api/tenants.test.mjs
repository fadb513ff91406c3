// Two tenants, every route, every id of the other tenant: 404, and to its owner it is there. Made from
// contracts/openapi.yaml (makers.mjs): a new route is tested without a line here.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { contract, theContract } from "../support/contract.mjs";
import { PLAIN, Tenant, collectionOf, idFields, put } from "./makers.mjs";
import { assertProblem, createTenant, startService } from "./support.mjs";

const IDS = Object.entries(contract.components.schemas).filter(([name]) => name.endsWith("Id"));

let service, owner, stranger;
before(async () => {
    service = await startService();
    const other = await createTenant(service, "stranger");
    owner = new Tenant(service, { key: service.apiKey });
    stranger = new Tenant(service, { key: other.apiKey });
});
after(() => service?.stop());

/** What a route that leaves HTTP asks for, or nothing. */
const upgrade = ({ responses }) => responses["101"] ? { connection: "Upgrade", upgrade: "pi-shell" } : {};

const perId = theContract.operations().filter(({ path }) => path.includes("{"));

for (const { path, method, operation } of perId) {
    test(`${method.toUpperCase()} ${path} with the other tenant's ids`, async () => {
        const names = path.split("/").slice(1);
        const places = names.flatMap((name, i) => /^\{/.test(name) && !PLAIN[name.slice(1, -1)] ? [i] : []);
        const body = await owner.body(operation), foreign = await owner.segments(path);
        for (const place of places) { // all of them the owner's, then each alone
            const own = place === places[0] ? foreign : await stranger.segments(path);
            const mixed = own.map((part, i) => i === place ? foreign[i] : part);
            const target = `/${mixed.join("/")}`;
            const reply = await service.request(method.toUpperCase(), target,
                { body: await stranger.body(operation), headers: upgrade(operation), ...stranger.options });
            assertProblem(reply, 404);
        }
        await assertThere(method, `/${foreign.join("/")}`, body);
    });
}

/** Its owner gets it, and finds it as it was made. */
async function assertThere(method, target, body) {
    if (target.endsWith("/stream")) {
        const stream = await service.stream(target.split("/").at(-2), { key: owner.options.key });
        await stream.close();
        return;
    }
    const reply = await service.request(method.toUpperCase(), target, { body, ...owner.options });
    assert.notEqual(reply.status, 404, `${method} ${target} of the owner: ${reply.text}`);
    assert.ok(reply.status < 500, reply.text);
}

const bodies = theContract.operations().flatMap(({ path, method, operation }) =>
    idFields(operation.requestBody?.content["application/json"]?.schema)
        .map(({ at, ref, beside }) => ({ path, method, operation, names: at, id: ref, beside })));

test("bodies that hold ids are among the routes", () => {
    assert.ok(bodies.length >= 3, JSON.stringify(bodies));
    assert.ok(IDS.length >= 5);
});

for (const { path, method, operation, names, id, beside } of bodies) {
    test(`${method.toUpperCase()} ${path} with the other tenant's id in ${names.join(".")}`, async () => {
        const body = await stranger.body(operation);
        beside.forEach(([at, value]) => put(body, at, value));
        put(body, names, await owner.make(collectionOf(id)));
        const target = `/${(await stranger.segments(path)).join("/")}`;
        assertProblem(await service.request(method.toUpperCase(), target, { body, ...stranger.options }), 404);
    });
}

test("lists of one tenant never show the other's", async () => {
    for (const { path, method, operation } of theContract.operations()) {
        const isList = method === "get" && (operation.parameters ?? []).some((one) => /Cursor$/.test(one.$ref ?? ""));
        if (!isList || path.includes("{")) {
            continue;
        }
        const id = await owner.make(path);
        const ids = async ({ options }) =>
            (await service.ok("GET", `${path}?limit=100`, undefined, options)).data.map((row) => row.id);
        assert.ok((await ids(owner)).includes(id), path);
        assert.ok(!(await ids(stranger)).includes(id), path);
    }
});
