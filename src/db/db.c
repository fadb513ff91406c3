/* The engine-neutral front: chooses the engine from the URL, runs migrations, forwards calls. */
#include "db/db.h"

#include "base/arena.h"
#include "db/engine.h"
#include "db/migrations.h"

/* PostgreSQL becomes one file and one row here. */
static const struct db_engine *const engines[] = {
    &db_sqlite,
    NULL,
};

static const struct db_engine *find_engine(struct str url, struct str *out_rest)
{
    for (size_t i = 0; engines[i]; i++) {
        struct str scheme = str_of(engines[i]->scheme);
        if (str_starts(url, scheme)) {
            *out_rest = (struct str){url.p + scheme.n, url.n - scheme.n};
            return engines[i];
        }
    }
    return NULL;
}

err db_open(const char *url, struct db **out)
{
    struct str rest;
    struct str whole = str_of(url);
    const struct db_engine *engine = find_engine(whole, &rest);
    if (engine == NULL &&
        (str_starts(whole, STR("postgres://")) || str_starts(whole, STR("postgresql://"))))
        return fail(E_UNAVAILABLE, "database: PostgreSQL is not built into this version; leave out "
                                   "--database to use the embedded SQLite database");
    if (engine == NULL) /* the URL may hold a password: it is not repeated */
        return fail(E_INVALID, "database: the URL must begin with sqlite:");
    struct db *db;
    TRY(engine->open(rest.p, &db));
    err e = db_migrate(db);
    if (e) {
        engine->close(db);
        return e;
    }
    *out = db;
    return 0;
}

void db_close(struct db *db)
{
    if (db)
        db->engine->close(db);
}

err db_read(struct db *db, db_fn fn, void *arg)
{
    return db->engine->read(db, fn, arg);
}

err db_write(struct db *db, db_fn fn, void *arg)
{
    return db->engine->write(db, fn, arg);
}

bool db_reads_now(struct db *db)
{
    return db->engine->reads_now && db->engine->reads_now(db);
}

void db_get_stats(struct db *db, struct db_stats *out)
{
    db->engine->stats(db, out);
}

err db_snapshot(struct db *db, const char *path)
{
    if (db->engine->snapshot == NULL)
        return fail(E_UNAVAILABLE, "%s makes its own backups", db->engine->name);
    return db->engine->snapshot(db, path);
}

err db_exec(struct db_conn *c, const char *sql, const struct db_value *args, size_t n,
            int64_t *out_changed)
{
    return c->engine->exec(c, sql, args, n, out_changed);
}

err db_query(struct db_conn *c, const char *sql, const struct db_value *args, size_t n,
             struct db_rows **out)
{
    return c->engine->query(c, sql, args, n, out);
}

bool db_next(struct db_rows *r)
{
    return r->engine->next(r);
}

err db_rows_done(struct db_rows *r)
{
    return r->engine->rows_done(r);
}

bool db_is_null(struct db_rows *r, int column)
{
    return r->engine->is_null(r, column);
}

int64_t db_int(struct db_rows *r, int column)
{
    return r->engine->column_int(r, column);
}

double db_real(struct db_rows *r, int column)
{
    return r->engine->column_real(r, column);
}

struct str db_str(struct db_rows *r, int column)
{
    return r->engine->column_str(r, column);
}

char *db_text(struct db_rows *r, int column, struct arena *a)
{
    if (db_is_null(r, column))
        return NULL;
    return (char *)arena_str(a, db_str(r, column)).p;
}
