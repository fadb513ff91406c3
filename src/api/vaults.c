/* Vaults (§8.5, §12): collections of credentials that sessions refer to by id. The credentials are
   in credentials.c. */
#include "api/vaults.h"

#include "api/fields.h"
#include "api/routes.h"
#include "api/rows.h"
#include "api/service.h"
#include "session/quota.h"

#define COLUMNS                                                                                    \
    "SELECT id, name, is_default, created_at, updated_at, archived_at FROM vaults"                 \
    " WHERE tenant_id = $1"
#define LIST_FILTER " AND ($2 = 1 OR archived_at IS NULL)"

static const char sql_find[] = COLUMNS " AND id = $2";
static const char sql_newest_first[] =
    COLUMNS LIST_FILTER " AND (created_at, id) < ($3, $4)"
                        " ORDER BY created_at DESC, id DESC LIMIT $5";
static const char sql_oldest_first[] = COLUMNS LIST_FILTER " AND (created_at, id) > ($3, $4)"
                                                           " ORDER BY created_at, id LIMIT $5";
static const char sql_insert[] =
    "INSERT INTO vaults (tenant_id, id, name, created_at, updated_at) VALUES ($1, $2, $3, $4, $4)";
static const char sql_archive[] = "UPDATE vaults SET archived_at = $3, updated_at = $3"
                                  " WHERE tenant_id = $1 AND id = $2 AND archived_at IS NULL";
/* §12.7: secrets are purged, the records stay. */
static const char sql_archive_credentials[] =
    "UPDATE credentials SET archived_at = $3, updated_at = $3, sealed = NULL"
    " WHERE tenant_id = $1 AND vault_id = $2 AND archived_at IS NULL";
static const char sql_delete[] = "DELETE FROM vaults WHERE tenant_id = $1 AND id = $2";
static const char sql_count[] = "SELECT COUNT(*) FROM credentials WHERE tenant_id = $1"
                                " AND vault_id = $2 AND archived_at IS NULL";

static const struct field create_fields[] = {
    {.name = "name", .kinds = FIELD_STRING, .required = true, .line = true, .min = 1, .max = 128},
    {0},
};

static json_t *vault_json(const struct vault *v)
{
    json_t *j = json_pack("{s:s, s:s, s:s, s:b}", "id", v->id, "type", "vault", "name", v->name,
                          "isDefault", (int)v->is_default);
    json_set_time(j, "createdAt", v->created_at);
    json_set_time(j, "updatedAt", v->updated_at);
    json_set_time(j, "archivedAt", v->archived_at);
    return j;
}

static void read_vault(struct db_rows *r, struct arena *a, struct vault *out)
{
    row_id(r, 0, out->id);
    out->name = db_text(r, 1, a);
    out->is_default = db_int(r, 2) != 0;
    out->created_at = db_int(r, 3);
    out->updated_at = db_int(r, 4);
    out->archived_at = row_time(r, 5);
}

err vault_find(struct ctx *ctx, struct db_conn *c, struct str id, struct vault *out)
{
    struct db_rows *r;
    TRY(db_query(c, sql_find, DB_ARGS(DB_C(ctx->tenant), DB_S(id)), &r));
    bool found = db_next(r);
    if (found)
        read_vault(r, ctx->arena, out);
    TRY(db_rows_done(r));
    return found ? 0
                 : fail_as(E_NOT_FOUND, "vault_not_found", "there is no vault %.*s",
                           (int)(id.n < 64 ? id.n : 64), id.p);
}

err vault_require_live(const struct vault *v)
{
    return v->archived_at < 0 ? 0
                              : fail_as(E_CONFLICT, "vault_archived",
                                        "the vault %s is archived: its secrets are gone", v->id);
}

err vault_check_ids(struct ctx *ctx, struct db_conn *c, const json_t *ids)
{
    size_t i;
    json_t *id;
    json_array_foreach(ids, i, id)
    {
        struct vault v;
        err e = vault_find(ctx, c, str_of(json_string_value(id)), &v);
        if (!e)
            e = vault_require_live(&v);
        if (e) {
            problem_add(ctx, arena_printf(ctx->arena, "/vaultIds/%zu", i), "%s", err_text());
            return e;
        }
    }
    return 0;
}

err vault_count(struct db_conn *c, const char *tenant, const char *vault, int64_t *out)
{
    struct db_rows *r;
    TRY(db_query(c, sql_count, DB_ARGS(DB_C(tenant), DB_C(vault)), &r));
    int64_t n = db_next(r) ? db_int(r, 0) : 0;
    TRY(db_rows_done(r));
    *out = n;
    return 0;
}

static err reply_vault(struct ctx *ctx, struct db_conn *c, struct str id, int status)
{
    struct vault v;
    TRY(vault_find(ctx, c, id, &v));
    return reply_json(ctx, status, vault_json(&v));
}

static err create_in(struct ctx *ctx, struct db_conn *c, void *arg)
{
    (void)arg;
    char id[ID_MAX];
    int64_t now = clock_wall_ms(ctx->clock);
    struct str name = json_get_str(ctx->json, "name");
    id_new("vault", now, id);
    err e =
        db_exec(c, sql_insert, DB_ARGS(DB_C(ctx->tenant), DB_C(id), DB_S(name), DB_I(now)), NULL);
    if (e == E_CONFLICT)
        return fail_as(E_CONFLICT, "name_taken", "there is a vault named %.*s already",
                       STR_ARG(name));
    TRY(e);
    return reply_vault(ctx, c, str_of(id), 201);
}

static err vaults_create(struct ctx *ctx)
{
    TRY(ctx_fields(ctx, NULL, create_fields));
    return ctx_write(ctx, create_in, NULL);
}

static err get_in(struct db_conn *c, void *arg)
{
    struct ctx *ctx = arg;
    return reply_vault(ctx, c, ctx->params[0], 200);
}

static err vaults_get(struct ctx *ctx)
{
    return db_read(ctx->service->db, get_in, ctx);
}

static err list_in(struct db_conn *c, void *arg)
{
    struct ctx *ctx = arg;
    struct row_start start = row_start_of(ctx);
    struct db_rows *r;
    json_t *list = json_array();
    TRY(db_query(c, ctx->page.ascending ? sql_oldest_first : sql_newest_first,
                 DB_ARGS(DB_C(ctx->tenant), DB_I(query_bool(ctx, "includeArchived")),
                         DB_I(start.at), DB_C(start.id), DB_I(ctx->page.limit + 1)),
                 &r));
    while (db_next(r)) {
        struct vault v;
        read_vault(r, ctx->arena, &v);
        json_array_append_new(list, vault_json(&v));
    }
    err e = db_rows_done(r);
    if (e) {
        json_decref(list);
        return e;
    }
    return reply_page(ctx, list, row_key_of_created);
}

static err vaults_list(struct ctx *ctx)
{
    TRY(query_bool_check(ctx, "includeArchived"));
    return db_read(ctx->service->db, list_in, ctx);
}

/* The service fills it from its environment at each start. */
static err refuse_default(const struct vault *v)
{
    return v->is_default ? fail_as(E_CONFLICT, "vault_is_default",
                                   "the default vault holds the keys of the service's environment "
                                   "and stays; archive single credentials instead")
                         : 0;
}

static err give_back(struct ctx *ctx, struct db_conn *c, const struct vault *v)
{
    int64_t live = 0;
    TRY(vault_count(c, ctx->tenant, v->id, &live));
    return quota_give(c, ctx->tenant, QUOTA_VAULT_CREDENTIALS, live);
}

static err archive_in(struct ctx *ctx, struct db_conn *c, void *arg)
{
    (void)arg;
    struct vault v;
    int64_t now = clock_wall_ms(ctx->clock);
    TRY(vault_find(ctx, c, ctx->params[0], &v));
    TRY(refuse_default(&v));
    TRY(give_back(ctx, c, &v));
    TRY(db_exec(c, sql_archive_credentials, DB_ARGS(DB_C(ctx->tenant), DB_C(v.id), DB_I(now)),
                NULL));
    TRY(db_exec(c, sql_archive, DB_ARGS(DB_C(ctx->tenant), DB_C(v.id), DB_I(now)), NULL));
    return reply_vault(ctx, c, ctx->params[0], 200);
}

static err vaults_archive(struct ctx *ctx)
{
    return ctx_write(ctx, archive_in, NULL);
}

static err delete_in(struct ctx *ctx, struct db_conn *c, void *arg)
{
    (void)arg;
    struct vault v;
    TRY(vault_find(ctx, c, ctx->params[0], &v));
    TRY(refuse_default(&v));
    TRY(give_back(ctx, c, &v));
    TRY(db_exec(c, sql_delete, DB_ARGS(DB_C(ctx->tenant), DB_C(v.id)), NULL));
    return reply_empty(ctx, 204);
}

static err vaults_delete(struct ctx *ctx)
{
    return ctx_write(ctx, delete_in, NULL);
}

ROUTES(vaults,
       {POST, "/v1/vaults", vaults_create, .scope = SCOPE_WRITE, .idempotent = true,
        .body_max = 16 * KB},
       {GET, "/v1/vaults", vaults_list, .scope = SCOPE_READ, .list = true,
        .query = "includeArchived"},
       {GET, "/v1/vaults/:id", vaults_get, .scope = SCOPE_READ},
       {POST, "/v1/vaults/:id/archive", vaults_archive, .scope = SCOPE_WRITE, .idempotent = true},
       {DELETE, "/v1/vaults/:id", vaults_delete, .scope = SCOPE_WRITE}, )
