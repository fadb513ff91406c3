/* Files (§8.9, §21): upload, list, metadata, content, delete. */
#include "api/files.h"

#include <stdio.h>

#include "api/file_outputs.h"
#include "api/file_record.h"
#include "api/file_rows.h"
#include "api/file_upload.h"
#include "api/routes.h"
#include "api/rows.h"
#include "api/service.h"
#include "base/log.h"
#include "base/mem.h"
#include "http/byte_range.h"

#define UNFINISHED_MS INT64_C(86400000)
#define SWEEP_BATCH 100

/* ---- uploading ---- */

struct doomed {
    const char *tenant, *id;
};

static err forget_in(struct db_conn *c, void *arg)
{
    const struct doomed *d = arg;
    return file_forget(c, d->tenant, d->id);
}

/* The object, then its row. What fails is done by the sweep. */
static void remove_file(struct service *service, const char *tenant, const char *id)
{
    char key[OBJECT_KEY_MAX];
    struct doomed d = {tenant, id};
    file_key(tenant, id, key);
    if (objects_delete(service->objects, key) || file_record_remove(service->objects, tenant, id) ||
        db_write(service->db, forget_in, &d))
        log_warn("the file %s is removed later: %s", id, err_text());
}

static err create_in(struct ctx *ctx, struct db_conn *c, void *arg)
{
    const struct file_row *row = arg;
    TRY(file_finish(c, ctx->tenant, row));
    return reply_json(ctx, 201, file_json(row));
}

static err files_create(struct ctx *ctx)
{
    struct file_row row;
    TRY(file_upload_finish(ctx, &row));
    row.created_at_ms = clock_wall_ms(ctx->clock);
    err e = file_record_put(ctx->service->objects, ctx->tenant, &row);
    e = e ? e : ctx_write(ctx, create_in, &row);
    if (!e)
        return 0;
    struct err_slot why;
    err_save(&why);
    remove_file(ctx->service, ctx->tenant, row.id);
    return err_restore(&why);
}

/* ---- reading ---- */

struct listing {
    struct ctx *ctx;
    bool refreshed;
    struct file_outputs_rest rest;
};

static void say_rest(struct ctx *ctx, const struct file_outputs_rest *rest)
{
    AUTO_JSON j = json_pack("{s:I, s:I}", "waiting", (json_int_t)rest->waiting, "leftOut",
                            (json_int_t)rest->left_out);
    ctx->page.also = "outputs";
    ctx->page.also_json = json_write_arena(j, ctx->arena);
}

static err list_in(struct db_conn *c, void *arg)
{
    const struct listing *l = arg;
    struct ctx *ctx = l->ctx;
    struct str session = ctx_query(ctx, "sessionId");
    struct file_filter filter = {.session = session.p ? arena_str(ctx->arena, session).p : NULL,
                                 .has_after = ctx->page.has_after,
                                 .ascending = ctx->page.ascending,
                                 .after_at_ms = ctx->page.after_at,
                                 .after_id = ctx->page.after_id,
                                 .limit = ctx->page.limit + 1};
    struct file_row *rows;
    size_t n;
    TRY(file_list(c, ctx->arena, ctx->tenant, &filter, &rows, &n));
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, file_json(&rows[i]));
    if (l->refreshed)
        say_rest(ctx, &l->rest);
    return reply_page(ctx, list, row_key_of_created);
}

/* A session's outputs are brought up to date with the first page; the others go on from there. */
static err files_list(struct ctx *ctx)
{
    struct str session = ctx_query(ctx, "sessionId");
    struct listing l = {.ctx = ctx, .refreshed = session.p && !ctx->page.has_after};
    if (l.refreshed)
        TRY(file_outputs_refresh(ctx, session, &l.rest));
    return db_read(ctx->service->db, list_in, &l);
}

struct find {
    struct ctx *ctx;
    struct file_row row;
};

static err find_in(struct db_conn *c, void *arg)
{
    struct find *f = arg;
    return file_find(c, f->ctx->arena, f->ctx->tenant, f->ctx->params[0], &f->row);
}

static err files_get(struct ctx *ctx)
{
    struct find f = {.ctx = ctx};
    TRY(db_read(ctx->service->db, find_in, &f));
    return reply_json(ctx, 200, file_json(&f.row));
}

/* ---- content ---- */

/* Loop thread; a local file, most often in the page cache. */
static ssize_t content_read(void *state, char *out, size_t cap)
{
    size_t n = 0;
    return objects_get_read(state, out, cap, &n) || n == 0 ? -1 : (ssize_t)n;
}

static void content_closed(void *state)
{
    objects_get_close(state);
}

/* R39, RFC 6266: the name in ASCII for old clients, and as it is. */
static const char *disposition(struct arena *a, const char *name)
{
    AUTO_BUF plain = {0}, encoded = {0};
    for (const unsigned char *p = (const unsigned char *)name; *p; p++) {
        bool word = (*p >= '0' && *p <= '9') || (*p >= 'A' && *p <= 'Z') ||
                    (*p >= 'a' && *p <= 'z') || strchr("-._~", *p);
        if (word)
            buf_add_char(&encoded, (char)*p);
        else
            buf_printf(&encoded, "%%%02X", *p);
        if ((*p & 0xc0) == 0x80)
            continue; /* one `_` a character */
        buf_add_char(&plain, word || *p == ' ' || strchr("()+,=@", *p) ? (char)*p : '_');
    }
    return arena_printf(a, "attachment; filename=\"%.*s\"; filename*=UTF-8''%.*s",
                        STR_ARG(buf_str(&plain)), STR_ARG(buf_str(&encoded)));
}

/* If-Range: a range of another content than the client has is of no use to it. */
static struct str wanted_range(const struct ctx *ctx, const char *etag)
{
    struct str same = ctx_header(ctx, "If-Range");
    return same.p && !str_is(same, etag) ? (struct str){0} : ctx_header(ctx, "Range");
}

static err files_content(struct ctx *ctx)
{
    struct find f = {.ctx = ctx};
    struct object_get *content;
    struct byte_range range;
    char key[OBJECT_KEY_MAX];
    TRY(db_read(ctx->service->db, find_in, &f));
    uint64_t size = (uint64_t)f.row.size;
    const char *etag = arena_printf(ctx->arena, "\"%s\"", f.row.sha256);
    if (byte_range_read(wanted_range(ctx, etag), size, &range)) {
        reply_header(ctx, "Content-Range",
                     arena_printf(ctx->arena, "bytes */%llu", (unsigned long long)size));
        return E_RANGE;
    }
    file_key(ctx->tenant, f.row.id, key);
    TRY(objects_get(ctx->service->objects, key, range.from, range.length, &content, NULL));
    reply_header(ctx, "Content-Disposition", disposition(ctx->arena, f.row.name));
    reply_header(ctx, "Content-Security-Policy", "sandbox; default-src 'none'");
    reply_header(ctx, "Accept-Ranges", "bytes");
    reply_header(ctx, "ETag", etag);
    if (range.partial)
        reply_header(ctx, "Content-Range",
                     arena_printf(ctx->arena, "bytes %llu-%llu/%llu",
                                  (unsigned long long)range.from,
                                  (unsigned long long)(range.from + range.length - 1),
                                  (unsigned long long)size));
    struct http_source source = {.read = content_read, .closed = content_closed, .state = content};
    return reply_sized(ctx, range.partial ? 206 : 200, f.row.mime_type, range.length, source);
}

/* ---- deleting ---- */

static err hide_in(struct ctx *ctx, struct db_conn *c, void *arg)
{
    (void)arg;
    TRY(file_hide(c, ctx->tenant, ctx->params[0]));
    return reply_empty(ctx, 204);
}

static err files_delete(struct ctx *ctx)
{
    TRY(ctx_write(ctx, hide_in, NULL));
    remove_file(ctx->service, ctx->tenant, arena_str(ctx->arena, ctx->params[0]).p);
    return 0;
}

struct leftovers {
    int64_t before_ms;
    struct file_ref refs[SWEEP_BATCH];
    size_t n;
};

static err find_leftovers(struct db_conn *c, void *arg)
{
    struct leftovers *l = arg;
    return file_unfinished(c, l->before_ms, SWEEP_BATCH, l->refs, &l->n);
}

err files_sweep(struct service *service)
{
    struct leftovers l = {.before_ms = clock_wall_ms(service->clock) - UNFINISHED_MS};
    TRY(db_read(service->db, find_leftovers, &l));
    for (size_t i = 0; i < l.n; i++)
        remove_file(service, l.refs[i].tenant, l.refs[i].id);
    return 0;
}

ROUTES(files,
       {POST, "/v1/files", files_create, .scope = SCOPE_WRITE, .idempotent = true,
        .upload = &file_upload},
       {GET, "/v1/files", files_list, .scope = SCOPE_READ, .where = HTTP_LONG, .list = true,
        .query = "sessionId"},
       {GET, "/v1/files/:id", files_get, .scope = SCOPE_READ},
       {GET, "/v1/files/:id/content", files_content, .scope = SCOPE_READ},
       {DELETE, "/v1/files/:id", files_delete, .scope = SCOPE_WRITE}, )
