#!/usr/bin/env node
// Writes contracts/index.d.ts, the types of @pi-managed/contracts, from contracts/openapi.yaml.
//
//   node tools/contract-types.mjs           writes the file
//   node tools/contract-types.mjs --check   exits 1 when the file is not what the contract says
import { writeOrCheck } from "./generated.mjs";

const METHODS = ["get", "post", "put", "patch", "delete"];
const PLAIN = { string: "string", integer: "number", number: "number", boolean: "boolean", null: "null" };

const nameOf = ($ref) => $ref.split("/").at(-1);
const union = (types) => [...new Set(types)].join(" | ");
const grouped = (type) => / [|&] /.test(type) ? `(${type})` : type;

function typeOf(schema, indent = "") {
    if (schema.$ref) {
        return nameOf(schema.$ref);
    }
    const { anyOf, oneOf, allOf } = schema;
    if (anyOf ?? oneOf) {
        return union((anyOf ?? oneOf).map((one) => typeOf(one, indent)));
    }
    if (schema.const !== undefined || schema.enum) {
        return union((schema.enum ?? [schema.const]).map((one) => JSON.stringify(one)));
    }
    if (allOf?.[0].$ref?.endsWith("/Page")) {
        return `Page<${typeOf(allOf[1].properties.data.items, indent)}>`;
    }
    if (allOf) {
        const own = schema.properties ? [objectOf(schema, indent)] : [];
        return [...allOf.map((one) => grouped(typeOf(one, indent))), ...own].join(" & ");
    }
    return union([schema.type].flat().map((type) => plainOf(type, schema, indent)));
}

function plainOf(type, schema, indent) {
    if (type === "array") {
        return schema.items ? `${grouped(typeOf(schema.items, indent))}[]` : "unknown[]";
    }
    if (type === "object") {
        return objectOf(schema, indent);
    }
    return PLAIN[type] ?? "unknown";
}

function objectOf({ properties, required = [], additionalProperties }, indent) {
    const inner = `${indent}    `;
    if (!properties) {
        const values = typeof additionalProperties === "object" ? typeOf(additionalProperties, inner) : "unknown";
        return `Record<string, ${values}>`;
    }
    const lines = Object.entries(properties).flatMap(([name, schema]) => [
        ...comment(schema.description, inner),
        `${inner}${/^[A-Za-z_$][\w$]*$/.test(name) ? name : JSON.stringify(name)}`
            + `${required.includes(name) ? "" : "?"}: ${typeOf(schema, inner)};`,
    ]);
    return ["{", ...lines, `${indent}}`].join("\n");
}

function comment(text, indent = "") {
    return text ? [`${indent}/** ${text.replaceAll("*/", "* /")} */`] : [];
}

const bodyOf = (node) => Object.values(node?.content ?? {})[0]?.schema;

/** What an operation takes and gives, by its id. */
function operationOf(contract, path, method, item) {
    const operation = item[method];
    const resolve = (node) => node.$ref
        ? node.$ref.slice(2).split("/").reduce((at, name) => at[name], contract) : node;
    const parameters = [...(item.parameters ?? []), ...(operation.parameters ?? [])].map(resolve);
    const of = (where) => parameters.filter((one) => one.in === where).map((one) =>
        `${JSON.stringify(one.name)}${one.required ? "" : "?"}: ${typeOf(one.schema ?? bodyOf(one))}`).join("; ");
    const [status, reply] = Object.entries(operation.responses).find(([code]) => /^2|^101$/.test(code));
    const body = bodyOf(operation.requestBody), result = bodyOf(resolve(reply));
    return [
        ...comment(operation.summary, "    "),
        `    ${operation.operationId}: {`,
        `        method: ${JSON.stringify(method.toUpperCase())};`,
        `        path: ${JSON.stringify(path)};`,
        `        params: { ${of("path")} };`,
        `        query: { ${of("query")} };`,
        `        body: ${body ? typeOf(body, "        ") : "undefined"};`,
        `        status: ${status};`,
        `        reply: ${result ? typeOf(result, "        ") : "undefined"};`,
        "    };",
    ].join("\n");
}

/** A page is a page of something. */
function declarationOf(name, type) {
    return name === "Page" ? `export type Page<T = unknown> = { data: T[] } & ${type};`
        : `export type ${name} = ${type};`;
}

export function contractTypes(contract) {
    const schemas = Object.entries(contract.components.schemas).map(([name, schema]) =>
        [...comment(schema.description), declarationOf(name, typeOf(schema))].join("\n"));
    const operations = Object.entries(contract.paths).flatMap(([path, item]) =>
        METHODS.filter((method) => item[method]).map((method) => operationOf(contract, path, method, item)));
    return [
        "// Written by tools/contract-types.mjs from contracts/openapi.yaml: change that.",
        ...schemas,
        ["/** Every operation of the API by its id. */", "export interface Operations {", ...operations, "}"].join("\n"),
    ].join("\n\n") + "\n";
}

writeOrCheck(import.meta.url, "contracts/index.d.ts", contractTypes);
