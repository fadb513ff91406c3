/* Volumes (§6.2, R48): folders that an environment's mounts name, shared by the sandboxes of a
   tenant. Here, or when a sandbox first starts with one, it is made: as a row, whose folder comes
   with that start. */
#include "session/volumes.h"

#include "api/fields.h"
#include "api/routes.h"
#include "api/rows.h"
#include "api/service.h"
#include "base/log.h"
#include "session/volume_rows.h"

static json_t *volume_json(const struct volume_row *row)
{
    json_t *j = json_object();
    json_set_str(j, "id", str_of(row->id));
    json_set_str(j, "type", STR("volume"));
    json_set_str(j, "name", str_of(row->name));
    json_object_set_new(j, "sizeBytes", json_integer(row->bytes));
    json_set_time(j, "measuredAt", row->measured_at_ms ? row->measured_at_ms : -1);
    json_object_set_new(j, "sessions", json_integer(row->sessions));
    json_set_time(j, "createdAt", row->created_at_ms);
    json_set_time(j, "lastUsedAt", row->used_at_ms ? row->used_at_ms : -1);
    return j;
}

static void check_name(struct fields *f, const json_t *value)
{
    if (mount_check_name((struct str){json_string_value(value), json_string_length(value)}))
        fields_problem(f, NULL, "%s", err_text());
}

static const struct field create_fields[] = {
    {.name = "name", .kinds = FIELD_STRING, .required = true, .check = check_name}, {0}};

static err create_in(struct ctx *ctx, struct db_conn *c, void *arg)
{
    char id[ID_MAX];
    struct volume_row row;
    (void)arg;
    TRY(volume_row_make(c, ctx->tenant, json_get_c(ctx->json, "name"), clock_wall_ms(ctx->clock),
                        id));
    TRY(volume_row_find(c, ctx->arena, ctx->tenant, str_of(id), &row));
    return reply_json(ctx, 201, volume_json(&row));
}

static err volumes_create(struct ctx *ctx)
{
    TRY(ctx_fields(ctx, NULL, create_fields));
    return ctx_write(ctx, create_in, NULL);
}

static err list_in(struct db_conn *c, void *arg)
{
    struct ctx *ctx = arg;
    struct str name = ctx_query(ctx, "name");
    struct row_start start = row_start_of(ctx);
    struct volume_filter filter = {.name = name.p ? arena_str(ctx->arena, name).p : NULL,
                                   .ascending = ctx->page.ascending,
                                   .start_at_ms = start.at,
                                   .start_id = start.id,
                                   .limit = ctx->page.limit + 1};
    struct volume_row *rows;
    size_t n;
    TRY(volume_row_list(c, ctx->arena, ctx->tenant, &filter, &rows, &n));
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, volume_json(&rows[i]));
    return reply_page(ctx, list, row_key_of_created);
}

static err volumes_list(struct ctx *ctx)
{
    return db_read(ctx->service->db, list_in, ctx);
}

static err get_in(struct db_conn *c, void *arg)
{
    struct ctx *ctx = arg;
    struct volume_row row;
    TRY(volume_row_find(c, ctx->arena, ctx->tenant, ctx->params[0], &row));
    return reply_json(ctx, 200, volume_json(&row));
}

/* Measured anew where it may have changed, which takes a while where it holds many files; so does
   removing them. */
static err volumes_get(struct ctx *ctx)
{
    struct service *s = ctx->service;
    const char *id = arena_str(ctx->arena, ctx->params[0]).p;
    if (volume_measure(s->parent, s->db, s->clock, ctx->tenant, id))
        log_warn("cannot measure the volume %s: %s", id, err_text());
    return db_read(s->db, get_in, ctx);
}

static err hide_in(struct ctx *ctx, struct db_conn *c, void *arg)
{
    (void)arg;
    TRY(volume_row_hide(c, ctx->tenant, ctx->params[0]));
    return reply_empty(ctx, 204);
}

static err volumes_delete(struct ctx *ctx)
{
    const char *id = arena_str(ctx->arena, ctx->params[0]).p;
    TRY(ctx_write(ctx, hide_in, NULL));
    if (volume_remove(ctx->service->parent, ctx->service->db, ctx->tenant, id))
        log_warn("the volume %s is removed later: %s", id, err_text());
    return 0;
}

ROUTES(volumes,
       {POST, "/v1/volumes", volumes_create, .scope = SCOPE_WRITE, .idempotent = true,
        .body_max = 4 * KB},
       {GET, "/v1/volumes", volumes_list, .scope = SCOPE_READ, .list = true, .query = "name"},
       {GET, "/v1/volumes/:id", volumes_get, .scope = SCOPE_READ, .where = HTTP_LONG},
       {DELETE, "/v1/volumes/:id", volumes_delete, .scope = SCOPE_WRITE, .where = HTTP_LONG}, )
