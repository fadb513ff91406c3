/* src/session/spend.c: a tenant's day (R53), on a real database. */
#include "session/spend.h"

#include "base/lock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>
#undef fail /* ours */

#include "db_support.h"

#define TENANT "tenant_1"
#define OTHER "tenant_2"
#define NOON 1796040000000 /* 2026-11-30T12:00:00Z */
#define DAY_MS 86400000
#define CALLERS 8
#define ESTIMATE 0.01
#define COST 0.03

struct fixture {
    struct test_db at;
    struct spend *spend;
    pthread_barrier_t begin;
};

static err add_tenants(struct db_conn *c, void *arg)
{
    (void)arg;
    static const char sql[] = "INSERT INTO tenants (id, name, created_at) VALUES ($1, $1, 1)";
    TRY(db_exec(c, sql, DB_ARGS(DB_C(TENANT)), NULL));
    return db_exec(c, sql, DB_ARGS(DB_C(OTHER)), NULL);
}

static err one_dollar(struct db_conn *c, const char *tenant, double *out_usd)
{
    (void)c;
    *out_usd = strcmp(tenant, TENANT) == 0 ? 1 : -1;
    return 0;
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    test_db_open(&f->at);
    assert_int_equal(db_write(f->at.db, add_tenants, NULL), 0);
    f->spend = spend_new(f->at.db, one_dollar);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    spend_free(f->spend);
    test_db_close(&f->at);
    free(f);
    return 0;
}

struct entry {
    const char *tenant;
    int64_t at_ms;
    double usd;
};

static err add(struct db_conn *c, void *arg)
{
    struct entry *e = arg;
    return spend_add(c, e->tenant, e->at_ms, e->usd);
}

static err today(struct db_conn *c, void *arg)
{
    struct entry *e = arg;
    return spend_today(c, e->tenant, e->at_ms, &e->usd);
}

static double spent(struct fixture *f, int64_t at_ms)
{
    struct entry e = {.tenant = TENANT, .at_ms = at_ms};
    assert_int_equal(db_read(f->at.db, today, &e), 0);
    return e.usd;
}

/* As a session does: ask, spend, write down. */
static err one_request(struct fixture *f, struct spend_hold *h)
{
    TRY(spend_reserve(f->spend, TENANT, NOON, h, ESTIMATE));
    spend_settle(f->spend, TENANT, h, COST);
    TRY(db_write(f->at.db, add, &(struct entry){TENANT, NOON, COST}));
    spend_recorded(f->spend, TENANT, h);
    return 0;
}

static void what_is_held_counts(void **state)
{
    struct fixture *f = *state;
    struct spend_hold a = {0}, b = {0}, other = {0};
    assert_int_equal(spend_reserve(f->spend, TENANT, NOON, &a, 0.7), 0);
    assert_int_equal(spend_reserve(f->spend, TENANT, NOON, &b, 0.4), E_QUOTA);
    assert_string_equal(err_code(), "tenant_budget_exhausted");
    assert_int_equal(spend_reserve(f->spend, OTHER, NOON, &other, 100), 0);
    assert_int_equal(spend_reserve(f->spend, TENANT, NOON, &a, 0.9), 0); /* in place of the 0.7 */
    spend_settle(f->spend, TENANT, &a, 0.2);                             /* it was cheaper */
    assert_int_equal(spend_reserve(f->spend, TENANT, NOON, &b, 0.7), 0);
    spend_drop(f->spend, TENANT, &a);
    spend_drop(f->spend, TENANT, &b);
    assert_int_equal(spend_reserve(f->spend, TENANT, NOON, &a, 1.0), 0);
}

static void what_is_written_down_counts(void **state)
{
    struct fixture *f = *state;
    struct spend_hold a = {0};
    struct entry e = {TENANT, NOON, 0.6};
    assert_int_equal(db_write(f->at.db, add, &e), 0);
    assert_int_equal(db_write(f->at.db, add, &e), 0);
    assert_true(spent(f, NOON) > 1.19 && spent(f, NOON) < 1.21);
    assert_int_equal(spend_reserve(f->spend, TENANT, NOON, &a, 0), E_QUOTA);
    assert_int_equal(spend_reserve(f->spend, TENANT, NOON + DAY_MS / 2 - 1, &a, 0), E_QUOTA);
    assert_int_equal(spend_reserve(f->spend, TENANT, NOON + DAY_MS / 2, &a, 0.9), 0);
}

struct caller {
    struct fixture *f;
    unsigned admitted;
    err last;
    char code[ERR_CODE_MAX];
};

static void *call(void *arg)
{
    struct caller *c = arg;
    struct spend_hold h = {0};
    pthread_barrier_wait(&c->f->begin);
    while ((c->last = one_request(c->f, &h)) == 0)
        c->admitted++;
    snprintf(c->code, sizeof c->code, "%s", err_code());
    return NULL;
}

/* Everyone may be surprised by what its own request cost, and by no more. */
static void eight_callers_cannot_overspend_together(void **state)
{
    struct fixture *f = *state;
    struct caller callers[CALLERS] = {0};
    pthread_t threads[CALLERS];
    unsigned admitted = 0;
    pthread_barrier_init(&f->begin, NULL, CALLERS);
    for (int i = 0; i < CALLERS; i++) {
        callers[i].f = f;
        threads[i] = thread_start("caller", call, &callers[i]);
    }
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(threads[i], NULL);
        admitted += callers[i].admitted;
        assert_int_equal(callers[i].last, E_QUOTA);
        assert_string_equal(callers[i].code, "tenant_budget_exhausted");
    }
    pthread_barrier_destroy(&f->begin);
    double total = spent(f, NOON);
    assert_true(total > admitted * COST - 1e-6 && total < admitted * COST + 1e-6);
    assert_true(total > 1.0 - COST);
    assert_true(total < 1.0 + CALLERS * (COST - ESTIMATE) + 1e-6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_held_counts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_written_down_counts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(eight_callers_cannot_overspend_together, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
