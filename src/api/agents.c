/* Agents (§6.1, §8.1): versioned definitions. An update makes a new version; versions never change.
 */
#include "api/agents.h"

#include <assert.h>
#include <stdio.h>

#include "api/definition.h"
#include "api/routes.h"
#include "api/rows.h"
#include "api/service.h"
#include "http/http.h"

/* Rows */

#define AGENT_COLUMNS                                                                              \
    "SELECT a.id, v.version, v.definition, a.created_at, a.updated_at, a.archived_at, "            \
    "v.created_at FROM agents a JOIN agent_versions v ON v.tenant_id = a.tenant_id AND "           \
    "v.agent_id = a.id"
#define NEWEST_VERSION " AND v.version = a.version"

static const char sql_insert[] =
    "INSERT INTO agents (tenant_id, id, name, version, created_at, updated_at)"
    " VALUES ($1, $2, $3, 1, $4, $4)";
static const char sql_insert_version[] =
    "INSERT INTO agent_versions (tenant_id, agent_id, version, definition, created_at)"
    " VALUES ($1, $2, $3, $4, $5)";
static const char sql_update[] = "UPDATE agents SET name = $3, version = $4, updated_at = $5"
                                 " WHERE tenant_id = $1 AND id = $2";
static const char sql_archive[] = "UPDATE agents SET archived_at = $3, updated_at = $3"
                                  " WHERE tenant_id = $1 AND id = $2 AND archived_at IS NULL";
static const char sql_find[] = AGENT_COLUMNS NEWEST_VERSION " WHERE a.tenant_id = $1 AND a.id = $2";
static const char sql_find_version[] =
    AGENT_COLUMNS " WHERE a.tenant_id = $1 AND a.id = $2 AND v.version = $3";
/* Metadata is compared while reading: JSON in SQL differs between engines. */
#define LIST_FILTER                                                                                \
    " WHERE a.tenant_id = $1 AND ($2 = '' OR a.name = $2) AND ($3 = 1 OR a.archived_at IS NULL)"
static const char sql_newest_first[] =
    AGENT_COLUMNS NEWEST_VERSION LIST_FILTER " AND (a.created_at, a.id) < ($4, $5)"
                                             " ORDER BY a.created_at DESC, a.id DESC LIMIT $6";
static const char sql_oldest_first[] =
    AGENT_COLUMNS NEWEST_VERSION LIST_FILTER " AND (a.created_at, a.id) > ($4, $5)"
                                             " ORDER BY a.created_at, a.id LIMIT $6";
static const char sql_versions_newest_first[] =
    AGENT_COLUMNS " WHERE a.tenant_id = $1 AND a.id = $2 AND v.version < $3"
                  " ORDER BY v.version DESC LIMIT $4";
static const char sql_versions_oldest_first[] =
    AGENT_COLUMNS " WHERE a.tenant_id = $1 AND a.id = $2 AND v.version > $3"
                  " ORDER BY v.version LIMIT $4";

static err read_agent(struct db_rows *r, struct definition *out)
{
    row_id(r, 0, out->id);
    out->version = db_int(r, 1);
    out->created_at = db_int(r, 3);
    out->updated_at = db_int(r, 4);
    out->archived_at = row_time(r, 5);
    out->version_created_at = db_int(r, 6);
    TRY(row_json(db_str(r, 2), "an agent's definition", &out->body));
    agent_apply(out->body, NULL); /* members that came after the row */
    return 0;
}

static err find_agent(struct db_conn *c, const char *tenant, struct str id, int64_t version,
                      struct definition *out)
{
    struct db_rows *r;
    if (version)
        TRY(db_query(c, sql_find_version, DB_ARGS(DB_C(tenant), DB_S(id), DB_I(version)), &r));
    else
        TRY(db_query(c, sql_find, DB_ARGS(DB_C(tenant), DB_S(id)), &r));
    err e = db_next(r) ? read_agent(r, out) : E_NOT_FOUND;
    TRY(db_rows_done(r));
    if (e == E_NOT_FOUND)
        return version ? fail_as(E_NOT_FOUND, "agent_not_found",
                                 "there is no version %lld of such an agent", (long long)version)
                       : fail_as(E_NOT_FOUND, "agent_not_found", "there is no agent with this id");
    return e;
}

err agent_find(struct db_conn *c, const char *tenant, struct str id, int64_t version,
               struct agent_found *out)
{
    struct definition a = {0};
    TRY(find_agent(c, tenant, id, version, &a));
    *out = (struct agent_found){
        .version = a.version, .definition = a.body, .archived = a.archived_at >= 0};
    static_assert(sizeof out->id == sizeof a.id, "an id");
    memcpy(out->id, a.id, sizeof a.id);
    return 0;
}

/* Takes the definition; shows one version. */
static json_t *agent_json(struct definition *a)
{
    json_t *j = json_object();
    json_set_str(j, "id", str_of(a->id));
    json_set_str(j, "type", STR("agent"));
    json_object_set_new(j, "version", json_integer(a->version));
    json_object_update(j, a->body);
    json_decref(a->body);
    json_set_time(j, "createdAt", a->created_at);
    json_set_time(j, "updatedAt",
                  a->version_created_at > a->updated_at ? a->version_created_at : a->updated_at);
    json_set_time(j, "archivedAt", a->archived_at);
    return j;
}

static err insert_version(struct ctx *ctx, struct db_conn *c, const struct definition *a)
{
    return db_exec(c, sql_insert_version,
                   DB_ARGS(DB_C(ctx->tenant), DB_C(a->id), DB_I(a->version),
                           DB_S(json_write_arena(a->body, ctx->arena)),
                           DB_I(a->version_created_at)),
                   NULL);
}

/* Writing */

/* §18.3: the roster is pinned to what its agents are now. */
static err pin_roster(struct ctx *ctx, struct db_conn *c, json_t *definition)
{
    json_t *roster = json_object_get(json_object_get(definition, "multiagent"), "agents");
    size_t i;
    json_t *member;
    json_array_foreach(roster, i, member)
    {
        if (!str_is(json_get_str(member, "type"), "agent"))
            continue;
        struct definition a = {0};
        err e = find_agent(c, ctx->tenant, json_get_str(member, "id"),
                           json_get_int(member, "version", 0), &a);
        if (e == E_NOT_FOUND)
            problem_add(ctx, arena_printf(ctx->arena, "/multiagent/agents/%zu", i), "%s",
                        err_text());
        TRY(e);
        json_decref(a.body);
        json_object_set_new(member, "version", json_integer(a.version));
    }
    return 0;
}

static err complete(struct ctx *ctx, struct db_conn *c, json_t *definition)
{
    TRY(agent_check_whole(definition));
    return pin_roster(ctx, c, definition);
}

static const struct definition_kind agent_kind;

static err insert(struct ctx *ctx, struct db_conn *c, const struct definition *a)
{
    err e = db_exec(c, sql_insert,
                    DB_ARGS(DB_C(ctx->tenant), DB_C(a->id), DB_S(json_get_str(a->body, "name")),
                            DB_I(a->created_at)),
                    NULL);
    return e ? definition_name_taken(&agent_kind, e, a->body) : insert_version(ctx, c, a);
}

/* An update that changes nothing makes no version. */
static err update_agent(struct ctx *ctx, struct db_conn *c, struct definition *a)
{
    int64_t expected = json_get_int(ctx->json, "version", a->version);
    if (expected != a->version)
        return fail_as(E_CONFLICT, "version_conflict",
                       "the agent is at version %lld, not %lld: read it and decide again",
                       (long long)a->version, (long long)expected);
    AUTO_JSON before = json_deep_copy(a->body);
    agent_apply(a->body, ctx->json);
    TRY(complete(ctx, c, a->body));
    if (json_equal(before, a->body))
        return 0;
    a->version++;
    a->updated_at = a->version_created_at = clock_wall_ms(ctx->clock);
    err e = db_exec(c, sql_update,
                    DB_ARGS(DB_C(ctx->tenant), DB_C(a->id), DB_S(json_get_str(a->body, "name")),
                            DB_I(a->version), DB_I(a->updated_at)),
                    NULL);
    TRY(definition_name_taken(&agent_kind, e, a->body));
    return insert_version(ctx, c, a);
}

static err find_newest(struct db_conn *c, const char *tenant, struct str id, struct definition *out)
{
    return find_agent(c, tenant, id, 0, out);
}

static const struct definition_kind agent_kind = {.article = "an",
                                                  .noun = "agent",
                                                  .id_prefix = "agent",
                                                  .archived_code = "agent_archived",
                                                  .sql_archive = sql_archive,
                                                  .find = find_newest,
                                                  .apply = agent_apply,
                                                  .check = complete,
                                                  .insert = insert,
                                                  .update = update_agent,
                                                  .show = agent_json};

/* Handlers */

static err agents_create(struct ctx *ctx)
{
    TRY(ctx_fields(ctx, ctx->service->catalog, agent_create_fields));
    return definition_create(ctx, &agent_kind);
}

static err agents_update(struct ctx *ctx)
{
    TRY(ctx_fields(ctx, ctx->service->catalog, agent_update_fields));
    return definition_update(ctx, &agent_kind);
}

static err agents_archive(struct ctx *ctx)
{
    return definition_archive(ctx, &agent_kind);
}

static err agents_get(struct ctx *ctx)
{
    return definition_get(ctx, &agent_kind);
}

static err version_in(struct db_conn *c, void *arg)
{
    struct ctx *ctx = arg;
    uint64_t version;
    if (!str_to_u64(ctx->params[1], &version) || version == 0 || version > INT32_MAX)
        return fail_as(E_NOT_FOUND, "agent_not_found", "there is no such version");
    struct definition a = {0};
    TRY(find_agent(c, ctx->tenant, ctx->params[0], (int64_t)version, &a));
    return reply_json(ctx, 200, agent_json(&a));
}

static err agents_version(struct ctx *ctx)
{
    return db_read(ctx->service->db, version_in, ctx);
}

static err read_json(struct db_rows *r, json_t **out)
{
    struct definition a = {0};
    TRY(read_agent(r, &a));
    *out = agent_json(&a);
    return 0;
}

static bool has_pairs(const json_t *metadata, const json_t *wanted)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)wanted, key, value)
    {
        if (!json_equal(json_object_get(metadata, key), value))
            return false;
    }
    return true;
}

static err read_matching(struct db_rows *r, const json_t *wanted, size_t max, json_t *list)
{
    while (json_array_size(list) < max && db_next(r)) {
        json_t *row = NULL;
        TRY(read_json(r, &row));
        if (has_pairs(json_object_get(row, "metadata"), wanted))
            json_array_append_new(list, row);
        else
            json_decref(row);
    }
    return 0;
}

/* metadata={"key":"value",…}: agents that have all of these pairs. */
static err read_filter(struct ctx *ctx, json_t **out)
{
    struct str text = ctx_query(ctx, "metadata");
    json_t *wanted = NULL;
    if (text.p)
        TRY(json_read(text, &wanted));
    if (text.p && !json_is_object(wanted)) {
        json_decref(wanted);
        return fail(E_INVALID, "query parameter metadata must be a JSON object of strings");
    }
    *out = wanted;
    return 0;
}

struct listing {
    struct ctx *ctx;
    const json_t *metadata;
};

static err list_in(struct db_conn *c, void *arg)
{
    struct listing *l = arg;
    struct ctx *ctx = l->ctx;
    struct str name = ctx_query(ctx, "name");
    bool all = query_bool(ctx, "includeArchived");
    struct row_start start = row_start_of(ctx);
    int64_t rows = l->metadata ? INT32_MAX : ctx->page.limit + 1;
    struct db_rows *r;
    TRY(db_query(c, ctx->page.ascending ? sql_oldest_first : sql_newest_first,
                 DB_ARGS(DB_C(ctx->tenant), DB_S(name.p ? name : STR("")), DB_I(all),
                         DB_I(start.at), DB_C(start.id), DB_I(rows)),
                 &r));
    json_t *list = json_array();
    err e = read_matching(r, l->metadata, ctx->page.limit + 1, list);
    err done = db_rows_done(r);
    if (e || done) {
        json_decref(list);
        return e ? e : done;
    }
    return reply_page(ctx, list, row_key_of_created);
}

static err agents_list(struct ctx *ctx)
{
    TRY(query_bool_check(ctx, "includeArchived"));
    AUTO_JSON metadata = NULL;
    TRY(read_filter(ctx, &metadata));
    struct listing l = {ctx, metadata};
    return db_read(ctx->service->db, list_in, &l);
}

static void key_of_version(const json_t *row, int64_t *out_at, char out_id[ID_MAX])
{
    *out_at = json_get_int(row, "version", 0);
    snprintf(out_id, ID_MAX, "%s", json_get_c(row, "id"));
}

static err versions_in(struct db_conn *c, void *arg)
{
    struct ctx *ctx = arg;
    struct definition a = {0};
    /* an unknown agent is not an empty list */
    TRY(find_agent(c, ctx->tenant, ctx->params[0], 0, &a));
    json_decref(a.body);
    struct db_rows *r;
    TRY(db_query(c, ctx->page.ascending ? sql_versions_oldest_first : sql_versions_newest_first,
                 DB_ARGS(DB_C(ctx->tenant), DB_S(ctx->params[0]), DB_I(row_start_of(ctx).at),
                         DB_I(ctx->page.limit + 1)),
                 &r));
    json_t *list = NULL;
    TRY(rows_collect(r, read_json, &list));
    return reply_page(ctx, list, key_of_version);
}

static err agents_versions(struct ctx *ctx)
{
    return db_read(ctx->service->db, versions_in, ctx);
}

#define BODY_MAX (256 * KB)

ROUTES(agents,
       {POST, "/v1/agents", agents_create, .scope = SCOPE_WRITE, .idempotent = true,
        .body_max = BODY_MAX},
       {GET, "/v1/agents", agents_list, .scope = SCOPE_READ, .list = true,
        .query = "name metadata includeArchived"},
       {GET, "/v1/agents/:id", agents_get, .scope = SCOPE_READ, .where = HTTP_POINT_READ},
       {PATCH, "/v1/agents/:id", agents_update, .scope = SCOPE_WRITE, .body_max = BODY_MAX},
       {POST, "/v1/agents/:id/archive", agents_archive, .scope = SCOPE_WRITE, .idempotent = true},
       {GET, "/v1/agents/:id/versions", agents_versions, .scope = SCOPE_READ, .list = true},
       {GET, "/v1/agents/:id/versions/:version", agents_version, .scope = SCOPE_READ,
        .where = HTTP_POINT_READ}, )
