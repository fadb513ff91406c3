/* The embedded engine: SQLite in WAL mode with synchronous=FULL. A pool of connections for reads;
   one writer thread that runs every waiting write in a savepoint, commits them as one group and
   only then wakes their callers (R12). */
#include "db/engine.h"

#include "base/buf.h"
#include "base/lock.h"
#include "base/mem.h"
#include "db/sqlite_conn.h"

#include <sqlite3.h>
#include <stdio.h>

#define READERS_MAX 16
#define READ_WAIT_MS 30000 /* for a connection of the pool */
#define GROUP_MAX 256      /* writes a transaction; bounds how long the first one waits */
#define TICK_MS 1000       /* waits are renewed this often; nothing depends on the value */

#define DB_MAGIC 0x53514c44u

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
    struct sqlite_conn *idle[READERS_MAX];
    size_t idle_count, open_count;

    pthread_mutex_t queue_lock; /* lock order 5 */
    pthread_cond_t queue_filled, group_done;
    struct write *first, **last;
    bool closing;
    struct db_stats stats;

    struct sqlite_conn *writer; /* used by the writer thread only, once it runs */
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

/* Reading */

static err take_reader(struct sqlite_db *db, struct sqlite_conn **out)
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
    err e = sqlite_conn_open(db->path, false, out);
    if (e) {
        AUTO_LOCK(&db->readers_lock);
        db->open_count--;
        pthread_cond_signal(&db->reader_free);
    }
    return e;
}

static void put_reader(struct sqlite_db *db, struct sqlite_conn *c)
{
    AUTO_LOCK(&db->readers_lock);
    db->idle[db->idle_count++] = c;
    pthread_cond_signal(&db->reader_free);
}

static bool sqlite_reads_now(struct db *base)
{
    struct sqlite_db *db = self(base);
    AUTO_LOCK(&db->readers_lock);
    return db->idle_count > 0;
}

static err run_read(struct sqlite_conn *c, db_fn fn, void *arg)
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
    struct sqlite_conn *c = NULL;
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
static bool run_write(struct sqlite_conn *c, struct write *w)
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

static void run_group(struct sqlite_conn *c, struct write *group)
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

/* Copying */

static err copy_pages(sqlite3 *from, sqlite3 *to)
{
    sqlite3_backup *copy = sqlite3_backup_init(to, "main", from, "main");
    if (copy)
        sqlite3_backup_step(copy, -1); /* all pages: one instant; the writer is not kept waiting */
    if (copy == NULL || sqlite3_backup_finish(copy) != SQLITE_OK)
        return fail(E_IO, "database: the copy failed: %s", sqlite3_errmsg(to));
    return 0;
}

static err sqlite_snapshot(struct db *base, const char *path)
{
    struct sqlite_db *db = self(base);
    struct sqlite_conn *from = NULL;
    sqlite3 *to = NULL;
    TRY(sqlite_conn_open(db->path, false, &from));
    err e = 0;
    if (sqlite3_open(path, &to) != SQLITE_OK)
        e = fail(E_IO, "database: cannot create %s", path);
    /* Whoever copies it elsewhere makes it durable there. */
    if (!e && sqlite3_exec(to, "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF", NULL, NULL,
                           NULL) != SQLITE_OK)
        e = fail(E_IO, "database: cannot write %s: %s", path, sqlite3_errmsg(to));
    if (!e)
        e = copy_pages(from->sqlite, to);
    sqlite3_close(to);
    sqlite_conn_close(from);
    return e;
}

/* Opening and closing */

static err sqlite_open(const char *path, struct db **out)
{
    if (path[0] == 0)
        return fail(E_INVALID, "database: sqlite: needs a path behind it");
    struct sqlite_conn *writer = NULL;
    TRY(sqlite_conn_open(path, true, &writer));
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
        sqlite_conn_close(db->idle[i]);
    sqlite_conn_close(db->writer);
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
    .reads_now = sqlite_reads_now,
    .stats = sqlite_stats,
    .snapshot = sqlite_snapshot,
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
