/* src/api/credentials_env.c: the service's own model keys, as the session finds them. */
#include "api/credentials_env.h"

#include "api/keys.h"
#include "base/buf.h"
#include "base/mem.h"
#include "db/db.h"
#include "session/credentials.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>
#undef fail /* ours */

#include "db_support.h"

struct fixture {
    struct test_db at;
    struct clock *clock;
    char tenant[ID_MAX], other[ID_MAX];
};

static err make_tenants(struct db_conn *c, void *arg)
{
    struct fixture *f = arg;
    TRY(tenant_insert(c, "one", 1, f->tenant));
    return tenant_insert(c, "two", 2, f->other);
}

static int set_up(void **state)
{
    struct fixture *f = mem_alloc(sizeof *f);
    test_db_open(&f->at);
    f->clock = clock_fake_new(1000);
    assert_int_equal(db_write(f->at.db, make_tenants, f), 0);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    clock_fake_free(f->clock);
    test_db_close(&f->at);
    mem_free(f);
    return 0;
}

static void keep(struct fixture *f, const char *tenant, const char *provider, struct str sealed)
{
    assert_int_equal(credentials_env_upsert(f->at.db, f->clock, tenant, provider, sealed), 0);
}

static void assert_found(struct fixture *f, const char *provider, struct str sealed)
{
    AUTO_ARENA a = arena_new();
    struct str found = {0};
    assert_int_equal(credential_for_provider(f->at.db, a, f->tenant, "[]", provider, &found), 0);
    assert_true(str_eq(found, sealed));
}

static void a_session_finds_the_key_of_its_provider(void **state)
{
    struct fixture *f = *state;
    keep(f, f->tenant, "openai", STR("box\0one\xff"));
    keep(f, f->tenant, "google", STR("box two"));
    assert_found(f, "openai", STR("box\0one\xff"));
    assert_found(f, "google", STR("box two"));
}

static void another_tenant_finds_nothing(void **state)
{
    struct fixture *f = *state;
    keep(f, f->other, "openai", STR("theirs"));
    AUTO_ARENA a = arena_new();
    struct str found = {0};
    assert_int_equal(credential_for_provider(f->at.db, a, f->tenant, "[]", "openai", &found),
                     E_UNAVAILABLE);
    assert_string_equal(err_code(), "credential_missing");
    assert_null(found.p);
}

static err count_rows(struct db_conn *c, void *arg)
{
    struct db_rows *r;
    TRY(db_query(c,
                 "/* all tenants */ SELECT (SELECT COUNT(*) FROM credentials) * 100"
                 " + (SELECT COUNT(*) FROM vaults)",
                 DB_NO_ARGS, &r));
    *(int64_t *)arg = db_next(r) ? db_int(r, 0) : -1;
    return db_rows_done(r);
}

static void a_new_key_replaces_the_old_one(void **state)
{
    struct fixture *f = *state;
    for (int start = 0; start < 3; start++) {
        keep(f, f->tenant, "openai", STR("old"));
        clock_fake_advance_ms(f->clock, 1000);
    }
    keep(f, f->tenant, "openai", STR("new"));
    assert_found(f, "openai", STR("new"));
    int64_t rows = 0;
    assert_int_equal(db_read(f->at.db, count_rows, &rows), 0);
    assert_int_equal(rows, 101); /* one credential in one vault */
}

static void an_unknown_tenant_is_an_error(void **state)
{
    struct fixture *f = *state;
    assert_int_not_equal(
        credentials_env_upsert(f->at.db, f->clock, "tenant_none", "openai", STR("box")), 0);
}

#define WITH_DB(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_DB(a_session_finds_the_key_of_its_provider),
        WITH_DB(another_tenant_finds_nothing),
        WITH_DB(a_new_key_replaces_the_old_one),
        WITH_DB(an_unknown_tenant_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
