/* The turn machine when something dies or fails: host, broker, sandbox, or the service itself
   (turn_recovery.c plays every such crash). */
#include "turn_support.h"

/* ---- lost processes ---- */

static void a_host_lost_while_opening_is_opened_again(void **state)
{
    struct script *s = *state;
    post(s, "m1", "hi");
    assert_string_equal(host_lost(s), "> open");
    assert_string_equal(opened(s), "processed:m1 > prompt(hi)");
}

static void a_prompt_lost_with_its_host_is_given_again(void **state)
{
    struct script *s = *state;
    post(s, "m1", "hi");
    opened(s);
    assert_string_equal(host_lost(s), "> open");
    assert_string_equal(opened(s), "> prompt(hi)");
}

static void a_request_lost_with_its_host_is_made_again(void **state)
{
    struct script *s = *state;
    begin(s);
    delta(s, "text", "hel");
    assert_string_equal(host_lost(s), "end:1!request_lost > frame:event_discarded open");
    assert_string_equal(opened(s), "> resume()");
    assert_string_equal(request(s, "r2"), "start:2 > go:r2");
}

static void calls_go_on_while_a_lost_host_comes_back(void **state)
{
    struct script *s = *state;
    begin_calls(s, "a b");
    tool_result(s, "a");
    assert_string_equal(host_lost(s), "> open");
    assert_string_equal(opened(s), "");
    assert_string_equal(tool_result(s, "b"), "> resume(a,b)");
    assert_string_equal(pi_result(s, "a"), "pi:toolResult > ack:a");
    assert_string_equal(pi_result(s, "b"), "pi:toolResult > ack:b");
    request(s, "r2");
    pi_assistant(s, "stop", "ok");
    request_done(s, "r2");
    assert_string_equal(settled(s), "idle:end_turn > status:idle");
    assert_string_equal(script_tell_events(s),
                        "message run_started start:1 message tool_use:a tool_use:b end:1 "
                        "tool_result:a tool_result:b start:2 message end:2 idle:end_turn");
}

static void calls_not_asked_for_when_the_host_died_get_a_result(void **state)
{
    struct script *s = *state;
    begin(s);
    pi_calls(s, "a b");
    tool(s, "a"); /* held; b was never asked for */
    assert_string_equal(host_lost(s), "end:1!request_lost > attach:b open start:a");
    opened(s);
    tool_result(s, "b");
    assert_string_equal(tool_result(s, "a"), "> resume(a,b)");
}

static void a_host_lost_between_results_is_resumed_with_the_rest(void **state)
{
    struct script *s = *state;
    begin_calls(s, "a b");
    tool_result(s, "a");
    tool_result(s, "b");
    pi_result(s, "a");
    host_lost(s);
    assert_string_equal(opened(s), "> resume(b)");
}

static void a_host_lost_after_the_last_line_ends_the_turn(void **state)
{
    struct script *s = *state;
    begin(s);
    pi_assistant(s, "stop", "hello");
    request_done(s, "r1");
    host_lost(s);
    assert_string_equal(opened(s), "idle:end_turn > status:idle");
}

static void a_host_lost_after_a_failed_line_is_resumed(void **state)
{
    struct script *s = *state;
    begin(s);
    pi_assistant(s, "error", "overloaded");
    request_failed(s, "r1", "model_overloaded", false);
    host_lost(s);
    assert_string_equal(opened(s), "> resume()"); /* Pi cannot try again any more: we do */
    assert_string_equal(
        request(s, "r2"),
        "error!model_overloaded/retrying rescheduled > status:rescheduling hold:r2");
}

static void a_host_lost_during_an_interrupt_ends_the_turn(void **state)
{
    struct script *s = *state;
    begin_calls(s, "a");
    post_interrupt(s, "i1");
    assert_string_equal(host_lost(s), "result:a(cut) idle:interrupted > ack:a status:idle");
}

static void a_host_lost_while_idle_is_not_missed(void **state)
{
    struct script *s = *state;
    begin(s);
    pi_assistant(s, "stop", "hello");
    request_done(s, "r1");
    settled(s);
    assert_string_equal(host_lost(s), "");
    assert_string_equal(post(s, "m2", "two"), "inbox:m2 run_started > status:running warm open");
}

static void a_host_that_keeps_dying_fails_the_turn(void **state)
{
    struct script *s = *state;
    begin_calls(s, "a");
    host_lost(s);
    host_lost(s);
    assert_string_equal(
        host_lost(s),
        "error!harness_crashed/terminal result:a(cut) idle:error > cancel:a ack:a status:idle");
    assert_true(turn_is_quiet(s->t));
    assert_string_equal(post(s, "m2", "two"), "inbox:m2 run_started > status:running warm open");
    assert_string_equal(opened(s), "processed:m2 > prompt(two)");
}

static void a_new_line_forgives_lost_hosts(void **state)
{
    struct script *s = *state;
    begin(s);
    host_lost(s);
    host_lost(s);
    opened(s);
    pi_assistant(s, "stop", "hello");
    assert_string_equal(host_lost(s), "> open");
}

static void a_lost_broker_ends_the_span(void **state)
{
    struct script *s = *state;
    begin(s);
    assert_string_equal(broker_lost(s), "end:1!request_lost");
    assert_string_equal(pi_assistant(s, "error", "socket closed"), "pi:assistant");
    assert_string_equal(pi_retries(s), ""); /* nobody was asked too often */
    assert_string_equal(request(s, "r2"), "start:2 > go:r2");
    assert_string_equal(broker_lost(s), "end:2!request_lost");
}

/* ---- failures of host and sandbox ---- */

static void a_host_that_cannot_open_fails_the_turn(void **state)
{
    struct script *s = *state;
    post(s, "m1", "hi");
    assert_string_equal(open_failed(s, "no node"),
                        "error!harness_unavailable/terminal idle:error > status:idle");
    assert_string_equal(post(s, "m2", "two"), "inbox:m2 run_started > status:running warm open");
    assert_string_equal(opened(s), "processed:m1 > prompt(hi)");
}

static void a_refused_prompt_fails_the_turn(void **state)
{
    struct script *s = *state;
    post(s, "m1", "hi");
    opened(s);
    assert_string_equal(refused(s, "prompt", "no model"),
                        "error!harness_error/terminal idle:error > status:idle");
    assert_string_equal(post(s, "m2", "two"),
                        "inbox:m2 run_started processed:m2 > status:running warm prompt(two)");
}

static void a_run_that_ends_in_an_exception_is_an_error(void **state)
{
    struct script *s = *state;
    begin_calls(s, "a");
    assert_string_equal(
        settled_with(s, "boom"),
        "error!harness_error/terminal result:a(cut) idle:error > cancel:a ack:a status:idle");
}

static void a_failed_sandbox_is_an_error_and_a_result(void **state)
{
    struct script *s = *state;
    begin_calls(s, "a");
    assert_string_equal(
        script_step(s, (struct turn_input){.kind = TURN_SANDBOX_FAILED, .text = "no space"}),
        "error!sandbox_unavailable/terminal");
    assert_string_equal(tool_result(s, "a"), "> give:a");
}

static void sandbox_started(struct script *s, const char *expected)
{
    assert_string_equal(
        script_step(s, (struct turn_input){.kind = TURN_SANDBOX_STARTED, .number = 7}), expected);
}

static void the_start_of_a_sandbox_is_told_before_the_first_result(void **state)
{
    struct script *s = *state;
    begin_calls(s, "a b");
    sandbox_started(s, "");
    assert_string_equal(tool_result(s, "a"), "sandbox_start result:a > give:a");
    assert_string_equal(tool_result(s, "b"), "> give:b");
    sandbox_started(s, "sandbox_start"); /* it died and is there again */
}

static void the_start_of_a_sandbox_that_no_call_needed_is_not_told(void **state)
{
    struct script *s = *state;
    post(s, "m1", "hi");
    opened(s);
    sandbox_started(s, "");
    pi_user(s, "hi");
    assert_string_equal(settled(s), "idle:end_turn > status:idle");
    sandbox_started(s, "");
}

/* ---- R26: after a crash (turn_recovery.c plays them all) ---- */

static void calls_open_at_a_crash_are_looked_for(void **state)
{
    struct script *s = *state;
    begin_calls(s, "a b c");
    tool_result(s, "b");
    script_restart(s, s->n);
    assert_true(turn_needs_recovery(s->t));
    assert_string_equal(recover(s), "> status:running attach:a attach:c warm open");
    assert_string_equal(tool_result(s, "a"), "result:a");
    assert_string_equal(opened(s), "");
    assert_string_equal(tool_result(s, "c"), "> resume(a,b,c)");
}

static void a_request_cut_by_a_crash_is_made_again(void **state)
{
    struct script *s = *state;
    begin(s);
    script_restart(s, s->n);
    assert_string_equal(recover(s), "end:1!request_lost > status:running warm open");
    assert_string_equal(opened(s), "> resume()");
    assert_string_equal(request(s, "r9"), "start:2 > go:r9");
}

static void a_message_that_came_before_a_crash_is_run(void **state)
{
    struct script *s = *state;
    post(s, "m1", "hi");
    script_restart(s, 2); /* header inbox:m1 */
    assert_false(turn_is_running(s->t));
    assert_true(turn_needs_recovery(s->t));
    assert_string_equal(recover(s), "run_started > status:running warm open");
}

static void an_interrupt_before_a_crash_still_takes_the_message(void **state)
{
    struct script *s = *state;
    post(s, "m1", "hi");
    post_interrupt(s, "i1");
    script_restart(s, 4); /* header inbox:m1 run_started inbox:i1 */
    assert_string_equal(recover(s), "withdrawn:m1 idle:interrupted > status:running status:idle");
    assert_true(turn_is_quiet(s->t));
}

static void an_interrupt_before_a_crash_leaves_the_queue(void **state)
{
    struct script *s = *state;
    begin_calls(s, "a");
    post(s, "m2", "two");
    post_interrupt(s, "i1");
    script_restart(s, s->n);
    assert_string_equal(recover(s), "result:a(cut) idle:interrupted run_started > status:running "
                                    "cancel:a ack:a status:idle status:running warm open");
    assert_string_equal(opened(s), "processed:m2 > prompt(two)");
}

static void a_crash_after_the_last_failure_tells_it(void **state)
{
    struct script *s = *state;
    begin(s);
    exhaust(s);
    script_restart(s, s->n);
    recover(s);
    assert_string_equal(opened(s), "error!model_overloaded/exhausted idle:retries_exhausted > "
                                   "status:idle");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_host_lost_while_opening_is_opened_again),
        TEST(a_prompt_lost_with_its_host_is_given_again),
        TEST(a_request_lost_with_its_host_is_made_again),
        TEST(calls_go_on_while_a_lost_host_comes_back),
        TEST(calls_not_asked_for_when_the_host_died_get_a_result),
        TEST(a_host_lost_between_results_is_resumed_with_the_rest),
        TEST(a_host_lost_after_the_last_line_ends_the_turn),
        TEST(a_host_lost_after_a_failed_line_is_resumed),
        TEST(a_host_lost_during_an_interrupt_ends_the_turn),
        TEST(a_host_lost_while_idle_is_not_missed),
        TEST(a_host_that_keeps_dying_fails_the_turn),
        TEST(a_new_line_forgives_lost_hosts),
        TEST(a_lost_broker_ends_the_span),
        TEST(a_host_that_cannot_open_fails_the_turn),
        TEST(a_refused_prompt_fails_the_turn),
        TEST(a_run_that_ends_in_an_exception_is_an_error),
        TEST(a_failed_sandbox_is_an_error_and_a_result),
        TEST(the_start_of_a_sandbox_is_told_before_the_first_result),
        TEST(the_start_of_a_sandbox_that_no_call_needed_is_not_told),
        TEST(calls_open_at_a_crash_are_looked_for),
        TEST(a_request_cut_by_a_crash_is_made_again),
        TEST(a_message_that_came_before_a_crash_is_run),
        TEST(an_interrupt_before_a_crash_still_takes_the_message),
        TEST(an_interrupt_before_a_crash_leaves_the_queue),
        TEST(a_crash_after_the_last_failure_tells_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
