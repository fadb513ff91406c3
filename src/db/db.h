/* The database: one interface, made for SQLite (embedded) and PostgreSQL (scale) alike. SQL is
   written out beside the function that runs it, with $1 … parameters, in the subset both engines
   speak (no WITHOUT ROWID, no engine functions; RETURNING and ON CONFLICT are fine; times are
   INTEGER/BIGINT milliseconds, booleans INTEGER 0/1, JSON TEXT).

   Two ways in:
     db_read   runs fn on a pooled connection in a read transaction, on the calling thread.
     db_write  runs fn inside a savepoint of a transaction that commits several waiting writes as
   one group (SQLite: the writer thread; PostgreSQL: a transaction of its own, retried on
               serialisation failure, so fn must be repeatable until it returns) and returns after
   COMMIT. fn failing rolls back only its savepoint; a failed COMMIT fails every write of the group
   (R12). fn must not block on anything but the database, and must not call db_read/db_write.
   Errors: E_CONFLICT for a unique violation, E_UNAVAILABLE when the database is busy beyond its
   timeout or gone, E_INTERNAL for SQL mistakes. The error slot of fn's thread is carried to the
   caller. Any thread; a connection and its rows belong to the thread running fn. */
#ifndef DB_DB_H
#define DB_DB_H

#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

struct arena;
struct db;
struct db_conn;

typedef err (*db_fn)(struct db_conn *c, void *arg);

/* url: "sqlite:/path/control.db" now; "postgres://…" is refused with a clear text until that engine
   is built. Opens, migrates, starts the writer. */
err db_open(const char *url, struct db **out);
void db_close(struct db *db); /* waits for writes under way; NULL-safe */

err db_read(struct db *db, db_fn fn, void *arg);
err db_write(struct db *db, db_fn fn, void *arg);

enum db_kind {
    DB_NULL,
    DB_INT,
    DB_REAL,
    DB_TEXT,
    DB_BLOB
};

struct db_value {
    enum db_kind kind;
    union {
        int64_t i;
        double r;
        struct str s;
    };
};

#define DB_I(v) ((struct db_value){.kind = DB_INT, .i = (v)})
#define DB_R(v) ((struct db_value){.kind = DB_REAL, .r = (v)})
#define DB_S(v) ((struct db_value){.kind = DB_TEXT, .s = (v)}) /* struct str; p NULL = SQL NULL */
#define DB_C(v)                                                                                    \
    ((struct db_value){.kind = DB_TEXT, .s = str_of(v)}) /* const char *; NULL = SQL NULL */
#define DB_B(v) ((struct db_value){.kind = DB_BLOB, .s = (v)})
#define DB_N ((struct db_value){.kind = DB_NULL})
/* db_exec(c, SQL, DB_ARGS(DB_C(tenant), DB_I(1))) */
#define DB_ARGS(...)                                                                               \
    (const struct db_value[]){__VA_ARGS__},                                                        \
        sizeof((const struct db_value[]){__VA_ARGS__}) / sizeof(struct db_value)
#define DB_NO_ARGS NULL, 0

/* Runs a statement without rows. out_changed may be NULL. */
err db_exec(struct db_conn *c, const char *sql, const struct db_value *args, size_t n,
            int64_t *out_changed);

/* Rows one at a time:
     struct db_rows *r; TRY(db_query(c, SQL, DB_ARGS(…), &r));
     while (db_next(r)) … db_text(r, 0) …;
     TRY(db_rows_done(r));
   db_rows_done ends the statement and returns what went wrong, if anything: always call it. Texts
   are borrowed until the next db_next. */
struct db_rows;
err db_query(struct db_conn *c, const char *sql, const struct db_value *args, size_t n,
             struct db_rows **out);
bool db_next(struct db_rows *r);
err db_rows_done(struct db_rows *r);
bool db_is_null(struct db_rows *r, int column);
int64_t db_int(struct db_rows *r, int column);
double db_real(struct db_rows *r, int column);
struct str db_str(struct db_rows *r, int column); /* text or blob, borrowed */
/* NUL-terminated copy in the arena; NULL for SQL NULL. */
char *db_text(struct db_rows *r, int column, struct arena *a);

/* The highest migration number that has run; for /readyz and doctor. */
err db_version(struct db *db, int *out_version);
/* A read by key takes microseconds: the database is in this process, and a connection that is open
   is free (or was, a moment ago). */
bool db_reads_now(struct db *db);

/* Writes a copy of the whole database, of one instant, to the new file `path`; writes go on
   meanwhile. Not fsynced. E_UNAVAILABLE for an engine that has backups of its own (PostgreSQL). */
err db_snapshot(struct db *db, const char *path);

/* Since db_open; writes / groups is the size of a group. For metrics and tests. */
struct db_stats {
    int64_t writes; /* db_write calls that were run */
    int64_t groups; /* transactions they were committed in, failed ones included */
};
void db_get_stats(struct db *db, struct db_stats *out);

#endif
