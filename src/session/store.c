/* SQL of sessions and their inbox. */
#include "session/store.h"

#include <stdio.h>

#include "session/quota.h"
#include "session/volume_rows.h"

#define COLUMNS                                                                                    \
    "id, tenant_id, agent_id, agent_version, environment_id, agent, environment, title, metadata," \
    " budget, vault_ids, status, stop_reason, input_tokens, output_tokens, cache_read_tokens,"     \
    " cache_creation_tokens, cost_usd, usage_estimated, sandbox_state, created_at, updated_at,"    \
    " last_activity_at, resources"

static void copy_id(char out[ID_MAX], struct str s)
{
    snprintf(out, ID_MAX, "%.*s", STR_ARG(s));
}

static void read_row(struct db_rows *r, struct arena *a, struct session_row *out)
{
    *out = (struct session_row){
        .agent_version = db_int(r, 3),
        .agent_json = db_text(r, 5, a),
        .environment_json = db_text(r, 6, a),
        .title = db_text(r, 7, a),
        .metadata_json = db_text(r, 8, a),
        .budget_json = db_text(r, 9, a),
        .vault_ids_json = db_text(r, 10, a),
        .resources_json = db_text(r, 23, a),
        .status = db_text(r, 11, a),
        .stop_reason_json = db_text(r, 12, a),
        .usage = {.input_tokens = db_int(r, 13),
                  .output_tokens = db_int(r, 14),
                  .cache_read_tokens = db_int(r, 15),
                  .cache_creation_tokens = db_int(r, 16),
                  .cost_usd = db_real(r, 17),
                  .estimated = db_int(r, 18) != 0},
        .sandbox_state = db_text(r, 19, a),
        .created_at_ms = db_int(r, 20),
        .updated_at_ms = db_int(r, 21),
        .last_activity_ms = db_int(r, 22),
    };
    copy_id(out->id, db_str(r, 0));
    copy_id(out->tenant, db_str(r, 1));
    copy_id(out->agent_id, db_str(r, 2));
    copy_id(out->environment_id, db_str(r, 4));
}

err session_insert(struct db_conn *c, const struct session_row *row)
{
    static const char sql[] =
        "INSERT INTO sessions (tenant_id, id, agent_id, agent_version, agent, environment_id,"
        " environment, title, metadata, budget, vault_ids, status, created_at, updated_at,"
        " last_activity_at, resources)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)";
    TRY(quota_take(c, row->tenant, QUOTA_CONCURRENT_SESSIONS, 1));
    return db_exec(
        c, sql,
        DB_ARGS(DB_C(row->tenant), DB_C(row->id), DB_C(row->agent_id), DB_I(row->agent_version),
                DB_C(row->agent_json), DB_C(row->environment_id), DB_C(row->environment_json),
                DB_C(row->title), DB_C(row->metadata_json), DB_C(row->budget_json),
                DB_C(row->vault_ids_json), DB_C(row->status), DB_I(row->created_at_ms),
                DB_I(row->updated_at_ms), DB_I(row->last_activity_ms), DB_C(row->resources_json)),
        NULL);
}

err session_find(struct db_conn *c, struct arena *a, const char *tenant, struct str id,
                 struct session_row *out)
{
    static const char sql[] = "SELECT " COLUMNS " FROM sessions WHERE tenant_id = $1 AND id = $2"
                              " AND deleted_at IS NULL";
    struct db_rows *r;
    struct session_row row;
    TRY(db_query(c, sql, DB_ARGS(DB_C(tenant), DB_S(id)), &r));
    bool found = db_next(r);
    if (found)
        read_row(r, a, &row);
    TRY(db_rows_done(r));
    if (!found)
        return fail_as(E_NOT_FOUND, "session_not_found", "there is no session %.*s", STR_ARG(id));
    *out = row;
    return 0;
}

err session_note_request(struct db_conn *c, const char *tenant, const char *session,
                         const char *request_id)
{
    static const char sql[] =
        "INSERT INTO session_requests (tenant_id, request_id, session_id) VALUES ($1, $2, $3)"
        " ON CONFLICT (tenant_id, request_id, session_id) DO NOTHING";
    return db_exec(c, sql, DB_ARGS(DB_C(tenant), DB_C(request_id), DB_C(session)), NULL);
}

/* What is asked for and nothing else, so that each filter has its index (migration 25). */
struct list_query {
    struct buf sql;
    struct db_value args[8];
    size_t n;
};

static void add_arg(struct list_query *q, const char *before, struct db_value value)
{
    q->args[q->n++] = value;
    buf_printf(&q->sql, "%s$%zu", before, q->n);
}

/* CROSS JOIN: SQLite keeps its order, the few sessions of the request first. */
static void list_query(struct list_query *q, const char *tenant, const struct session_filter *f)
{
    q->args[q->n++] = DB_C(tenant);
    buf_add_c(&q->sql, "SELECT " COLUMNS " FROM ");
    if (f->request_id)
        add_arg(q,
                "(SELECT session_id FROM session_requests WHERE tenant_id = $1 AND request_id = ",
                DB_C(f->request_id));
    buf_add_c(&q->sql, f->request_id ? ") AS asked CROSS JOIN sessions WHERE id = session_id AND"
                                     : "sessions WHERE");
    buf_add_c(&q->sql, " tenant_id = $1 AND deleted_at IS NULL");
    if (f->status)
        add_arg(q, " AND status = ", DB_C(f->status));
    if (f->agent_id)
        add_arg(q, " AND agent_id = ", DB_C(f->agent_id));
    if (f->environment_id)
        add_arg(q, " AND environment_id = ", DB_C(f->environment_id));
    if (f->has_after) {
        add_arg(q, f->ascending ? " AND (created_at, id) > (" : " AND (created_at, id) < (",
                DB_I(f->after_at_ms));
        add_arg(q, ", ", DB_C(f->after_id));
        buf_add_char(&q->sql, ')');
    }
    add_arg(q,
            f->ascending ? " ORDER BY created_at, id LIMIT "
                         : " ORDER BY created_at DESC, id DESC LIMIT ",
            DB_I(f->limit));
}

err session_list(struct db_conn *c, struct arena *a, const char *tenant,
                 const struct session_filter *f, struct session_row **out, size_t *out_n)
{
    struct list_query q = {0};
    struct db_rows *r;
    list_query(&q, tenant, f);
    AUTO_BUF sql = q.sql;
    TRY(db_query(c, sql.p, q.args, q.n, &r));
    struct session_row *rows = arena_alloc(a, (f->limit + 1u) * sizeof *rows);
    size_t n = 0;
    while (n < f->limit && db_next(r))
        read_row(r, a, &rows[n++]);
    TRY(db_rows_done(r));
    *out = rows;
    *out_n = n;
    return 0;
}

void session_usage_write(const struct session_usage *u, struct buf *out)
{
    buf_add_char(out, '{');
    json_text_int(out, "inputTokens", u->input_tokens);
    json_text_int(out, "outputTokens", u->output_tokens);
    json_text_int(out, "cacheReadInputTokens", u->cache_read_tokens);
    json_text_int(out, "cacheCreationInputTokens", u->cache_creation_tokens);
    json_text_real(out, "costUsd", u->cost_usd);
    if (u->estimated)
        json_text_bool(out, "estimated", true);
    buf_add_char(out, '}');
}

/* Where the objects lie is nobody's business outside. */
static void write_resources(const char *text, struct buf *out)
{
    AUTO_JSON list = text ? json_loads(text, 0, NULL) : NULL;
    size_t i;
    json_t *one;
    json_array_foreach(list, i, one) json_object_del(one, "key");
    json_text_key(out, "resources");
    if (list)
        json_write(list, out);
    else
        buf_add(out, "[]", 2);
}

void session_row_write(const struct session_row *row, struct buf *out)
{
    buf_add_char(out, '{');
    json_text_str(out, "id", row->id);
    json_text_str(out, "type", "session");
    json_text_str(out, "status", row->status);
    json_text_raw(out, "stopReason", row->stop_reason_json);
    json_text_str(out, "title", row->title);
    json_text_raw(out, "agent", row->agent_json);
    json_text_str(out, "agentId", row->agent_id);
    json_text_int(out, "agentVersion", row->agent_version);
    json_text_str(out, "environmentId", row->environment_id);
    json_text_raw(out, "metadata", row->metadata_json);
    json_text_raw(out, "budget", row->budget_json);
    json_text_raw(out, "vaultIds", row->vault_ids_json);
    write_resources(row->resources_json, out);
    json_text_key(out, "usage");
    session_usage_write(&row->usage, out);
    json_text_time(out, "createdAt", row->created_at_ms);
    json_text_time(out, "updatedAt", row->updated_at_ms);
    json_text_time(out, "lastActivityAt", row->last_activity_ms);
}

err session_change_row(struct db_conn *c, const char *tenant, const char *id, const json_t *change,
                       const char *agent_json, int64_t now_ms)
{
    static const char sql[] =
        "UPDATE sessions SET title = CASE WHEN $3 = 1 THEN $4 ELSE title END,"
        " metadata = COALESCE($5, metadata), agent = COALESCE($6, agent), updated_at = $7,"
        " budget = CASE WHEN $8 = 1 THEN $9 ELSE budget END"
        " WHERE tenant_id = $1 AND id = $2 AND deleted_at IS NULL";
    const json_t *title = json_object_get(change, "title");
    const json_t *metadata = json_object_get(change, "metadata");
    AUTO_BUF text = {0};
    if (metadata)
        json_write(metadata, &text);
    const json_t *budget = json_object_get(change, "budget");
    AUTO_BUF budget_text = {0};
    if (json_is_object(budget))
        json_write(budget, &budget_text);
    int64_t changed = 0;
    TRY(db_exec(c, sql,
                DB_ARGS(DB_C(tenant), DB_C(id), DB_I(title != NULL), DB_C(json_string_value(title)),
                        metadata ? DB_S(buf_str(&text)) : DB_N, DB_C(agent_json), DB_I(now_ms),
                        DB_I(budget != NULL),
                        json_is_object(budget) ? DB_S(buf_str(&budget_text)) : DB_N),
                &changed));
    return changed ? 0 : fail_as(E_NOT_FOUND, "session_not_found", "there is no session %s", id);
}

err session_mark_deleted(struct db_conn *c, const char *tenant, const char *id, int64_t now_ms)
{
    static const char sql[] = "UPDATE sessions SET deleted_at = $3, updated_at = $3"
                              " WHERE tenant_id = $1 AND id = $2 AND deleted_at IS NULL";
    int64_t changed = 0;
    TRY(db_exec(c, sql, DB_ARGS(DB_C(tenant), DB_C(id), DB_I(now_ms)), &changed));
    if (changed == 0)
        return fail_as(E_NOT_FOUND, "session_not_found", "there is no session %s", id);
    TRY(quota_give(c, tenant, QUOTA_CONCURRENT_SESSIONS, 1));
    static const char inbox[] = "DELETE FROM inbox WHERE tenant_id = $1 AND session_id = $2";
    return db_exec(c, inbox, DB_ARGS(DB_C(tenant), DB_C(id)), NULL);
}

err inbox_add(struct db_conn *c, const char *tenant, const char *session, const char *event_id,
              struct str event, int64_t now_ms)
{
    static const char sql[] =
        "INSERT INTO inbox (tenant_id, session_id, position, event_id, event, created_at)"
        " SELECT $1, $2, COALESCE(MAX(position), 0) + 1, $3, $4, $5 FROM inbox"
        " WHERE tenant_id = $1 AND session_id = $2";
    return db_exec(c, sql,
                   DB_ARGS(DB_C(tenant), DB_C(session), DB_C(event_id), DB_S(event), DB_I(now_ms)),
                   NULL);
}

err inbox_pending(struct db_conn *c, struct arena *a, const char *tenant, const char *session,
                  struct inbox_item **out, size_t *out_n)
{
    static const char sql[] =
        "SELECT position, event_id, event FROM inbox"
        " WHERE tenant_id = $1 AND session_id = $2 ORDER BY position LIMIT $3";
    struct db_rows *r;
    TRY(db_query(c, sql, DB_ARGS(DB_C(tenant), DB_C(session), DB_I(INBOX_BATCH)), &r));
    struct inbox_item *items = arena_alloc(a, INBOX_BATCH * sizeof *items);
    size_t n = 0;
    while (n < INBOX_BATCH && db_next(r)) {
        items[n].position = db_int(r, 0);
        items[n].event_id = db_text(r, 1, a);
        items[n].event = arena_str(a, db_str(r, 2));
        n++;
    }
    TRY(db_rows_done(r));
    *out = items;
    *out_n = n;
    return 0;
}

err inbox_remove(struct db_conn *c, const char *tenant, const char *session, int64_t up_to_position)
{
    static const char sql[] =
        "DELETE FROM inbox WHERE tenant_id = $1 AND session_id = $2 AND position <= $3";
    return db_exec(c, sql, DB_ARGS(DB_C(tenant), DB_C(session), DB_I(up_to_position)), NULL);
}

err session_apply(struct db_conn *c, const char *tenant, const char *id,
                  const struct session_update *u, int64_t now_ms)
{
    static const char sql[] =
        "UPDATE sessions SET status = COALESCE($3, status), stop_reason = COALESCE($4, "
        "stop_reason),"
        " sandbox_state = COALESCE($5, sandbox_state),"
        " last_activity_at = CASE WHEN $6 > last_activity_at THEN $6 ELSE last_activity_at END,"
        " updated_at = $7 WHERE tenant_id = $1 AND id = $2";
    TRY(db_exec(c, sql,
                DB_ARGS(DB_C(tenant), DB_C(id), DB_C(u->status), DB_C(u->stop_reason_json),
                        DB_C(u->sandbox_state), DB_I(u->activity_ms), DB_I(now_ms)),
                NULL));
    if (u->usage == NULL)
        return 0;
    static const char usage[] =
        "UPDATE sessions SET input_tokens = $3, output_tokens = $4, cache_read_tokens = $5,"
        " cache_creation_tokens = $6, cost_usd = $7, usage_estimated = $8"
        " WHERE tenant_id = $1 AND id = $2";
    return db_exec(c, usage,
                   DB_ARGS(DB_C(tenant), DB_C(id), DB_I(u->usage->input_tokens),
                           DB_I(u->usage->output_tokens), DB_I(u->usage->cache_read_tokens),
                           DB_I(u->usage->cache_creation_tokens), DB_R(u->usage->cost_usd),
                           DB_I(u->usage->estimated)),
                   NULL);
}

/* A growing arena array of refs. */
struct refs {
    struct arena *a;
    struct session_ref *items;
    size_t n, cap;
};

static void add_ref(struct refs *refs, struct str tenant, struct str id)
{
    if (refs->n == refs->cap) {
        size_t cap = refs->cap ? refs->cap * 2 : 16;
        struct session_ref *more = arena_alloc(refs->a, cap * sizeof *more);
        if (refs->n)
            memcpy(more, refs->items, refs->n * sizeof *more);
        refs->items = more;
        refs->cap = cap;
    }
    copy_id(refs->items[refs->n].tenant, tenant);
    copy_id(refs->items[refs->n].id, id);
    refs->n++;
}

/* `sql` gives tenant_id, id. */
static err read_refs(struct db_conn *c, struct arena *a, const char *sql, struct session_ref **out,
                     size_t *out_n)
{
    struct db_rows *r;
    struct refs refs = {.a = a};
    TRY(db_query(c, sql, DB_NO_ARGS, &r));
    while (db_next(r))
        add_ref(&refs, db_str(r, 0), db_str(r, 1));
    TRY(db_rows_done(r));
    *out = refs.items;
    *out_n = refs.n;
    return 0;
}

err sessions_unfinished(struct db_conn *c, struct arena *a, struct session_ref **out, size_t *out_n)
{
    static const char sql[] =
        "SELECT tenant_id, id FROM sessions WHERE deleted_at IS NULL"
        " AND status IN ('running', 'rescheduling')"
        " UNION SELECT s.tenant_id, s.id FROM inbox i JOIN sessions s"
        " ON s.tenant_id = i.tenant_id AND s.id = i.session_id WHERE s.deleted_at IS NULL";
    return read_refs(c, a, sql, out, out_n);
}

err sessions_with_sandbox(struct db_conn *c, struct arena *a, struct session_ref **out,
                          size_t *out_n)
{
    static const char sql[] = "SELECT tenant_id, id FROM sessions WHERE sandbox_state = 'running'"
                              " AND deleted_at IS NULL";
    return read_refs(c, a, sql, out, out_n);
}

err sessions_count_sandboxes(struct db_conn *c, const char *tenant, const char *except,
                             int64_t *out)
{
    static const char sql[] = "SELECT COUNT(*) FROM sessions WHERE tenant_id = $1"
                              " AND sandbox_state = 'running' AND deleted_at IS NULL AND id <> $2";
    struct db_rows *r;
    TRY(db_query(c, sql, DB_ARGS(DB_C(tenant), DB_C(except)), &r));
    *out = db_next(r) ? db_int(r, 0) : 0;
    return db_rows_done(r);
}

err session_reserve_sandbox(struct db_conn *c, const char *tenant, const char *id, int64_t now_ms,
                            char out_before[SANDBOX_STATE_MAX])
{
    AUTO_ARENA a = arena_new();
    struct session_row row;
    struct quota_limits limits;
    int64_t running;
    TRY(session_find(c, a, tenant, str_of(id), &row));
    TRY(quota_limits(c, tenant, &limits));
    TRY(sessions_count_sandboxes(c, tenant, id, &running));
    double limit = limits.of[QUOTA_CONCURRENT_SANDBOXES];
    if (limit >= 0 && (double)(running + 1) > limit)
        return quota_exceeded(QUOTA_CONCURRENT_SANDBOXES, (int64_t)limit);
    snprintf(out_before, SANDBOX_STATE_MAX, "%s", row.sandbox_state);
    return session_apply(c, tenant, id, &(struct session_update){.sandbox_state = "running"},
                         now_ms);
}

#define IDLE_TIMEOUT_DEFAULT_S 300

static int64_t idle_timeout_ms(const char *environment_json)
{
    AUTO_JSON environment = json_loads(environment_json, JSON_ALLOW_NUL, NULL);
    return json_get_int(environment, "idleTimeout", IDLE_TIMEOUT_DEFAULT_S) * 1000;
}

err sessions_to_stop(struct db_conn *c, struct arena *a, int64_t now_ms, struct session_ref **out,
                     size_t *out_n)
{
    static const char sql[] = "SELECT tenant_id, id, last_activity_at, environment FROM sessions"
                              " WHERE sandbox_state = 'running' AND status = 'idle'";
    struct db_rows *r;
    struct refs refs = {.a = a};
    TRY(db_query(c, sql, DB_NO_ARGS, &r));
    while (db_next(r))
        if (db_int(r, 2) + idle_timeout_ms(db_text(r, 3, a)) <= now_ms)
            add_ref(&refs, db_str(r, 0), db_str(r, 1));
    TRY(db_rows_done(r));
    *out = refs.items;
    *out_n = refs.n;
    return 0;
}

err sessions_expired(struct db_conn *c, struct arena *a, int64_t before_ms,
                     struct session_ref **out, size_t *out_n)
{
    static const char sql[] = "/* all tenants */ SELECT tenant_id, id FROM sessions"
                              " WHERE deleted_at IS NOT NULL AND deleted_at < $1"
                              " ORDER BY deleted_at LIMIT $2";
    struct db_rows *r;
    struct refs refs = {.a = a};
    TRY(db_query(c, sql, DB_ARGS(DB_I(before_ms), DB_I(SESSIONS_EXPIRED_MAX)), &r));
    while (db_next(r))
        add_ref(&refs, db_str(r, 0), db_str(r, 1));
    TRY(db_rows_done(r));
    *out = refs.items;
    *out_n = refs.n;
    return 0;
}

err session_forget(struct db_conn *c, const char *tenant, const char *id)
{
    static const char sql[] = "DELETE FROM sessions WHERE tenant_id = $1 AND id = $2"
                              " AND deleted_at IS NOT NULL";
    TRY(volume_rows_leave(c, tenant, id));
    return db_exec(c, sql, DB_ARGS(DB_C(tenant), DB_C(id)), NULL);
}

err session_exists(struct db_conn *c, const char *id, bool *out)
{
    static const char sql[] = "/* all tenants */ SELECT 1 FROM sessions"
                              " WHERE id = $1 AND deleted_at IS NULL";
    struct db_rows *r;
    TRY(db_query(c, sql, DB_ARGS(DB_C(id)), &r));
    bool found = db_next(r);
    TRY(db_rows_done(r));
    *out = found;
    return 0;
}
