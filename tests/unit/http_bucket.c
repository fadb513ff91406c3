/* src/http/bucket.c: what fits into a minute, how long to wait, who is forgotten. */
#include "http/bucket.h"

#include "base/lock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static unsigned take_all(struct buckets *b, const char *tenant, double per_minute, int64_t now_ms)
{
    unsigned n = 0;
    int64_t wait_ms;
    while (n < 100000 && buckets_take(b, tenant, per_minute, now_ms, &wait_ms))
        n++;
    return n;
}

static void a_burst_is_ten_seconds_worth(void **state)
{
    (void)state;
    struct buckets *b = buckets_new();
    assert_int_equal(take_all(b, "a", 600, 0), 100);
    assert_int_equal(take_all(b, "small", 30, 0), 10); /* at least ten … */
    assert_int_equal(take_all(b, "tiny", 3, 0), 3);    /* … but no more than a minute's */
    assert_int_equal(take_all(b, "none", 0, 0), 0);
    buckets_free(b);
}

static void a_minute_gives_what_it_should(void **state)
{
    (void)state;
    struct buckets *b = buckets_new();
    unsigned n = take_all(b, "a", 600, 0);
    for (int64_t at = 10; at <= 60000; at += 10)
        n += take_all(b, "a", 600, at);
    assert_in_range(n, 699, 701); /* the burst and the minute */
    buckets_free(b);
}

static void the_wait_is_until_the_next_token(void **state)
{
    (void)state;
    struct buckets *b = buckets_new();
    int64_t wait_ms = 0;
    take_all(b, "a", 60, 1000);
    assert_false(buckets_take(b, "a", 60, 1400, &wait_ms));
    assert_int_equal(wait_ms, 600);
    assert_false(buckets_take(b, "a", 60, 1999, &wait_ms));
    assert_true(buckets_take(b, "a", 60, 2000, &wait_ms));
    assert_false(buckets_take(b, "none", 0, 0, &wait_ms));
    assert_int_equal(wait_ms, INT64_MAX);
    buckets_free(b);
}

static void tenants_do_not_share(void **state)
{
    (void)state;
    struct buckets *b = buckets_new();
    assert_int_equal(take_all(b, "a", 600, 0), 100);
    assert_int_equal(take_all(b, "b", 600, 0), 100);
    buckets_free(b);
}

static void a_changed_limit_counts_from_the_next_request(void **state)
{
    (void)state;
    struct buckets *b = buckets_new();
    int64_t wait_ms;
    assert_true(buckets_take(b, "a", 6000, 0, &wait_ms)); /* 999 left */
    assert_int_equal(take_all(b, "a", 60, 0), 10);        /* cut to what the new one holds */
    assert_int_equal(take_all(b, "a", 6000, 0), 0);       /* a raise gives nothing at once */
    assert_int_equal(take_all(b, "a", 6000, 100), 10);
    buckets_free(b);
}

static void a_clock_that_goes_back_takes_nothing_away(void **state)
{
    (void)state;
    struct buckets *b = buckets_new();
    take_all(b, "a", 60, 100000);
    assert_int_equal(take_all(b, "a", 60, 0), 0);
    assert_int_equal(take_all(b, "a", 60, 101000), 1);
    buckets_free(b);
}

static void full_buckets_are_forgotten(void **state)
{
    (void)state;
    struct buckets *b = buckets_new();
    int64_t wait_ms;
    char tenant[32];
    for (int i = 0; i < 20000; i++) { /* a minute apart: the one before is full again */
        snprintf(tenant, sizeof tenant, "tenant %d", i);
        assert_true(buckets_take(b, tenant, 60, i * 60000LL, &wait_ms));
    }
    assert_true(buckets_count(b) <= 1024);
    buckets_free(b);
}

static unsigned taken[4];
static void *take_from_thread(void *arg)
{
    struct buckets *b = arg;
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static unsigned next;
    pthread_mutex_lock(&lock);
    unsigned *mine = &taken[next++];
    pthread_mutex_unlock(&lock);
    *mine = take_all(b, "a", 6000, 0);
    return NULL;
}

static void threads_get_no_more_together(void **state)
{
    (void)state;
    struct buckets *b = buckets_new();
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        threads[i] = thread_start("taker", take_from_thread, b);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(taken[0] + taken[1] + taken[2] + taken[3], 1000);
    buckets_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_burst_is_ten_seconds_worth),
        cmocka_unit_test(a_minute_gives_what_it_should),
        cmocka_unit_test(the_wait_is_until_the_next_token),
        cmocka_unit_test(tenants_do_not_share),
        cmocka_unit_test(a_changed_limit_counts_from_the_next_request),
        cmocka_unit_test(a_clock_that_goes_back_takes_nothing_away),
        cmocka_unit_test(full_buckets_are_forgotten),
        cmocka_unit_test(threads_get_no_more_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
