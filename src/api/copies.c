#include "api/copies.h"

#include "api/service.h"
#include "base/mem.h"
#include "base/path.h"
#include "session/manager.h"
#include "session/sandboxes.h"

#include <stdio.h>

struct copies {
    struct sandboxes *sandboxes;
    char tenant[ID_MAX], session[ID_MAX];
    char *environment;
    bool exist;
};

struct copies *copies_new(struct ctx *ctx, const struct session_row *row)
{
    struct copies *c = mem_alloc(sizeof *c);
    c->sandboxes = session_manager_sandboxes(ctx->service->sessions);
    snprintf(c->tenant, sizeof c->tenant, "%s", row->tenant);
    snprintf(c->session, sizeof c->session, "%s", row->id);
    c->environment = mem_strdup(row->environment_json);
    c->exist = row->sandbox_state && strcmp(row->sandbox_state, "none") != 0;
    return c;
}

void copies_free(struct copies *c)
{
    if (c == NULL)
        return;
    mem_free(c->environment);
    mem_free(c);
}

bool copies_exist(const struct copies *c)
{
    return c->exist;
}

err copies_run(struct copies *c, const struct copyout_request *request,
               const struct copyout_sink *sink, struct copyout_summary *out)
{
    char socket[SOCKET_PATH_MAX];
    bool fresh = false;
    for (int attempt = 0;; attempt++) {
        TRY(sandboxes_start(c->sandboxes, c->tenant, c->session, c->environment, socket, &fresh));
        err e = copyout_run(socket, request, sink, out);
        /* Nobody answered, so nothing was told yet: perhaps it died unnoticed. */
        bool again = e == E_UNAVAILABLE && !fresh && attempt == 0;
        struct err_slot failure;
        err_save(&failure);
        if (again)
            sandboxes_forget(c->sandboxes, c->session);
        sandboxes_release(c->sandboxes, c->session);
        if (!again)
            return e ? err_restore(&failure) : 0;
    }
}

err copies_path(struct ctx *ctx, const char *otherwise, const char **out)
{
    struct str path = ctx_query(ctx, "path");
    if (path.p == NULL) {
        *out = otherwise;
        return 0;
    }
    if (path.n > COPYOUT_PATH_MAX || !path_is_clean(path))
        return fail(E_INVALID, "query parameter path must be an absolute path without `.`, `..` "
                               "and empty parts");
    *out = arena_str(ctx->arena, path).p;
    return 0;
}
