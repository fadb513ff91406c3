// Models as Pi knows them, pointed at the gateway. The log must name the catalogue's own provider
// and model (R40), so a session gets a copy of the catalogue's Model object with only the address
// and the session's token changed; the real key is added by the broker. Text that came from a
// tenant never reaches an apiKey or provider header: Pi would run "!command" and expand "$NAME".
import { createHash } from "node:crypto";

const TOKEN_HEADER = "x-pi-session";
const PLACEHOLDER = "the-broker-has-the-key";
const APIS = new Set([
    "openai-completions", "anthropic-messages", "openai-responses", "google-generative-ai",
]);

/** Every catalogue provider counts as configured: the same placeholder for all. */
const credentials = {
    read: async () => ({ type: "api_key", key: PLACEHOLDER }),
    list: async () => [],
    modify: async () => { throw new Error("the host keeps no credentials"); },
    delete: async () => { throw new Error("the host keeps no credentials"); },
};

const modelsStore = { read: async () => undefined, write: async () => {}, delete: async () => {} };

export class Models {
    #customs = new Map();

    static async create(pi) {
        const models = new Models();
        models.runtime = await pi.ModelRuntime.create({
            credentials, modelsPath: null, modelsStore, allowModelNetwork: false,
            refreshOnCreate: false,
        });
        return models;
    }

    /** The Model object for one session; `token` proves at the gateway which session asks. */
    async forSession(wanted, token, thinkingLevel) {
        if (!/^[0-9A-Za-z_-]{1,128}$/.test(token ?? "")) {
            throw new Error("open: the session token is missing or malformed");
        }
        const model = wanted.custom ? this.#custom(wanted, thinkingLevel) : this.#known(wanted);
        if (!APIS.has(model.api)) {
            throw new Error(`the model ${model.provider}/${model.id} speaks ${model.api}, `
                + "which the gateway does not");
        }
        if (!await this.runtime.checkAuth(model.provider)) {
            throw new Error(`the provider ${model.provider} needs more than a key, `
                + "which the gateway cannot give it");
        }
        return {
            ...model,
            baseUrl: gatewayUrl(model.baseUrl),
            headers: { ...model.headers, [TOKEN_HEADER]: token },
            // Requests that lean on what the provider remembers of the last one: off behind a gateway.
            ...(model.api === "anthropic-messages"
                && { compat: { ...model.compat, supportsMessageThreads: false } }),
        };
    }

    #known({ provider, id }) {
        const model = this.runtime.getModel(provider, id);
        if (!model) {
            throw new Error(`Pi's catalogue has no model ${provider}/${id}`);
        }
        return model;
    }

    #custom(wanted, thinkingLevel) {
        if (!APIS.has(wanted.api)) {
            throw new Error(`unknown model api: ${wanted.api}`);
        }
        const provider = customProvider(wanted.baseUrl);
        const models = this.#customs.get(provider) ?? new Map();
        const definition = customModel(wanted, thinkingLevel);
        const key = `${wanted.api}\0${wanted.id}`;
        if (!models.has(key)) {
            models.set(key, definition);
            this.#customs.set(provider, models);
            this.runtime.registerProvider(provider, {
                baseUrl: gatewayUrl(wanted.baseUrl), api: wanted.api, apiKey: PLACEHOLDER,
                models: [...models.values()],
            });
        }
        return {
            ...this.runtime.getModel(provider, wanted.id), ...definition, provider,
            baseUrl: wanted.baseUrl,
        };
    }
}

/**
 * Every address leads to the gateway's socket, and the broker adds the path of the real one. The name
 * of the upstream stays in it because Pi tells by it what a server understands ("api.z.ai", …).
 */
function gatewayUrl(baseUrl) {
    return `http://${new URL(baseUrl).hostname}.gateway`;
}

/** R40: `custom-` and a hash of the origin, so the log says nothing of the address. */
export function customProvider(baseUrl) {
    const hash = createHash("sha256").update(new URL(baseUrl).origin).digest("hex");
    return `custom-${hash.slice(0, 16)}`;
}

function customModel({ id, api, contextWindow, maxTokens, input, cost }, thinkingLevel) {
    const free = { input: 0, output: 0, cacheRead: 0, cacheWrite: 0 };
    return {
        id,
        name: id,
        api,
        reasoning: thinkingLevel !== undefined && thinkingLevel !== null && thinkingLevel !== "off",
        input: input ?? ["text"],
        cost: { ...free, ...cost },
        contextWindow: contextWindow ?? 128_000,
        maxTokens: maxTokens ?? 16_384,
    };
}
