/* src/session/quota.c: counting by several at once, also from outside of the process: two databases
   open on one file are what two processes are to SQLite. */
#include "session/quota.h"

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
#define LIMIT 25
#define PROCESSES 2
#define THREADS 4 /* in each */
#define TRIES 20  /* of each: far more than fit */

struct fixture {
    struct test_db at;
    struct db *other;
    pthread_barrier_t begin;
};

static err add_tenant(struct db_conn *c, void *arg)
{
    static const char sql[] = "INSERT INTO tenants (id, name, created_at) VALUES ($1, $1, 1)";
    (void)arg;
    AUTO_JSON limits = json_pack("{s:i}", quota_name(QUOTA_JOBS), LIMIT);
    TRY(db_exec(c, sql, DB_ARGS(DB_C(TENANT)), NULL));
    return quota_tenant_set(c, TENANT, NULL, limits);
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    test_db_open(&f->at);
    assert_int_equal(db_open(f->at.url, &f->other), 0);
    assert_int_equal(db_write(f->at.db, add_tenant, NULL), 0);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    db_close(f->other);
    test_db_close(&f->at);
    free(f);
    return 0;
}

static err take(struct db_conn *c, void *arg)
{
    return quota_take(c, TENANT, QUOTA_JOBS, *(int64_t *)arg);
}

static err give(struct db_conn *c, void *arg)
{
    return quota_give(c, TENANT, QUOTA_JOBS, *(int64_t *)arg);
}

static err used(struct db_conn *c, void *arg)
{
    return quota_used(c, TENANT, QUOTA_JOBS, arg);
}

struct taker {
    struct fixture *f;
    struct db *db;
    int taken, refused;
    bool gives; /* each back at once */
};

static void *take_many(void *arg)
{
    struct taker *t = arg;
    int64_t one = 1;
    pthread_barrier_wait(&t->f->begin);
    for (int i = 0; i < TRIES; i++) {
        err e = db_write(t->db, take, &one);
        t->taken += e == 0;
        t->refused += e == E_QUOTA;
        if (e == 0 && t->gives && db_write(t->db, give, &one) != 0)
            t->refused = -1;
    }
    return NULL;
}

/* All at once; how many were counted. */
static int all_take(struct fixture *f, bool gives)
{
    struct taker takers[PROCESSES * THREADS];
    pthread_t threads[PROCESSES * THREADS];
    int taken = 0;
    pthread_barrier_init(&f->begin, NULL, PROCESSES * THREADS);
    for (int i = 0; i < PROCESSES * THREADS; i++) {
        takers[i] =
            (struct taker){.f = f, .db = i % PROCESSES ? f->other : f->at.db, .gives = gives};
        threads[i] = thread_start("taker", take_many, &takers[i]);
    }
    for (int i = 0; i < PROCESSES * THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(takers[i].taken + takers[i].refused, TRIES); /* and nothing else */
        taken += takers[i].taken;
    }
    pthread_barrier_destroy(&f->begin);
    return taken;
}

static int64_t count_used(struct fixture *f)
{
    int64_t n = -1;
    assert_int_equal(db_read(f->at.db, used, &n), 0);
    return n;
}

static void two_processes_take_as_many_as_fit(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(all_take(f, false), LIMIT);
    assert_int_equal(count_used(f), LIMIT);
    int64_t one = 1;
    assert_int_equal(db_write(f->other, take, &one), E_QUOTA);
    assert_string_equal(err_code(), "quota_exceeded");
    assert_int_equal(db_write(f->at.db, give, &one), 0);
    assert_int_equal(db_write(f->other, take, &one), 0);
}

static void what_is_given_back_leaves_nothing(void **state)
{
    struct fixture *f = *state;
    assert_true(all_take(f, true) >= LIMIT);
    assert_int_equal(count_used(f), 0);
    int64_t many = LIMIT + 1;
    assert_int_equal(db_write(f->other, take, &many), E_QUOTA);
    many = LIMIT;
    assert_int_equal(db_write(f->other, take, &many), 0);
    assert_int_equal(count_used(f), LIMIT);
    many = 2 * LIMIT;
    assert_int_equal(db_write(f->at.db, give, &many), 0);
    assert_int_equal(count_used(f), 0); /* never below */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(two_processes_take_as_many_as_fit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_given_back_leaves_nothing, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
