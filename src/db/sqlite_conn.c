/* Connections, statements and rows of SQLite. */
#include "db/sqlite_conn.h"

#include <pthread.h>
#include <string.h>

#include "base/mem.h"

#define BUSY_TIMEOUT_MS 5000 /* another process (pi-managed key create) may be writing */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define GUARDED true
#else
#define GUARDED false
#endif

#define CONN_MAGIC 0x53514c43u
#define ROWS_MAGIC 0x53514c52u

struct rows {
    struct db_rows base;
    unsigned magic;
    struct sqlite_conn *conn;
    sqlite3_stmt *stmt;
    struct sqlite_statement *kept; /* NULL: stmt is finalised when done */
    struct err_slot failed;        /* .e set when a step failed */
};

static struct sqlite_conn *conn_of(struct db_conn *c)
{
    struct sqlite_conn *conn = (struct sqlite_conn *)c;
    CHECK(conn, CONN_MAGIC);
    return conn;
}

static struct rows *rows_of(struct db_rows *r)
{
    struct rows *rows = (struct rows *)r;
    CHECK(rows, ROWS_MAGIC);
    return rows;
}

/* Errors */

static err code_of(int extended)
{
    switch (extended) {
    case SQLITE_CONSTRAINT_UNIQUE:
    case SQLITE_CONSTRAINT_PRIMARYKEY:
    case SQLITE_CONSTRAINT_ROWID:
        return E_CONFLICT;
    }
    switch (extended & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_FULL:
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
        return E_UNAVAILABLE;
    case SQLITE_IOERR:
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return E_IO;
    default:
        return E_INTERNAL;
    }
}

static err fail_sqlite(sqlite3 *sqlite, const char *what)
{
    int code = sqlite3_extended_errcode(sqlite);
    return fail(code_of(code), "database: %.80s: %s", what, sqlite3_errmsg(sqlite));
}

/* Connections */

void sqlite_conn_close(struct sqlite_conn *c)
{
    if (c == NULL)
        return;
    for (size_t i = 0; i < c->statement_count; i++) {
        sqlite3_finalize(c->statements[i].stmt);
        mem_free(c->statements[i].sql);
    }
    sqlite3_close(c->sqlite);
    c->magic = 0;
    mem_free(c);
}

static err run_script(struct sqlite_conn *c, const char *sql)
{
    if (sqlite3_exec(c->sqlite, sql, NULL, NULL, NULL) != SQLITE_OK)
        return fail_sqlite(c->sqlite, sql);
    return 0;
}

static err conn_set_up(struct sqlite_conn *c, bool writer)
{
    sqlite3_extended_result_codes(c->sqlite, 1);
    sqlite3_busy_timeout(c->sqlite, BUSY_TIMEOUT_MS);
    sqlite3_db_config(c->sqlite, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(c->sqlite, SQLITE_DBCONFIG_DQS_DML, 0, NULL);
    sqlite3_db_config(c->sqlite, SQLITE_DBCONFIG_DQS_DDL, 0, NULL);
    if (GUARDED)
        sqlite_guard_watch(&c->guard, c->sqlite);
    TRY(run_script(c, "PRAGMA foreign_keys = ON"));
    if (!writer)
        return run_script(c, "PRAGMA query_only = ON");
    TRY(run_script(c, "PRAGMA journal_mode = WAL"));
    TRY(run_script(c, "PRAGMA journal_size_limit = 67108864"));
    return run_script(c, "PRAGMA synchronous = FULL");
}

/* Else a lock for each of SQLite's allocations, to count what nobody asks for. */
static void without_statistics(void)
{
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
}

err sqlite_conn_open(const char *path, bool writer, struct sqlite_conn **out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, without_statistics);
    struct sqlite_conn *c = mem_alloc(sizeof *c);
    c->base.engine = &db_sqlite;
    c->magic = CONN_MAGIC;
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | (writer ? SQLITE_OPEN_CREATE : 0);
    if (sqlite3_open_v2(path, &c->sqlite, flags, NULL) != SQLITE_OK) {
        err e = c->sqlite ? fail(E_UNAVAILABLE, "database: cannot open %s: %s", path,
                                 sqlite3_errmsg(c->sqlite))
                          : fail(E_UNAVAILABLE, "database: cannot open %s: out of memory", path);
        sqlite_conn_close(c);
        return e;
    }
    err e = conn_set_up(c, writer);
    if (e) {
        sqlite_conn_close(c);
        return e;
    }
    *out = c;
    return 0;
}

/* Statements */

static err prepare_unchecked(struct sqlite_conn *c, const char *sql, sqlite3_stmt **out)
{
    const char *tail = NULL;
    if (sqlite3_prepare_v3(c->sqlite, sql, -1, SQLITE_PREPARE_PERSISTENT, out, &tail) != SQLITE_OK)
        return fail_sqlite(c->sqlite, sql);
    if (*out == NULL || (tail && tail[strspn(tail, " \n;")])) {
        sqlite3_finalize(*out);
        return fail(E_INTERNAL, "database: not exactly one statement: %.80s", sql);
    }
    return 0;
}

static err prepare(struct sqlite_conn *c, const char *sql, sqlite3_stmt **out)
{
    sqlite_guard_begin(&c->guard);
    TRY(prepare_unchecked(c, sql, out));
    if (!GUARDED)
        return 0;
    err e = sqlite_guard_check(&c->guard, sql);
    if (e)
        sqlite3_finalize(*out);
    return e;
}

static struct sqlite_statement *find_statement(struct sqlite_conn *c, const char *sql)
{
    for (size_t i = 0; i < c->statement_count; i++)
        if (!c->statements[i].busy && strcmp(c->statements[i].sql, sql) == 0)
            return &c->statements[i];
    return NULL;
}

/* A free place, emptying the longest unused one when all are taken; NULL if every one is busy. */
static struct sqlite_statement *make_room(struct sqlite_conn *c)
{
    if (c->statement_count < SQLITE_STATEMENTS_MAX)
        return &c->statements[c->statement_count++];
    struct sqlite_statement *oldest = NULL;
    for (size_t i = 0; i < c->statement_count; i++) {
        struct sqlite_statement *s = &c->statements[i];
        if (!s->busy && (oldest == NULL || s->used < oldest->used))
            oldest = s;
    }
    if (oldest) {
        sqlite3_finalize(oldest->stmt);
        mem_free(oldest->sql);
    }
    return oldest;
}

static err take_statement(struct sqlite_conn *c, const char *sql,
                          struct sqlite_statement **out_kept, sqlite3_stmt **out)
{
    struct sqlite_statement *s = find_statement(c, sql);
    if (s == NULL) {
        sqlite3_stmt *stmt = NULL;
        TRY(prepare(c, sql, &stmt));
        s = make_room(c);
        if (s == NULL) {
            *out_kept = NULL;
            *out = stmt;
            return 0;
        }
        *s = (struct sqlite_statement){.sql = mem_strdup(sql), .stmt = stmt};
    }
    s->busy = true;
    s->used = ++c->tick;
    *out_kept = s;
    *out = s->stmt;
    return 0;
}

static void release_statement(struct sqlite_statement *kept, sqlite3_stmt *stmt)
{
    if (kept == NULL) {
        sqlite3_finalize(stmt);
        return;
    }
    sqlite3_reset(stmt);
    sqlite3_clear_bindings(stmt);
    kept->busy = false;
}

/* Copies, because the caller's bytes may change before the last step. */
static int bind_one(sqlite3_stmt *stmt, int at, const struct db_value *v)
{
    switch (v->kind) {
    case DB_INT:
        return sqlite3_bind_int64(stmt, at, v->i);
    case DB_REAL:
        return sqlite3_bind_double(stmt, at, v->r);
    case DB_TEXT:
        return sqlite3_bind_text64(stmt, at, v->s.p, v->s.n, SQLITE_TRANSIENT, SQLITE_UTF8);
    case DB_BLOB:
        return sqlite3_bind_blob64(stmt, at, v->s.p, v->s.n, SQLITE_TRANSIENT);
    case DB_NULL:
        break;
    }
    return sqlite3_bind_null(stmt, at);
}

static void write_name(size_t number, char out[4])
{
    size_t n = 0;
    out[n++] = '$';
    if (number > 9)
        out[n++] = (char)('0' + number / 10 % 10);
    out[n++] = (char)('0' + number % 10);
    out[n] = 0;
}

/* "$2" is a name to SQLite, numbered by first appearance: look it up. */
static err bind_all(struct sqlite_conn *c, sqlite3_stmt *stmt, const struct db_value *args,
                    size_t n)
{
    if (sqlite3_bind_parameter_count(stmt) != (int)n)
        return fail(E_INTERNAL, "database: %d parameters wanted, %zu given: %.80s",
                    sqlite3_bind_parameter_count(stmt), n, sqlite3_sql(stmt));
    for (size_t i = 0; i < n; i++) {
        char name[4];
        write_name(i + 1, name);
        int at = sqlite3_bind_parameter_index(stmt, name);
        if (at == 0)
            return fail(E_INTERNAL, "database: %s is not used: %.80s", name, sqlite3_sql(stmt));
        if (bind_one(stmt, at, &args[i]) != SQLITE_OK)
            return fail_sqlite(c->sqlite, sqlite3_sql(stmt));
    }
    return 0;
}

err sqlite_query(struct db_conn *base, const char *sql, const struct db_value *args, size_t n,
                 struct db_rows **out)
{
    struct sqlite_conn *c = conn_of(base);
    struct sqlite_statement *kept;
    sqlite3_stmt *stmt;
    TRY(take_statement(c, sql, &kept, &stmt));
    err e = bind_all(c, stmt, args, n);
    if (e) {
        release_statement(kept, stmt);
        return e;
    }
    struct rows *r = mem_alloc(sizeof *r);
    *r = (struct rows){
        .base = {.engine = &db_sqlite}, .magic = ROWS_MAGIC, .conn = c, .stmt = stmt, .kept = kept};
    *out = &r->base;
    return 0;
}

bool sqlite_next(struct db_rows *base)
{
    struct rows *r = rows_of(base);
    if (r->failed.e)
        return false;
    int rc = sqlite3_step(r->stmt);
    if (rc == SQLITE_ROW)
        return true;
    if (rc != SQLITE_DONE) {
        fail_sqlite(r->conn->sqlite, sqlite3_sql(r->stmt));
        err_save(&r->failed);
    }
    return false;
}

err sqlite_rows_done(struct db_rows *base)
{
    if (base == NULL)
        return 0;
    struct rows *r = rows_of(base);
    struct err_slot failed = r->failed;
    release_statement(r->kept, r->stmt);
    r->magic = 0;
    mem_free(r);
    return failed.e ? err_restore(&failed) : 0;
}

err sqlite_exec(struct db_conn *base, const char *sql, const struct db_value *args, size_t n,
                int64_t *out_changed)
{
    struct db_rows *r;
    TRY(sqlite_query(base, sql, args, n, &r));
    while (sqlite_next(r))
        ;
    int64_t changed = sqlite3_changes64(conn_of(base)->sqlite);
    TRY(sqlite_rows_done(r));
    if (out_changed)
        *out_changed = changed;
    return 0;
}

bool sqlite_is_null(struct db_rows *r, int column)
{
    return sqlite3_column_type(rows_of(r)->stmt, column) == SQLITE_NULL;
}

int64_t sqlite_int(struct db_rows *r, int column)
{
    return sqlite3_column_int64(rows_of(r)->stmt, column);
}

double sqlite_real(struct db_rows *r, int column)
{
    return sqlite3_column_double(rows_of(r)->stmt, column);
}

struct str sqlite_str(struct db_rows *base, int column)
{
    sqlite3_stmt *stmt = rows_of(base)->stmt;
    int type = sqlite3_column_type(stmt, column);
    if (type == SQLITE_NULL)
        return (struct str){0};
    const char *p = type == SQLITE_BLOB ? sqlite3_column_blob(stmt, column)
                                        : (const char *)sqlite3_column_text(stmt, column);
    return (struct str){p ? p : "", (size_t)sqlite3_column_bytes(stmt, column)};
}

err sqlite_script(struct db_conn *c, const char *sql)
{
    return run_script(conn_of(c), sql);
}
