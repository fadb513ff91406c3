// Makes resources of any kind for tests that go over the whole contract: by POSTing an operation's example to
// its collection, with ids of the tenant's own resources put in where a schema wants an id.
import assert from "node:assert/strict";
import { contract, theContract } from "../support/contract.mjs";
import { uniqueName } from "./support.mjs";

/** Path parameters that are no ids. */
export const PLAIN = { version: "1" };
/** Fields that hold an id by the schema they refer to, and the collection that makes one. */
const ID_SCHEMA = /^[A-Z]\w*Id$/;
const prefixOf = (pattern) => /^\^(\w+)_\[/.exec(pattern ?? "")?.[1];

/** The collection whose POST answers with such an id. */
export function collectionOf(schemaName) {
    const prefix = prefixOf(contract.components.schemas[schemaName].pattern);
    return theContract.operations().find(({ path, method, operation }) => method === "post" && !path.includes("{")
        && prefixOf(idPatternOf(operation)) === prefix)?.path;
}

function idPatternOf({ responses }) {
    const schema = theContract.resolve(theContract.resolve(responses["201"])?.content?.["application/json"]?.schema);
    return theContract.resolve(schema?.properties?.id)?.pattern;
}

/**
 * Every place of a body that its schema knows: {at: names down to it, schema, ref: the schema's name if it has one,
 * beside: what must stand elsewhere for it to be one of these, as [at, value]}. `*`: a name of the client's choice.
 */
export function places(schemaOrRef, at = [], beside = []) {
    const schema = theContract.resolve(schemaOrRef) ?? {};
    const properties = Object.entries(schema.properties ?? {});
    const fixed = properties.filter(([, one]) => one.const !== undefined).map(([key, one]) => [[...at, key], one.const]);
    const within = (one, name) => places(one, [...at, name], [...beside, ...fixed]);
    return [
        { at, schema, ref: schemaOrRef?.$ref?.split("/").at(-1), beside },
        ...properties.flatMap(([key, one]) => within(one, key)),
        ...(schema.items ? within(schema.items, 0) : []),
        ...(schema.additionalProperties?.type ? within(schema.additionalProperties, "*") : []),
        ...[...(schema.anyOf ?? []), ...(schema.oneOf ?? []), ...(schema.allOf ?? [])]
            .flatMap((one) => places(one, at, beside)),
    ];
}

/** Where a body holds ids of other resources: places of schemas called SomethingId. */
export const idFields = (schema) => places(schema).filter(({ ref }) => ID_SCHEMA.test(ref ?? ""));

const at = (value, names) => names.reduce((from, name) => from?.[name], value);

/** Puts something into a body; what is missing on the way is made. */
export function put(value, names, what) {
    const parent = names.slice(0, -1).reduce((from, name, i) => {
        if (from[name] === null || typeof from[name] !== "object") {
            from[name] = typeof names[i + 1] === "number" ? [] : {};
        }
        return from[name];
    }, value);
    parent[names.at(-1)] = what;
}

const UPLOAD = {
    headers: { "content-type": "multipart/form-data; boundary=cut" },
    body: ["--cut", 'Content-Disposition: form-data; name="file"; filename="a.txt"', "", "text", "--cut--", ""]
        .join("\r\n"),
};

export class Tenant {
    constructor(service, options) {
        this.service = service;
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
            body.name = uniqueName("tenant-test").replace(" ", "-"); // fit for volumes, too
        }
        for (const { at: names, ref } of idFields(schema)) {
            if (typeof at(body, names) === "string") {
                put(body, names, await this.make(collectionOf(ref)));
            }
        }
        if (body.kind === "model_provider_key") { // a vault has one of each provider, but any number of addresses
            delete body.provider;
            body.baseUrl = `https://${uniqueName("m").replace(" ", "-")}.example.com`;
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
        const upload = operation.requestBody?.content["multipart/form-data"] && UPLOAD;
        const body = upload ? upload.body : await this.body(operation);
        const reply = await this.service.ok("POST", path, body, { ...this.options, headers: upload?.headers });
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
