#!/usr/bin/env node
// Writes build/runtime/catalog.json: what the installed Pi knows about models, so that the service
// can check agents, find upstreams and count money without asking Node. Run by make with the pinned Node.
//
//   build/runtime/node/bin/node tools/catalog.mjs build/runtime
//
// {version, models: [[provider, id, name, api, baseUrl, input, output, cacheRead, cacheWrite,
//                     contextWindow, maxTokens, flags, tiers]]}
// Prices are USD per million tokens. flags: 1 reasoning, 2 images, 4 the price is known.
// tiers: [[inputTokensAbove, input, output, cacheRead, cacheWrite]]. Rows, not objects: the file is
// a third of the size and its reader needs no member names.
import { readFileSync, renameSync, writeFileSync } from "node:fs";
import path from "node:path";
import { pathToFileURL } from "node:url";

const runtime = path.resolve(process.argv[2] ?? "build/runtime");
const { ModelRuntime } = await import(
    pathToFileURL(path.join(runtime, "pi/dist/bundle/index.js")).href
);

const noCredentials = {
    read: async () => undefined,
    list: async () => [],
    modify: async () => {},
    delete: async () => {},
};
const models = await ModelRuntime.create({
    credentials: noCredentials,
    modelsPath: null,
    modelsStore: { read: async () => undefined, write: async () => {} },
    allowModelNetwork: false,
    refreshOnCreate: false,
});

// A catalogue price of zero is a gift only where the model says so; elsewhere (subscriptions,
// routers that pick a model) it means that Pi does not know.
function priceIsKnown({ id, cost }) {
    return Boolean(cost && (cost.input || cost.output)) || /(^|[-:/])free$/.test(id);
}

function rates(cost) {
    return [cost?.input, cost?.output, cost?.cacheRead, cost?.cacheWrite].map((n) => n ?? 0);
}

function row(model) {
    const flags = (model.reasoning ? 1 : 0)
        + (model.input.includes("image") ? 2 : 0)
        + (priceIsKnown(model) ? 4 : 0);
    return [
        model.provider, model.id, model.name, model.api, model.baseUrl, ...rates(model.cost),
        model.contextWindow ?? 0, model.maxTokens ?? 0, flags,
        (model.cost?.tiers ?? []).map((tier) => [tier.inputTokensAbove, ...rates(tier)]),
    ];
}

const rows = models.getModels().map(row);
if (rows.length < 100) {
    throw new Error(`Pi's catalogue has only ${rows.length} models: its interface has changed`);
}
const { version } = JSON.parse(readFileSync(path.join(runtime, "pi/package.json"), "utf8"));
const target = path.join(runtime, "catalog.json");
const text = rows.map((r) => JSON.stringify(r)).join(",\n");
writeFileSync(`${target}.new`, `{"version":${JSON.stringify(version)},"models":[\n${text}\n]}\n`);
renameSync(`${target}.new`, target);
// Pi leaves handles open that would keep the process alive.
process.exit(0);
