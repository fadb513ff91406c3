/* What an engine provides to db.c: one file (sqlite.c, later postgres.c), one const struct, one row
   in db.c. Every struct db, db_conn and db_rows of an engine begins with these structs, so that
   db.c finds the engine from any of them. Only db.c, the engines and their tests include this. */
#ifndef DB_ENGINE_H
#define DB_ENGINE_H

#include "db/db.h"

struct db_engine {
    const char *name;
    const char *scheme;                             /* how its URLs begin: "sqlite:" */
    err (*open)(const char *rest, struct db **out); /* rest: the URL behind the scheme */
    void (*close)(struct db *db);
    err (*read)(struct db *db, db_fn fn, void *arg);
    err (*write)(struct db *db, db_fn fn, void *arg);
    bool (*reads_now)(struct db *db); /* NULL: never */
    void (*stats)(struct db *db, struct db_stats *out);
    err (*snapshot)(struct db *db, const char *path); /* NULL: not this engine */
    err (*exec)(struct db_conn *c, const char *sql, const struct db_value *args, size_t n,
                int64_t *out_changed);
    err (*query)(struct db_conn *c, const char *sql, const struct db_value *args, size_t n,
                 struct db_rows **out);
    bool (*next)(struct db_rows *r);
    err (*rows_done)(struct db_rows *r);
    bool (*is_null)(struct db_rows *r, int column);
    int64_t (*column_int)(struct db_rows *r, int column);
    double (*column_real)(struct db_rows *r, int column);
    struct str (*column_str)(struct db_rows *r, int column);
    err (*script)(struct db_conn *c, const char *sql); /* several statements, for migrations */
};

struct db {
    const struct db_engine *engine;
};

struct db_conn {
    const struct db_engine *engine;
};

struct db_rows {
    const struct db_engine *engine;
};

extern const struct db_engine db_sqlite;

/* Runs what is missing, one migration a transaction of the engine; called by db_open. */
err db_migrate(struct db *db);

#endif
