#include "parent/maker.h"

#include <stdio.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "sandbox/bake.h"

static err send_way_out(void *arg, int listen_fd, int lifeline)
{
    const int fds[] = {listen_fd, lifeline};
    struct parent_message *note = mem_alloc(sizeof *note);
    (void)arg;
    note->verb = PARENT_NOTE_EGRESS;
    err e = fd_send(PARENT_FD, note, sizeof *note, fds, 2);
    mem_free(note);
    return e;
}

static err prepare_image(const struct sandbox_provider *provider, const struct maker_request *r,
                         const struct sandbox_place *place, struct parent_message *reply)
{
    return sandbox_bake(&(struct bake_request){.provider = provider,
                                               .spec = r->spec,
                                               .place = *place,
                                               .packages = r->packages,
                                               .allow_images = r->allow_images,
                                               .open_way_out = send_way_out},
                        reply->image.spec.image);
}

/* Of mounts and volumes. */
static err run_mount_verb(const struct sandbox_provider *provider, const struct maker_request *r,
                          const struct sandbox_place *place, struct parent_message *reply)
{
    if (!provider->mount_check)
        return fail_as(E_INVALID, MOUNTS_NOT_SUPPORTED, "the sandbox provider %s mounts nothing",
                       provider->name);
    if (r->verb == PARENT_MOUNT_CHECK)
        return provider->mount_check(&r->spec.mounts[0], place);
    return r->verb == PARENT_VOLUME_REMOVE
               ? provider->volume_remove(r->spec.tenant, r->spec.id, place)
               : provider->volume_measure(r->spec.tenant, r->spec.id, place, &reply->volume_bytes);
}

static err run_verb(const struct sandbox_provider *provider, const struct maker_request *r,
                    struct parent_message *reply)
{
    struct sandbox_place place = {
        .dir = r->dir,
        .socket = r->socket,
        .socket_owner = r->socket_owner,
        .uid_base = r->uid_base,
        .runtime = r->runtime,
        .images = r->images,
        .memory_mib = r->memory_mib,
        .allow_unenforced = r->allow_unenforced,
        .sandboxes = r->sandboxes,
        .volumes = r->volumes,
        .allow_mount = r->allow_mount,
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
    case PARENT_SANDBOX_FORK:
        return provider->fork(
            &r->spec, &place, r->from,
            &(struct sandbox_place){.dir = r->from_dir, .uid_base = r->from_uid_base},
            &reply->sandbox.live);
    case PARENT_SANDBOX_STATS:
        return provider->status(&r->spec, &place, &reply->status_of);
    case PARENT_MOUNT_CHECK:
    case PARENT_VOLUME_MEASURE:
    case PARENT_VOLUME_REMOVE:
        return run_mount_verb(provider, r, &place, reply);
    case PARENT_IMAGE_PREPARE:
        return prepare_image(provider, r, &place, reply);
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
                   ? run_verb(provider, request, reply)
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
