/* The columns of a session, listed once; tests/unit/session_archive.c compares the list with the
   table. */
#include "session/archive_row.h"

#include "base/id.h"

#define COLUMN_COUNT (sizeof columns / sizeof *columns)

/* In the order of the statements below, whose first two are tenant_id and id. */
static const struct {
    const char *name;
    enum db_kind kind;
} columns[] = {
    {"agent_id", DB_TEXT},       {"agent_version", DB_INT},     {"agent", DB_TEXT},
    {"environment_id", DB_TEXT}, {"environment", DB_TEXT},      {"title", DB_TEXT},
    {"metadata", DB_TEXT},       {"budget", DB_TEXT},           {"vault_ids", DB_TEXT},
    {"status", DB_TEXT},         {"stop_reason", DB_TEXT},      {"input_tokens", DB_INT},
    {"output_tokens", DB_INT},   {"cache_read_tokens", DB_INT}, {"cache_creation_tokens", DB_INT},
    {"cost_usd", DB_REAL},       {"usage_estimated", DB_INT},   {"sandbox_state", DB_TEXT},
    {"created_at", DB_INT},      {"updated_at", DB_INT},        {"last_activity_at", DB_INT},
    {"deleted_at", DB_INT},      {"resources", DB_TEXT},
};

/* They go into answers as they stand. */
static const char *const json_columns[] = {"agent",     "environment", "metadata", "budget",
                                           "vault_ids", "stop_reason", "resources"};

static const char sql_read[] =
    "SELECT t.name, t.created_at, s.agent_id, s.agent_version, s.agent, s.environment_id,"
    " s.environment, s.title, s.metadata, s.budget, s.vault_ids, s.status, s.stop_reason,"
    " s.input_tokens, s.output_tokens, s.cache_read_tokens, s.cache_creation_tokens, s.cost_usd,"
    " s.usage_estimated, s.sandbox_state, s.created_at, s.updated_at, s.last_activity_at,"
    " s.deleted_at, s.resources FROM sessions s JOIN tenants t ON t.id = s.tenant_id"
    " WHERE s.tenant_id = $1 AND s.id = $2";

/* A sandbox that the row calls running is looked for by the next reconciliation. */
static const char sql_write[] =
    "INSERT INTO sessions (tenant_id, id, agent_id, agent_version, agent, environment_id,"
    " environment, title, metadata, budget, vault_ids, status, stop_reason, input_tokens,"
    " output_tokens, cache_read_tokens, cache_creation_tokens, cost_usd, usage_estimated,"
    " sandbox_state, created_at, updated_at, last_activity_at, deleted_at, resources)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19,"
    " $20, $21, $22, $23, $24, $25)"
    " ON CONFLICT (tenant_id, id) DO UPDATE SET agent_id = excluded.agent_id,"
    " agent_version = excluded.agent_version, agent = excluded.agent,"
    " environment_id = excluded.environment_id, environment = excluded.environment,"
    " title = excluded.title, metadata = excluded.metadata, budget = excluded.budget,"
    " vault_ids = excluded.vault_ids, status = excluded.status,"
    " stop_reason = excluded.stop_reason, input_tokens = excluded.input_tokens,"
    " output_tokens = excluded.output_tokens, cache_read_tokens = excluded.cache_read_tokens,"
    " cache_creation_tokens = excluded.cache_creation_tokens, cost_usd = excluded.cost_usd,"
    " usage_estimated = excluded.usage_estimated, sandbox_state = excluded.sandbox_state,"
    " created_at = excluded.created_at, updated_at = excluded.updated_at,"
    " last_activity_at = excluded.last_activity_at, deleted_at = excluded.deleted_at,"
    " resources = excluded.resources"
    " WHERE sessions.tenant_id = $1 AND excluded.updated_at > sessions.updated_at";
static const char sql_tenant[] = "INSERT INTO tenants (id, name, created_at) VALUES ($1, $2, $3)"
                                 " ON CONFLICT (id) DO NOTHING";

static json_t *column_json(struct db_rows *r, int at, enum db_kind kind)
{
    if (db_is_null(r, at))
        return json_null();
    if (kind == DB_INT)
        return json_integer(db_int(r, at));
    return kind == DB_REAL ? json_real(db_real(r, at)) : json_str(db_str(r, at));
}

static json_t *row_json(struct db_rows *r, const char *tenant, const char *session)
{
    json_t *j = json_pack("{s:{s:s}, s:{s:s}}", "tenant", "id", tenant, "session", "id", session);
    json_t *t = json_object_get(j, "tenant"), *s = json_object_get(j, "session");
    json_set_str(t, "name", db_str(r, 0));
    json_object_set_new(t, "createdAt", json_integer(db_int(r, 1)));
    for (size_t i = 0; i < COLUMN_COUNT; i++)
        json_object_set_new(s, columns[i].name, column_json(r, (int)i + 2, columns[i].kind));
    return j;
}

err archive_row_read(struct db_conn *c, const char *tenant, const char *session, json_t **out)
{
    struct db_rows *r;
    json_t *found = NULL;
    TRY(db_query(c, sql_read, DB_ARGS(DB_C(tenant), DB_C(session)), &r));
    if (db_next(r))
        found = row_json(r, tenant, session);
    err e = db_rows_done(r);
    if (e) {
        json_decref(found);
        return e;
    }
    if (found == NULL)
        return fail_as(E_NOT_FOUND, "session_not_found", "there is no session %s", session);
    *out = found;
    return 0;
}

/* Texts live as long as `row`. */
static struct db_value value_of(const json_t *object, const char *name, enum db_kind kind)
{
    const json_t *v = json_object_get(object, name);
    if (v == NULL || json_is_null(v))
        return DB_N;
    if (kind == DB_INT)
        return DB_I(json_integer_value(v));
    return kind == DB_REAL ? DB_R(json_number_value(v)) : DB_S(json_get_str(object, name));
}

static err check_json(const json_t *row)
{
    for (size_t i = 0; i < sizeof json_columns / sizeof *json_columns; i++) {
        struct str text = json_get_str(row, json_columns[i]);
        AUTO_JSON read = NULL;
        if (text.p && json_read(text, &read) != 0)
            return fail(E_INVALID, "the copy of a session's row is damaged: its %s is no JSON",
                        json_columns[i]);
    }
    return 0;
}

err archive_row_write(struct db_conn *c, struct arena *a, const json_t *row)
{
    const json_t *t = json_object_get(row, "tenant"), *s = json_object_get(row, "session");
    struct str tenant = json_get_str(t, "id"), id = json_get_str(s, "id");
    if (!id_valid(tenant, "tenant") || !id_valid(id, "sess"))
        return fail(E_INVALID, "the copy of a session's row names no session");
    TRY(check_json(s));
    struct db_value *args = arena_alloc(a, (COLUMN_COUNT + 2) * sizeof *args);
    args[0] = DB_S(tenant);
    args[1] = DB_S(id);
    for (size_t i = 0; i < COLUMN_COUNT; i++)
        args[i + 2] = value_of(s, columns[i].name, columns[i].kind);
    TRY(db_exec(
        c, sql_tenant,
        DB_ARGS(DB_S(tenant), DB_S(json_get_str(t, "name")), DB_I(json_get_int(t, "createdAt", 0))),
        NULL));
    return db_exec(c, sql_write, args, COLUMN_COUNT + 2, NULL);
}
