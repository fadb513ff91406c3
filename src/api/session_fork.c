/* POST /v1/sessions/:id/fork (R29): a new session that goes on from an entry of another. */
#include "api/fields.h"
#include "api/routes.h"
#include "api/service.h"
#include "api/sessions.h"
#include "session/fork.h"
#include "session/log.h"
#include "session/manager.h"

static const struct field fork_fields[] = {
    {.name = "entryId",
     .kinds = FIELD_STRING,
     .nullable = true,
     .line = true,
     .min = 1,
     .max = ID_MAX - 1},
    {.name = "title", .kinds = FIELD_STRING, .nullable = true, .line = true, .min = 1, .max = 256},
    {.name = "metadata", .kinds = FIELD_OBJECT, .nullable = true, .check = fields_metadata},
    {0},
};

struct forking {
    struct session_row row; /* of the fork */
    const char *from;
    char entry[ID_MAX];
    bool stored; /* not so when an older reply is replayed */
};

static err store(struct ctx *ctx, struct db_conn *c, void *arg)
{
    struct forking *f = arg;
    TRY(session_insert(c, &f->row));
    f->stored = true;
    json_t *j = session_json(ctx->service, &f->row);
    json_object_set_new(j, "forkedFrom",
                        json_pack("{s:s, s:s, s:s}", "sessionId", f->from, "entryId", f->entry,
                                  "filesFrom", "none"));
    return reply_json(ctx, 201, j);
}

/* The same agent, environment, vaults and budget; nothing used yet (R28). */
static void fill_row(struct ctx *ctx, struct session_row *row)
{
    int64_t now = clock_wall_ms(ctx->clock);
    id_new("sess", now, row->id);
    row->status = "idle";
    row->stop_reason_json = NULL;
    row->sandbox_state = "none";
    row->usage = (struct session_usage){0};
    row->created_at_ms = row->updated_at_ms = row->last_activity_ms = now;
    const json_t *title = json_object_get(ctx->json, "title");
    if (title)
        row->title = json_string_value(title);
    const json_t *metadata = json_object_get(ctx->json, "metadata");
    if (metadata)
        row->metadata_json =
            json_is_object(metadata) ? json_write_arena(metadata, ctx->arena).p : "{}";
}

static err sessions_fork(struct ctx *ctx)
{
    if (ctx->json)
        TRY(ctx_fields(ctx, NULL, fork_fields));
    struct forking *f = arena_alloc(ctx->arena, sizeof *f);
    TRY(ctx_session(ctx, &f->row));
    f->from = arena_strdup(ctx->arena, f->row.id);
    fill_row(ctx, &f->row);
    const char *logs = session_manager_logs_dir(ctx->service->sessions);
    TRY(fork_log(&(struct fork_request){.logs_dir = logs,
                                        .tenant = ctx->tenant,
                                        .from = f->from,
                                        .entry = json_get_c(ctx->json, "entryId"),
                                        .to = f->row.id,
                                        .now_ms = f->row.created_at_ms},
                 f->entry));
    err e = ctx_write(ctx, store, f);
    struct err_slot why;
    err_save(&why);
    if (e || !f->stored)
        (void)log_remove(logs, ctx->tenant, f->row.id); /* no session: nobody would ever read it */
    else
        session_logged(ctx->service->sessions, ctx->tenant, f->row.id);
    return e ? err_restore(&why) : 0;
}

ROUTES(session_fork,
       {POST, "/v1/sessions/:id/fork", sessions_fork, .scope = SCOPE_WRITE, .idempotent = true,
        .body_max = 64 * KB}, )
