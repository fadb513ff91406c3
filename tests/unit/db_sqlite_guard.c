/* src/db/sqlite_guard.c (R50): a statement that forgets the tenant is found, whatever its table. */
#include "../../src/db/sqlite_conn.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>
#undef fail /* ours */

#include "db_support.h"

static err guarded(struct db_conn *base, void *arg)
{
    struct sqlite_conn *c = conn_of(base);
    const char *sql = arg;
    sqlite3_stmt *stmt = NULL;
    sqlite_guard_watch(&c->guard, c->sqlite);
    sqlite_guard_begin(&c->guard);
    err e = prepare_unchecked(c, sql, &stmt);
    assert_int_equal(e, 0);
    sqlite3_finalize(stmt);
    return sqlite_guard_check(&c->guard, sql);
}

/* R50 */
static void a_statement_that_forgets_the_tenant_is_found(void **state)
{
    struct test_db *f = *state;
    static const char *const bad[] = {
        "SELECT COUNT(*) FROM agents",
        "SELECT name FROM agents WHERE id = $1",
        "SELECT a.name FROM agents a JOIN agent_versions v ON v.agent_id = a.id"
        " WHERE a.tenant_id = $1",
        "UPDATE agents SET name = $1 WHERE id = $2",
        "DELETE FROM environments WHERE id = $1",
        "DELETE FROM environments",
        "INSERT INTO agents (tenant_id, id, name, version, created_at, updated_at)"
        " SELECT $1, id, name, 1, 1, 1 FROM environments",
        "SELECT id FROM tenants WHERE EXISTS (SELECT 1 FROM sessions WHERE status = 'idle')",
        "WITH w AS (SELECT id FROM sessions) SELECT 1 FROM tenants WHERE id IN (SELECT id FROM w)",
    };
    static const char *const good[] = {
        "SELECT name FROM agents WHERE tenant_id = $1 AND id = $2",
        "SELECT tenant_id, id FROM sessions WHERE status = 'running'",
        "UPDATE agents SET name = $3 WHERE tenant_id = $1 AND id = $2",
        "DELETE FROM environments WHERE tenant_id = $1 AND id = $2",
        "INSERT INTO environments (tenant_id, id, name, definition, created_at, updated_at)"
        " VALUES ($1, $2, $3, $4, $5, $5)",
        "SELECT id, name FROM tenants",
        "/* all tenants */ SELECT COUNT(*) FROM sessions",
        "SELECT 1",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(db_read(f->db, guarded, (void *)bad[i]), E_INTERNAL);
        assert_non_null(strstr(err_text(), "tenant_id"));
    }
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_int_equal(db_read(f->db, guarded, (void *)good[i]), 0);
}

/* Tables that belong to the service and not to a tenant: each needs a reason. */
static bool is_shared(struct str table)
{
    static const char *const shared[] = {
        "tenants",           /* the tenants themselves */
        "schema_migrations", /* which schema this is */
        "quota_plans",       /* what plans there are (§27) */
        "sqlite_sequence",   "sqlite_stat1",
    };
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
        if (str_is(table, shared[i]))
            return true;
    return false;
}

struct table_names {
    char names[64][64];
    size_t n;
};

static err list_tables(struct db_conn *c, void *arg)
{
    struct table_names *t = arg;
    struct db_rows *r;
    TRY(db_query(c, "SELECT name FROM sqlite_master WHERE type = 'table'", DB_NO_ARGS, &r));
    while (db_next(r)) {
        assert_true(t->n < 64);
        if (!is_shared(db_str(r, 0)))
            snprintf(t->names[t->n++], sizeof t->names[0], "%.*s", STR_ARG(db_str(r, 0)));
    }
    return db_rows_done(r);
}

/* R50: a table that comes later is guarded, too, or this fails. */
static void every_table_of_tenants_is_guarded(void **state)
{
    struct test_db *f = *state;
    static struct table_names tables;
    tables.n = 0;
    assert_int_equal(db_read(f->db, list_tables, &tables), 0);
    assert_true(tables.n >= 9);
    for (size_t i = 0; i < tables.n; i++) {
        static const char *const forms[][2] = {{"SELECT COUNT(*) FROM ", ""},
                                               {"DELETE FROM ", ""},
                                               {"UPDATE ", " SET tenant_id = 'x'"}};
        for (size_t k = 0; k < sizeof forms / sizeof *forms; k++) {
            char sql[128];
            snprintf(sql, sizeof sql, "%s%s%s", forms[k][0], tables.names[i], forms[k][1]);
            print_message("%s\n", sql);
            assert_int_equal(db_read(f->db, guarded, sql), E_INTERNAL);
        }
    }
}

#define WITH_DB(f) cmocka_unit_test_setup_teardown(f, test_db_set_up, test_db_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_DB(a_statement_that_forgets_the_tenant_is_found),
        WITH_DB(every_table_of_tenants_is_guarded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
