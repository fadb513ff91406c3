/* API keys (R14, §8.12): rows, and the routes on them. */
#include "api/keys.h"

#include <stdio.h>

#include "api/fields.h"
#include "api/lasting.h"
#include "api/routes.h"
#include "api/rows.h"
#include "api/service.h"
#include "base/mem.h"
#include "base/secret.h"

#define NAME_CHARACTERS_MAX 128

static const char sql_tenant_exists[] = "SELECT 1 FROM tenants WHERE id = $1";
static const char sql_insert[] =
    "INSERT INTO api_keys (tenant_id, id, lookup, name, scope, hash, last4, created_at)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
#define KEY_COLUMNS "SELECT id, name, scope, last4, created_at, revoked_at FROM api_keys"
static const char sql_newest_first[] =
    KEY_COLUMNS " WHERE tenant_id = $1 AND (created_at, id) < ($2, $3)"
                " ORDER BY created_at DESC, id DESC LIMIT $4";
static const char sql_oldest_first[] =
    KEY_COLUMNS " WHERE tenant_id = $1 AND (created_at, id) > ($2, $3)"
                " ORDER BY created_at, id LIMIT $4";
static const char sql_revoke[] = "UPDATE api_keys SET revoked_at = COALESCE(revoked_at, $3)"
                                 " WHERE tenant_id = $1 AND id = $2";
static const char sql_tenant_insert[] =
    "INSERT INTO tenants (id, name, created_at) VALUES ($1, $2, $3)";
static const char sql_tenant_list[] =
    "SELECT id, name, created_at FROM tenants ORDER BY created_at, id";

/* Rows */

/* The door has checked what came over HTTP; the command line brings any bytes. */
static err check_name(const char *name)
{
    return str_is_name(str_of(name), NAME_CHARACTERS_MAX)
               ? 0
               : fail(E_INVALID, "a name has 1 to %d characters of UTF-8 and no control characters",
                      NAME_CHARACTERS_MAX);
}

err key_draw(const char *tenant, const char *name, enum http_scope scope, int64_t now_ms,
             struct key_new *out)
{
    struct key_new k = {.name = name, .scope = scope, .created_at_ms = now_ms};
    snprintf(k.tenant, sizeof k.tenant, "%s", tenant);
    id_new("key", now_ms, k.id);
    key_token_make(k.token);
    err e = check_name(name);
    if (e == 0)
        e = key_hash_make(str_of(k.token), k.hash);
    if (e == 0)
        *out = k;
    secret_wipe(k.token, sizeof k.token);
    return e;
}

err key_insert(struct db_conn *c, const struct key_new *key)
{
    struct db_rows *r;
    TRY(db_query(c, sql_tenant_exists, DB_ARGS(DB_C(key->tenant)), &r));
    bool exists = db_next(r);
    TRY(db_rows_done(r));
    if (!exists)
        return fail(E_NOT_FOUND, "there is no tenant %s", key->tenant);
    struct str lookup;
    if (!key_token_parse(str_of(key->token), &lookup))
        return fail(E_INTERNAL, "a new API key is malformed");
    return db_exec(c, sql_insert,
                   DB_ARGS(DB_C(key->tenant), DB_C(key->id), DB_S(lookup), DB_C(key->name),
                           DB_C(key_scope_name(key->scope)), DB_C(key->hash),
                           DB_C(key->token + KEY_TOKEN_LENGTH - 4), DB_I(key->created_at_ms)),
                   NULL);
}

static void read_key_row(struct db_rows *r, struct arena *a, struct key_row_shown *out)
{
    row_id(r, 0, out->id);
    out->name = db_text(r, 1, a);
    out->scope = db_text(r, 2, a);
    out->last4 = db_text(r, 3, a);
    out->created_at_ms = db_int(r, 4);
    out->revoked_at_ms = row_time(r, 5);
}

err key_list(struct db_conn *c, struct arena *a, const char *tenant, const struct key_filter *f,
             struct key_row_shown **out, size_t *out_n)
{
    struct row_start start = row_start_at(f->has_after, f->ascending, f->after_at_ms, f->after_id);
    struct key_row_shown *rows = arena_alloc(a, size_mul(f->limit, sizeof *rows));
    struct db_rows *r;
    TRY(db_query(c, f->ascending ? sql_oldest_first : sql_newest_first,
                 DB_ARGS(DB_C(tenant), DB_I(start.at), DB_C(start.id), DB_I(f->limit)), &r));
    size_t n = 0;
    while (db_next(r) && n < f->limit)
        read_key_row(r, a, &rows[n++]);
    TRY(db_rows_done(r));
    *out = rows;
    *out_n = n;
    return 0;
}

err key_revoke(struct db_conn *c, const char *tenant, struct str id, int64_t now_ms)
{
    int64_t changed;
    TRY(db_exec(c, sql_revoke, DB_ARGS(DB_C(tenant), DB_S(id), DB_I(now_ms)), &changed));
    return changed ? 0 : fail_as(E_NOT_FOUND, "key_not_found", "there is no API key with this id");
}

err tenant_insert(struct db_conn *c, const char *name, int64_t now_ms, char *out_id)
{
    char id[ID_MAX];
    TRY(check_name(name));
    id_new("tenant", now_ms, id);
    err e = db_exec(c, sql_tenant_insert, DB_ARGS(DB_C(id), DB_C(name), DB_I(now_ms)), NULL);
    if (e == E_CONFLICT)
        return fail_as(E_CONFLICT, "name_taken", "there is a tenant named %.128s already", name);
    TRY(e);
    memcpy(out_id, id, sizeof id);
    return 0;
}

err tenant_list(struct db_conn *c, struct arena *a, struct tenant_row **out, size_t *out_n)
{
    struct tenant_row *rows = NULL;
    size_t n = 0, room = 0;
    struct db_rows *r;
    TRY(db_query(c, sql_tenant_list, DB_NO_ARGS, &r));
    while (db_next(r)) {
        if (n == room) {
            room = room ? size_mul(room, 2) : 8;
            struct tenant_row *more = arena_alloc(a, size_mul(room, sizeof *more));
            if (n)
                memcpy(more, rows, n * sizeof *rows);
            rows = more;
        }
        row_id(r, 0, rows[n].id);
        rows[n].name = db_text(r, 1, a);
        rows[n].created_at_ms = db_int(r, 2);
        n++;
    }
    TRY(db_rows_done(r));
    *out = rows;
    *out_n = n;
    return 0;
}

/* Routes */

static const char *const scopes[] = {"read", "write", "admin", NULL};

static const struct field fields_create[] = {
    {.name = "name",
     .kinds = FIELD_STRING,
     .required = true,
     .line = true,
     .min = 1,
     .max = NAME_CHARACTERS_MAX},
    {.name = "scope", .kinds = FIELD_STRING, .one_of = scopes},
    {0},
};

static json_t *key_json(const struct key_row_shown *k)
{
    json_t *j = json_object();
    json_set_str(j, "id", str_of(k->id));
    json_set_str(j, "name", str_of(k->name));
    json_set_str(j, "scope", str_of(k->scope));
    json_set_str(j, "last4", str_of(k->last4));
    json_set_time(j, "createdAt", k->created_at_ms);
    json_set_time(j, "revokedAt", k->revoked_at_ms);
    return j;
}

static err create_in(struct ctx *ctx, struct db_conn *c, void *arg)
{
    const struct key_new *key = arg;
    TRY(key_insert(c, key));
    struct key_row_shown shown = {.name = key->name,
                                  .scope = key_scope_name(key->scope),
                                  .last4 = key->token + KEY_TOKEN_LENGTH - 4,
                                  .created_at_ms = key->created_at_ms,
                                  .revoked_at_ms = -1};
    memcpy(shown.id, key->id, sizeof shown.id);
    json_t *j = key_json(&shown);
    json_set_str(j, "apiKey", str_of(key->token));
    return reply_json(ctx, 201, j);
}

/* Not idempotent: a kept reply would keep the key in clear (§12.4). */
static err keys_create(struct ctx *ctx)
{
    TRY(ctx_fields(ctx, NULL, fields_create));
    struct str scope = json_get_str(ctx->json, "scope");
    struct key_new *key = arena_alloc(ctx->arena, sizeof *key);
    TRY(key_draw(ctx->tenant, json_get_c(ctx->json, "name"),
                 scope.p ? key_scope_of(scope) : SCOPE_WRITE, clock_wall_ms(ctx->clock), key));
    err e = ctx_write(ctx, create_in, key);
    secret_wipe(key->token, sizeof key->token);
    return e;
}

static err list_in(struct db_conn *c, void *arg)
{
    struct ctx *ctx = arg;
    struct key_filter filter = {.has_after = ctx->page.has_after,
                                .ascending = ctx->page.ascending,
                                .after_at_ms = ctx->page.after_at,
                                .after_id = ctx->page.after_id,
                                .limit = ctx->page.limit + 1};
    struct key_row_shown *rows;
    size_t n;
    TRY(key_list(c, ctx->arena, ctx->tenant, &filter, &rows, &n));
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, key_json(&rows[i]));
    return reply_page(ctx, list, row_key_of_created);
}

static err keys_list(struct ctx *ctx)
{
    return db_read(ctx->service->db, list_in, ctx);
}

static err revoke_in(struct ctx *ctx, struct db_conn *c, void *arg)
{
    (void)arg;
    TRY(key_revoke(c, ctx->tenant, ctx->params[0], clock_wall_ms(ctx->clock)));
    return reply_empty(ctx, 204);
}

static err keys_revoke(struct ctx *ctx)
{
    TRY(ctx_write(ctx, revoke_in, NULL));
    const char *id = arena_str(ctx->arena, ctx->params[0]).p;
    auth_forget(ctx->service->auth, id);
    lastings_end(ctx->service->lastings, id);
    return 0;
}

ROUTES(keys, {POST, "/v1/api-keys", keys_create, .scope = SCOPE_ADMIN, .body_max = 16 * KB},
       {GET, "/v1/api-keys", keys_list, .scope = SCOPE_ADMIN, .list = true},
       {DELETE, "/v1/api-keys/:id", keys_revoke, .scope = SCOPE_ADMIN}, )
