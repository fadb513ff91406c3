/* src/broker/requests.c: what an interrupt may cut. */
#include "broker/requests.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static int table_up(void **state)
{
    *state = request_table_new();
    return 0;
}

static int table_down(void **state)
{
    request_table_free(*state);
    return 0;
}

static enum request_state state_of(struct request *r)
{
    struct request_refusal refusal;
    return request_state(r, &refusal);
}

/* An interrupt's cancel may arrive when the next turn's request has begun already: that one waits
   for control's word, and is not the one that was meant. */
static void a_cancel_spares_a_request_that_waits_for_control(void **state)
{
    struct request_table *t = *state;
    struct request *going = request_new(t, "sess_a"), *waiting = request_new(t, "sess_a");
    requests_go(t, going->id);
    requests_cancel(t, "sess_a");
    assert_int_equal(state_of(going), REQUEST_CANCELLED);
    assert_int_equal(state_of(waiting), REQUEST_WAITING);
    requests_go(t, waiting->id);
    assert_int_equal(state_of(waiting), REQUEST_GO);
    request_free(going);
    request_free(waiting);
}

static void a_cancel_is_for_one_session(void **state)
{
    struct request_table *t = *state;
    struct request *mine = request_new(t, "sess_a"), *other = request_new(t, "sess_b");
    requests_go(t, mine->id);
    requests_go(t, other->id);
    requests_cancel(t, "sess_b");
    assert_int_equal(state_of(mine), REQUEST_GO);
    assert_int_equal(state_of(other), REQUEST_CANCELLED);
    request_free(mine);
    request_free(other);
}

/* R24: a failed attempt waits for control's word again; an interrupt that came first stands. */
static void a_failed_attempt_waits_again(void **state)
{
    struct request_table *t = *state;
    struct request *r = request_new(t, "sess_a");
    requests_go(t, r->id);
    assert_int_equal(request_wait(r, -1, 1000), 0);
    request_pause(r);
    assert_int_equal(state_of(r), REQUEST_WAITING);
    assert_int_equal(request_wait(r, -1, 1), E_TIMEOUT);
    requests_hold(t, r->id, 60000);
    requests_go(t, r->id);
    assert_int_equal(request_wait(r, -1, 1), 0);
    requests_cancel(t, "sess_a");
    request_pause(r);
    assert_int_equal(state_of(r), REQUEST_CANCELLED);
    request_free(r);
}

static void without_control_everything_is_cut(void **state)
{
    struct request_table *t = *state;
    struct request *going = request_new(t, "sess_a"), *waiting = request_new(t, "sess_b");
    requests_go(t, going->id);
    requests_cancel(t, NULL);
    assert_int_equal(state_of(going), REQUEST_CANCELLED);
    assert_int_equal(state_of(waiting), REQUEST_CANCELLED);
    request_free(going);
    request_free(waiting);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_cancel_spares_a_request_that_waits_for_control, table_up,
                                        table_down),
        cmocka_unit_test_setup_teardown(a_cancel_is_for_one_session, table_up, table_down),
        cmocka_unit_test_setup_teardown(a_failed_attempt_waits_again, table_up, table_down),
        cmocka_unit_test_setup_teardown(without_control_everything_is_cut, table_up, table_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
