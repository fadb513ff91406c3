/* Agents (§6.1, §8.1): versioned definitions. An update makes a new version; versions never change.
 */
#include "api/agents.h"

#include <stdio.h>

#include "api/routes.h"
#include "api/rows.h"
#include "api/service.h"
#include "base/mem.h"
#include "broker/catalog.h"
#include "http/http.h"

#define PROMPT_BYTES_MAX (100 * KB)

/* What a definition may say */

static const char *const thinking_levels[] = {"off",  "minimal", "low", "medium",
                                              "high", "xhigh",   "max", NULL};
static const char *const wire_apis[] = {"anthropic-messages", "openai-completions",
                                        "openai-responses", "google-generative-ai", NULL};
static const char *const tool_names[] = {"bash", "read", "write", "edit",
                                         "grep", "find", "ls",    NULL};
static const char *const policies[] = {"always_allow", "always_ask", "always_deny", NULL};
static const char *const input_kinds[] = {"text", "image", NULL};

static const struct field cost_fields[] = {
    {.name = "input", .kinds = FIELD_NUMBER, .required = true, .max = 1e6},
    {.name = "output", .kinds = FIELD_NUMBER, .required = true, .max = 1e6},
    {.name = "cacheRead", .kinds = FIELD_NUMBER, .max = 1e6},
    {.name = "cacheWrite", .kinds = FIELD_NUMBER, .max = 1e6},
    {0},
};

static const struct field input_kind = {.kinds = FIELD_STRING, .one_of = input_kinds};

static const struct field model_fields[] = {
    {.name = "provider",
     .kinds = FIELD_STRING,
     .required = true,
     .line = true,
     .min = 1,
     .max = 64},
    {.name = "id", .kinds = FIELD_STRING, .required = true, .line = true, .min = 1, .max = 256},
    {.name = "thinkingLevel", .kinds = FIELD_STRING, .nullable = true, .one_of = thinking_levels},
    {.name = "api", .kinds = FIELD_STRING, .nullable = true, .line = true, .max = 64},
    {.name = "baseUrl",
     .kinds = FIELD_STRING,
     .nullable = true,
     .line = true,
     .min = 1,
     .max = 2048},
    {.name = "contextWindow", .kinds = FIELD_INT, .nullable = true, .min = 1, .max = 1e9},
    {.name = "maxTokens", .kinds = FIELD_INT, .nullable = true, .min = 1, .max = 1e9},
    {.name = "input",
     .kinds = FIELD_ARRAY,
     .nullable = true,
     .min = 1,
     .max = 2,
     .item = &input_kind},
    {.name = "cost", .kinds = FIELD_OBJECT, .nullable = true, .members = cost_fields},
    {0},
};

static void check_model(struct fields *f, const json_t *value)
{
    agent_check_model(f, f->context, value);
}

/* §22: what waits for a person needs the confirmation events, which are not there yet. */
static void check_policy(struct fields *f, const json_t *value)
{
    if (strcmp(json_string_value(value), "always_ask") == 0)
        fields_problem(f, "not_supported",
                       "always_ask is not supported by this version; use always_allow or "
                       "always_deny");
}

static const struct field default_config_fields[] = {
    {.name = "enabled", .kinds = FIELD_BOOL},
    {.name = "permissionPolicy", .kinds = FIELD_STRING, .one_of = policies, .check = check_policy},
    {0},
};

static const struct field config_fields[] = {
    {.name = "name", .kinds = FIELD_STRING, .required = true, .one_of = tool_names},
    {.name = "enabled", .kinds = FIELD_BOOL},
    {.name = "permissionPolicy", .kinds = FIELD_STRING, .one_of = policies, .check = check_policy},
    {0},
};

static void check_configs(struct fields *f, const json_t *configs)
{
    size_t i, k;
    json_t *one;
    json_array_foreach(configs, i, one)
    {
        for (k = 0; k < i; k++)
            if (str_eq(json_get_str(one, "name"),
                       json_get_str(json_array_get(configs, k), "name"))) {
                fields_problem(f, NULL, "configures %s twice", json_get_c(one, "name"));
                return;
            }
    }
}

static const struct field config = {.kinds = FIELD_OBJECT, .members = config_fields};

static const struct field tools_fields[] = {
    {.name = "defaultConfig", .kinds = FIELD_OBJECT, .members = default_config_fields},
    {.name = "configs", .kinds = FIELD_ARRAY, .max = 7, .item = &config, .check = check_configs},
    {.name = "custom", .not_supported = "leave custom tools out"},
    {0},
};

/* R43: names of managed features; this version has none. */
static void check_extension(struct fields *f, const json_t *value)
{
    fields_problem(f, "extension_unavailable",
                   "there is no managed feature named %.64s; code of a tenant never runs in the "
                   "service",
                   json_string_value(value));
}

static const struct field extension = {
    .kinds = FIELD_STRING, .line = true, .min = 1, .max = 64, .check = check_extension};

static const struct field overridable[] = {
    {.name = "systemPrompt",
     .kinds = FIELD_STRING,
     .nullable = true,
     .no_nul = true,
     .bytes_max = PROMPT_BYTES_MAX},
    {.name = "tools", .kinds = FIELD_OBJECT, .nullable = true, .members = tools_fields},
    {.name = "extensions", .kinds = FIELD_ARRAY, .nullable = true, .max = 20, .item = &extension},
    {.name = "skills", .not_supported = "leave skills out"},
    {.name = "mcpServers", .not_supported = "leave MCP servers out"},
    {0},
};

static const struct field not_overridable[] = {
    {.name = "multiagent", .not_supported = "leave it out"},
    {.name = "metadata", .kinds = FIELD_OBJECT, .nullable = true, .check = fields_metadata},
    {0},
};

#define NAME .name = "name", .kinds = FIELD_STRING, .line = true, .min = 1, .max = 128
#define MODEL .name = "model", .kinds = FIELD_OBJECT, .members = model_fields, .check = check_model

const struct field agent_override_fields[] = {{MODEL}, {.include = overridable}, {0}};

static const struct field create_fields[] = {
    {NAME, .required = true},
    {MODEL, .required = true},
    {.include = overridable},
    {.include = not_overridable},
    {0},
};

static const struct field update_fields[] = {
    {NAME}, {MODEL}, {.include = overridable}, {.include = not_overridable}, {0},
};

/* The model */

static bool is_wire_api(const char *api)
{
    for (size_t i = 0; wire_apis[i]; i++)
        if (strcmp(wire_apis[i], api) == 0)
            return true;
    return false;
}

/* scheme://host[:port][/path], nothing else: no user, query or fragment. */
static bool is_base_url(struct str url)
{
    struct str https = STR("https://"), http = STR("http://");
    struct str scheme = str_starts(url, https) ? https : http;
    if (!str_starts(url, scheme) || url.n == scheme.n || url.p[scheme.n] == '/')
        return false;
    for (size_t i = scheme.n; i < url.n; i++) {
        unsigned char c = (unsigned char)url.p[i];
        if (c <= ' ' || c >= 0x7f || strchr("@?#\\\"<>^`{|}", c))
            return false;
    }
    return true;
}

static void check_custom(struct fields *f, const json_t *model)
{
    const char *api = json_get_c(model, "api"), *base_url = json_get_c(model, "baseUrl");
    if (api == NULL) {
        fields_problem_at(f, "api", NULL,
                          "is required with baseUrl: one of anthropic-messages, "
                          "openai-completions, openai-responses, "
                          "google-generative-ai");
    } else if (!is_wire_api(api)) {
        fields_problem_at(f, "api", NULL,
                          "must be one of anthropic-messages, openai-completions, "
                          "openai-responses, google-generative-ai");
    }
    if (base_url == NULL)
        fields_problem_at(f, "baseUrl", NULL, "is required with api");
    else if (!is_base_url(str_of(base_url)))
        fields_problem_at(f, "baseUrl", NULL,
                          "must be an http:// or https:// address without user, query or fragment");
}

static void check_known(struct fields *f, const struct catalog *catalog, const json_t *model)
{
    const char *provider = json_get_c(model, "provider"), *id = json_get_c(model, "id");
    if (!catalog_has_provider(catalog, provider)) {
        fields_problem_at(f, "provider", "provider_unavailable",
                          "there is no provider %.64s; these work: %s. For another server give api "
                          "and baseUrl",
                          provider, catalog_providers(catalog));
        return;
    }
    const struct catalog_model *m = catalog_find(catalog, provider, id);
    if (m == NULL)
        fields_problem_at(f, "id", "model_unknown", "provider %s has no model %.128s", provider,
                          id);
    else if (m->api == NULL)
        fields_problem_at(f, "provider", "provider_unavailable",
                          "%s speaks a wire API that is not supported; these work: %s", provider,
                          catalog_providers(catalog));
    static const char *const custom_only[] = {"contextWindow", "maxTokens", "input"};
    for (size_t i = 0; i < sizeof custom_only / sizeof *custom_only; i++)
        if (json_object_get(model, custom_only[i]) &&
            !json_is_null(json_object_get(model, custom_only[i])))
            fields_problem_at(f, custom_only[i], NULL,
                              "is for a model with its own api and baseUrl only");
}

void agent_check_model(struct fields *f, const struct catalog *catalog, const json_t *model)
{
    if (json_get_c(model, "api") || json_get_c(model, "baseUrl"))
        check_custom(f, model);
    else
        check_known(f, catalog, model);
}

/* Definitions */

static json_t *default_of(const char *member)
{
    if (strcmp(member, "extensions") == 0)
        return json_array();
    if (strcmp(member, "metadata") == 0)
        return json_object();
    return json_null();
}

void agent_apply(json_t *definition, const json_t *changes)
{
    static const char *const members[] = {"name",  "model",      "systemPrompt",
                                          "tools", "extensions", "metadata"};
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        json_t *value = json_object_get(changes, members[i]);
        if (value && !json_is_null(value))
            json_object_set(definition, members[i], value);
        else if (value || json_object_get(definition, members[i]) == NULL)
            json_object_set_new(definition, members[i], default_of(members[i]));
    }
}

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

struct agent {
    char id[ID_MAX];
    int64_t version;
    json_t *definition; /* owned */
    int64_t created_at, updated_at, archived_at, version_created_at;
};

static err read_agent(struct db_rows *r, struct agent *out)
{
    row_id(r, 0, out->id);
    out->version = db_int(r, 1);
    out->created_at = db_int(r, 3);
    out->updated_at = db_int(r, 4);
    out->archived_at = row_time(r, 5);
    out->version_created_at = db_int(r, 6);
    return row_json(db_str(r, 2), "an agent's definition", &out->definition);
}

static err find_agent(struct db_conn *c, const char *tenant, struct str id, int64_t version,
                      struct agent *out)
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
    struct agent a = {0};
    TRY(find_agent(c, tenant, id, version, &a));
    *out = (struct agent_found){
        .version = a.version, .definition = a.definition, .archived = a.archived_at >= 0};
    static_assert(sizeof out->id == sizeof a.id, "an id");
    memcpy(out->id, a.id, sizeof a.id);
    return 0;
}

/* Takes the definition; shows one version. */
static json_t *agent_json(struct agent *a)
{
    json_t *j = json_object();
    json_set_str(j, "id", str_of(a->id));
    json_set_str(j, "type", STR("agent"));
    json_object_set_new(j, "version", json_integer(a->version));
    json_object_update(j, a->definition);
    json_decref(a->definition);
    json_set_time(j, "createdAt", a->created_at);
    json_set_time(j, "updatedAt",
                  a->version_created_at > a->updated_at ? a->version_created_at : a->updated_at);
    json_set_time(j, "archivedAt", a->archived_at);
    return j;
}

static err insert_version(struct ctx *ctx, struct db_conn *c, const struct agent *a)
{
    return db_exec(c, sql_insert_version,
                   DB_ARGS(DB_C(ctx->tenant), DB_C(a->id), DB_I(a->version),
                           DB_S(json_write_arena(a->definition, ctx->arena)),
                           DB_I(a->version_created_at)),
                   NULL);
}

static err name_taken(err e, const json_t *definition)
{
    if (e != E_CONFLICT)
        return e;
    return fail_as(E_CONFLICT, "name_taken", "there is an agent named %.128s already",
                   json_get_c(definition, "name"));
}

/* Handlers */

static err create_in(struct ctx *ctx, struct db_conn *c, void *arg)
{
    (void)arg;
    int64_t now = clock_wall_ms(ctx->clock);
    struct agent a = {.version = 1,
                      .definition = json_object(),
                      .created_at = now,
                      .updated_at = now,
                      .archived_at = -1,
                      .version_created_at = now};
    id_new("agent", now, a.id);
    agent_apply(a.definition, ctx->json);
    err e = db_exec(
        c, sql_insert,
        DB_ARGS(DB_C(ctx->tenant), DB_C(a.id), DB_S(json_get_str(ctx->json, "name")), DB_I(now)),
        NULL);
    e = e ? name_taken(e, a.definition) : insert_version(ctx, c, &a);
    if (e) {
        json_decref(a.definition);
        return e;
    }
    return reply_json(ctx, 201, agent_json(&a));
}

static err agents_create(struct ctx *ctx)
{
    TRY(ctx_fields(ctx, ctx->service->catalog, create_fields));
    return ctx_write(ctx, create_in, NULL);
}

/* An update that changes nothing makes no version. */
static err update_agent(struct ctx *ctx, struct db_conn *c, struct agent *a)
{
    if (a->archived_at >= 0)
        return fail_as(E_CONFLICT, "agent_archived", "the agent is archived and cannot change");
    AUTO_JSON before = json_deep_copy(a->definition);
    agent_apply(a->definition, ctx->json);
    if (json_equal(before, a->definition))
        return 0;
    a->version++;
    a->updated_at = a->version_created_at = clock_wall_ms(ctx->clock);
    err e =
        db_exec(c, sql_update,
                DB_ARGS(DB_C(ctx->tenant), DB_C(a->id), DB_S(json_get_str(a->definition, "name")),
                        DB_I(a->version), DB_I(a->updated_at)),
                NULL);
    TRY(name_taken(e, a->definition));
    return insert_version(ctx, c, a);
}

static err update_in(struct ctx *ctx, struct db_conn *c, void *arg)
{
    (void)arg;
    struct agent a = {0};
    TRY(find_agent(c, ctx->tenant, ctx->params[0], 0, &a));
    err e = update_agent(ctx, c, &a);
    if (e) {
        json_decref(a.definition);
        return e;
    }
    return reply_json(ctx, 200, agent_json(&a));
}

static err agents_update(struct ctx *ctx)
{
    TRY(ctx_fields(ctx, ctx->service->catalog, update_fields));
    return ctx_write(ctx, update_in, NULL);
}

/* Archiving twice is archiving once. */
static err archive_in(struct ctx *ctx, struct db_conn *c, void *arg)
{
    (void)arg;
    TRY(db_exec(c, sql_archive,
                DB_ARGS(DB_C(ctx->tenant), DB_S(ctx->params[0]), DB_I(clock_wall_ms(ctx->clock))),
                NULL));
    struct agent a = {0};
    TRY(find_agent(c, ctx->tenant, ctx->params[0], 0, &a));
    return reply_json(ctx, 200, agent_json(&a));
}

static err agents_archive(struct ctx *ctx)
{
    return ctx_write(ctx, archive_in, NULL);
}

static err get_in(struct db_conn *c, void *arg)
{
    struct ctx *ctx = arg;
    struct agent a = {0};
    TRY(find_agent(c, ctx->tenant, ctx->params[0], 0, &a));
    return reply_json(ctx, 200, agent_json(&a));
}

static err agents_get(struct ctx *ctx)
{
    return db_read(ctx->service->db, get_in, ctx);
}

static err version_in(struct db_conn *c, void *arg)
{
    struct ctx *ctx = arg;
    uint64_t version;
    if (!str_to_u64(ctx->params[1], &version) || version == 0 || version > INT32_MAX)
        return fail_as(E_NOT_FOUND, "agent_not_found", "there is no such version");
    struct agent a = {0};
    TRY(find_agent(c, ctx->tenant, ctx->params[0], (int64_t)version, &a));
    return reply_json(ctx, 200, agent_json(&a));
}

static err agents_version(struct ctx *ctx)
{
    return db_read(ctx->service->db, version_in, ctx);
}

static err read_json(struct db_rows *r, json_t **out)
{
    struct agent a = {0};
    TRY(read_agent(r, &a));
    *out = agent_json(&a);
    return 0;
}

static err list_in(struct db_conn *c, void *arg)
{
    struct ctx *ctx = arg;
    struct str name = ctx_query(ctx, "name");
    bool all = query_bool(ctx, "includeArchived");
    struct row_start start = row_start_of(ctx);
    struct db_rows *r;
    TRY(db_query(c, ctx->page.ascending ? sql_oldest_first : sql_newest_first,
                 DB_ARGS(DB_C(ctx->tenant), DB_S(name.p ? name : STR("")), DB_I(all),
                         DB_I(start.at), DB_C(start.id), DB_I(ctx->page.limit + 1)),
                 &r));
    json_t *list = NULL;
    TRY(rows_collect(r, read_json, &list));
    return reply_page(ctx, list, row_key_of_created);
}

static err agents_list(struct ctx *ctx)
{
    TRY(query_bool_check(ctx, "includeArchived"));
    return db_read(ctx->service->db, list_in, ctx);
}

static void key_of_version(const json_t *row, int64_t *out_at, char out_id[ID_MAX])
{
    *out_at = json_get_int(row, "version", 0);
    snprintf(out_id, ID_MAX, "%s", json_get_c(row, "id"));
}

static err versions_in(struct db_conn *c, void *arg)
{
    struct ctx *ctx = arg;
    struct agent a = {0};
    /* an unknown agent is not an empty list */
    TRY(find_agent(c, ctx->tenant, ctx->params[0], 0, &a));
    json_decref(a.definition);
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
        .query = "name includeArchived"},
       {GET, "/v1/agents/:id", agents_get, .scope = SCOPE_READ},
       {PATCH, "/v1/agents/:id", agents_update, .scope = SCOPE_WRITE, .body_max = BODY_MAX},
       {POST, "/v1/agents/:id/archive", agents_archive, .scope = SCOPE_WRITE, .idempotent = true},
       {GET, "/v1/agents/:id/versions", agents_versions, .scope = SCOPE_READ, .list = true},
       {GET, "/v1/agents/:id/versions/:version", agents_version, .scope = SCOPE_READ}, )
