// contracts/openapi.yaml and the route tables in src/api name the same routes; its examples fit its schemas.
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";
import { stripTypeScriptTypes } from "node:module";
import { apiReference } from "../../tools/api-reference.mjs";
import { contractTypes } from "../../tools/contract-types.mjs";
import { contract, problems } from "../support/contract.mjs";
import { parseYaml } from "../../tools/yaml.mjs";

const METHODS = ["get", "post", "put", "patch", "delete"];
const operations = Object.entries(contract.paths).flatMap(([path, item]) =>
    METHODS.filter((method) => item[method]).map((method) => ({ path, method, ...item[method] })));

function routesInSource() {
    const folder = new URL("../../src/api/", import.meta.url);
    const source = readdirSync(folder).filter((name) => name.endsWith(".c"))
        .map((name) => readFileSync(new URL(name, folder), "utf8")).join("\n");
    return [...source.matchAll(/\{(GET|POST|PUT|PATCH|DELETE),\s*"([^"]+)"/g)]
        .map(([, method, path]) => `${method} ${path}`);
}

test("the contract has exactly the routes of the service", () => {
    const anonymous = (route) => route.replace(/:\w+|\{\w+\}/g, "{}");
    const routes = routesInSource();
    assert.ok(routes.length > 20);
    assert.deepEqual(operations.map(({ path, method }) => anonymous(`${method.toUpperCase()} ${path}`)).sort(),
        routes.map(anonymous).sort());
});

test("every operation has an id of its own, a tag, a summary and its path parameters", () => {
    assert.equal(new Set(operations.map((one) => one.operationId)).size, operations.length);
    const tags = contract.tags.map((tag) => tag.name);
    for (const { path, method, tags: [tag], summary } of operations) {
        assert.ok(tags.includes(tag) && summary, `${method} ${path}`);
        const named = (contract.paths[path].parameters ?? [])
            .map((one) => one.name ?? contract.components.parameters[one.$ref.split("/").at(-1)].name);
        assert.deepEqual(named, [...path.matchAll(/\{(\w+)\}/g)].map((match) => match[1]), path);
    }
});

test("docs/api-reference.md is what tools/api-reference.mjs makes of the contract", () => {
    const file = new URL("../../docs/api-reference.md", import.meta.url);
    assert.equal(readFileSync(file, "utf8"), apiReference(contract));
});

test("the types of @pi-managed/contracts are what tools/contract-types.mjs makes of the contract", () => {
    const file = new URL("../../contracts/index.d.ts", import.meta.url);
    const text = readFileSync(file, "utf8");
    assert.equal(text, contractTypes(contract));
    assert.doesNotThrow(() => stripTypeScriptTypes(text), "it is TypeScript");
    const { version } = JSON.parse(readFileSync(new URL("../../contracts/package.json", import.meta.url), "utf8"));
    assert.equal(version, contract.info.version);
    assert.equal(version, readFileSync(new URL("../../VERSION", import.meta.url), "utf8").trim());
});

test("examples fit their schemas", () => {
    const seen = [];
    const walk = (node) => {
        if (node?.schema && node.example !== undefined) {
            seen.push(node.example);
            assert.deepEqual(problems(node.schema, node.example), []);
        }
        Object.values(node && typeof node === "object" ? node : {}).forEach(walk);
    };
    walk(contract);
    assert.ok(seen.length >= 7);
});

test("the check finds what is wrong", () => {
    const problem = { type: "t", title: "t", status: 400, detail: "d", code: "ok", requestId: "r" };
    const of = (more) => problems({ $ref: "#/components/schemas/Problem" }, { ...problem, ...more });
    assert.deepEqual(of({}), []);
    assert.deepEqual(of({ code: "Not OK" }), ["/code does not match ^[a-z][a-z0-9_]*$"]);
    assert.deepEqual(of({ extra: 1 }), ["/extra is not in the contract"]);
    assert.deepEqual(of({ errors: [{ path: "/a" }] }), ["/errors/0 lacks message"]);
    assert.deepEqual(of({ status: 200 }), ["/status is below 400"]);
    assert.throws(() => problems({ if: {} }, 1), /does not know/);
});

test("what the reader of YAML does not know is an error", () => {
    assert.deepEqual(parseYaml('a: 1\nb:\n  - x: "y: z"\n    n: [1, {k: v, "q,": null}]\n  - plain text: yes\n'),
        { a: 1, b: [{ x: "y: z", n: [1, { k: "v", "q,": null }] }, { "plain text": "yes" }] });
    for (const bad of ["a: |\n  x", "a: 1\na: 2", "a:\nb: 1", "a: [1", "a: {b 1}", "a: 1\n   b: 2", "a: 'x'",
        "a: &x 1", "a: [1] 2"]) {
        assert.throws(() => parseYaml(bad), bad);
    }
});
