// Checks replies against contracts/openapi.yaml: the operation is known, the status is one it may give, the
// body is what its schema says. Knows the part of JSON Schema that the contract uses; an unknown keyword is
// an error, so that nothing is skipped by accident.
import { readFileSync } from "node:fs";
import { parseYaml } from "../../tools/yaml.mjs";

export const contract = parseYaml(
    readFileSync(new URL("../../contracts/openapi.yaml", import.meta.url), "utf8"));

/** What the server answers whatever the operation is. */
const ALWAYS = new Set([400, 401, 403, 404, 405, 408, 413, 415, 429, 431, 500, 503]);
const SILENT = new Set(["description", "default", "example"]);

function resolve(node) {
    if (node?.$ref === undefined) {
        return node;
    }
    const found = node.$ref.slice(2).split("/").reduce((at, name) => at?.[name], contract);
    if (found === undefined) {
        throw new Error(`${node.$ref} leads nowhere`);
    }
    return resolve(found);
}

const typeOf = (value) => value === null ? "null" : Array.isArray(value) ? "array" : typeof value;
const isType = (value, type) => type === "integer" ? Number.isInteger(value) : typeOf(value) === type;
const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

const keywords = {
    type: (want, value) => [want].flat().some((type) => isType(value, type)) || `is no ${want}`,
    const: (want, value) => same(value, want) || `is not ${JSON.stringify(want)}`,
    enum: (want, value) => want.some((one) => same(one, value)) || `is none of ${want}`,
    pattern: (want, value) => typeof value !== "string" || new RegExp(want, "u").test(value)
        || `does not match ${want}`,
    minLength: (want, value) => typeof value !== "string" || [...value].length >= want || "is too short",
    maxLength: (want, value) => typeof value !== "string" || [...value].length <= want || "is too long",
    minimum: (want, value) => typeof value !== "number" || value >= want || `is below ${want}`,
    maximum: (want, value) => typeof value !== "number" || value <= want || `is above ${want}`,
    minItems: (want, value) => !Array.isArray(value) || value.length >= want || "has too few items",
    maxItems: (want, value) => !Array.isArray(value) || value.length <= want || "has too many items",
    maxProperties: (want, value) => typeOf(value) !== "object" || Object.keys(value).length <= want
        || "has too many members",
    required: (want, value) => typeOf(value) !== "object"
        || want.filter((name) => !Object.hasOwn(value, name)).map((name) => `lacks ${name}`)[0] || true,
    properties: () => true,
    additionalProperties: () => true,
    items: () => true,
    allOf: () => true,
    anyOf: (want, value) => want.some((one) => problems(one, value).length === 0)
        || `fits none of: ${want.map((one) => problems(one, value)[0]).join("; ")}`,
};

/** What is wrong with a value, as a list of texts. */
export function problems(schemaOrRef, value, path = "") {
    const schema = resolve(schemaOrRef);
    const found = [];
    for (const [keyword, want] of Object.entries(schema)) {
        if (SILENT.has(keyword)) {
            continue;
        }
        const result = keywords[keyword]?.(want, value);
        if (result === undefined) {
            throw new Error(`the contract uses ${keyword}, which this check does not know`);
        }
        if (result !== true) {
            found.push(`${path || "/"} ${result}`);
        }
    }
    found.push(...(schema.allOf ?? []).flatMap((one) => problems(one, value, path)));
    if (Array.isArray(value) && schema.items) {
        found.push(...value.flatMap((one, i) => problems(schema.items, one, `${path}/${i}`)));
    }
    if (typeOf(value) === "object") {
        found.push(...memberProblems(schema, value, path));
    }
    return found;
}

function memberProblems({ properties = {}, additionalProperties = true }, value, path) {
    return Object.entries(value).flatMap(([name, member]) => {
        if (Object.hasOwn(properties, name)) {
            return problems(properties[name], member, `${path}/${name}`);
        }
        if (additionalProperties === false) {
            return [`${path}/${name} is not in the contract`];
        }
        return additionalProperties === true ? []
            : problems(additionalProperties, member, `${path}/${name}`);
    });
}

const templates = Object.keys(contract.paths).map((template) => ({
    template, pattern: new RegExp(`^${template.replace(/\{\w+\}/g, "[^/]+")}$`),
}));

export function findOperation(method, target) {
    const path = target.split("?")[0];
    const found = templates.find(({ pattern }) => pattern.test(path));
    return found && contract.paths[found.template][method === "HEAD" ? "get" : method.toLowerCase()];
}

function checkBody(content, type, reply, fail) {
    const media = content?.[type];
    if (!media) {
        fail(`answers with ${type || "no body"}, which the contract does not name`);
    }
    if (reply.body !== undefined) {
        const found = problems(media.schema, reply.body);
        if (found.length > 0) {
            fail(found.join("\n"));
        }
    }
}

/** Throws when a reply is not what the contract promises. */
export function checkReply(method, target, reply) {
    const fail = (what) => {
        throw new Error(`${method} ${target} → ${reply.status}: ${what}\n${reply.text}`);
    };
    const type = (reply.headers["content-type"] ?? "").split(";")[0];
    const response = resolve(findOperation(method, target)?.responses[reply.status]);
    if (method === "HEAD" || (!response && reply.status === 204 && method === "OPTIONS")) {
        return;
    }
    if (!response) {
        if (!ALWAYS.has(reply.status) || type !== "application/problem+json") {
            fail("the contract does not name this status");
        }
        checkBody(contract.components.responses.Invalid.content, type, reply, fail);
    } else if (response.content || reply.text !== "") {
        checkBody(response.content, type, reply, fail);
    }
}
