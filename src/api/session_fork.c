/* POST /v1/sessions/:id/fork (R29): a new session that goes on from an entry of another. */
#include "api/fields.h"
#include "api/routes.h"
#include "api/service.h"
#include "api/sessions.h"
#include "base/log.h"
#include "session/fork.h"
#include "session/log.h"
#include "session/manager.h"
#include "session/sandboxes.h"

static const char *const file_choices[] = {"copy", "none", NULL};

static const struct field fork_fields[] = {
    {.name = "entryId",
     .kinds = FIELD_STRING,
     .nullable = true,
     .line = true,
     .min = 1,
     .max = ID_MAX - 1},
    {.name = "files", .kinds = FIELD_STRING, .one_of = file_choices},
    {.name = "title", .kinds = FIELD_STRING, .nullable = true, .line = true, .min = 1, .max = 256},
    {.name = "metadata", .kinds = FIELD_OBJECT, .nullable = true, .check = fields_metadata},
    {0},
};

struct forking {
    struct session_row row; /* of the fork */
    const char *from;
    const char *files_from;
    const char *entry;
};

static err store(struct ctx *ctx, struct db_conn *c, void *arg)
{
    struct forking *f = arg;
    TRY(session_insert(c, &f->row));
    struct session_update u = {.sandbox_state = f->row.sandbox_state};
    TRY(session_apply(c, ctx->tenant, f->row.id, &u, f->row.created_at_ms));
    AUTO_BUF text = {0};
    session_write(ctx->service, &f->row, &text);
    json_text_raw(&text, "forkedFrom", "{");
    json_text_str(&text, "sessionId", f->from);
    json_text_str(&text, "entryId", f->entry);
    json_text_str(&text, "filesFrom", f->files_from);
    buf_add_c(&text, "}}");
    return reply_json_text(ctx, 201, buf_str(&text));
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

/* R29: the files as they are now, also for an entry of long ago. */
static err copy_files(struct ctx *ctx, struct forking *f)
{
    struct sandboxes *sandboxes = session_manager_sandboxes(ctx->service->sessions);
    bool live;
    f->files_from = "none";
    if (str_is(json_get_str(ctx->json, "files"), "none"))
        return 0;
    err e =
        sandboxes_fork(sandboxes, ctx->tenant, f->from, f->row.id, f->row.environment_json, &live);
    if (e == E_NOT_FOUND)
        return 0; /* the session has no sandbox yet */
    TRY(e);
    f->files_from = live ? "live" : "stopped";
    f->row.sandbox_state = "stopped";
    return 0;
}

static bool has_files(const struct forking *f)
{
    return strcmp(f->files_from, "none") != 0;
}

/* No session: nobody would ever use what was made for it. */
static void take_back(struct ctx *ctx, struct forking *f)
{
    struct session_manager *m = ctx->service->sessions;
    (void)log_remove(session_manager_logs_dir(m), ctx->tenant, f->row.id);
    if (has_files(f) &&
        sandboxes_destroy(session_manager_sandboxes(m), ctx->tenant, f->row.id) != 0)
        log_warn("the sandbox of a fork that failed stays: %s", err_text());
}

static err make(struct ctx *ctx, struct forking *f, struct fork *log)
{
    TRY(fork_write(log, f->files_from));
    err e = ctx_write(ctx, store, f);
    if (!e)
        session_logged(ctx->service->sessions, ctx->tenant, f->row.id);
    return e;
}

static err make_with_files(struct ctx *ctx, struct forking *f, struct fork *log)
{
    struct session_manager *m = ctx->service->sessions;
    f->entry = arena_strdup(ctx->arena, fork_entry(log));
    TRY(copy_files(ctx, f));
    err e = make(ctx, f, log);
    struct err_slot why;
    err_save(&why);
    if (e)
        take_back(ctx, f);
    if (has_files(f))
        sandboxes_release(session_manager_sandboxes(m), f->row.id);
    return e ? err_restore(&why) : 0;
}

static err sessions_fork(struct ctx *ctx)
{
    if (ctx->json)
        TRY(ctx_fields(ctx, NULL, fork_fields));
    struct forking *f = arena_alloc(ctx->arena, sizeof *f);
    TRY(ctx_session(ctx, &f->row));
    f->from = arena_strdup(ctx->arena, f->row.id);
    fill_row(ctx, &f->row);
    struct session_manager *m = ctx->service->sessions;
    const struct fork_request request = {.logs_dir = session_manager_logs_dir(m),
                                         .tenant = ctx->tenant,
                                         .from = f->from,
                                         .entry = json_get_c(ctx->json, "entryId"),
                                         .to = f->row.id,
                                         .now_ms = f->row.created_at_ms};
    struct fork *log;
    TRY(fork_open(&request, &log));
    err e = make_with_files(ctx, f, log);
    fork_close(log);
    return e;
}

ROUTES(session_fork,
       {POST, "/v1/sessions/:id/fork", sessions_fork, .scope = SCOPE_WRITE, .where = HTTP_LONG,
        .idempotent = true, .body_max = 64 * KB}, )
