/* Environments (§6.2, §8.2): what a session's sandbox is made of. Not versioned: a session keeps
   the definition it was created with. */
#include "api/environments.h"

#include "api/definition.h"
#include "api/environment_mounts.h"
#include "api/fields.h"
#include "api/routes.h"
#include "api/rows.h"
#include "api/service.h"
#include "images/name.h"
#include "sandbox/packages.h"

#define IDLE_TIMEOUT_S 300   /* R30 */
#define MAX_DURATION_S 86400 /* R30 */
#define DURATION_LIMIT_S (30 * 86400)

/* What a definition may say */

static void check_type(struct fields *f, const json_t *value)
{
    if (strcmp(json_string_value(value), "self_hosted") == 0)
        fields_problem(f, "not_supported",
                       "self_hosted is not supported by this version; use cloud");
}

/* R32: whether the store has it shows when a sandbox is made; it may be imported until then. */
static void check_image(struct fields *f, const json_t *value)
{
    const struct service *service = f->context;
    err e = image_name_check(json_string_value(value));
    if (e == E_FORBIDDEN &&
        image_path_allowed(json_string_value(value), service->config.allow_images))
        return;
    if (e)
        fields_problem(f, e == E_FORBIDDEN ? "image_not_allowed" : "invalid_image", "%s",
                       err_text());
}

/* R51: a limit that nothing enforces is refused, not ignored. */
static void require_enforced(struct fields *f, const json_t *resources, const char *name,
                             bool enforced, const struct service *service)
{
    if (json_object_get(resources, name) == NULL || enforced || service->config.allow_unenforced)
        return;
    const char *reason = service->config.caps.reason;
    fields_problem_at(f, name, "limits_not_enforced",
                      "the sandbox provider %s cannot enforce this limit here%s%s; leave it out, "
                      "or start the service with --allow-unenforced-limits",
                      service->config.provider, reason[0] ? ": " : "", reason);
}

static void check_resources(struct fields *f, const json_t *value)
{
    const struct service *service = f->context;
    const struct sandbox_caps *caps = &service->config.caps;
    require_enforced(f, value, "cpus", caps->limit_cpu, service);
    require_enforced(f, value, "memoryMiB", caps->limit_memory, service);
    require_enforced(f, value, "pids", caps->limit_pids, service);
    require_enforced(f, value, "diskMiB", caps->limit_disk, service);
}

/* §6.2: names and versions only; what they are called inside is each package manager's affair. */
static void check_packages_of(struct fields *f, enum package_kind kind, const json_t *value)
{
    err e = package_check(kind, (struct str){json_string_value(value), json_string_length(value)});
    if (e)
        fields_problem(f, "invalid_package", "%s", err_text());
}

static void check_apt(struct fields *f, const json_t *value)
{
    check_packages_of(f, PACKAGE_APT, value);
}

static void check_npm(struct fields *f, const json_t *value)
{
    check_packages_of(f, PACKAGE_NPM, value);
}

static void check_pip(struct fields *f, const json_t *value)
{
    check_packages_of(f, PACKAGE_PIP, value);
}

/* Right names only, so that what is wrong with one is told once. */
static void check_packages(struct fields *f, const json_t *value)
{
    AUTO_BUF text = {0};
    if (packages_canonical(value, &text) == E_TOO_LARGE)
        fields_problem(f, "invalid_package", "%s", err_text());
}

/* The sandbox has no network at all; a policy that opens one would be a promise we cannot keep. */
static void check_networking_type(struct fields *f, const json_t *value)
{
    if (strcmp(json_string_value(value), "none") != 0)
        fields_problem(f, "not_supported",
                       "%s is not supported by this version; only {\"type\": \"none\"} is in force",
                       json_string_value(value));
}

static const char *const types[] = {"cloud", "self_hosted", NULL};
static const char *const networking_types[] = {"none", "unrestricted", "limited", NULL};

static const struct field resources_fields[] = {
    {.name = "cpus", .kinds = FIELD_NUMBER, .min = 0.05, .max = 64},
    {.name = "memoryMiB", .kinds = FIELD_INT, .min = 32, .max = 262144},
    {.name = "pids", .kinds = FIELD_INT, .min = 16, .max = 4194304},
    {.name = "diskMiB", .kinds = FIELD_INT, .min = 16, .max = 1048576},
    {0},
};

static const struct field apt_field = {.kinds = FIELD_STRING, .check = check_apt};
static const struct field npm_field = {.kinds = FIELD_STRING, .check = check_npm};
static const struct field pip_field = {.kinds = FIELD_STRING, .check = check_pip};

#define PACKAGES(kind)                                                                             \
    {                                                                                              \
        .name = #kind, .kinds = FIELD_ARRAY, .nullable = true, .max = PACKAGES_EACH_MAX,           \
        .item = &kind##_field                                                                      \
    }
static const struct field packages_fields[] = {PACKAGES(apt), PACKAGES(npm), PACKAGES(pip), {0}};

static const struct field networking_fields[] = {
    {.name = "type",
     .kinds = FIELD_STRING,
     .required = true,
     .one_of = networking_types,
     .check = check_networking_type},
    {.name = "allowedHosts", .not_supported = "leave it out"},
    {0},
};

static const struct field shared_fields[] = {
    {.name = "type", .kinds = FIELD_STRING, .one_of = types, .check = check_type},
    {.name = "image",
     .kinds = FIELD_STRING,
     .line = true,
     .min = 1,
     .max = SANDBOX_IMAGE_MAX - 1,
     .check = check_image},
    {.name = "resources",
     .kinds = FIELD_OBJECT,
     .nullable = true,
     .members = resources_fields,
     .check = check_resources},
    {.name = "networking", .kinds = FIELD_OBJECT, .nullable = true, .members = networking_fields},
    {.name = "idleTimeout",
     .kinds = FIELD_INT,
     .nullable = true,
     .min = 1,
     .max = DURATION_LIMIT_S},
    {.name = "maxDuration",
     .kinds = FIELD_INT,
     .nullable = true,
     .min = 1,
     .max = DURATION_LIMIT_S},
    {.name = "packages",
     .kinds = FIELD_OBJECT,
     .nullable = true,
     .members = packages_fields,
     .check = check_packages},
    {.name = "mounts",
     .kinds = FIELD_ARRAY,
     .nullable = true,
     .max = MOUNTS_MAX,
     .item = &environment_mount_field,
     .check = environment_check_mounts},
    {.name = "metadata", .kinds = FIELD_OBJECT, .nullable = true, .check = fields_metadata},
    {0},
};

#define NAME .name = "name", .kinds = FIELD_STRING, .line = true, .min = 1, .max = 128

static const struct field create_fields[] = {
    {NAME, .required = true}, {.include = shared_fields}, {0}};
static const struct field update_fields[] = {{NAME}, {.include = shared_fields}, {0}};

/* Definitions */

static json_t *default_of(const char *member)
{
    if (strcmp(member, "type") == 0)
        return json_string("cloud");
    if (strcmp(member, "image") == 0)
        return json_string("host");
    if (strcmp(member, "networking") == 0)
        return json_pack("{s:s}", "type", "none");
    if (strcmp(member, "idleTimeout") == 0)
        return json_integer(IDLE_TIMEOUT_S);
    if (strcmp(member, "maxDuration") == 0)
        return json_integer(MAX_DURATION_S);
    if (strcmp(member, "metadata") == 0)
        return json_object();
    return json_null();
}

/* Omitted = kept, null = back to the default, a value = replaced whole. */
static void apply(json_t *definition, const json_t *changes)
{
    static const char *const members[] = {"name",        "type",    "image",      "resources",
                                          "packages",    "mounts",  "networking", "idleTimeout",
                                          "maxDuration", "metadata"};
    fields_apply(definition, changes, members, sizeof members / sizeof *members, default_of);
    environment_fill_mounts(definition);
}

/* Rows */

#define ENVIRONMENT_COLUMNS                                                                        \
    "SELECT id, definition, created_at, updated_at, archived_at FROM environments"
#define LIST_FILTER                                                                                \
    " WHERE tenant_id = $1 AND ($2 = '' OR name = $2) AND ($3 = 1 OR archived_at IS NULL)"

static const char sql_insert[] =
    "INSERT INTO environments (tenant_id, id, name, definition, created_at, updated_at)"
    " VALUES ($1, $2, $3, $4, $5, $5)";
static const char sql_update[] =
    "UPDATE environments SET name = $3, definition = $4, updated_at = $5"
    " WHERE tenant_id = $1 AND id = $2";
static const char sql_archive[] = "UPDATE environments SET archived_at = $3, updated_at = $3"
                                  " WHERE tenant_id = $1 AND id = $2 AND archived_at IS NULL";
static const char sql_delete[] = "DELETE FROM environments WHERE tenant_id = $1 AND id = $2";
static const char sql_sessions[] = "SELECT COUNT(*) FROM sessions WHERE tenant_id = $1"
                                   " AND environment_id = $2 AND deleted_at IS NULL";
static const char sql_find[] = ENVIRONMENT_COLUMNS " WHERE tenant_id = $1 AND id = $2";
static const char sql_newest_first[] =
    ENVIRONMENT_COLUMNS LIST_FILTER " AND (created_at, id) < ($4, $5)"
                                    " ORDER BY created_at DESC, id DESC LIMIT $6";
static const char sql_oldest_first[] =
    ENVIRONMENT_COLUMNS LIST_FILTER " AND (created_at, id) > ($4, $5)"
                                    " ORDER BY created_at, id LIMIT $6";

static err read_environment(struct db_rows *r, struct definition *out)
{
    row_id(r, 0, out->id);
    out->created_at = db_int(r, 2);
    out->updated_at = db_int(r, 3);
    out->archived_at = row_time(r, 4);
    return row_json(db_str(r, 1), "an environment's definition", &out->body);
}

static err no_such_environment(void)
{
    return fail_as(E_NOT_FOUND, "environment_not_found", "there is no environment with this id");
}

static err find(struct db_conn *c, const char *tenant, struct str id, struct definition *out)
{
    struct db_rows *r;
    TRY(db_query(c, sql_find, DB_ARGS(DB_C(tenant), DB_S(id)), &r));
    err e = db_next(r) ? read_environment(r, out) : E_NOT_FOUND;
    TRY(db_rows_done(r));
    return e == E_NOT_FOUND ? no_such_environment() : e;
}

err environment_find(struct db_conn *c, const char *tenant, struct str id,
                     struct environment_found *out)
{
    struct definition n = {0};
    TRY(find(c, tenant, id, &n));
    *out = (struct environment_found){.definition = n.body, .archived = n.archived_at >= 0};
    memcpy(out->id, n.id, sizeof n.id);
    return 0;
}

/* Takes the definition. */
static json_t *environment_json(struct definition *n)
{
    json_t *j = json_object();
    json_set_str(j, "id", str_of(n->id));
    json_object_update(j, n->body);
    if (!json_object_get(j, "mounts")) /* stored before there were any */
        json_object_set_new(j, "mounts", json_null());
    json_decref(n->body);
    json_set_time(j, "createdAt", n->created_at);
    json_set_time(j, "updatedAt", n->updated_at);
    json_set_time(j, "archivedAt", n->archived_at);
    return j;
}

/* Of the whole definition: an update may bring only one of the two. */
static err check_packages_fit(struct ctx *ctx, struct db_conn *c, json_t *definition)
{
    (void)c;
    AUTO_BUF packages = {0};
    TRY(packages_canonical(json_object_get(definition, "packages"), &packages));
    if (packages.n == 0 || strcmp(json_get_c(definition, "image"), "host") != 0)
        return 0;
    static const char why[] =
        "packages are installed into an image of the store; `host` is this machine's own /usr";
    problem_add(ctx, "/packages", "%s", why);
    return fail_as(E_INVALID, "packages_need_image", "%s", why);
}

/* Writing */

static const struct definition_kind environment_kind;

static err insert(struct ctx *ctx, struct db_conn *c, const struct definition *n)
{
    err e = db_exec(c, sql_insert,
                    DB_ARGS(DB_C(ctx->tenant), DB_C(n->id), DB_S(json_get_str(ctx->json, "name")),
                            DB_S(json_write_arena(n->body, ctx->arena)), DB_I(n->created_at)),
                    NULL);
    return definition_name_taken(&environment_kind, e, n->body);
}

static err update(struct ctx *ctx, struct db_conn *c, struct definition *n)
{
    apply(n->body, ctx->json);
    TRY(check_packages_fit(ctx, c, n->body));
    n->updated_at = clock_wall_ms(ctx->clock);
    err e = db_exec(c, sql_update,
                    DB_ARGS(DB_C(ctx->tenant), DB_C(n->id), DB_S(json_get_str(n->body, "name")),
                            DB_S(json_write_arena(n->body, ctx->arena)), DB_I(n->updated_at)),
                    NULL);
    return definition_name_taken(&environment_kind, e, n->body);
}

static const struct definition_kind environment_kind = {.article = "an",
                                                        .noun = "environment",
                                                        .id_prefix = "env",
                                                        .archived_code = "environment_archived",
                                                        .sql_archive = sql_archive,
                                                        .find = find,
                                                        .apply = apply,
                                                        .check = check_packages_fit,
                                                        .insert = insert,
                                                        .update = update,
                                                        .show = environment_json};

/* Handlers */

static err environments_create(struct ctx *ctx)
{
    TRY(ctx_fields(ctx, ctx->service, create_fields));
    return definition_create(ctx, &environment_kind);
}

static err environments_update(struct ctx *ctx)
{
    TRY(ctx_fields(ctx, ctx->service, update_fields));
    return definition_update(ctx, &environment_kind);
}

static err environments_archive(struct ctx *ctx)
{
    return definition_archive(ctx, &environment_kind);
}

static err count_sessions(struct db_conn *c, const char *tenant, struct str id, int64_t *out)
{
    struct db_rows *r;
    TRY(db_query(c, sql_sessions, DB_ARGS(DB_C(tenant), DB_S(id)), &r));
    int64_t n = db_next(r) ? db_int(r, 0) : 0;
    TRY(db_rows_done(r));
    *out = n;
    return 0;
}

/* An archived one may go although sessions use it: they keep what they were made with. */
static err refuse_used(struct ctx *ctx, struct db_conn *c)
{
    struct definition n = {0};
    TRY(find(c, ctx->tenant, ctx->params[0], &n));
    json_decref(n.body);
    int64_t sessions = 0;
    if (n.archived_at < 0)
        TRY(count_sessions(c, ctx->tenant, ctx->params[0], &sessions));
    if (sessions == 0)
        return 0;
    return fail_as(E_CONFLICT, "environment_in_use",
                   "%lld session%s use%s the environment: delete them, or archive the environment "
                   "first",
                   (long long)sessions, sessions == 1 ? "" : "s", sessions == 1 ? "s" : "");
}

static err delete_in(struct ctx *ctx, struct db_conn *c, void *arg)
{
    (void)arg;
    int64_t changed;
    TRY(refuse_used(ctx, c));
    TRY(db_exec(c, sql_delete, DB_ARGS(DB_C(ctx->tenant), DB_S(ctx->params[0])), &changed));
    return changed ? reply_empty(ctx, 204) : no_such_environment();
}

static err environments_delete(struct ctx *ctx)
{
    return ctx_write(ctx, delete_in, NULL);
}

static err environments_get(struct ctx *ctx)
{
    return definition_get(ctx, &environment_kind);
}

static err read_json(struct db_rows *r, json_t **out)
{
    struct definition n = {0};
    TRY(read_environment(r, &n));
    *out = environment_json(&n);
    return 0;
}

static err list_in(struct db_conn *c, void *arg)
{
    struct ctx *ctx = arg;
    struct str name = ctx_query(ctx, "name");
    struct row_start start = row_start_of(ctx);
    struct db_rows *r;
    TRY(db_query(c, ctx->page.ascending ? sql_oldest_first : sql_newest_first,
                 DB_ARGS(DB_C(ctx->tenant), DB_S(name.p ? name : STR("")),
                         DB_I(query_bool(ctx, "includeArchived")), DB_I(start.at), DB_C(start.id),
                         DB_I(ctx->page.limit + 1)),
                 &r));
    json_t *list = NULL;
    TRY(rows_collect(r, read_json, &list));
    return reply_page(ctx, list, row_key_of_created);
}

static err environments_list(struct ctx *ctx)
{
    TRY(query_bool_check(ctx, "includeArchived"));
    return db_read(ctx->service->db, list_in, ctx);
}

#define BODY_MAX (64 * KB)

ROUTES(environments,
       {POST, "/v1/environments", environments_create, .scope = SCOPE_WRITE, .idempotent = true,
        .body_max = BODY_MAX},
       {GET, "/v1/environments", environments_list, .scope = SCOPE_READ, .list = true,
        .query = "name includeArchived"},
       {GET, "/v1/environments/:id", environments_get, .scope = SCOPE_READ,
        .where = HTTP_POINT_READ},
       {PATCH, "/v1/environments/:id", environments_update, .scope = SCOPE_WRITE,
        .body_max = BODY_MAX},
       {DELETE, "/v1/environments/:id", environments_delete, .scope = SCOPE_WRITE},
       {POST, "/v1/environments/:id/archive", environments_archive, .scope = SCOPE_WRITE,
        .idempotent = true}, )
