#!/usr/bin/env node
// Writes docs/api-reference.md from contracts/openapi.yaml.
//
//   node tools/api-reference.mjs           writes the file
//   node tools/api-reference.mjs --check   exits 1 when the file is not what the contract says
import { writeOrCheck } from "./generated.mjs";

const METHODS = ["get", "post", "put", "patch", "delete"];

export function apiReference(contract) {
    return new Reference(contract).text();
}

class Reference {
    #contract;

    constructor(contract) {
        this.#contract = contract;
    }

    text() {
        const { info, tags, components } = this.#contract;
        return [
            "<!-- Written by tools/api-reference.mjs from contracts/openapi.yaml: change that. -->",
            "# API reference", info.description,
            `Authentication: \`Authorization: Bearer <key>\`. ${components.securitySchemes.apiKey.description}`,
            ...tags.flatMap((tag) => this.#tag(tag)),
            "## Errors", this.#errors(),
            "## Schemas", ...Object.keys(components.schemas).flatMap((name) => this.#schema(name)),
        ].join("\n\n") + "\n";
    }

    #resolve(node) {
        return node.$ref === undefined ? node : this.#resolve(
            node.$ref.slice(2).split("/").reduce((at, name) => at[name], this.#contract));
    }

    #operations() {
        return Object.entries(this.#contract.paths).flatMap(([path, item]) =>
            METHODS.filter((method) => item[method]).map((method) => ({
                path, method, ...item[method],
                parameters: [...(item.parameters ?? []), ...(item[method].parameters ?? [])]
                    .map((one) => this.#resolve(one)),
            })));
    }

    #tag({ name, description }) {
        const operations = this.#operations().filter((one) => one.tags.includes(name));
        return [`## ${name}`, description, ...operations.flatMap((one) => this.#operation(one))];
    }

    #operation({ method, path, summary, description, parameters, requestBody, responses }) {
        const body = requestBody?.content["application/json"];
        return [
            `### ${method.toUpperCase()} ${path}`,
            [summary.replace(/([^.?!])$/, "$1."), description].filter(Boolean).join(" "),
            ...table(["Parameter", "In", "Type", ""], parameters.map((one) =>
                [`\`${one.name}\``, one.in, this.#type(one.schema ?? one.content["application/json"].schema),
                    one.description ?? ""])),
            ...(body ? [`Body: ${this.#type(body.schema)}`] : []),
            ...(body?.example ? [code(body.example)] : []),
            Object.entries(responses).map(([status, one]) => this.#response(status, one)).join("\n"),
        ];
    }

    #response(status, node) {
        const name = node.$ref?.split("/").at(-1);
        const { description, content = {} } = this.#resolve(node);
        if (name) {
            return `* ${status}: [${name}](#errors)`;
        }
        const [type, media] = Object.entries(content)[0] ?? [];
        const shown = type && (media.schema.type === "string" ? `\`${type}\`` : this.#type(media.schema));
        return `* ${status}: ${description}${shown ? `: ${shown}` : ""}`;
    }

    #errors() {
        return Object.entries(this.#contract.components.responses)
            .map(([name, one]) => `* **${name}**: ${one.description}`).join("\n");
    }

    #schema(name) {
        const schema = this.#contract.components.schemas[name];
        const members = Object.entries(schema.properties ?? {});
        const base = members.length > 0 && schema.allOf ? this.#type(schema.allOf[0]) : undefined;
        return [
            `### ${name}`,
            ...(schema.description ? [`${schema.description}.`.replace(/\.\.$/, ".")] : []),
            ...(base ? [`Everything of ${base}, and:`] : []),
            ...(members.length > 0 ? table(["Field", "Type", ""], members.map(([field, one]) => [
                `\`${field}\`${schema.required?.includes(field) ? "" : " (optional)"}`,
                this.#type(one), one.description ?? "",
            ])) : [this.#type({ ...schema, description: undefined })]),
        ];
    }

    /** A schema in a few words. */
    #type(schema) {
        if (schema.$ref) {
            const name = schema.$ref.split("/").at(-1);
            return `[${name}](#${name.toLowerCase()})`;
        }
        if (schema.allOf?.[1]) { // a page of something
            return `page of ${this.#type(schema.allOf[1].properties.data.items)}`;
        }
        if (schema.anyOf ?? schema.oneOf) {
            return (schema.anyOf ?? schema.oneOf).map((one) => this.#type(one)).join(" or ");
        }
        if (schema.const !== undefined || schema.enum) {
            return (schema.enum ?? [schema.const]).map((one) => `\`${one}\``).join(", ");
        }
        return [schema.type].flat().map((type) => this.#plain(type, schema)).join(" or ");
    }

    #plain(type, schema) {
        if (type === "array" && schema.items) {
            return `array of ${this.#type(schema.items)}`;
        }
        if (type === "object" && schema.properties) {
            const members = Object.entries(schema.properties)
                .map(([name, one]) => `\`${name}\`: ${this.#type(one)}`);
            return `object {${members.join("; ")}}`;
        }
        return `${type}${range(schema.minimum ?? schema.minLength, schema.maximum ?? schema.maxLength)}`;
    }
}

function range(from, to) {
    if (from === undefined && to === undefined) {
        return "";
    }
    return to === undefined ? ` (at least ${from})` : ` (${from ?? 0} to ${to})`;
}

function table(head, rows) {
    const line = (cells) => `| ${cells.join(" | ")} |`;
    return rows.length === 0 ? []
        : [[line(head), line(head.map(() => "---")), ...rows.map(line)].join("\n")];
}

function code(example) {
    return `\`\`\`json\n${JSON.stringify(example, null, 2)}\n\`\`\``;
}

writeOrCheck(import.meta.url, "docs/api-reference.md", apiReference);
