// A host is spare until a tenant needs it; meanwhile it runs one throw-away request per wire API, so
// that the modules Pi loads at first use, and the code on the way, are there for the first real one.

const GATEWAY_MS = 500;

const EXAMPLES = {
    anthropic: "anthropic-messages",
    google: "google-generative-ai",
    groq: "openai-completions",
    openai: "openai-responses",
};

export async function warmUp(sessions, models) {
    const examples = Object.entries(EXAMPLES).map(([provider, api]) =>
        models.runtime.getModels(provider).find((model) => model.api === api));
    const real = globalThis.fetch;
    globalThis.fetch = async () => new Response("{}", { status: 401 });
    try {
        await sessions.warm(examples);
    } finally {
        globalThis.fetch = real;
    }
    await touchGateway();
}

/** Compiles the HTTP parser and tries the socket. Without a token the answer is a refusal; no answer is fine too. */
async function touchGateway() {
    try {
        const response = await fetch("http://warm.gateway/", { signal: AbortSignal.timeout(GATEWAY_MS) });
        await response.body?.cancel();
    } catch {
        // The broker may be starting; the first real request says what is wrong if something is.
    }
}
