/* POST /v1/sessions/import: a new session that goes on from a log of Pi's. The body is the log; the
   agent and the environment are named in the query, because the log is streamed to its place. */
#include <sodium.h>

#include "api/fields.h"
#include "api/routes.h"
#include "api/service.h"
#include "api/sessions.h"
#include "base/log.h"
#include "base/mem.h"
#include "session/archive.h"
#include "session/log.h"
#include "session/log_import.h"
#include "session/manager.h"

struct state {
    struct log_import *log;
    char session[ID_MAX];
    crypto_generichash_state fingerprint;
    int64_t bytes;
};

static const struct field fields_query[] = {
    {.name = "agent", .kinds = FIELD_STRING, .required = true, .line = true, .min = 1, .max = 64},
    {.name = "environmentId",
     .kinds = FIELD_STRING,
     .required = true,
     .line = true,
     .min = 1,
     .max = 64},
    {.name = "title", .kinds = FIELD_STRING, .line = true, .min = 1, .max = 256},
    {0},
};

/* The query as the body that a create has. */
static err read_query(struct ctx *ctx)
{
    static const char *const names[] = {"agent", "environmentId", "title"};
    ctx->json = json_object();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct str value = ctx_query(ctx, names[i]);
        if (value.p)
            json_set_str(ctx->json, names[i], value);
    }
    return ctx_fields(ctx, NULL, fields_query);
}

static err import_open(struct ctx *ctx)
{
    TRY(read_query(ctx));
    struct state *s = mem_alloc(sizeof *s);
    ctx->upload = s;
    id_new("sess", clock_wall_ms(ctx->clock), s->session);
    crypto_generichash_init(&s->fingerprint, NULL, 0, UPLOAD_FINGERPRINT);
    return log_import_begin(session_manager_logs_dir(ctx->service->sessions), ctx->tenant,
                            s->session, &s->log);
}

static err import_write(struct ctx *ctx, struct str bytes)
{
    struct state *s = ctx->upload;
    crypto_generichash_update(&s->fingerprint, (const unsigned char *)bytes.p, bytes.n);
    return log_import_feed(s->log, bytes);
}

static err import_end(struct ctx *ctx, unsigned char *out_fingerprint)
{
    struct state *s = ctx->upload;
    crypto_generichash_final(&s->fingerprint, out_fingerprint, UPLOAD_FINGERPRINT);
    return 0;
}

static void import_closed(void *upload)
{
    struct state *s = upload;
    log_import_abort(s->log);
    mem_free(s);
}

static const struct upload upload = {
    .media_type = "application/jsonl",
    .open = import_open,
    .write = import_write,
    .end = import_end,
    .closed = import_closed,
};

static err create_in(struct ctx *ctx, struct db_conn *c, void *arg)
{
    struct state *s = arg;
    struct session_row row;
    TRY(session_fill(ctx, c, &row));
    memcpy(row.id, s->session, sizeof row.id);
    TRY(session_insert(c, &row));
    return reply_session(ctx, 201, &row);
}

/* The log first: a row whose log is missing would be a session that forgot everything. */
static err import_create(struct ctx *ctx)
{
    struct state *s = ctx->upload;
    struct log_import *log = s->log;
    s->log = NULL;
    TRY(log_import_finish(log, &s->bytes));
    err e = ctx_write(ctx, create_in, s);
    if (e == 0) {
        archive_note(ctx->service->archive, ctx->tenant, s->session, s->bytes, true);
        return 0;
    }
    struct err_slot why;
    err_save(&why);
    if (log_remove(session_manager_logs_dir(ctx->service->sessions), ctx->tenant, s->session))
        log_warn("the log of %s, which is no session, stays: %s", s->session, err_text());
    return err_restore(&why);
}

ROUTES(import,
       {POST, "/v1/sessions/import", import_create, .scope = SCOPE_WRITE, .idempotent = true,
        .upload = &upload, .query = "agent environmentId title"}, )
