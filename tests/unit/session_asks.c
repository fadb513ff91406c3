/* Tests src/session/asks.c: a model request reaches its session after what its host said before it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#undef fail /* ours is a function */

#define harness_heard scripted_heard
#define manager_post_input note_post
#include "../../src/session/asks.c"

#include "base/buf.h"

static int64_t heard_of_host; /* all sessions but "gone" are open there */
static struct buf posts;      /* what the sessions were told, in order */

int64_t scripted_heard(struct harness *h, const char *session)
{
    (void)h;
    return strcmp(session, "gone") == 0 ? INT64_MAX : heard_of_host;
}

void note_post(struct session_manager *m, const char *session, const struct turn_input *input,
               bool may_block)
{
    (void)m;
    assert_false(may_block); /* the broker's link has other sessions to tell */
    char line[200];
    snprintf(line, sizeof line, "%s %s%s\n", session, input->kind == TURN_REQUEST_BEGIN ? "+" : "-",
             input->id);
    buf_add_str(&posts, str_of(line));
}

static struct asks *start(struct session_manager *m)
{
    heard_of_host = 5;
    buf_clear(&posts);
    return asks_new(m);
}

static void expect(struct asks *a, const char *wanted)
{
    assert_int_equal(posts.n, strlen(wanted));
    assert_memory_equal(posts.p, wanted, posts.n);
    buf_clear(&posts);
    (void)a;
}

static void drop(struct asks *a)
{
    asks_forget(a);
    pthread_mutex_destroy(&a->lock);
    mem_free(a);
}

static void a_request_whose_host_was_heard_is_told_at_once(void **state)
{
    (void)state;
    struct session_manager m = {0};
    struct asks *a = start(&m);
    asks_begin(a, "s", "r1", 1, 0); /* a host that does not tell */
    asks_begin(a, "s", "r2", 1, 5);
    asks_begin(a, "gone", "r3", 1, 900);
    asks_end(a, "s", "r2", NULL);
    expect(a, "s +r1\ns +r2\ngone +r3\ns -r2\n");
    drop(a);
}

static void a_request_waits_for_what_its_host_said_before(void **state)
{
    (void)state;
    struct session_manager m = {0};
    struct asks *a = start(&m);
    asks_begin(a, "s", "r1", 1, 7);
    asks_begin(a, "t", "r2", 1, 6);
    asks_heard(a);
    expect(a, "");
    heard_of_host = 6;
    asks_heard(a);
    expect(a, "t +r2\n");
    heard_of_host = 8;
    asks_heard(a);
    expect(a, "s +r1\n");
    asks_heard(a);
    asks_end(a, "s", "r1", NULL);
    expect(a, "s -r1\n");
    drop(a);
}

static void a_request_that_ends_before_is_not_told_at_all(void **state)
{
    (void)state;
    struct session_manager m = {0};
    struct asks *a = start(&m);
    asks_begin(a, "s", "r1", 1, 7);
    asks_begin(a, "s", "r2", 1, 7);
    asks_end(a, "s", "r1", NULL);
    heard_of_host = 7;
    asks_heard(a);
    expect(a, "s +r2\n");
    drop(a);
}

static void what_waits_is_void_when_the_broker_goes(void **state)
{
    (void)state;
    struct session_manager m = {0};
    struct asks *a = start(&m);
    asks_begin(a, "s", "r1", 1, 7);
    asks_forget(a);
    heard_of_host = 7;
    asks_heard(a);
    expect(a, "");
    drop(a);
}

static void a_host_that_tells_nonsense_fills_no_memory(void **state)
{
    (void)state;
    struct session_manager m = {0};
    struct asks *a = start(&m);
    for (int i = 0; i < WAITING_MAX; i++)
        asks_begin(a, "s", "r", 1, INT64_MAX - 1);
    expect(a, "");
    asks_begin(a, "s", "late", 1, 7);
    expect(a, "s +late\n");
    drop(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_whose_host_was_heard_is_told_at_once),
        cmocka_unit_test(a_request_waits_for_what_its_host_said_before),
        cmocka_unit_test(a_request_that_ends_before_is_not_told_at_all),
        cmocka_unit_test(what_waits_is_void_when_the_broker_goes),
        cmocka_unit_test(a_host_that_tells_nonsense_fills_no_memory),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    buf_done(&posts);
    return failed;
}
