/* src/session/turn*.c: the machine as a pure function, told as scripts (support/turn_script.h).
   Here the order of a turn, its queue, interrupts and spans; more in turn_lost.c, turn_retries.c,
   turn_calls.c. */
#include "turn_support.h"

/* ---- R19: order of a turn ---- */

static void a_turn_without_tools(void **state)
{
    struct script *s = *state;
    assert_string_equal(post(s, "m1", "hi"),
                        "header inbox:m1 run_started > status:running warm open");
    assert_string_equal(opened(s), "processed:m1 > prompt(hi)");
    assert_string_equal(pi_user(s, "hi"), "pi:user");
    assert_string_equal(request(s, "r1"), "start:1 > go:r1");
    assert_string_equal(delta(s, "text", "he"), "> frame:event_start frame:event_delta");
    assert_string_equal(delta(s, "text", "llo"), "> frame:event_delta");
    assert_string_equal(pi_assistant(s, "stop", "hello"), "pi:assistant");
    assert_string_equal(settled(s), "");
    assert_string_equal(request_done(s, "r1"), "end:1 idle:end_turn > status:idle");
    assert_false(turn_is_running(s->t));
    assert_true(turn_is_quiet(s->t));
    assert_int_equal(turn_deadline_ms(s->t), -1);
    assert_string_equal(script_tell_events(s),
                        "message run_started start:1 message end:1 idle:end_turn");
}

static void a_turn_with_a_tool(void **state)
{
    struct script *s = *state;
    begin(s);
    assert_string_equal(pi_calls(s, "a"), "pi:assistant");
    assert_string_equal(tool(s, "a"), ""); /* held: the span's end is not durable yet */
    assert_string_equal(request_done(s, "r1"), "end:1 > start:a");
    assert_string_equal(tool_result(s, "a"), "> give:a");
    assert_string_equal(pi_result(s, "a"), "pi:toolResult > ack:a");
    assert_string_equal(request(s, "r2"), "start:2 > go:r2");
    assert_string_equal(request_done(s, "r2"), "");
    assert_string_equal(pi_assistant(s, "stop", "ok"), "pi:assistant end:2");
    assert_string_equal(settled(s), "idle:end_turn > status:idle");
    assert_string_equal(script_tell_events(s),
                        "message run_started start:1 message tool_use:a end:1 tool_result:a "
                        "start:2 message end:2 idle:end_turn");
    assert_int_equal(turn_usage(s->t)->input_tokens, 20);
    assert_int_equal(turn_usage(s->t)->output_tokens, 10);
}

static void a_second_turn_uses_the_open_host(void **state)
{
    struct script *s = *state;
    begin(s);
    pi_assistant(s, "stop", "hello");
    request_done(s, "r1");
    settled(s);
    assert_string_equal(post(s, "m2", "more"),
                        "inbox:m2 run_started processed:m2 > status:running warm prompt(more)");
}

static void parallel_results_are_shown_when_they_come(void **state)
{
    struct script *s = *state;
    begin_calls(s, "a b c");
    assert_string_equal(tool_result(s, "b"), "result:b > give:b");
    assert_string_equal(tool_result(s, "a"), "result:a > give:a");
    assert_string_equal(tool_result(s, "c"), "> give:c"); /* the last: Pi writes it at once */
    pi_result(s, "a");
    pi_result(s, "b");
    pi_result(s, "c");
    assert_string_equal(script_tell_events(s),
                        "message run_started start:1 message tool_use:a tool_use:b tool_use:c "
                        "end:1 tool_result:b tool_result:a tool_result:c");
}

static void tool_output_is_announced_under_its_tool_use(void **state)
{
    struct script *s = *state;
    begin_calls(s, "a");
    assert_string_equal(tool_update(s, "a", "line\n"), "> frame:event_delta");
    struct str frame = s->out.effects->bytes;
    AUTO_JSON events = script_events(s);
    const json_t *use = json_array_get(events, 4);
    assert_string_equal(json_get_c(use, "type"), "agent.tool_use");
    assert_non_null(strstr(frame.p, json_get_c(use, "id")));
    assert_string_equal(s->out.effects->text, "agent.tool_result");
    tool_result(s, "a");
    assert_string_equal(tool_update(s, "a", "late"), "");
}

static void previews_have_the_ids_of_the_final_events(void **state)
{
    struct script *s = *state;
    begin(s);
    delta(s, "thinking_start", "");
    const char *thinking = s->out.effects->bytes.p;
    delta(s, "text", "he");
    const char *text = s->out.effects->bytes.p;
    json_t *message = json_pack("{s:s, s:s, s:[{s:s, s:s}, {s:s, s:s}]}", "role", "assistant",
                                "stopReason", "stop", "content", "type", "thinking", "thinking",
                                "hm", "type", "text", "text", "hello");
    pi_message(s, message);
    AUTO_JSON events = script_events(s);
    assert_string_equal(json_get_c(json_array_get(events, 3), "type"), "agent.thinking");
    assert_non_null(strstr(thinking, json_get_c(json_array_get(events, 3), "id")));
    assert_string_equal(json_get_c(json_array_get(events, 4), "type"), "agent.message");
    assert_non_null(strstr(text, json_get_c(json_array_get(events, 4), "id")));
}

/* ---- R21: the queue ---- */

static void messages_wait_their_turn_in_order(void **state)
{
    struct script *s = *state;
    begin(s);
    assert_string_equal(post(s, "m2", "two"), "inbox:m2");
    assert_string_equal(post(s, "m3", "three"), "inbox:m3");
    pi_assistant(s, "stop", "one");
    request_done(s, "r1");
    assert_string_equal(settled(s), "processed:m2 > prompt(two)");
    pi_user(s, "two");
    request(s, "r2");
    pi_assistant(s, "stop", "two");
    request_done(s, "r2");
    assert_string_equal(settled(s), "processed:m3 > prompt(three)");
    pi_user(s, "three");
    assert_string_equal(settled(s), "idle:end_turn > status:idle");
}

static void an_event_enters_the_log_once(void **state)
{
    struct script *s = *state;
    post(s, "m1", "hi");
    assert_string_equal(post(s, "m1", "hi"), "");
    assert_true(turn_knows_event(s->t, "m1"));
    script_restart(s, s->n);
    assert_string_equal(post(s, "m1", "hi"), "");
}

static void a_steer_goes_to_the_running_turn(void **state)
{
    struct script *s = *state;
    begin(s);
    post(s, "m2", "later");
    assert_string_equal(post_steer(s, "m3", "now"), "inbox:m3 processed:m3 > steer(now)");
    pi_calls(s, "a");
    request_done(s, "r1");
    tool(s, "a");
    tool_result(s, "a");
    pi_result(s, "a");
    assert_string_equal(pi_user(s, "now"), "pi:user");
    pi_assistant(s, "stop", "ok");
    assert_string_equal(settled(s), "processed:m2 > prompt(later)");
}

static void a_steer_that_pi_did_not_take_is_prompted(void **state)
{
    struct script *s = *state;
    begin(s);
    post_steer(s, "m2", "now");
    pi_assistant(s, "stop", "too late");
    request_done(s, "r1");
    refused(s, "steer", "nothing is running");
    assert_string_equal(settled(s), "> prompt(now)");
    assert_string_equal(pi_user(s, "now"), "pi:user");
    assert_string_equal(settled(s), "idle:end_turn > status:idle");
    assert_string_equal(script_tell_events(s), "message run_started start:1 message message "
                                               "end:1 idle:end_turn");
}

static void a_steer_outlives_a_failed_request(void **state)
{
    struct script *s = *state;
    begin(s);
    post_steer(s, "m2", "now");
    exhaust(s);
    assert_string_equal(settled(s), "error!model_overloaded/exhausted idle:retries_exhausted > "
                                    "status:idle");
    assert_string_equal(post(s, "m3", "again"),
                        "inbox:m3 run_started > status:running warm prompt(now)");
    pi_user(s, "now");
    assert_string_equal(settled(s), "processed:m3 > prompt(again)");
}

static void a_steer_on_an_idle_session_is_a_message(void **state)
{
    struct script *s = *state;
    assert_string_equal(post_steer(s, "m1", "hi"),
                        "header inbox:m1 run_started > status:running warm open");
    assert_string_equal(opened(s), "processed:m1 > prompt(hi)");
}

static void a_queued_message_can_be_withdrawn(void **state)
{
    struct script *s = *state;
    begin(s);
    post(s, "m2", "two");
    assert_string_equal(withdraw(s, "m2"), "withdrawn:m2");
    assert_true(s->out.withdrawn);
    assert_string_equal(withdraw(s, "m2"), "");
    assert_false(s->out.withdrawn);
    assert_false(s->out.withdraw_unknown);
    assert_string_equal(withdraw(s, "m1"), ""); /* with Pi already */
    assert_false(s->out.withdrawn);
    assert_string_equal(withdraw(s, "m9"), "");
    assert_true(s->out.withdraw_unknown);
    pi_assistant(s, "stop", "one");
    request_done(s, "r1");
    assert_string_equal(settled(s), "idle:end_turn > status:idle");
}

static void withdrawing_the_only_message_ends_the_turn(void **state)
{
    struct script *s = *state;
    post(s, "m1", "hi");
    assert_string_equal(withdraw(s, "m1"), "withdrawn:m1");
    assert_string_equal(opened(s), "idle:end_turn > status:idle");
}

/* ---- R22: interrupts ---- */

static void interrupting_an_idle_session_changes_nothing(void **state)
{
    struct script *s = *state;
    assert_string_equal(post_interrupt(s, "i1"), "header inbox:i1 processed:i1");
    assert_true(turn_is_quiet(s->t));
    script_restart(s, s->n);
    assert_false(turn_needs_recovery(s->t));
}

static void interrupting_while_the_host_opens(void **state)
{
    struct script *s = *state;
    post(s, "m1", "hi");
    assert_string_equal(post_interrupt(s, "i1"),
                        "inbox:i1 processed:i1 withdrawn:m1 idle:interrupted > cut status:idle");
    assert_string_equal(opened(s), "");
    assert_string_equal(post(s, "m2", "again"),
                        "inbox:m2 run_started processed:m2 > status:running warm prompt(again)");
}

static void interrupting_a_streaming_model(void **state)
{
    struct script *s = *state;
    begin(s);
    delta(s, "text", "hel");
    assert_string_equal(post_interrupt(s, "i1"), "inbox:i1 processed:i1 > cut abort");
    assert_string_equal(post_interrupt(s, "i2"), "inbox:i2 processed:i2");
    assert_string_equal(delta(s, "text", "lo"), "");
    assert_string_equal(request_done(s, "r1"), "");
    assert_string_equal(pi_assistant(s, "aborted", "hel"), "pi:assistant end:1");
    assert_string_equal(settled_aborted(s), "idle:interrupted > status:idle");
    assert_string_equal(post_interrupt(s, "i3"), "inbox:i3 processed:i3");
    assert_string_equal(script_tell_events(s),
                        "message run_started start:1 interrupt interrupt message end:1 "
                        "idle:interrupted interrupt");
}

static void interrupting_running_tools(void **state)
{
    struct script *s = *state;
    begin_calls(s, "a b");
    tool_result(s, "b");
    assert_string_equal(post_interrupt(s, "i1"), "inbox:i1 processed:i1 > cut cancel:a abort");
    assert_string_equal(tool_result(s, "a"), "> give:a");
    pi_result(s, "a");
    assert_string_equal(settled_aborted(s), "idle:interrupted > ack:b status:idle");
    assert_string_equal(script_tell_events(s),
                        "message run_started start:1 message tool_use:a tool_use:b end:1 "
                        "tool_result:b interrupt tool_result:a idle:interrupted");
}

static void interrupting_calls_that_were_not_started(void **state)
{
    struct script *s = *state;
    begin(s);
    pi_calls(s, "a b");
    tool(s, "a"); /* held by the span, b not even asked for */
    assert_string_equal(post_interrupt(s, "i1"), "inbox:i1 processed:i1 > cut give:a(cut) abort");
    assert_string_equal(tool(s, "b"), "> give:b(cut)");
    request_done(s, "r1");
    assert_string_equal(settled_aborted(s),
                        "result:a(cut) result:b(cut) idle:interrupted > ack:a ack:b status:idle");
}

static void interrupting_between_settled_and_the_held_span(void **state)
{
    struct script *s = *state;
    begin(s);
    pi_assistant(s, "stop", "hello");
    assert_string_equal(settled(s), "");
    assert_string_equal(post_interrupt(s, "i1"), "inbox:i1 processed:i1 > cut abort");
    assert_string_equal(request_done(s, "r1"), "end:1 idle:interrupted > status:idle");
}

static void an_interrupt_ends_only_the_running_turn(void **state)
{
    struct script *s = *state;
    begin(s);
    post(s, "m2", "two");
    post_interrupt(s, "i1");
    pi_assistant(s, "aborted", "");
    request_done(s, "r1");
    assert_string_equal(settled_aborted(s),
                        "idle:interrupted run_started processed:m2 > status:idle status:running "
                        "warm prompt(two)");
}

static void an_interrupt_takes_a_prompt_that_pi_has_not_written(void **state)
{
    struct script *s = *state;
    post(s, "m1", "hi");
    opened(s);
    post_interrupt(s, "i1");
    assert_string_equal(settled_aborted(s), "idle:interrupted > status:idle");
    assert_true(turn_is_quiet(s->t));
    assert_string_equal(post(s, "m2", "two"),
                        "inbox:m2 run_started processed:m2 > status:running warm prompt(two)");
    assert_string_equal(pi_user(s, "two"), "pi:user");
    assert_string_equal(settled(s), "idle:end_turn > status:idle");
    assert_string_equal(script_tell_events(s), "message run_started interrupt idle:interrupted "
                                               "message run_started idle:end_turn");
}

static void a_prompt_refused_during_an_interrupt_is_an_interrupt(void **state)
{
    struct script *s = *state;
    post(s, "m1", "hi");
    opened(s);
    post_interrupt(s, "i1");
    assert_string_equal(refused(s, "prompt", "aborted"), "idle:interrupted > status:idle");
}

static void interrupting_while_a_lost_host_comes_back(void **state)
{
    struct script *s = *state;
    begin_calls(s, "a");
    post(s, "m2", "two");
    host_lost(s);
    assert_string_equal(post_interrupt(s, "i1"),
                        "inbox:i1 processed:i1 result:a(cut) idle:interrupted run_started > cut "
                        "cancel:a ack:a status:idle status:running warm");
    assert_string_equal(tool_result(s, "a"), "");
    assert_string_equal(opened(s), "processed:m2 > prompt(two)");
}

/* ---- spans ---- */

static void a_span_end_waits_one_second_for_its_line(void **state)
{
    struct script *s = *state;
    begin(s);
    request_done(s, "r1");
    assert_int_equal(turn_deadline_ms(s->t), s->now_ms + 1000);
    assert_string_equal(tick(s, 999), "");
    assert_string_equal(tick(s, 1), "end:1");
    assert_int_equal(turn_deadline_ms(s->t), -1);
    assert_string_equal(pi_calls(s, "a"), "pi:assistant");
    assert_string_equal(tool(s, "a"), "> start:a");
}

static void a_line_waits_one_second_for_its_span_end(void **state)
{
    struct script *s = *state;
    begin(s);
    pi_calls(s, "a");
    tool(s, "a");
    assert_string_equal(tick(s, 1000), "end:1!request_lost > start:a");
    assert_string_equal(request_done(s, "r1"), "");
}

static void a_settled_turn_waits_for_its_span_end(void **state)
{
    struct script *s = *state;
    begin(s);
    settled(s);
    assert_string_equal(tick(s, 1000), "end:1!request_lost idle:end_turn > status:idle");
}

static void a_new_request_closes_the_span_before_it(void **state)
{
    struct script *s = *state;
    begin(s);
    assert_string_equal(request(s, "r2"), "end:1!request_lost start:2 > go:r2");
    assert_string_equal(request_done(s, "r1"), "");
}

static void a_request_outside_a_turn_is_refused(void **state)
{
    struct script *s = *state;
    assert_string_equal(request(s, "r1"), "> refuse:r1");
    assert_string_equal(s->out.effects->name, "session_not_running");
    begin(s);
    post_interrupt(s, "i1");
    assert_string_equal(request(s, "r2"), "> refuse:r2");
    assert_string_equal(s->out.effects->name, "interrupted");
}

/* ---- forks ---- */

static void a_fork_begins_idle_with_nothing_queued(void **state)
{
    struct script *s = *state;
    begin_calls(s, "a");
    post(s, "m2", "two");
    script_keep(s, STR("{\"type\":\"custom\",\"customType\":\"pi-managed:fork\",\"id\":\"f\","
                       "\"parentId\":null,\"timestamp\":\"2026-11-30T12:00:00.000Z\",\"data\":"
                       "{\"fromSessionId\":\"sess_x\",\"fromEntryId\":\"pi000002\"}}"));
    script_restart(s, s->n);
    assert_false(turn_is_running(s->t));
    assert_false(turn_needs_recovery(s->t));
    assert_true(turn_is_quiet(s->t));
    assert_int_equal(turn_usage(s->t)->input_tokens, 0);
    assert_string_equal(post(s, "m3", "three"), "inbox:m3 run_started > status:running warm open");
    assert_string_equal(opened(s), "processed:m3 > prompt(three)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_turn_without_tools),
        TEST(a_turn_with_a_tool),
        TEST(a_second_turn_uses_the_open_host),
        TEST(parallel_results_are_shown_when_they_come),
        TEST(tool_output_is_announced_under_its_tool_use),
        TEST(previews_have_the_ids_of_the_final_events),
        TEST(messages_wait_their_turn_in_order),
        TEST(an_event_enters_the_log_once),
        TEST(a_steer_goes_to_the_running_turn),
        TEST(a_steer_that_pi_did_not_take_is_prompted),
        TEST(a_steer_outlives_a_failed_request),
        TEST(a_steer_on_an_idle_session_is_a_message),
        TEST(a_queued_message_can_be_withdrawn),
        TEST(withdrawing_the_only_message_ends_the_turn),
        TEST(interrupting_an_idle_session_changes_nothing),
        TEST(interrupting_while_the_host_opens),
        TEST(interrupting_a_streaming_model),
        TEST(interrupting_running_tools),
        TEST(interrupting_calls_that_were_not_started),
        TEST(interrupting_between_settled_and_the_held_span),
        TEST(an_interrupt_ends_only_the_running_turn),
        TEST(an_interrupt_takes_a_prompt_that_pi_has_not_written),
        TEST(a_prompt_refused_during_an_interrupt_is_an_interrupt),
        TEST(interrupting_while_a_lost_host_comes_back),
        TEST(a_span_end_waits_one_second_for_its_line),
        TEST(a_line_waits_one_second_for_its_span_end),
        TEST(a_settled_turn_waits_for_its_span_end),
        TEST(a_new_request_closes_the_span_before_it),
        TEST(a_request_outside_a_turn_is_refused),
        TEST(a_fork_begins_idle_with_nothing_queued),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
