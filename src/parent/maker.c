#include "parent/maker.h"

#include <stdio.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"

static err run_verb(const struct sandbox_provider *provider, const struct maker_request *r,
                    struct sandbox_status *out)
{
    struct sandbox_place place = {
        .dir = r->dir,
        .socket = r->socket,
        .socket_owner = r->socket_owner,
        .uid_base = r->uid_base,
        .runtime = r->runtime,
        .images = r->images,
        .memory_mib = r->memory_mib,
        .sandboxes = r->sandboxes,
    };
    switch (r->verb) {
    case PARENT_SANDBOX_CREATE:
        return provider->create(&r->spec, &place);
    case PARENT_SANDBOX_START:
        return provider->start(&r->spec, &place);
    case PARENT_SANDBOX_STOP:
        return provider->stop(&r->spec, &place, r->grace_ms);
    case PARENT_SANDBOX_DESTROY:
        return provider->destroy(&r->spec, &place);
    case PARENT_SANDBOX_STATS:
        return provider->status(&r->spec, &place, out);
    default:
        return fail(E_INVALID, "the maker knows no verb %u", r->verb);
    }
}

/* False at the end of the link: a spare that was not needed. */
static bool wait_for_request(struct maker_request *out, err *out_e)
{
    int fds[FD_PASS_MAX];
    size_t n = 0;
    err e = fd_recv(PARENT_FD, out, sizeof *out, &n, fds);
    if (!e && n != sizeof *out)
        e = fail(E_INVALID, "a request of %zu bytes", n);
    *out_e = e;
    return e != E_CLOSED;
}

static err serve_request(const struct maker_request *request, struct parent_message *reply)
{
    const struct sandbox_provider *provider = sandbox_provider_named(request->provider);
    reply->verb = request->verb;
    parent_message_outcome(
        reply, provider
                   ? run_verb(provider, request, &reply->status_of)
                   : fail(E_UNAVAILABLE, "there is no sandbox provider \"%s\"", request->provider));
    return fd_send(PARENT_FD, reply, sizeof *reply, NULL, 0);
}

int maker_main(void)
{
    struct maker_request *request = mem_alloc(sizeof *request);
    struct parent_message *reply = mem_alloc(sizeof *reply);
    err e = 0;
    sandbox_providers_warm_up();
    if (wait_for_request(request, &e) && !e)
        e = serve_request(request, reply);
    if (e && e != E_CLOSED)
        log_error("the maker: %s", err_text());
    mem_free(request);
    mem_free(reply);
    return e && e != E_CLOSED ? 1 : 0;
}
