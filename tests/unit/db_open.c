/* src/db/db.c: what is not opened, and why. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#undef fail /* ours */

#include "db_support.h"

static err add_unknown(struct db_conn *c, void *arg)
{
    (void)arg;
    return db_exec(c, "INSERT INTO schema_migrations VALUES (99, 'from the future', 1)", DB_NO_ARGS,
                   NULL);
}

static void a_database_of_a_newer_version_is_refused(void **state)
{
    struct test_db *f = *state;
    assert_int_equal(db_write(f->db, add_unknown, NULL), 0);
    struct db *second = NULL;
    assert_int_equal(db_open(f->url, &second), E_UNAVAILABLE);
    assert_non_null(strstr(err_text(), "newer"));
    assert_null(second);
}

static void other_urls_are_refused_with_a_reason(void **state)
{
    (void)state;
    struct db *db = NULL;
    assert_int_equal(db_open("postgres://u:geheim@h/d", &db), E_UNAVAILABLE);
    assert_non_null(strstr(err_text(), "PostgreSQL"));
    assert_null(strstr(err_text(), "geheim"));
    assert_int_equal(db_open("mysql://u:geheim@h/d", &db), E_INVALID);
    assert_null(strstr(err_text(), "geheim"));
    assert_int_equal(db_open("sqlite:", &db), E_INVALID);
    assert_int_equal(db_open("sqlite:/nowhere/at/all.db", &db), E_UNAVAILABLE);
    assert_null(db);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_database_of_a_newer_version_is_refused, test_db_set_up,
                                        test_db_tear_down),
        cmocka_unit_test(other_urls_are_refused_with_a_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
