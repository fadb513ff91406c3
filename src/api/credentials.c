/* Credentials of a vault (§8.5, §12): model_provider_key. The secret is sealed as soon as it is
   here and never shown; only the parent can open the box (vault_key.h). */
#include "session/credentials.h"
#include "api/fields.h"
#include "api/routes.h"
#include "api/rows.h"
#include "api/service.h"
#include "api/vaults.h"
#include "base/secret.h"
#include "broker/catalog.h"
#include "broker/link.h"
#include "broker/wire.h"
#include "parent/vault_key.h"
#include "session/quota.h"

#define KIND "model_provider_key"
#define CREDENTIALS_MAX 20 /* §12.4 */
#define CHECK_TIMEOUT_MS 15000

#define COLUMNS                                                                                    \
    "SELECT id, vault_id, kind, key, created_at, updated_at, archived_at FROM credentials"         \
    " WHERE tenant_id = $1 AND vault_id = $2"

/* By id, or the live one of that key. */
static const char sql_find[] = COLUMNS " AND (id = $3 OR (key = $3 AND archived_at IS NULL))";
static const char sql_newest_first[] =
    COLUMNS " AND ($3 = 1 OR archived_at IS NULL) AND (created_at, id) < ($4, $5)"
            " ORDER BY created_at DESC, id DESC LIMIT $6";
static const char sql_oldest_first[] =
    COLUMNS " AND ($3 = 1 OR archived_at IS NULL) AND (created_at, id) > ($4, $5)"
            " ORDER BY created_at, id LIMIT $6";
static const char sql_insert[] =
    "INSERT INTO credentials (tenant_id, id, vault_id, kind, key, sealed, created_at, updated_at)"
    " VALUES ($1, $2, $3, '" KIND "', $4, $5, $6, $6)";
static const char sql_update[] = "UPDATE credentials SET sealed = $4, updated_at = $5"
                                 " WHERE tenant_id = $1 AND vault_id = $2 AND id = $3";
static const char sql_sealed[] = "SELECT sealed FROM credentials"
                                 " WHERE tenant_id = $1 AND vault_id = $2 AND id = $3";
static const char sql_archive[] =
    "UPDATE credentials SET sealed = NULL, archived_at = $4, updated_at = $4"
    " WHERE tenant_id = $1 AND vault_id = $2 AND id = $3 AND archived_at IS NULL";

/* What a create may say */

static const char *const kinds[] = {KIND, NULL};

/* What a header can carry, and what the broker would refuse later. */
static void check_secret(struct fields *f, const json_t *value)
{
    const char *p = json_string_value(value);
    for (size_t i = 0; i < json_string_length(value); i++)
        if ((unsigned char)p[i] <= ' ' || (unsigned char)p[i] >= 0x7f) {
            fields_problem(f, NULL, "must be visible ASCII characters without blanks");
            return;
        }
}

static void check_provider(struct fields *f, const json_t *value)
{
    const struct catalog *catalog = f->context;
    if (!catalog_has_provider(catalog, json_string_value(value)))
        fields_problem(f, "provider_unavailable", "must be one of %s", catalog_providers(catalog));
}

static void check_base_url(struct fields *f, const json_t *value)
{
    AUTO_ARENA a = arena_new();
    const char *origin;
    if (credential_origin(json_string_value(value), a, &origin))
        fields_problem(f, NULL, "%s", err_text());
}

#define SECRET_FIELD                                                                               \
    {                                                                                              \
        .name = "apiKey", .kinds = FIELD_STRING, .required = true, .min = 1, .bytes_max = 2048,    \
        .check = check_secret                                                                      \
    }

static const struct field create_fields[] = {
    {.name = "kind", .kinds = FIELD_STRING, .required = true, .one_of = kinds},
    {.name = "provider",
     .kinds = FIELD_STRING,
     .nullable = true,
     .line = true,
     .min = 1,
     .max = 64,
     .check = check_provider},
    {.name = "baseUrl",
     .kinds = FIELD_STRING,
     .nullable = true,
     .line = true,
     .min = 1,
     .max = 2048,
     .check = check_base_url},
    SECRET_FIELD,
    {0},
};

static const struct field update_fields[] = {SECRET_FIELD, {0}};

/* How a key for an address is tried: as an agent's model says it. */
static void check_api(struct fields *f, const json_t *value)
{
    if (wire_find(json_string_value(value)) == NULL)
        fields_problem(f, NULL, "must be one of %s", wire_names());
}

static const struct field validate_fields[] = {
    {.name = "api", .kinds = FIELD_STRING, .check = check_api},
    {.name = "baseUrl",
     .kinds = FIELD_STRING,
     .line = true,
     .min = 1,
     .max = 2048,
     .check = check_base_url},
    {0},
};

/* Rows */

struct credential {
    char id[ID_MAX], vault[ID_MAX];
    char *kind, *key;
    int64_t created_at, updated_at, archived_at;
};

static bool is_origin(const char *key)
{
    return strstr(key, "://") != NULL;
}

static json_t *credential_json(const struct credential *c)
{
    bool bound = is_origin(c->key);
    json_t *j = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s?, s:s?}", "id", c->id, "type",
                          "credential", "vaultId", c->vault, "kind", c->kind, "key", c->key,
                          "provider", bound ? NULL : c->key, "baseUrl", bound ? c->key : NULL);
    json_set_time(j, "createdAt", c->created_at);
    json_set_time(j, "updatedAt", c->updated_at);
    json_set_time(j, "archivedAt", c->archived_at);
    return j;
}

static void read_credential(struct db_rows *r, struct arena *a, struct credential *out)
{
    row_id(r, 0, out->id);
    row_id(r, 1, out->vault);
    out->kind = db_text(r, 2, a);
    out->key = db_text(r, 3, a);
    out->created_at = db_int(r, 4);
    out->updated_at = db_int(r, 5);
    out->archived_at = row_time(r, 6);
}

static err find(struct ctx *ctx, struct db_conn *c, const char *vault, struct str key,
                struct credential *out)
{
    struct db_rows *r;
    TRY(db_query(c, sql_find, DB_ARGS(DB_C(ctx->tenant), DB_C(vault), DB_S(key)), &r));
    bool found = db_next(r);
    if (found)
        read_credential(r, ctx->arena, out);
    TRY(db_rows_done(r));
    return found ? 0
                 : fail_as(E_NOT_FOUND, "credential_not_found", "the vault has no credential %.*s",
                           (int)(key.n < 80 ? key.n : 80), key.p);
}

/* What the path names: /v1/vaults/:id/credentials/:key. */
static err find_named(struct ctx *ctx, struct db_conn *c, struct vault *out_vault,
                      struct credential *out)
{
    TRY(vault_find(ctx, c, ctx->params[0], out_vault));
    return find(ctx, c, out_vault->id, ctx->params[1], out);
}

/* Sealing */

static void wipe_secret(struct ctx *ctx)
{
    struct str secret = json_get_str(ctx->json, "apiKey");
    if (secret.n)
        secret_wipe((void *)(uintptr_t)secret.p, secret.n);
}

/* R4a: what stands in the box says where the key may go. */
static err seal(struct ctx *ctx, const char *id, const char *key, struct buf *out)
{
    AUTO_JSON contents = json_object();
    json_object_set_new(contents, "tenant", json_string(ctx->tenant));
    json_object_set_new(contents, "id", json_string(id));
    json_object_set_new(contents, "kind", json_string(KIND));
    json_object_set_new(contents, is_origin(key) ? "origin" : "provider", json_string(key));
    json_set_str(contents, "secret", json_get_str(ctx->json, "apiKey"));
    err e = vault_seal(ctx->service->config.seal_public_key, contents, out);
    struct str copy = json_get_str(contents, "secret");
    secret_wipe((void *)(uintptr_t)copy.p, copy.n);
    return e;
}

/* Creating */

static err check_room(struct ctx *ctx, struct db_conn *c, const struct vault *v)
{
    int64_t live = 0;
    TRY(vault_require_live(v));
    TRY(vault_count(c, ctx->tenant, v->id, &live));
    if (live >= CREDENTIALS_MAX)
        return fail_as(E_CONFLICT, "vault_full", "a vault holds at most %d credentials",
                       CREDENTIALS_MAX);
    return quota_take(c, ctx->tenant, QUOTA_VAULT_CREDENTIALS, 1);
}

/* The provider, or the origin that a baseUrl stands for; in the arena. */
static err wanted_key(struct ctx *ctx, const char **out)
{
    const char *provider = json_get_c(ctx->json, "provider");
    const char *base_url = json_get_c(ctx->json, "baseUrl");
    if ((provider == NULL) == (base_url == NULL)) {
        problem_add(ctx, "/provider", "give either provider or baseUrl");
        return fail(E_INVALID, "a key is for a provider of Pi's catalogue or for one baseUrl");
    }
    *out = provider;
    return provider ? 0 : credential_origin(base_url, ctx->arena, out);
}

static err create_in(struct ctx *ctx, struct db_conn *c, void *arg)
{
    const char *key = arg;
    char id[ID_MAX];
    struct vault v;
    struct credential made;
    AUTO_BUF sealed = {0};
    int64_t now = clock_wall_ms(ctx->clock);
    TRY(vault_find(ctx, c, ctx->params[0], &v));
    TRY(check_room(ctx, c, &v));
    TRY(seal(ctx, id_new("cred", now, id), key, &sealed));
    err e = db_exec(c, sql_insert,
                    DB_ARGS(DB_C(ctx->tenant), DB_C(id), DB_C(v.id), DB_C(key),
                            DB_B(buf_str(&sealed)), DB_I(now)),
                    NULL);
    if (e == E_CONFLICT)
        return fail_as(E_CONFLICT, "credential_exists",
                       "the vault has a key for %s already: change it, or archive it first", key);
    TRY(e);
    TRY(find(ctx, c, v.id, str_of(id), &made));
    return reply_json(ctx, 201, credential_json(&made));
}

static err credentials_create(struct ctx *ctx)
{
    const char *key = NULL;
    err e = ctx_fields(ctx, ctx->service->catalog, create_fields);
    if (!e)
        e = wanted_key(ctx, &key);
    if (!e)
        e = ctx_write(ctx, create_in, (void *)(uintptr_t)key);
    wipe_secret(ctx);
    return e;
}

/* Reading */

static err get_in(struct db_conn *c, void *arg)
{
    struct ctx *ctx = arg;
    struct vault v;
    struct credential found;
    TRY(find_named(ctx, c, &v, &found));
    return reply_json(ctx, 200, credential_json(&found));
}

static err credentials_get(struct ctx *ctx)
{
    return db_read(ctx->service->db, get_in, ctx);
}

static err list_in(struct db_conn *c, void *arg)
{
    struct ctx *ctx = arg;
    struct row_start start = row_start_of(ctx);
    struct vault v;
    struct db_rows *r;
    TRY(vault_find(ctx, c, ctx->params[0], &v));
    TRY(db_query(c, ctx->page.ascending ? sql_oldest_first : sql_newest_first,
                 DB_ARGS(DB_C(ctx->tenant), DB_C(v.id), DB_I(query_bool(ctx, "includeArchived")),
                         DB_I(start.at), DB_C(start.id), DB_I(ctx->page.limit + 1)),
                 &r));
    json_t *list = json_array();
    while (db_next(r)) {
        struct credential one;
        read_credential(r, ctx->arena, &one);
        json_array_append_new(list, credential_json(&one));
    }
    err e = db_rows_done(r);
    if (e) {
        json_decref(list);
        return e;
    }
    return reply_page(ctx, list, row_key_of_created);
}

static err credentials_list(struct ctx *ctx)
{
    TRY(query_bool_check(ctx, "includeArchived"));
    return db_read(ctx->service->db, list_in, ctx);
}

/* Changing: running sessions use the new key from their next request on (§12.5) */

static err require_live(const struct credential *c)
{
    return c->archived_at < 0 ? 0
                              : fail_as(E_CONFLICT, "credential_archived",
                                        "the credential is archived: add a new one");
}

static err update_in(struct ctx *ctx, struct db_conn *c, void *arg)
{
    (void)arg;
    struct vault v;
    struct credential found;
    AUTO_BUF sealed = {0};
    TRY(find_named(ctx, c, &v, &found));
    TRY(require_live(&found));
    TRY(seal(ctx, found.id, found.key, &sealed));
    found.updated_at = clock_wall_ms(ctx->clock);
    TRY(db_exec(c, sql_update,
                DB_ARGS(DB_C(ctx->tenant), DB_C(v.id), DB_C(found.id), DB_B(buf_str(&sealed)),
                        DB_I(found.updated_at)),
                NULL));
    return reply_json(ctx, 200, credential_json(&found));
}

static err credentials_update(struct ctx *ctx)
{
    err e = ctx_fields(ctx, NULL, update_fields);
    if (!e)
        e = ctx_write(ctx, update_in, NULL);
    wipe_secret(ctx);
    return e;
}

static err archive_in(struct ctx *ctx, struct db_conn *c, void *arg)
{
    (void)arg;
    struct vault v;
    struct credential found;
    int64_t changed = 0;
    TRY(find_named(ctx, c, &v, &found));
    TRY(db_exec(
        c, sql_archive,
        DB_ARGS(DB_C(ctx->tenant), DB_C(v.id), DB_C(found.id), DB_I(clock_wall_ms(ctx->clock))),
        &changed));
    TRY(quota_give(c, ctx->tenant, QUOTA_VAULT_CREDENTIALS, changed));
    TRY(find(ctx, c, v.id, str_of(found.id), &found));
    return reply_json(ctx, 200, credential_json(&found));
}

static err credentials_archive(struct ctx *ctx)
{
    return ctx_write(ctx, archive_in, NULL);
}

/* Trying (§8.5 validate). The verdict is of this moment: nothing is kept */

struct trial {
    struct ctx *ctx;
    struct credential credential;
    struct str sealed;
};

static err load_trial(struct db_conn *c, void *arg)
{
    struct trial *t = arg;
    struct ctx *ctx = t->ctx;
    struct vault v;
    struct db_rows *r;
    TRY(find_named(ctx, c, &v, &t->credential));
    TRY(require_live(&t->credential));
    TRY(db_query(c, sql_sealed, DB_ARGS(DB_C(ctx->tenant), DB_C(v.id), DB_C(t->credential.id)),
                 &r));
    if (db_next(r))
        t->sealed = arena_str(ctx->arena, db_str(r, 0));
    return db_rows_done(r);
}

static err target_problem(struct ctx *ctx, const char *path, const char *text)
{
    problem_add(ctx, path, "%s", text);
    return fail(E_INVALID, "%s %s", path, text);
}

/* A key for an address does not say which API is spoken there, nor beneath which path. */
static err address_target(const struct trial *t, struct broker_session *s)
{
    const char *origin;
    if (s->api == NULL)
        return target_problem(t->ctx, "/api", "must say what is spoken at the key's address");
    if (s->base_url == NULL)
        return target_problem(t->ctx, "/baseUrl", "must be the address, as in an agent's model");
    TRY(credential_origin(s->base_url, t->ctx->arena, &origin));
    if (strcmp(origin, t->credential.key) != 0)
        return target_problem(t->ctx, "/baseUrl", "must be at the address that the key is for");
    s->custom = true;
    s->provider = s->model = "custom";
    return 0;
}

/* R4a: at the catalogue's address, whatever the caller says. */
static err provider_target(const struct trial *t, struct broker_session *s)
{
    const struct catalog *catalog = t->ctx->service->catalog;
    if (s->api || s->base_url)
        return target_problem(t->ctx, s->api ? "/api" : "/baseUrl",
                              "is for keys of an address; this one is for a provider");
    const struct catalog_model *m = catalog_any(catalog, t->credential.key);
    if (m == NULL)
        return fail_as(E_INVALID, "provider_unavailable",
                       "no model of %s can be reached; providers that work: %s", t->credential.key,
                       catalog_providers(catalog));
    s->provider = m->provider;
    s->model = m->id;
    return 0;
}

static json_t *validation_json(const struct trial *t, const struct broker_verdict *v)
{
    json_t *j = json_pack("{s:s, s:s, s:s, s:n}", "type", "credential_validation", "credentialId",
                          t->credential.id, "status", v->verdict, "reason");
    if (v->reason[0])
        json_set_str(j, "reason", str_of(v->reason));
    json_set_time(j, "validatedAt", clock_wall_ms(t->ctx->clock));
    return j;
}

static err credentials_validate(struct ctx *ctx)
{
    struct trial t = {.ctx = ctx};
    struct broker_verdict v;
    if (ctx->json)
        TRY(ctx_fields(ctx, NULL, validate_fields));
    TRY(db_read(ctx->service->db, load_trial, &t));
    struct broker_session s = {.tenant = ctx->tenant,
                               .session = t.credential.id,
                               .api = json_get_c(ctx->json, "api"),
                               .base_url = json_get_c(ctx->json, "baseUrl"),
                               .sealed = t.sealed};
    TRY(is_origin(t.credential.key) ? address_target(&t, &s) : provider_target(&t, &s));
    broker_check_key(ctx->service->broker, &s, CHECK_TIMEOUT_MS, &v);
    return reply_json(ctx, 200, validation_json(&t, &v));
}

ROUTES(credentials,
       {POST, "/v1/vaults/:id/credentials", credentials_create, .scope = SCOPE_WRITE,
        .idempotent = true, .body_max = 16 * KB},
       {GET, "/v1/vaults/:id/credentials", credentials_list, .scope = SCOPE_READ, .list = true,
        .query = "includeArchived"},
       {GET, "/v1/vaults/:id/credentials/:key", credentials_get, .scope = SCOPE_READ},
       {PATCH, "/v1/vaults/:id/credentials/:key", credentials_update, .scope = SCOPE_WRITE,
        .body_max = 16 * KB},
       {DELETE, "/v1/vaults/:id/credentials/:key", credentials_archive, .scope = SCOPE_WRITE},
       {POST, "/v1/vaults/:id/credentials/:key/validate", credentials_validate,
        .scope = SCOPE_WRITE, .where = HTTP_LONG, .body_max = 16 * KB}, )
