// Model traffic: every fetch of this process goes over one unix socket to the broker's gateway. It
// is the only way out of the host, and it is read no faster than control takes what comes of it.

/** Call before the first request. `writable()` resolves when control can take more. */
export function installGateway(undici, socketPath, writable) {
    // No keep-alive: a connection costs little on a unix socket, and one that the broker closed in the
    // meantime would cost a model request.
    undici.setGlobalDispatcher(new undici.Agent({ connect: { socketPath }, pipelining: 0 }));
    undici.install();
    const direct = globalThis.fetch;
    globalThis.fetch = async (input, init) => gated(await direct(input, init), writable);
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
