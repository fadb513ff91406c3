// The contract is the single source: whatever is deleted from it, a check turns red. A tour of the whole API
// (tour/*.mjs, one file a topic) is recorded; then each operation, parameter, property and variant is taken
// out of the document in memory, and what was recorded must no longer fit.
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { after, before, test } from "node:test";
import { contract, Contract } from "../support/contract.mjs";
import { startJob } from "../support/job.mjs";
import { createTenant } from "./support.mjs";

const TOURS = readdirSync(new URL("tour/", import.meta.url)).filter((name) => name.endsWith(".mjs"));

let job;
const exchanges = new Map(), values = new Map();
before(async () => { job = await startJob(); });
after(() => job?.stop());

/** One of a kind is enough: what looks the same breaks the same. */
function shapeOf(value) {
    if (Array.isArray(value)) {
        return [...new Set(value.map((one) => JSON.stringify(shapeOf(one))))];
    }
    return value && typeof value === "object"
        ? Object.fromEntries(Object.entries(value).map(([name, one]) =>
            [name, name === "type" ? one : shapeOf(one)])) : value === null ? null : typeof value;
}

function keep(map, shape, thing) {
    map.set(JSON.stringify(shape), thing);
}

function record(service) {
    service.onExchange = (request, reply) => keep(exchanges,
        [request.method, request.target.replace(/_[0-9A-Z]{26}/g, ""), request.headers, reply.status,
            shapeOf(request.body), shapeOf(reply.body)], [request, reply]);
    service.onFrame = ({ id, data }) =>
        keep(values, shapeOf(data), [id === undefined ? "StreamFrame" : "Event", data]);
}

/** What was recorded, as checks. The one that noticed the last change comes first: it often notices the next. */
let checks;
function makeChecks() {
    checks = [
        ...[...exchanges.values()].map(([request, reply]) => (changed) => {
            changed.checkExchange(request, reply);
            return false;
        }),
        ...[...values.values()].map(([schema, value]) => (changed) =>
            changed.problems({ $ref: `#/components/schemas/${schema}` }, value).length > 0),
    ];
}

function notices(check, changed) {
    try {
        return check(changed);
    } catch {
        return true;
    }
}

function isRed() {
    const changed = new Contract(contract);
    const at = checks.findIndex((check) => notices(check, changed));
    if (at > 0) {
        checks.unshift(...checks.splice(at, 1));
    }
    return at >= 0;
}

/** Every place where something can be deleted: [what, the object or list, its key]. */
function places() {
    const found = [];
    for (const [path, item] of Object.entries(contract.paths)) {
        for (const name of Object.keys(item).filter((one) => one !== "parameters")) {
            found.push([`${name.toUpperCase()} ${path}`, item, name]);
            (item[name].parameters ?? []).forEach((one, i) =>
                found.push([`${name.toUpperCase()} ${path} parameter ${one.name ?? one.$ref}`,
                    item[name].parameters, i]));
        }
    }
    const walk = (node, at) => {
        for (const [name, one] of Object.entries(node && typeof node === "object" ? node : {})) {
            if (name === "properties") {
                Object.keys(one).forEach((property) => found.push([`${at}.${property}`, one, property]));
            } else if (name === "oneOf") {
                one.forEach((branch, i) => found.push([`${at} variant ${branch.$ref}`, one, i]));
            }
            walk(one, /^[0-9]+$|^(properties|schema|content|paths|components|schemas)$/.test(name)
                ? at : at === "" ? name : `${at}.${name}`);
        }
    };
    walk(contract.paths, "");
    walk(contract.components.schemas, "");
    return found;
}

/** Deletes, asks, and puts it back where it was. */
function redWithout(holder, key) {
    if (Array.isArray(holder)) {
        const [taken] = holder.splice(key, 1);
        const red = isRed();
        holder.splice(key, 0, taken);
        return red;
    }
    const saved = Object.entries(holder);
    delete holder[key];
    const red = isRed();
    delete holder[key];
    saved.forEach(([name]) => delete holder[name]);
    Object.assign(holder, Object.fromEntries(saved));
    return red;
}

test("whatever is deleted from the contract is missed", async (t) => {
    record(job.service);
    const other = await createTenant(job.service, "tour");
    for (const name of TOURS) {
        const { default: tour, golden = [] } = await import(`./tour/${name}`);
        golden.forEach(([schema, value]) => {
            const found = new Contract(contract).problems({ $ref: `#/components/schemas/${schema}` }, value);
            assert.deepEqual(found, [], `${name}: ${JSON.stringify(value)}`);
            keep(values, [schema, shapeOf(value)], [schema, value]);
        });
        await t.test(name, () => tour({ service: job.service, job, other }));
    }
    makeChecks();
    assert.equal(isRed(), false, "what was recorded fits the contract as it is");
    const unnoticed = places().filter(([, holder, key]) => !redWithout(holder, key)).map(([what]) => what);
    assert.deepEqual(unnoticed, [], "extend the tour in tests/api/tour so that it uses these");
    assert.equal(isRed(), false, "the document is whole again");
});
