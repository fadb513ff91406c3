#include "session/volume_rows.h"

#include "base/mem.h"
#include "session/quota.h"

#include <stdio.h>

static void take_id(struct db_rows *r, int column, char out[ID_MAX])
{
    snprintf(out, ID_MAX, "%.*s", STR_ARG(db_str(r, column)));
}

/* ---- attaching ---- */

static const char sql_by_name[] =
    "SELECT id FROM volumes WHERE tenant_id = $1 AND name = $2 AND state = 'ready'";
static const char sql_count[] = "SELECT COUNT(*) FROM volumes WHERE tenant_id = $1";
static const char sql_insert[] =
    "INSERT INTO volumes (tenant_id, id, name, state, bytes, unmeasured, measured_at, created_at,"
    " used_at) VALUES ($1, $2, $3, 'ready', 0, 0, 0, $4, 0)";
static const char sql_use[] =
    "UPDATE volumes SET used_at = $3, unmeasured = 1 WHERE tenant_id = $1 AND id = $2";
static const char sql_note_use[] =
    "INSERT INTO volume_uses (tenant_id, volume_id, session_id) VALUES ($1, $2, $3)"
    " ON CONFLICT (tenant_id, volume_id, session_id) DO NOTHING";

err volume_row_make(struct db_conn *c, const char *tenant, const char *name, int64_t now_ms,
                    char out_id[ID_MAX])
{
    struct db_rows *r;
    char id[ID_MAX];
    TRY(db_query(c, sql_count, DB_ARGS(DB_C(tenant)), &r));
    int64_t n = db_next(r) ? db_int(r, 0) : 0;
    TRY(db_rows_done(r));
    if (n >= VOLUMES_MAX)
        return fail_as(E_QUOTA, "too_many_volumes",
                       "the tenant has %d volumes, more cannot be made: remove some", VOLUMES_MAX);
    id_new(MOUNT_VOLUME_ID, now_ms, id);
    err e = db_exec(c, sql_insert, DB_ARGS(DB_C(tenant), DB_C(id), DB_C(name), DB_I(now_ms)), NULL);
    if (e == E_CONFLICT)
        return fail_as(E_CONFLICT, "name_taken", "there is a volume named %s already", name);
    TRY(e);
    memcpy(out_id, id, sizeof id);
    return 0;
}

static err attach(struct db_conn *c, const char *tenant, const char *session, const char *name,
                  int64_t now_ms, char out_id[ID_MAX])
{
    struct db_rows *r;
    char id[ID_MAX] = "";
    TRY(db_query(c, sql_by_name, DB_ARGS(DB_C(tenant), DB_C(name)), &r));
    if (db_next(r))
        take_id(r, 0, id);
    TRY(db_rows_done(r));
    if (id[0] == 0)
        TRY(volume_row_make(c, tenant, name, now_ms, id));
    TRY(db_exec(c, sql_use, DB_ARGS(DB_C(tenant), DB_C(id), DB_I(now_ms)), NULL));
    TRY(db_exec(c, sql_note_use, DB_ARGS(DB_C(tenant), DB_C(id), DB_C(session)), NULL));
    memcpy(out_id, id, sizeof id);
    return 0;
}

err volume_rows_attach(struct db_conn *c, const char *session, const struct sandbox_spec *named,
                       int64_t now_ms, struct sandbox_spec *out)
{
    struct sandbox_spec spec = *named;
    bool writes = false;
    for (uint32_t i = 0; i < spec.mount_count; i++) {
        struct sandbox_mount *m = &spec.mounts[i];
        if (m->type != MOUNT_VOLUME)
            continue;
        char id[ID_MAX];
        TRY(attach(c, spec.tenant, session, m->source, now_ms, id));
        snprintf(m->source, sizeof m->source, "%s", id);
        writes |= !m->read_only;
    }
    if (writes)
        TRY(quota_check(c, spec.tenant, QUOTA_FILE_STORAGE_BYTES, 0));
    *out = spec;
    return 0;
}

/* ---- reading ---- */

#define SESSIONS                                                                                   \
    "(SELECT COUNT(*) FROM volume_uses u JOIN sessions s ON s.tenant_id = u.tenant_id"             \
    " AND s.id = u.session_id WHERE u.tenant_id = v.tenant_id AND u.volume_id = v.id"              \
    " AND s.deleted_at IS NULL)"
#define COLUMNS                                                                                    \
    "v.id, v.name, v.bytes, v.measured_at, " SESSIONS ", v.created_at, v.used_at FROM volumes v"   \
    " WHERE v.tenant_id = $1 AND v.state = 'ready'"
static const char sql_find[] = "SELECT " COLUMNS " AND v.id = $2";
#define SQL_LIST "SELECT " COLUMNS " AND ($2 = '' OR v.name = $2)"
static const char sql_newest_first[] = SQL_LIST " AND (v.created_at, v.id) < ($3, $4)"
                                                " ORDER BY v.created_at DESC, v.id DESC LIMIT $5";
static const char sql_oldest_first[] = SQL_LIST " AND (v.created_at, v.id) > ($3, $4)"
                                                " ORDER BY v.created_at, v.id LIMIT $5";

static err not_found(void)
{
    return fail_as(E_NOT_FOUND, "volume_not_found", "there is no volume with this id");
}

static void read_row(struct db_rows *r, struct arena *a, struct volume_row *out)
{
    *out = (struct volume_row){.name = db_text(r, 1, a),
                               .bytes = db_int(r, 2),
                               .measured_at_ms = db_int(r, 3),
                               .sessions = db_int(r, 4),
                               .created_at_ms = db_int(r, 5),
                               .used_at_ms = db_int(r, 6)};
    take_id(r, 0, out->id);
}

err volume_row_find(struct db_conn *c, struct arena *a, const char *tenant, struct str id,
                    struct volume_row *out)
{
    struct db_rows *r;
    struct volume_row row;
    TRY(db_query(c, sql_find, DB_ARGS(DB_C(tenant), DB_S(id)), &r));
    bool found = db_next(r);
    if (found)
        read_row(r, a, &row);
    TRY(db_rows_done(r));
    if (!found)
        return not_found();
    *out = row;
    return 0;
}

err volume_row_list(struct db_conn *c, struct arena *a, const char *tenant,
                    const struct volume_filter *f, struct volume_row **out, size_t *out_n)
{
    struct volume_row *rows = arena_alloc(a, size_mul(f->limit, sizeof *rows));
    struct db_rows *r;
    size_t n = 0;
    TRY(db_query(c, f->ascending ? sql_oldest_first : sql_newest_first,
                 DB_ARGS(DB_C(tenant), DB_C(f->name ? f->name : ""), DB_I(f->start_at_ms),
                         DB_C(f->start_id), DB_I(f->limit)),
                 &r));
    while (n < f->limit && db_next(r))
        read_row(r, a, &rows[n++]);
    TRY(db_rows_done(r));
    *out = rows;
    *out_n = n;
    return 0;
}

/* ---- going ---- */

static const char sql_hide[] = "UPDATE volumes SET state = 'deleting' WHERE tenant_id = $1"
                               " AND id = $2";
static const char sql_forget[] =
    "DELETE FROM volumes WHERE tenant_id = $1 AND id = $2 AND state = 'deleting'";
static const char sql_forget_uses[] =
    "DELETE FROM volume_uses WHERE tenant_id = $1 AND volume_id = $2";
static const char sql_leave[] = "DELETE FROM volume_uses WHERE tenant_id = $1 AND session_id = $2";

err volume_row_hide(struct db_conn *c, const char *tenant, struct str id)
{
    AUTO_ARENA a = arena_new();
    struct volume_row row;
    TRY(volume_row_find(c, a, tenant, id, &row));
    if (row.sessions > 0)
        return fail_as(
            E_CONFLICT, "volume_in_use", "%lld session%s use%s the volume: delete them first",
            (long long)row.sessions, row.sessions == 1 ? "" : "s", row.sessions == 1 ? "s" : "");
    TRY(quota_give(c, tenant, QUOTA_FILE_STORAGE_BYTES, row.bytes));
    return db_exec(c, sql_hide, DB_ARGS(DB_C(tenant), DB_S(id)), NULL);
}

err volume_row_forget(struct db_conn *c, const char *tenant, const char *id)
{
    TRY(db_exec(c, sql_forget_uses, DB_ARGS(DB_C(tenant), DB_C(id)), NULL));
    return db_exec(c, sql_forget, DB_ARGS(DB_C(tenant), DB_C(id)), NULL);
}

err volume_rows_leave(struct db_conn *c, const char *tenant, const char *session)
{
    return db_exec(c, sql_leave, DB_ARGS(DB_C(tenant), DB_C(session)), NULL);
}

/* ---- measuring ---- */

#define REFS                                                                                       \
    "SELECT v.tenant_id, v.id, v.used_at, CASE WHEN EXISTS (SELECT 1 FROM volume_uses u"           \
    " JOIN sessions s ON s.tenant_id = u.tenant_id AND s.id = u.session_id"                        \
    " WHERE u.tenant_id = v.tenant_id AND u.volume_id = v.id AND s.sandbox_state = 'running'"      \
    " AND s.deleted_at IS NULL) THEN 1 ELSE 0 END FROM volumes v"
static const char sql_deleting[] = "/* all tenants */ " REFS " WHERE v.state = 'deleting' LIMIT $1";
/* In no order: one that cannot be measured keeps no other back. */
static const char sql_unmeasured[] =
    "/* all tenants */ " REFS " WHERE v.state = 'ready' AND v.unmeasured = 1"
    " ORDER BY RANDOM() LIMIT $1";
static const char sql_unmeasured_one[] =
    REFS " WHERE v.tenant_id = $1 AND v.id = $2 AND v.state = 'ready' AND v.unmeasured = 1";
static const char sql_bytes[] =
    "SELECT bytes FROM volumes WHERE tenant_id = $1 AND id = $2 AND state = 'ready'";
static const char sql_measured[] =
    "UPDATE volumes SET bytes = $3, measured_at = $4,"
    " unmeasured = CASE WHEN $5 = 0 AND used_at = $6 THEN 0 ELSE 1 END"
    " WHERE tenant_id = $1 AND id = $2 AND state = 'ready'";

static void read_ref(struct db_rows *r, struct volume_ref *out)
{
    *out = (struct volume_ref){.used_at_ms = db_int(r, 2), .in_use = db_int(r, 3) != 0};
    take_id(r, 0, out->tenant);
    take_id(r, 1, out->id);
}

static err read_refs(struct db_conn *c, const char *sql, size_t limit, struct volume_ref *out,
                     size_t *out_n)
{
    struct db_rows *r;
    size_t n = 0;
    TRY(db_query(c, sql, DB_ARGS(DB_I((int64_t)limit)), &r));
    while (n < limit && db_next(r))
        read_ref(r, &out[n++]);
    TRY(db_rows_done(r));
    *out_n = n;
    return 0;
}

err volume_rows_deleting(struct db_conn *c, size_t limit, struct volume_ref *out, size_t *out_n)
{
    return read_refs(c, sql_deleting, limit, out, out_n);
}

err volume_rows_unmeasured(struct db_conn *c, size_t limit, struct volume_ref *out, size_t *out_n)
{
    return read_refs(c, sql_unmeasured, limit, out, out_n);
}

err volume_row_unmeasured(struct db_conn *c, const char *tenant, const char *id,
                          struct volume_ref *out, bool *out_found)
{
    struct db_rows *r;
    TRY(db_query(c, sql_unmeasured_one, DB_ARGS(DB_C(tenant), DB_C(id)), &r));
    bool found = db_next(r);
    if (found)
        read_ref(r, out);
    TRY(db_rows_done(r));
    *out_found = found;
    return 0;
}

err volume_row_measured(struct db_conn *c, const struct volume_ref *ref, int64_t bytes,
                        int64_t now_ms)
{
    struct db_rows *r;
    TRY(db_query(c, sql_bytes, DB_ARGS(DB_C(ref->tenant), DB_C(ref->id)), &r));
    bool found = db_next(r);
    int64_t before = found ? db_int(r, 0) : 0;
    TRY(db_rows_done(r));
    if (!found)
        return 0;
    TRY(quota_give(c, ref->tenant, QUOTA_FILE_STORAGE_BYTES, before));
    TRY(quota_add(c, ref->tenant, QUOTA_FILE_STORAGE_BYTES, bytes));
    return db_exec(c, sql_measured,
                   DB_ARGS(DB_C(ref->tenant), DB_C(ref->id), DB_I(bytes), DB_I(now_ms),
                           DB_I(ref->in_use), DB_I(ref->used_at_ms)),
                   NULL);
}
