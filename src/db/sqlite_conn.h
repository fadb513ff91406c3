/* One connection to SQLite with its prepared statements, and the rows of a query: what the embedded
   engine (sqlite.c) is made of. A connection belongs to one thread at a time. */
#ifndef DB_SQLITE_CONN_H
#define DB_SQLITE_CONN_H

#include "db/engine.h"
#include "db/sqlite_guard.h"

#define SQLITE_STATEMENTS_MAX 96 /* prepared statements kept by a connection */

/* A prepared statement, kept for the next use of the same text. */
struct sqlite_statement {
    char *sql;
    sqlite3_stmt *stmt;
    uint64_t used; /* the connection's tick at last use: the oldest goes first */
    bool busy;     /* rows of it are being read: a second use gets a statement of its own */
};

struct sqlite_conn {
    struct db_conn base;
    unsigned magic;
    sqlite3 *sqlite;
    struct sqlite_guard guard;
    uint64_t tick;
    size_t statement_count;
    struct sqlite_statement statements[SQLITE_STATEMENTS_MAX];
};

err sqlite_conn_open(const char *path, bool writer, struct sqlite_conn **out);
void sqlite_conn_close(struct sqlite_conn *c); /* NULL-safe */

/* As in struct db_engine. */
err sqlite_exec(struct db_conn *base, const char *sql, const struct db_value *args, size_t n,
                int64_t *out_changed);
err sqlite_query(struct db_conn *base, const char *sql, const struct db_value *args, size_t n,
                 struct db_rows **out);
bool sqlite_next(struct db_rows *base);
err sqlite_rows_done(struct db_rows *base);
bool sqlite_is_null(struct db_rows *r, int column);
int64_t sqlite_int(struct db_rows *r, int column);
double sqlite_real(struct db_rows *r, int column);
struct str sqlite_str(struct db_rows *base, int column);
err sqlite_script(struct db_conn *c, const char *sql);

#endif
