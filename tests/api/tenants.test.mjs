// Two tenants, every route, every id of the other tenant: 404, and to its owner it is there. Made from
// contracts/openapi.yaml: a resource is made by POSTing its operation's example to its collection, with ids
// of its own tenant put in where a schema wants an id. A new route is tested without a line here.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { contract, theContract } from "../support/contract.mjs";
import { assertProblem, createTenant, startService, uniqueName } from "./support.mjs";

/** Path parameters that are no ids. */
const PLAIN = { version: "1" };
/** Fields that hold an id by the schema they refer to, and the collection that makes one. */
const ID_SCHEMA = /\/([A-Z]\w*)Id$/;
const IDS = Object.entries(contract.components.schemas).filter(([name]) => name.endsWith("Id"));

let service, owner, stranger;
before(async () => {
    service = await startService();
    const other = await createTenant(service, "stranger");
    owner = new Tenant({ key: service.apiKey });
    stranger = new Tenant({ key: other.apiKey });
});
after(() => service?.stop());

const prefixOf = (pattern) => /^\^(\w+)_\[/.exec(pattern ?? "")?.[1];

/** The collection whose POST answers with such an id. */
function collectionOf(schemaName) {
    const prefix = prefixOf(contract.components.schemas[schemaName].pattern);
    return theContract.operations().find(({ path, method, operation }) => method === "post" && !path.includes("{")
        && prefixOf(idPatternOf(operation)) === prefix)?.path;
}

function idPatternOf({ responses }) {
    const schema = theContract.resolve(theContract.resolve(responses["201"])?.content?.["application/json"]?.schema);
    return theContract.resolve(schema?.properties?.id)?.pattern;
}

/** Where a body holds ids of other resources: [[path of names, schema name, what stands beside it]]. */
function idFields(schemaOrRef, at = [], beside = []) {
    const name = ID_SCHEMA.exec(schemaOrRef?.$ref ?? "")?.[1];
    if (name) {
        return [[at, `${name}Id`, beside]];
    }
    const schema = theContract.resolve(schemaOrRef) ?? {};
    const properties = Object.entries(schema.properties ?? {});
    const fixed = properties.filter(([, one]) => one.const !== undefined).map(([key, one]) => [key, one.const]);
    return [
        ...properties.flatMap(([key, one]) => idFields(one, [...at, key], fixed)),
        ...(schema.items ? idFields(schema.items, [...at, 0]) : []),
        ...[...(schema.anyOf ?? []), ...(schema.oneOf ?? []), ...(schema.allOf ?? [])]
            .flatMap((one) => idFields(one, at)),
    ];
}

const at = (value, names) => names.reduce((from, name) => from?.[name], value);
function put(value, names, what) {
    at(value, names.slice(0, -1))[names.at(-1)] = what;
}

class Tenant {
    constructor(options) {
        this.options = options;
    }

    /** The example of an operation as a body, with names and ids of this tenant. */
    async body(operation) {
        const { schema, example } = operation.requestBody?.content["application/json"] ?? {};
        if (example === undefined) {
            return undefined;
        }
        const body = structuredClone(example);
        if (typeof body.name === "string") {
            body.name = uniqueName("tenant test");
        }
        for (const [names, id] of idFields(schema)) {
            if (typeof at(body, names) === "string") {
                put(body, names, await this.make(collectionOf(id)));
            }
        }
        if (body.agent?.version) {
            body.agent.version = 1;
        }
        return body;
    }

    /** A new resource of a collection whose parents exist; its id. */
    async make(collection, path = collection) {
        const { operation } = theContract.find("POST", collection) ?? {};
        assert.ok(operation, `nothing makes what lies under ${collection}`);
        const reply = await service.ok("POST", path, await this.body(operation), this.options);
        return reply.id ?? reply.data[0].id;
    }

    /** The path of an operation with new resources of this tenant in it: its segments. */
    async segments(template) {
        const path = [];
        for (const part of template.split("/").slice(1)) {
            const name = /^\{(\w+)\}$/.exec(part)?.[1];
            path.push(name === undefined ? part
                : PLAIN[name] ?? await this.make(`/${template.split("/").slice(1, path.length + 1).join("/")}`,
                    `/${path.join("/")}`));
        }
        return path;
    }
}

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
                { body: await stranger.body(operation), ...stranger.options });
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
        .map(([names, id, beside]) => ({ path, method, operation, names, id, beside })));

test("bodies that hold ids are among the routes", () => {
    assert.ok(bodies.length >= 3, JSON.stringify(bodies));
    assert.ok(IDS.length >= 5);
});

for (const { path, method, operation, names, id, beside } of bodies) {
    test(`${method.toUpperCase()} ${path} with the other tenant's id in ${names.join(".")}`, async () => {
        const body = await stranger.body(operation);
        const collection = collectionOf(id);
        const parent = names.slice(0, -1).reduce((from, name, i) => {
            if (from[name] === undefined || typeof from[name] !== "object") {
                from[name] = typeof names[i + 1] === "number" ? [] : {};
            }
            return from[name];
        }, body);
        Object.assign(parent, Object.fromEntries(beside));
        parent[names.at(-1)] = await owner.make(collection);
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
