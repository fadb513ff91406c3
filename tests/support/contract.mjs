// Checks what goes over the wire against contracts/openapi.yaml: replies and event frames always, requests
// when the service accepted them. Knows the part of JSON Schema (2020-12) that the contract uses; an
// unknown keyword is an error, so that nothing is skipped by accident.
import { readFileSync } from "node:fs";
import { parseYaml } from "../../tools/yaml.mjs";

export const contract = parseYaml(
    readFileSync(new URL("../../contracts/openapi.yaml", import.meta.url), "utf8"));

/** What the server answers whatever the operation is. */
const ALWAYS = new Set([400, 401, 403, 404, 405, 408, 413, 415, 429, 431, 500, 503]);
const SILENT = new Set(["description", "default", "example", "discriminator", "properties", "items",
    "additionalProperties", "unevaluatedProperties", "allOf"]);
const METHODS = ["get", "post", "put", "patch", "delete"];

const typeOf = (value) => value === null ? "null" : Array.isArray(value) ? "array" : typeof value;
const isType = (value, type) => type === "integer" ? Number.isInteger(value) : typeOf(value) === type;
const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);

/** Keywords that look at one value; they return true or what is wrong. */
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
};

export class Contract {
    #document;
    #templates;

    constructor(document) {
        this.#document = document;
        this.#templates = Object.keys(document.paths).map((template) => ({
            template, pattern: new RegExp(`^${template.replace(/\{\w+\}/g, "[^/]+")}$`),
            fixed: template.replace(/\{\w+\}/g, "").length,
        })).sort((a, b) => b.fixed - a.fixed); // a literal path wins over one with a parameter
    }

    resolve(node) {
        if (node?.$ref === undefined) {
            return node;
        }
        const found = node.$ref.slice(2).split("/").reduce((at, name) => at?.[name], this.#document);
        if (found === undefined) {
            throw new Error(`${node.$ref} leads nowhere`);
        }
        return this.resolve(found);
    }

    /** Every operation: {path, method, parameters (of the path, too), operation}. */
    operations() {
        return Object.entries(this.#document.paths).flatMap(([path, item]) =>
            METHODS.filter((method) => item[method]).map((method) => ({
                path, method, operation: item[method],
                parameters: [...(item.parameters ?? []), ...(item[method].parameters ?? [])]
                    .map((one) => this.resolve(one)),
            })));
    }

    find(method, target) {
        const path = target.split("?")[0];
        const found = this.#templates.find(({ pattern }) => pattern.test(path));
        const name = method === "HEAD" ? "get" : method.toLowerCase();
        const item = found && this.#document.paths[found.template];
        return item?.[name] && {
            operation: item[name],
            parameters: [...(item.parameters ?? []), ...(item[name].parameters ?? [])]
                .map((one) => this.resolve(one)),
        };
    }

    /** What is wrong with a value, as a list of texts. */
    problems(schemaOrRef, value, path = "") {
        const schema = this.resolve(schemaOrRef);
        const found = [];
        for (const [keyword, want] of Object.entries(schema)) {
            if (SILENT.has(keyword)) {
                continue;
            }
            if (keyword === "anyOf" || keyword === "oneOf") {
                found.push(...this.#choice(schema, want, value, path));
                continue;
            }
            if (!keywords[keyword]) {
                throw new Error(`the contract uses ${keyword}, which this check does not know`);
            }
            const result = keywords[keyword](want, value);
            if (result !== true) {
                found.push(`${path || "/"} ${result}`);
            }
        }
        found.push(...(schema.allOf ?? []).flatMap((one) => this.problems(one, value, path)));
        if (Array.isArray(value) && schema.items) {
            found.push(...value.flatMap((one, i) => this.problems(schema.items, one, `${path}/${i}`)));
        }
        if (typeOf(value) === "object") {
            found.push(...this.#memberProblems(schema, value, path));
        }
        return found;
    }

    /** With a discriminator the branch is the one whose property says the same. */
    #choice({ discriminator }, branches, value, path) {
        if (discriminator && typeOf(value) === "object") {
            const name = discriminator.propertyName;
            const branch = branches.find((one) =>
                same(this.resolve(one).properties?.[name]?.const, value[name]));
            return branch ? this.problems(branch, value, path)
                : [`${path}/${name} ${JSON.stringify(value[name])} is not in the contract`];
        }
        const all = branches.map((one) => this.problems(one, value, path));
        return all.some((one) => one.length === 0) ? []
            : [`${path || "/"} fits none of: ${all.map((one) => one[0]).join("; ")}`];
    }

    #memberProblems(schema, value, path) {
        const { properties = {}, additionalProperties = true, unevaluatedProperties = true } = schema;
        const evaluated = unevaluatedProperties === false ? this.#propertiesOf(schema) : undefined;
        return Object.entries(value).flatMap(([name, member]) => {
            if (Object.hasOwn(properties, name)) {
                return this.problems(properties[name], member, `${path}/${name}`);
            }
            if (additionalProperties === false || (evaluated && !evaluated.has(name))) {
                return [`${path}/${name} is not in the contract`];
            }
            return additionalProperties === true ? []
                : this.problems(additionalProperties, member, `${path}/${name}`);
        });
    }

    #propertiesOf(schemaOrRef) {
        const { properties = {}, allOf = [] } = this.resolve(schemaOrRef);
        return new Set([...Object.keys(properties),
            ...allOf.flatMap((one) => [...this.#propertiesOf(one)])]);
    }

    #checkBody(content, type, { body, text }, fail) {
        const media = content?.[type] ?? content?.["*/*"];
        if (!media) {
            fail(`has a body of ${type || "no type"}, which the contract does not name`);
        }
        const found = body === undefined ? [] : this.problems(media.schema, body);
        if (found.length > 0) {
            fail(`${found.join("\n")}\n${text ?? JSON.stringify(body)}`);
        }
    }

    /** Throws when a request that the service accepted is not what the contract allows. */
    checkRequest(method, target, { body, headers = {} } = {}) {
        const fail = (what) => {
            throw new Error(`${method} ${target} was accepted, but its request: ${what}`);
        };
        const found = this.find(method, target);
        if (!found) {
            fail("there is no such operation in the contract");
        }
        this.#checkParameters(found.parameters, target, headers, fail);
        if (body === undefined || body === "") {
            return found.operation.requestBody?.required && fail("lacks its body");
        }
        const type = (headers["content-type"] ?? "application/json").split(";")[0].trim().toLowerCase();
        const isJson = type === "application/json";
        const value = isJson && (typeof body === "string" || Buffer.isBuffer(body))
            ? JSON.parse(body.toString()) : body;
        return this.#checkBody(this.resolve(found.operation.requestBody)?.content, type,
            { body: isJson ? value : undefined }, fail);
    }

    #checkParameters(parameters, target, headers, fail) {
        const query = new URLSearchParams(target.split("?")[1] ?? "");
        for (const [name, text] of query) {
            const one = parameters.find((p) => p.in === "query" && p.name === name)
                ?? fail(`the query parameter ${name} is not in the contract`);
            this.#checkText(one, text, fail);
        }
        for (const name of ["idempotency-key", "last-event-id"]) {
            if (headers[name] !== undefined) {
                const one = parameters.find((p) => p.in === "header" && p.name.toLowerCase() === name)
                    ?? fail(`the header ${name} is not in the contract`);
                this.#checkText(one, String(headers[name]), fail);
            }
        }
    }

    #checkText({ name, schema, content }, text, fail) {
        const json = content?.["application/json"]?.schema;
        const wanted = this.resolve(json ?? schema);
        const isNumber = ["integer", "number"].includes(wanted.type) && /^-?\d+(\.\d+)?$/.test(text);
        const value = json ? JSON.parse(text) : isNumber ? Number(text) : text;
        const found = this.problems(wanted, value);
        if (found.length > 0) {
            fail(`${name}: ${found.join("; ")}`);
        }
    }

    /** Throws when a reply is not what the contract promises. */
    checkReply(method, target, reply) {
        const fail = (what) => {
            throw new Error(`${method} ${target} → ${reply.status}: ${what}\n${reply.text}`);
        };
        const type = (reply.headers["content-type"] ?? "").split(";")[0];
        const found = this.find(method, target);
        const response = this.resolve(found?.operation.responses[reply.status]);
        if (method === "HEAD" || (!response && reply.status === 204 && method === "OPTIONS")) {
            return;
        }
        if (!response) {
            if (!ALWAYS.has(reply.status) || type !== "application/problem+json") {
                fail("the contract does not name this status");
            }
            this.#checkBody(this.#document.components.responses.Invalid.content, type, reply, fail);
        } else if (response.content || reply.text !== "") {
            this.#checkBody(response.content, type, reply, fail);
        }
    }

    /** Both sides of one exchange: {method, target, body, headers} and {status, headers, text, body}. */
    checkExchange({ method, target, body, headers }, reply) {
        this.checkReply(method, target, reply);
        if (reply.status >= 200 && reply.status < 300 && method !== "HEAD" && method !== "OPTIONS") {
            this.checkRequest(method, target, { body, headers });
        }
    }

    /** Throws when a frame of an event stream is not in the contract. */
    checkFrame({ type, data, id }) {
        const name = id === undefined ? "StreamFrame" : "Event";
        const found = this.problems({ $ref: `#/components/schemas/${name}` }, data);
        if (data.type !== type) {
            found.push(`the frame's event is ${type}, its type ${data.type}`);
        }
        if (id !== undefined && id !== String(data.seq)) {
            found.push(`the frame's id is ${id}, its seq ${data.seq}`);
        }
        if (found.length > 0) {
            throw new Error(`a frame of the stream: ${found.join("\n")}\n${JSON.stringify(data)}`);
        }
    }
}

export const theContract = new Contract(contract);
export const problems = (schema, value) => theContract.problems(schema, value);
