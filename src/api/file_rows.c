/* SQL of files. */
#include "api/file_rows.h"

#include <stdio.h>

#include "api/rows.h"
#include "base/mem.h"
#include "session/quota.h"

#define COLUMNS                                                                                    \
    "id, name, mime_type, size, sha256, metadata, session_id, path, changed_at, created_at"

void file_key(const char *tenant, const char *id, char out[OBJECT_KEY_MAX])
{
    snprintf(out, OBJECT_KEY_MAX, "files/%s/%s", tenant, id);
}

json_t *file_json(const struct file_row *row)
{
    json_t *j = json_object();
    json_set_str(j, "id", str_of(row->id));
    json_set_str(j, "type", STR("file"));
    json_set_str(j, "name", str_of(row->name));
    json_set_str(j, "mimeType", str_of(row->mime_type));
    json_object_set_new(j, "sizeBytes", json_integer(row->size));
    json_set_str(j, "sha256", str_of(row->sha256));
    json_t *metadata = json_loads(row->metadata_json, JSON_ALLOW_NUL, NULL);
    json_object_set_new(j, "metadata", metadata ? metadata : json_object());
    json_object_set_new(j, "sessionId", row->session ? json_string(row->session) : json_null());
    json_object_set_new(j, "path", row->path ? json_str(str_of(row->path)) : json_null());
    json_set_time(j, "createdAt", row->created_at_ms);
    return j;
}

static void read_row(struct db_rows *r, struct arena *a, struct file_row *out)
{
    *out = (struct file_row){.name = db_text(r, 1, a),
                             .mime_type = db_text(r, 2, a),
                             .size = db_int(r, 3),
                             .metadata_json = db_text(r, 5, a),
                             .session = db_text(r, 6, a),
                             .path = db_text(r, 7, a),
                             .changed_at = db_text(r, 8, a),
                             .created_at_ms = db_int(r, 9)};
    row_id(r, 0, out->id);
    snprintf(out->sha256, sizeof out->sha256, "%.*s", STR_ARG(db_str(r, 4)));
}

/* ---- coming ---- */

static const char sql_begin[] =
    "INSERT INTO files (tenant_id, id, state, name, mime_type, size, sha256, metadata, created_at)"
    " VALUES ($1, $2, 'pending', '', '', 0, '', '{}', $3)";
static const char sql_finish[] =
    "UPDATE files SET state = 'ready', name = $3, mime_type = $4, size = $5, sha256 = $6,"
    " metadata = $7, session_id = $8, path = $9, changed_at = $10, created_at = $11"
    " WHERE tenant_id = $1 AND id = $2 AND state = 'pending'";
static const char sql_find_output[] =
    "SELECT id FROM files WHERE tenant_id = $1 AND session_id = $2"
    " AND path = $3 AND state = 'ready'";

err file_begin(struct db_conn *c, const char *tenant, const char *id, int64_t now_ms)
{
    return db_exec(c, sql_begin, DB_ARGS(DB_C(tenant), DB_C(id), DB_I(now_ms)), NULL);
}

static err hide_older(struct db_conn *c, const char *tenant, const struct file_row *row)
{
    struct db_rows *r;
    char id[ID_MAX] = "";
    TRY(db_query(c, sql_find_output, DB_ARGS(DB_C(tenant), DB_C(row->session), DB_C(row->path)),
                 &r));
    if (db_next(r))
        row_id(r, 0, id);
    TRY(db_rows_done(r));
    return id[0] ? file_hide(c, tenant, str_of(id)) : 0;
}

err file_finish(struct db_conn *c, const char *tenant, const struct file_row *row)
{
    int64_t changed = 0;
    if (row->session)
        TRY(hide_older(c, tenant, row));
    TRY(quota_take(c, tenant, QUOTA_FILE_STORAGE_BYTES, row->size));
    TRY(db_exec(c, sql_finish,
                DB_ARGS(DB_C(tenant), DB_C(row->id), DB_C(row->name), DB_C(row->mime_type),
                        DB_I(row->size), DB_C(row->sha256), DB_C(row->metadata_json),
                        DB_C(row->session), DB_C(row->path), DB_C(row->changed_at),
                        DB_I(row->created_at_ms)),
                &changed));
    return changed ? 0 : fail(E_CONFLICT, "the upload took too long and was given up: try again");
}

/* ---- reading ---- */

static const char sql_find[] =
    "SELECT " COLUMNS " FROM files WHERE tenant_id = $1 AND id = $2 AND state = 'ready'";
#define SQL_LIST                                                                                   \
    "SELECT " COLUMNS " FROM files WHERE tenant_id = $1 AND state = 'ready'"                       \
    " AND ($2 = '' OR session_id = $2)"
static const char sql_newest_first[] = SQL_LIST " AND (created_at, id) < ($3, $4)"
                                                " ORDER BY created_at DESC, id DESC LIMIT $5";
static const char sql_oldest_first[] = SQL_LIST " AND (created_at, id) > ($3, $4)"
                                                " ORDER BY created_at, id LIMIT $5";

static err not_found(void)
{
    return fail_as(E_NOT_FOUND, "file_not_found", "there is no file with this id");
}

err file_find(struct db_conn *c, struct arena *a, const char *tenant, struct str id,
              struct file_row *out)
{
    struct db_rows *r;
    struct file_row row;
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

err file_list(struct db_conn *c, struct arena *a, const char *tenant, const struct file_filter *f,
              struct file_row **out, size_t *out_n)
{
    struct row_start start = row_start_at(f->has_after, f->ascending, f->after_at_ms, f->after_id);
    struct file_row *rows = arena_alloc(a, size_mul(f->limit, sizeof *rows));
    struct db_rows *r;
    size_t n = 0;
    TRY(db_query(c, f->ascending ? sql_oldest_first : sql_newest_first,
                 DB_ARGS(DB_C(tenant), DB_C(f->session ? f->session : ""), DB_I(start.at),
                         DB_C(start.id), DB_I(f->limit)),
                 &r));
    while (n < f->limit && db_next(r))
        read_row(r, a, &rows[n++]);
    TRY(db_rows_done(r));
    *out = rows;
    *out_n = n;
    return 0;
}

/* ---- going ---- */

static const char sql_size[] =
    "SELECT size FROM files WHERE tenant_id = $1 AND id = $2 AND state = 'ready'";
static const char sql_hide[] =
    "UPDATE files SET state = 'deleting' WHERE tenant_id = $1 AND id = $2";
static const char sql_forget[] =
    "DELETE FROM files WHERE tenant_id = $1 AND id = $2 AND state <> 'ready'";
static const char sql_unfinished[] =
    "/* all tenants */ SELECT tenant_id, id FROM files WHERE state <> 'ready'"
    " AND (state = 'deleting' OR created_at < $1) LIMIT $2";

err file_hide(struct db_conn *c, const char *tenant, struct str id)
{
    struct db_rows *r;
    TRY(db_query(c, sql_size, DB_ARGS(DB_C(tenant), DB_S(id)), &r));
    bool found = db_next(r);
    int64_t size = found ? db_int(r, 0) : 0;
    TRY(db_rows_done(r));
    if (!found)
        return not_found();
    TRY(quota_give(c, tenant, QUOTA_FILE_STORAGE_BYTES, size));
    return db_exec(c, sql_hide, DB_ARGS(DB_C(tenant), DB_S(id)), NULL);
}

err file_forget(struct db_conn *c, const char *tenant, const char *id)
{
    return db_exec(c, sql_forget, DB_ARGS(DB_C(tenant), DB_C(id)), NULL);
}

err file_unfinished(struct db_conn *c, int64_t before_ms, size_t limit, struct file_ref *out,
                    size_t *out_n)
{
    struct db_rows *r;
    size_t n = 0;
    TRY(db_query(c, sql_unfinished, DB_ARGS(DB_I(before_ms), DB_I((int64_t)limit)), &r));
    while (n < limit && db_next(r)) {
        row_id(r, 0, out[n].tenant);
        row_id(r, 1, out[n].id);
        n++;
    }
    TRY(db_rows_done(r));
    *out_n = n;
    return 0;
}

/* ---- whose row may be lost ---- */

static const char sql_state[] =
    "SELECT (SELECT state FROM files WHERE tenant_id = $1 AND id = $2) FROM tenants WHERE id = $1";

err file_state(struct db_conn *c, const char *tenant, const char *id, enum file_state *out)
{
    struct db_rows *r;
    TRY(db_query(c, sql_state, DB_ARGS(DB_C(tenant), DB_C(id)), &r));
    enum file_state state = FILE_NO_TENANT;
    if (db_next(r)) {
        struct str text = db_str(r, 0);
        state = text.p == NULL            ? FILE_UNKNOWN
                : str_is(text, "ready")   ? FILE_READY
                : str_is(text, "pending") ? FILE_PENDING
                                          : FILE_DELETING;
    }
    TRY(db_rows_done(r));
    *out = state;
    return 0;
}
