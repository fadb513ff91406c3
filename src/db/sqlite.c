/* The embedded engine: SQLite in WAL mode with synchronous=FULL. A pool of connections for reads;
   one writer thread that runs every waiting write in a savepoint, commits them as one group and
   only then wakes their callers (R12). */
#include "db/engine.h"

#include "base/buf.h"
#include "base/lock.h"
#include "base/mem.h"
#include "db/sqlite_guard.h"

#include <sqlite3.h>
#include <stdio.h>

#define BUSY_TIMEOUT_MS 5000 /* another process (pi-managed key create) may be writing */
#define READERS_MAX 16
#define READ_WAIT_MS 30000 /* for a connection of the pool */
#define GROUP_MAX 256      /* writes a transaction; bounds how long the first one waits */
#define STATEMENTS_MAX 96  /* prepared statements kept by a connection */
#define TICK_MS 1000       /* waits are renewed this often; nothing depends on the value */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define GUARDED true
#else
#define GUARDED false
#endif

enum {
    DB_MAGIC = 0x53514c44,
    CONN_MAGIC = 0x53514c43,
    ROWS_MAGIC = 0x53514c52
};

/* A prepared statement, kept for the next use of the same text. */
struct statement {
    char *sql;
    sqlite3_stmt *stmt;
    uint64_t used; /* the connection's tick at last use: the oldest goes first */
    bool busy;     /* rows of it are being read: a second use gets a statement of its own */
};

struct conn {
    struct db_conn base;
    unsigned magic;
    sqlite3 *sqlite;
    struct sqlite_guard guard;
    uint64_t tick;
    size_t statement_count;
    struct statement statements[STATEMENTS_MAX];
};

struct rows {
    struct db_rows base;
    unsigned magic;
    struct conn *conn;
    sqlite3_stmt *stmt;
    struct statement *kept; /* NULL: stmt is finalised when done */
    struct err_slot failed; /* .e set when a step failed */
};

/* A db_write that waits, on its caller's stack. */
struct write {
    db_fn fn;
    void *arg;
    struct err_slot result;
    bool done;
    struct write *next;
};

struct sqlite_db {
    struct db base;
    unsigned magic;
    char *path;

    pthread_mutex_t readers_lock;
    pthread_cond_t reader_free;
    struct conn *idle[READERS_MAX];
    size_t idle_count, open_count;

    pthread_mutex_t queue_lock; /* lock order 5 */
    pthread_cond_t queue_filled, group_done;
    struct write *first, **last;
    bool closing;
    struct db_stats stats;

    struct conn *writer; /* used by the writer thread only, once it runs */
    pthread_t thread;
};

/* db_write inside db_read or db_write would wait for itself. */
static _Thread_local bool inside;

static struct sqlite_db *self(struct db *db)
{
    struct sqlite_db *s = (struct sqlite_db *)db;
    CHECK(s, DB_MAGIC);
    return s;
}

static struct conn *conn_of(struct db_conn *c)
{
    struct conn *conn = (struct conn *)c;
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

static void conn_close(struct conn *c)
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

static err run_script(struct conn *c, const char *sql)
{
    if (sqlite3_exec(c->sqlite, sql, NULL, NULL, NULL) != SQLITE_OK)
        return fail_sqlite(c->sqlite, sql);
    return 0;
}

static err conn_set_up(struct conn *c, bool writer)
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

static err conn_open(const char *path, bool writer, struct conn **out)
{
    struct conn *c = mem_alloc(sizeof *c);
    c->base.engine = &db_sqlite;
    c->magic = CONN_MAGIC;
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | (writer ? SQLITE_OPEN_CREATE : 0);
    if (sqlite3_open_v2(path, &c->sqlite, flags, NULL) != SQLITE_OK) {
        err e = c->sqlite ? fail(E_UNAVAILABLE, "database: cannot open %s: %s", path,
                                 sqlite3_errmsg(c->sqlite))
                          : fail(E_UNAVAILABLE, "database: cannot open %s: out of memory", path);
        conn_close(c);
        return e;
    }
    err e = conn_set_up(c, writer);
    if (e) {
        conn_close(c);
        return e;
    }
    *out = c;
    return 0;
}

/* Statements */

static err prepare_unchecked(struct conn *c, const char *sql, sqlite3_stmt **out)
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

static err prepare(struct conn *c, const char *sql, sqlite3_stmt **out)
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

static struct statement *find_statement(struct conn *c, const char *sql)
{
    for (size_t i = 0; i < c->statement_count; i++)
        if (!c->statements[i].busy && strcmp(c->statements[i].sql, sql) == 0)
            return &c->statements[i];
    return NULL;
}

/* A free place, emptying the longest unused one when all are taken; NULL if every one is busy. */
static struct statement *make_room(struct conn *c)
{
    if (c->statement_count < STATEMENTS_MAX)
        return &c->statements[c->statement_count++];
    struct statement *oldest = NULL;
    for (size_t i = 0; i < c->statement_count; i++) {
        struct statement *s = &c->statements[i];
        if (!s->busy && (oldest == NULL || s->used < oldest->used))
            oldest = s;
    }
    if (oldest) {
        sqlite3_finalize(oldest->stmt);
        mem_free(oldest->sql);
    }
    return oldest;
}

static err take_statement(struct conn *c, const char *sql, struct statement **out_kept,
                          sqlite3_stmt **out)
{
    struct statement *s = find_statement(c, sql);
    if (s == NULL) {
        sqlite3_stmt *stmt = NULL;
        TRY(prepare(c, sql, &stmt));
        s = make_room(c);
        if (s == NULL) {
            *out_kept = NULL;
            *out = stmt;
            return 0;
        }
        *s = (struct statement){.sql = mem_strdup(sql), .stmt = stmt};
    }
    s->busy = true;
    s->used = ++c->tick;
    *out_kept = s;
    *out = s->stmt;
    return 0;
}

static void release_statement(struct statement *kept, sqlite3_stmt *stmt)
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

/* "$2" is a name to SQLite, numbered by first appearance: look it up. */
static err bind_all(struct conn *c, sqlite3_stmt *stmt, const struct db_value *args, size_t n)
{
    if (sqlite3_bind_parameter_count(stmt) != (int)n)
        return fail(E_INTERNAL, "database: %d parameters wanted, %zu given: %.80s",
                    sqlite3_bind_parameter_count(stmt), n, sqlite3_sql(stmt));
    for (size_t i = 0; i < n; i++) {
        char name[24];
        snprintf(name, sizeof name, "$%zu", i + 1);
        int at = sqlite3_bind_parameter_index(stmt, name);
        if (at == 0)
            return fail(E_INTERNAL, "database: %s is not used: %.80s", name, sqlite3_sql(stmt));
        if (bind_one(stmt, at, &args[i]) != SQLITE_OK)
            return fail_sqlite(c->sqlite, sqlite3_sql(stmt));
    }
    return 0;
}

static err sqlite_query(struct db_conn *base, const char *sql, const struct db_value *args,
                        size_t n, struct db_rows **out)
{
    struct conn *c = conn_of(base);
    struct statement *kept;
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

static bool sqlite_next(struct db_rows *base)
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

static err sqlite_rows_done(struct db_rows *base)
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

static err sqlite_exec(struct db_conn *base, const char *sql, const struct db_value *args, size_t n,
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

static bool sqlite_is_null(struct db_rows *r, int column)
{
    return sqlite3_column_type(rows_of(r)->stmt, column) == SQLITE_NULL;
}

static int64_t sqlite_int(struct db_rows *r, int column)
{
    return sqlite3_column_int64(rows_of(r)->stmt, column);
}

static double sqlite_real(struct db_rows *r, int column)
{
    return sqlite3_column_double(rows_of(r)->stmt, column);
}

static struct str sqlite_str(struct db_rows *base, int column)
{
    sqlite3_stmt *stmt = rows_of(base)->stmt;
    if (sqlite3_column_type(stmt, column) == SQLITE_NULL)
        return (struct str){0};
    bool blob = sqlite3_column_type(stmt, column) == SQLITE_BLOB;
    const char *p =
        blob ? sqlite3_column_blob(stmt, column) : (const char *)sqlite3_column_text(stmt, column);
    return (struct str){p ? p : "", (size_t)sqlite3_column_bytes(stmt, column)};
}

static err sqlite_script(struct db_conn *c, const char *sql)
{
    return run_script(conn_of(c), sql);
}

/* Reading */

static err take_reader(struct sqlite_db *db, struct conn **out)
{
    {
        AUTO_LOCK(&db->readers_lock);
        int64_t waited = 0;
        while (db->idle_count == 0 && db->open_count == READERS_MAX) {
            if (waited >= READ_WAIT_MS)
                return fail(E_UNAVAILABLE, "database: all %d read connections are busy",
                            READERS_MAX);
            if (!cond_wait_ms(&db->reader_free, &db->readers_lock, TICK_MS))
                waited += TICK_MS;
        }
        if (db->idle_count > 0) {
            *out = db->idle[--db->idle_count];
            return 0;
        }
        db->open_count++;
    }
    err e = conn_open(db->path, false, out);
    if (e) {
        AUTO_LOCK(&db->readers_lock);
        db->open_count--;
        pthread_cond_signal(&db->reader_free);
    }
    return e;
}

static void put_reader(struct sqlite_db *db, struct conn *c)
{
    AUTO_LOCK(&db->readers_lock);
    db->idle[db->idle_count++] = c;
    pthread_cond_signal(&db->reader_free);
}

static err run_read(struct conn *c, db_fn fn, void *arg)
{
    TRY(sqlite_exec(&c->base, "BEGIN", DB_NO_ARGS, NULL));
    err e = fn(&c->base, arg);
    struct err_slot slot;
    err_save(&slot);
    /* nothing was written, so it cannot matter whether ending it succeeds */
    if (!sqlite3_get_autocommit(c->sqlite))
        (void)sqlite_exec(&c->base, "ROLLBACK", DB_NO_ARGS, NULL);
    return e ? err_restore(&slot) : 0;
}

static err sqlite_read(struct db *base, db_fn fn, void *arg)
{
    struct sqlite_db *db = self(base);
    assert(!inside);
    struct conn *c = NULL;
    TRY(take_reader(db, &c));
    assert(c);
    inside = true;
    err e = run_read(c, fn, arg);
    inside = false;
    put_reader(db, c);
    return e;
}

/* Writing */

static void set_result(struct write *w, err e)
{
    if (e)
        err_save(&w->result);
    else
        w->result.e = 0;
}

/* One write in its savepoint. False when SQLite has thrown the whole transaction away. */
static bool run_write(struct conn *c, struct write *w)
{
    err e = sqlite_exec(&c->base, "SAVEPOINT one", DB_NO_ARGS, NULL);
    if (e == 0)
        e = w->fn(&c->base, w->arg);
    set_result(w, e);
    if (sqlite3_get_autocommit(c->sqlite))
        return false;
    if (e)
        (void)sqlite_exec(&c->base, "ROLLBACK TO one", DB_NO_ARGS, NULL);
    e = sqlite_exec(&c->base, "RELEASE one", DB_NO_ARGS, NULL);
    if (e && w->result.e == 0)
        set_result(w, e);
    return true;
}

/* What the error slot says happened to the transaction happens to every write that thought it was
 * fine. */
static void fail_group(struct write *group)
{
    struct err_slot slot;
    err_save(&slot);
    for (struct write *w = group; w; w = w->next)
        if (w->result.e == 0)
            w->result = slot;
}

static err lost_transaction(void)
{
    return fail(E_UNAVAILABLE, "database: the transaction was rolled back (disk full or failing?)");
}

static void run_group(struct conn *c, struct write *group)
{
    if (sqlite_exec(&c->base, "BEGIN IMMEDIATE", DB_NO_ARGS, NULL) != 0) {
        fail_group(group);
        return;
    }
    inside = true;
    bool whole = true;
    for (struct write *w = group; w && whole; w = w->next)
        whole = run_write(c, w);
    inside = false;
    err e = whole ? sqlite_exec(&c->base, "COMMIT", DB_NO_ARGS, NULL) : lost_transaction();
    if (e == 0)
        return;
    fail_group(group);
    if (!sqlite3_get_autocommit(c->sqlite))
        (void)sqlite_exec(&c->base, "ROLLBACK", DB_NO_ARGS, NULL);
}

/* Takes up to GROUP_MAX waiting writes; NULL when closing and none is left. */
static struct write *take_group(struct sqlite_db *db)
{
    AUTO_LOCK(&db->queue_lock);
    while (db->first == NULL && !db->closing)
        cond_wait_ms(&db->queue_filled, &db->queue_lock, TICK_MS); /* idle */
    struct write *group = db->first;
    if (group == NULL)
        return NULL;
    struct write *end = group;
    int64_t count = 1;
    while (end->next && count < GROUP_MAX) {
        end = end->next;
        count++;
    }
    db->first = end->next;
    end->next = NULL;
    if (db->first == NULL)
        db->last = &db->first;
    db->stats.writes += count;
    db->stats.groups++;
    return group;
}

static void *writer_main(void *arg)
{
    struct sqlite_db *db = arg;
    struct write *group;
    while ((group = take_group(db)) != NULL) {
        for (struct write *w = group; w; w = w->next)
            w->result.e = 0;
        run_group(db->writer, group);
        AUTO_LOCK(&db->queue_lock);
        for (struct write *w = group; w; w = w->next)
            w->done = true; /* its caller cannot go before it gets the lock */
        pthread_cond_broadcast(&db->group_done);
    }
    return NULL;
}

static err sqlite_write(struct db *base, db_fn fn, void *arg)
{
    struct sqlite_db *db = self(base);
    assert(!inside);
    struct write w = {.fn = fn, .arg = arg};
    {
        AUTO_LOCK(&db->queue_lock);
        if (db->closing)
            return fail(E_UNAVAILABLE, "database: closing");
        *db->last = &w;
        db->last = &w.next;
        pthread_cond_signal(&db->queue_filled);
        while (!w.done)
            cond_wait_ms(&db->group_done, &db->queue_lock, TICK_MS); /* its COMMIT */
    }
    return w.result.e ? err_restore(&w.result) : 0;
}

static void sqlite_stats(struct db *base, struct db_stats *out)
{
    struct sqlite_db *db = self(base);
    AUTO_LOCK(&db->queue_lock);
    *out = db->stats;
}

/* Opening and closing */

static err sqlite_open(const char *path, struct db **out)
{
    if (path[0] == 0)
        return fail(E_INVALID, "database: sqlite: needs a path behind it");
    struct conn *writer = NULL;
    TRY(conn_open(path, true, &writer));
    struct sqlite_db *db = mem_alloc(sizeof *db);
    db->base.engine = &db_sqlite;
    db->magic = DB_MAGIC;
    db->path = mem_strdup(path);
    db->writer = writer;
    db->last = &db->first;
    pthread_mutex_init(&db->readers_lock, NULL);
    pthread_mutex_init(&db->queue_lock, NULL);
    cond_init(&db->reader_free);
    cond_init(&db->queue_filled);
    cond_init(&db->group_done);
    db->thread = thread_start("db-writer", writer_main, db);
    *out = &db->base;
    return 0;
}

static void sqlite_close(struct db *base)
{
    struct sqlite_db *db = self(base);
    {
        AUTO_LOCK(&db->queue_lock);
        db->closing = true;
        pthread_cond_signal(&db->queue_filled);
    }
    pthread_join(db->thread, NULL);
    assert(db->idle_count == db->open_count); /* a read is still under way: the caller's mistake */
    for (size_t i = 0; i < db->idle_count; i++)
        conn_close(db->idle[i]);
    conn_close(db->writer);
    pthread_mutex_destroy(&db->readers_lock);
    pthread_mutex_destroy(&db->queue_lock);
    pthread_cond_destroy(&db->reader_free);
    pthread_cond_destroy(&db->queue_filled);
    pthread_cond_destroy(&db->group_done);
    mem_free(db->path);
    db->magic = 0;
    mem_free(db);
}

const struct db_engine db_sqlite = {
    .name = "sqlite",
    .scheme = "sqlite:",
    .open = sqlite_open,
    .close = sqlite_close,
    .read = sqlite_read,
    .write = sqlite_write,
    .stats = sqlite_stats,
    .exec = sqlite_exec,
    .query = sqlite_query,
    .next = sqlite_next,
    .rows_done = sqlite_rows_done,
    .is_null = sqlite_is_null,
    .column_int = sqlite_int,
    .column_real = sqlite_real,
    .column_str = sqlite_str,
    .script = sqlite_script,
};
