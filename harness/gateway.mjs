// Model traffic: every fetch of this process goes over one unix socket to the broker's gateway. It
// is the only way out of the host, and it is read no faster than control takes what comes of it.

const SAID_HEADER = "x-pi-said";

/**
 * Call before the first request. `outbox`: what goes to control. A request says how much went there before it,
 * so that control, which hears of it from the broker, can take what led to it first.
 */
export function installGateway(undici, socketPath, outbox) {
    // No keep-alive: a connection costs little on a unix socket, and one that the broker closed in the
    // meantime would cost a model request.
    // How long an answer may take is the broker's business: it waits out backoffs and slow models.
    const options = { connect: { socketPath }, pipelining: 0, headersTimeout: 0, bodyTimeout: 0 };
    const factory = (origin, more) => quiet(new undici.Pool(origin, {
        ...more, factory: (o, m) => quiet(new undici.Client(o, m)),
    }));
    undici.setGlobalDispatcher(quiet(new undici.Agent({ ...options, factory })));
    undici.install();
    const direct = globalThis.fetch;
    globalThis.fetch = async (input, init) => {
        const headers = new Headers(init?.headers ?? input.headers);
        headers.set(SAID_HEADER, String(outbox.said));
        return gated(await direct(input, { ...init, headers }), () => outbox.writable());
    };
}

/**
 * A connection that ends in the middle of an answer may emit "error" beside rejecting that answer's body; with
 * nobody listening that would end the process, and all its sessions.
 */
function quiet(dispatcher) {
    dispatcher.on("error", () => {});
    return dispatcher;
}

function gated(response, writable) {
    if (!response.body) {
        return response;
    }
    const reader = response.body.getReader();
    const body = new ReadableStream({
        async pull(controller) {
            await writable();
            const { done, value } = await reader.read();
            if (done) {
                controller.close();
            } else {
                controller.enqueue(value);
            }
        },
        cancel: (reason) => reader.cancel(reason),
    }, { highWaterMark: 0 });
    const { status, statusText, headers } = response;
    return new Response(body, { status, statusText, headers });
}
