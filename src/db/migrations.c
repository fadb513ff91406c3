/* Which migrations exist and running those that are missing. */
#include "db/migrations.h"

#include "db/engine.h"

#include "base/clock.h"

extern const struct migration migrations_tenants[], migrations_agents[], migrations_sessions[],
    migrations_idempotency[], migrations_vaults[], migrations_files[], migrations_spend[],
    migrations_volumes[];

const struct migration *const db_migrations[] = {
    migrations_tenants,     migrations_agents,  migrations_sessions,
    migrations_idempotency, migrations_vaults,  migrations_files,
    migrations_spend,       migrations_volumes, NULL,
};

static const char sql_table[] = "CREATE TABLE IF NOT EXISTS schema_migrations ("
                                " number INTEGER PRIMARY KEY, name TEXT NOT NULL,"
                                " applied_at BIGINT NOT NULL)";
static const char sql_find[] = "SELECT name FROM schema_migrations WHERE number = $1";
static const char sql_note[] =
    "INSERT INTO schema_migrations (number, name, applied_at) VALUES ($1, $2, $3)";
static const char sql_newest[] = "SELECT COALESCE(MAX(number), 0) FROM schema_migrations";
static const char sql_all[] = "SELECT number, name FROM schema_migrations";

static bool is_known(int64_t number)
{
    for (size_t t = 0; db_migrations[t]; t++)
        for (const struct migration *m = db_migrations[t]; m->name; m++)
            if (m->number == number)
                return true;
    return false;
}

static err make_table(struct db_conn *c, void *arg)
{
    (void)arg;
    return db_exec(c, sql_table, DB_NO_ARGS, NULL);
}

/* A database that a newer version has changed is not touched: we do not know what its rows mean. */
static err refuse_unknown(struct db_conn *c, void *arg)
{
    (void)arg;
    struct db_rows *r;
    TRY(db_query(c, sql_all, DB_NO_ARGS, &r));
    int64_t unknown = 0;
    while (db_next(r))
        if (!is_known(db_int(r, 0)))
            unknown = db_int(r, 0);
    TRY(db_rows_done(r));
    if (unknown)
        return fail(E_UNAVAILABLE,
                    "database: migration %lld was made by a newer pi-managed; run that version",
                    (long long)unknown);
    return 0;
}

static err run_one(struct db_conn *c, void *arg)
{
    const struct migration *m = arg;
    struct db_rows *r;
    TRY(db_query(c, sql_find, DB_ARGS(DB_I(m->number)), &r));
    bool done = db_next(r);
    TRY(db_rows_done(r));
    if (done)
        return 0;
    TRY(c->engine->script(c, m->sql));
    int64_t now = clock_wall_ms(clock_real());
    return db_exec(c, sql_note, DB_ARGS(DB_I(m->number), DB_C(m->name), DB_I(now)), NULL);
}

err db_migrate(struct db *db)
{
    TRY(db_write(db, make_table, NULL));
    TRY(db_read(db, refuse_unknown, NULL));
    for (size_t t = 0; db_migrations[t]; t++)
        for (const struct migration *m = db_migrations[t]; m->name; m++)
            TRY(db_write(db, run_one, (void *)m));
    return 0;
}

static err read_newest(struct db_conn *c, void *arg)
{
    struct db_rows *r;
    TRY(db_query(c, sql_newest, DB_NO_ARGS, &r));
    int newest = db_next(r) ? (int)db_int(r, 0) : 0;
    TRY(db_rows_done(r));
    *(int *)arg = newest;
    return 0;
}

err db_version(struct db *db, int *out_version)
{
    return db_read(db, read_newest, out_version);
}
