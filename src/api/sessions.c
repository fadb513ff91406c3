/* Sessions (§6.3, §8.3, R41): create, list, get, delete. What they do afterwards is src/session. */
#include "api/sessions.h"

#include "api/agents.h"
#include "api/budget.h"
#include "api/environments.h"
#include "api/fields.h"
#include "api/file_rows.h"
#include "api/routes.h"
#include "api/rows.h"
#include "api/service.h"
#include "api/stream.h"
#include "api/vaults.h"
#include "session/manager.h"
#include "session/staging.h"

#define RESOURCES_MAX 100
#define PATH_BYTES_MAX 1024

/* What a create may say */

static const char *const resource_types[] = {"file", NULL};

static const struct field agent_fields[] = {
    {.name = "id", .kinds = FIELD_STRING, .required = true, .line = true, .min = 1, .max = 64},
    {.name = "version", .kinds = FIELD_INT, .nullable = true, .min = 1, .max = INT32_MAX},
    {.name = "overrides",
     .kinds = FIELD_OBJECT,
     .nullable = true,
     .members = agent_override_fields},
    {0},
};

/* Beneath the working directory; a relative path starts there. */
static void check_path(struct fields *f, const json_t *value)
{
    struct str path = {json_string_value(value), json_string_length(value)};
    struct str rest = path, part;
    bool inside = true, plain = true;
    if (str_starts(path, STR(SANDBOX_WORKDIR "/")))
        rest = (struct str){path.p + sizeof SANDBOX_WORKDIR, path.n - sizeof SANDBOX_WORKDIR};
    else if (path.p[0] == '/')
        inside = false;
    while (inside && str_split(&rest, '/', &part))
        plain = plain && part.n > 0 && !str_is(part, ".") && !str_is(part, "..");
    if (!inside)
        fields_problem(f, NULL, "must lie in " SANDBOX_WORKDIR);
    else if (!plain)
        fields_problem(f, NULL, "must have no empty, . or .. part");
}

static const struct field resource_fields[] = {
    {.name = "type", .kinds = FIELD_STRING, .required = true, .one_of = resource_types},
    {.name = "fileId", .kinds = FIELD_STRING, .required = true, .line = true, .min = 1, .max = 64},
    {.name = "path",
     .kinds = FIELD_STRING,
     .nullable = true,
     .line = true,
     .min = 1,
     .bytes_max = PATH_BYTES_MAX,
     .check = check_path},
    {0},
};

static const struct field resource = {.kinds = FIELD_OBJECT, .members = resource_fields};

static void check_resources(struct fields *f, const json_t *list)
{
    fields_unique(f, list, "path", "names the path");
}

#define VAULTS_MAX 20
static const struct field vault_id = {.kinds = FIELD_STRING, .line = true, .min = 1, .max = 64};

static const struct field create_fields[] = {
    {.name = "agent",
     .kinds = FIELD_STRING | FIELD_OBJECT,
     .required = true,
     .line = true,
     .min = 1,
     .max = 64,
     .members = agent_fields},
    {.name = "environmentId",
     .kinds = FIELD_STRING,
     .required = true,
     .line = true,
     .min = 1,
     .max = 64},
    {.name = "title", .kinds = FIELD_STRING, .nullable = true, .line = true, .min = 1, .max = 256},
    {.name = "metadata", .kinds = FIELD_OBJECT, .nullable = true, .check = fields_metadata},
    {.name = "resources",
     .kinds = FIELD_ARRAY,
     .nullable = true,
     .max = RESOURCES_MAX,
     .item = &resource,
     .check = check_resources},
    {.name = "vaultIds",
     .kinds = FIELD_ARRAY,
     .nullable = true,
     .max = VAULTS_MAX,
     .item = &vault_id},
    BUDGET_FIELD,
    {0},
};

/* Showing */

static bool wants_disk_limit(const struct session_row *row)
{
    if (row->environment_json == NULL || strstr(row->environment_json, "\"diskMiB\"") == NULL)
        return false; /* lists ask this of each row */
    AUTO_JSON environment = json_loads(row->environment_json, JSON_ALLOW_NUL, NULL);
    return json_get_int(json_object_get(environment, "resources"), "diskMiB", 0) > 0;
}

void session_write(const struct service *service, const struct session_row *row, struct buf *out)
{
    const struct sandbox_caps *caps = &service->config.caps;
    bool enforced = caps->limit_memory && caps->limit_cpu && caps->limit_pids &&
                    (caps->limit_disk || !wants_disk_limit(row));
    session_row_write(row, out);
    json_text_raw(out, "sandbox", "{");
    json_text_str(out, "provider", service->config.provider);
    json_text_bool(out, "ownKernel", caps->own_kernel);
    json_text_str(out, "limits", enforced ? "enforced" : "none");
    json_text_str(out, "state", row->sandbox_state ? row->sandbox_state : "none");
    buf_add_char(out, '}');
}

err reply_session(struct ctx *ctx, int status, const struct session_row *row)
{
    AUTO_BUF text = {0};
    session_write(ctx->service, row, &text);
    buf_add_char(&text, '}');
    return reply_json_text(ctx, status, buf_str(&text));
}

/* Creating */

/* Idle sandboxes are stopped after minutes, busy ones end any time. */
#define CAPACITY_RETRY_S "30"

struct find {
    struct ctx *ctx;
    struct session_row *row;
};

/* The three forms of R41: an id, {id, version}, {id, version?, overrides}. */
struct wanted_agent {
    struct str id;
    int64_t version; /* 0: the newest */
    const json_t *overrides;
};

static struct wanted_agent wanted_agent(const json_t *body)
{
    const json_t *agent = json_object_get(body, "agent");
    if (json_is_string(agent))
        return (struct wanted_agent){.id = json_get_str(body, "agent")};
    const json_t *overrides = json_object_get(agent, "overrides");
    return (struct wanted_agent){.id = json_get_str(agent, "id"),
                                 .version = json_get_int(agent, "version", 0),
                                 .overrides = json_is_null(overrides) ? NULL : overrides};
}

/* A reference in the body that leads nowhere names its field. */
static err at_field(struct ctx *ctx, err e, const char *path)
{
    if (e == E_NOT_FOUND)
        problem_add(ctx, path, "%s", err_text());
    return e;
}

static err resolve_agent(struct ctx *ctx, struct db_conn *c, struct session_row *row)
{
    struct wanted_agent wanted = wanted_agent(ctx->json);
    struct agent_found found;
    TRY(at_field(ctx, agent_find(c, ctx->tenant, wanted.id, wanted.version, &found), "/agent"));
    AUTO_JSON definition = found.definition;
    if (found.archived)
        return fail_as(E_CONFLICT, "agent_archived",
                       "the agent is archived: no new session can use it");
    if (wanted.overrides)
        agent_apply(definition, wanted.overrides);
    TRY(agent_check_whole(definition));
    TRY(agent_check_runnable(definition));
    AUTO_JSON snapshot = json_object();
    json_set_str(snapshot, "id", str_of(found.id));
    json_object_set_new(snapshot, "version", json_integer(found.version));
    json_object_update(snapshot, definition);
    memcpy(row->agent_id, found.id, sizeof row->agent_id);
    row->agent_version = found.version;
    row->agent_json = json_write_arena(snapshot, ctx->arena).p;
    return 0;
}

static err resolve_environment(struct ctx *ctx, struct db_conn *c, struct session_row *row)
{
    struct environment_found found;
    TRY(at_field(ctx,
                 environment_find(c, ctx->tenant, json_get_str(ctx->json, "environmentId"), &found),
                 "/environmentId"));
    AUTO_JSON definition = found.definition;
    if (found.archived)
        return fail_as(E_CONFLICT, "environment_archived",
                       "the environment is archived: no new session can use it");
    memcpy(row->environment_id, found.id, sizeof row->environment_id);
    row->environment_json = json_write_arena(definition, ctx->arena).p;
    return 0;
}

/* The file as it is to be staged. Without a path it goes by its name. */
static err resolve_resource(struct ctx *ctx, struct db_conn *c, const json_t *wanted, size_t at,
                            json_t *list)
{
    struct file_row file;
    err e = file_find(c, ctx->arena, ctx->tenant, json_get_str(wanted, "fileId"), &file);
    TRY(at_field(ctx, e, arena_printf(ctx->arena, "/resources/%zu/fileId", at)));
    const char *path = json_get_c(wanted, "path");
    path = path ? path : file.name;
    char key[OBJECT_KEY_MAX];
    file_key(ctx->tenant, file.id, key);
    json_t *one = json_pack("{s:s, s:s}", "type", "file", "fileId", file.id);
    json_object_set_new(
        one, "path",
        json_string(path[0] == '/' ? path
                                   : arena_printf(ctx->arena, "%s/%s", SANDBOX_WORKDIR, path)));
    json_object_set_new(one, "key", json_string(key));
    json_array_append_new(list, one);
    return 0;
}

static err resolve_resources(struct ctx *ctx, struct db_conn *c, struct session_row *row)
{
    const json_t *wanted = json_object_get(ctx->json, "resources");
    if (json_array_size(wanted) == 0)
        return 0;
    AUTO_JSON list = json_array();
    size_t i;
    json_t *one;
    json_array_foreach(wanted, i, one) TRY(resolve_resource(ctx, c, one, i, list));
    row->resources_json = json_write_arena(list, ctx->arena).p;
    return 0;
}

err session_fill(struct ctx *ctx, struct db_conn *c, struct session_row *out)
{
    int64_t now = clock_wall_ms(ctx->clock);
    const json_t *metadata = json_object_get(ctx->json, "metadata");
    const json_t *vaults = json_object_get(ctx->json, "vaultIds");
    struct session_row row = {
        .title = json_get_c(ctx->json, "title"),
        .metadata_json = json_is_object(metadata) ? json_write_arena(metadata, ctx->arena).p : "{}",
        .budget_json = budget_text(ctx),
        .vault_ids_json = json_is_array(vaults) ? json_write_arena(vaults, ctx->arena).p : "[]",
        .status = "idle",
        .sandbox_state = "none",
        .created_at_ms = now,
        .updated_at_ms = now,
        .last_activity_ms = now,
    };
    id_new("sess", now, row.id);
    memcpy(row.tenant, ctx->tenant, sizeof row.tenant);
    TRY(resolve_agent(ctx, c, &row));
    TRY(budget_check_price(ctx, row.agent_json));
    TRY(resolve_environment(ctx, c, &row));
    TRY(resolve_resources(ctx, c, &row));
    TRY(vault_check_ids(ctx, c, vaults));
    *out = row;
    return 0;
}

static err create_in(struct ctx *ctx, struct db_conn *c, void *arg)
{
    (void)arg;
    struct session_row row;
    TRY(session_fill(ctx, c, &row));
    TRY(session_insert(c, &row));
    TRY(session_note_request(c, row.tenant, row.id, ctx->request_id));
    return reply_session(ctx, 201, &row);
}

static err read_environment(struct db_conn *c, void *arg)
{
    struct find *f = arg;
    struct environment_found found;
    TRY(environment_find(c, f->ctx->tenant, json_get_str(f->ctx->json, "environmentId"), &found));
    f->row->environment_json = json_write_arena(found.definition, f->ctx->arena).p;
    json_decref(found.definition);
    return 0;
}

/* R51. An environment that cannot be found is reported by the creation itself; a sandbox that
   cannot be made for other reasons, by session.error when it is needed. */
static err check_capacity(struct ctx *ctx)
{
    struct session_row row = {0};
    if (db_read(ctx->service->db, read_environment, &(struct find){.ctx = ctx, .row = &row}))
        return 0;
    if (session_fits(ctx->service->sessions, row.environment_json) != E_QUOTA)
        return 0;
    reply_header(ctx, "Retry-After", CAPACITY_RETRY_S);
    return E_QUOTA;
}

static err sessions_create(struct ctx *ctx)
{
    TRY(ctx_fields(ctx, ctx->service->catalog, create_fields));
    TRY(check_capacity(ctx));
    return ctx_write(ctx, create_in, NULL);
}

/* Reading */

static err find_in(struct db_conn *c, void *arg)
{
    struct find *f = arg;
    return session_find(c, f->ctx->arena, f->ctx->tenant, f->ctx->params[0], f->row);
}

err ctx_session(struct ctx *ctx, struct session_row *out)
{
    struct find f = {.ctx = ctx, .row = out};
    return db_read(ctx->service->db, find_in, &f);
}

static err sessions_get(struct ctx *ctx)
{
    struct session_row row;
    TRY(ctx_session(ctx, &row));
    return reply_session(ctx, 200, &row);
}

/* NUL-terminated; NULL when the filter is absent. */
static const char *filter(struct ctx *ctx, const char *name)
{
    struct str value = ctx_query(ctx, name);
    return value.p ? arena_str(ctx->arena, value).p : NULL;
}

static err list_in(struct db_conn *c, void *arg)
{
    struct ctx *ctx = arg;
    struct session_filter wanted = {
        .status = filter(ctx, "status"),
        .agent_id = filter(ctx, "agentId"),
        .environment_id = filter(ctx, "environmentId"),
        .request_id = filter(ctx, "requestId"),
        .has_after = ctx->page.has_after,
        .ascending = ctx->page.ascending,
        .after_at_ms = ctx->page.after_at,
        .after_id = ctx->page.after_id,
        .limit = ctx->page.limit + 1,
    };
    struct session_row *rows = NULL;
    size_t n = 0;
    TRY(session_list(c, ctx->arena, ctx->tenant, &wanted, &rows, &n));
    size_t shown = n < ctx->page.limit ? n : ctx->page.limit;
    AUTO_BUF list = {0};
    for (size_t i = 0; i < shown; i++) {
        buf_add_c(&list, i ? "," : "[");
        session_write(ctx->service, &rows[i], &list);
        buf_add_char(&list, '}');
    }
    buf_add_c(&list, shown ? "]" : "[]");
    const struct session_row *next_to = n > shown ? &rows[shown - 1] : NULL;
    return reply_page_text(ctx, buf_str(&list), next_to != NULL,
                           next_to ? next_to->created_at_ms : 0, next_to ? next_to->id : "");
}

static err check_status(struct ctx *ctx)
{
    static const char *const known[] = {"idle", "running", "rescheduling", "terminated"};
    struct str status = ctx_query(ctx, "status");
    if (status.p == NULL)
        return 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (str_is(status, known[i]))
            return 0;
    return fail(E_INVALID,
                "query parameter status must be idle, running, rescheduling or terminated");
}

static err sessions_list(struct ctx *ctx)
{
    TRY(check_status(ctx));
    return db_read(ctx->service->db, list_in, ctx);
}

static err sessions_delete(struct ctx *ctx)
{
    TRY(query_bool_check(ctx, "purge"));
    struct session_row row;
    TRY(ctx_session(ctx, &row));
    TRY(session_delete(ctx->service->sessions, ctx->tenant, row.id, query_bool(ctx, "purge")));
    stream_tell_deleted(ctx->service, row.id);
    return reply_empty(ctx, 204);
}

ROUTES(sessions,
       {POST, "/v1/sessions", sessions_create, .scope = SCOPE_WRITE, .idempotent = true,
        .body_max = 512 * KB},
       {GET, "/v1/sessions", sessions_list, .scope = SCOPE_READ, .list = true,
        .query = "status agentId environmentId requestId"},
       {GET, "/v1/sessions/:id", sessions_get, .scope = SCOPE_READ, .where = HTTP_POINT_READ},
       {DELETE, "/v1/sessions/:id", sessions_delete, .scope = SCOPE_WRITE, .query = "purge"}, )
