/* src/session/turn*.c: the machine as a pure function, told as scripts (support/turn_script.h). */
#include "../support/turn_script.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static int set_up(void **state)
{
    *state = script_new(1);
    return 0;
}

static int tear_down(void **state)
{
    script_free(*state);
    return 0;
}

/* A turn up to the point where Pi has its prompt and the model is being asked. */
static void begin(struct script *s)
{
    post(s, "m1", "hi");
    opened(s);
    pi_user(s, "hi");
    request(s, "r1");
}

/* … and the model has asked for the given calls, which all run. */
static void begin_calls(struct script *s, const char *calls)
{
    begin(s);
    pi_calls(s, calls);
    request_done(s, "r1");
    struct str rest = str_of(calls), id;
    while (str_split(&rest, ' ', &id))
        tool(s, arena_str(s->a, id).p);
}

/* The time that the last step wants to wait. */
static int64_t backoff_of(struct script *s)
{
    int64_t wait = turn_deadline_ms(s->t) - s->now_ms;
    assert_true(wait > 0);
    return wait;
}

/* Up to four tries more, whoever makes them. */
static void exhaust(struct script *s)
{
    for (int i = 0; i < 5; i++) {
        request_held(s, "r1", -1);
        if (i < 4)
            tick(s, backoff_of(s));
    }
    pi_assistant(s, "error", "given up");
}

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

/* ---- retries (R24) ---- */

static void the_broker_tries_again_before_the_first_byte(void **state)
{
    struct script *s = *state;
    begin(s);
    static const int64_t longest[] = {1000, 2000, 4000, 8000};
    for (int i = 0; i < 4; i++) {
        assert_non_null(strstr(request_held(s, "r1", -1),
                               "!model_overloaded error!model_overloaded/retrying rescheduled > "
                               "status:rescheduling hold:r1"));
        int64_t wait = backoff_of(s);
        assert_in_range(wait, longest[i] / 2, longest[i]);
        assert_string_equal(tick(s, wait - 1), "");
        assert_non_null(strstr(tick(s, 1), " > status:running go:r1"));
    }
    assert_string_equal(request_held(s, "r1", -1), "end:5!model_overloaded > refuse:r1");
    assert_string_equal(s->out.effects->name, "retries_exhausted");
    pi_assistant(s, "error", "given up");
    assert_string_equal(settled_with(s, "given up"),
                        "error!model_overloaded/exhausted idle:retries_exhausted > status:idle");
}

static void an_answer_ends_the_count(void **state)
{
    struct script *s = *state;
    begin(s);
    for (int i = 0; i < 3; i++) {
        request_held(s, "r1", -1);
        tick(s, backoff_of(s));
    }
    pi_calls(s, "a");
    request_done(s, "r1");
    tool(s, "a");
    tool_result(s, "a");
    pi_result(s, "a");
    assert_string_equal(request(s, "r2"), "start:5 > go:r2");
    AUTO_JSON events = script_events(s);
    const json_t *last = json_array_get(events, json_array_size(events) - 1);
    assert_int_equal(json_get_int(last, "attempt", 0), 1);
}

static void retry_after_is_honoured_up_to_a_minute(void **state)
{
    struct script *s = *state;
    begin(s);
    request_held(s, "r1", 17000);
    assert_int_equal(backoff_of(s), 17000);
    tick(s, 17000);
    request_held(s, "r1", 3600000);
    assert_int_equal(backoff_of(s), 60000);
    tick(s, 60000);
    request_held(s, "r1", 1); /* less than the backoff */
    assert_in_range(backoff_of(s), 2000, 4000);
}

static void pi_tries_again_after_the_first_byte(void **state)
{
    struct script *s = *state;
    begin(s);
    request_failed(s, "r1", "model_stream_broken", false);
    assert_string_equal(pi_assistant(s, "error", "terminated"),
                        "pi:assistant end:1!model_stream_broken");
    assert_string_equal(pi_retries(s),
                        "error!model_stream_broken/retrying rescheduled > status:rescheduling");
    assert_string_equal(request(s, "r2"), "> hold:r2"); /* Pi does not wait so long */
    assert_string_equal(tick(s, backoff_of(s)), "start:2 > status:running go:r2");
    pi_assistant(s, "stop", "hello");
    request_done(s, "r2");
    assert_string_equal(settled(s), "idle:end_turn > status:idle");
}

static void the_request_may_come_before_pis_word(void **state)
{
    struct script *s = *state;
    begin(s);
    request_failed(s, "r1", "model_stream_broken", false);
    pi_assistant(s, "error", "terminated");
    assert_string_equal(request(s, "r2"),
                        "error!model_stream_broken/retrying rescheduled > status:rescheduling "
                        "hold:r2");
    assert_string_equal(pi_retries(s), ""); /* known already */
}

static void pis_word_may_come_before_the_spans_end(void **state)
{
    struct script *s = *state;
    begin(s);
    pi_assistant(s, "error", "terminated");
    assert_string_equal(pi_retries(s), "");
    assert_string_equal(request_failed(s, "r1", "model_stream_broken", false),
                        "end:1!model_stream_broken error!model_stream_broken/retrying rescheduled "
                        "> status:rescheduling");
}

static void broker_and_pi_share_one_count(void **state)
{
    struct script *s = *state;
    begin(s);
    for (int i = 0; i < 4; i++) {
        request_held(s, "r1", -1);
        tick(s, backoff_of(s));
    }
    request_failed(s, "r1", "model_stream_broken", false); /* the fifth */
    pi_assistant(s, "error", "terminated");
    assert_string_equal(pi_retries(s), ""); /* as if it were its first */
    assert_string_equal(request(s, "r2"), "> refuse:r2");
    pi_assistant(s, "error", "given up");
    assert_string_equal(settled_with(s, "given up"),
                        "error!model_stream_broken/exhausted idle:retries_exhausted > "
                        "status:idle");
}

static void a_run_that_pi_gave_up_is_resumed(void **state)
{
    struct script *s = *state;
    begin(s);
    request_failed(s, "r1", "model_stream_broken", false);
    pi_assistant(s, "error", "Unexpected end of JSON input");
    assert_string_equal(settled_with(s, "Unexpected end of JSON input"),
                        "error!model_stream_broken/retrying rescheduled > status:rescheduling");
    assert_string_equal(tick(s, backoff_of(s)), "> resume()");
    assert_string_equal(request(s, "r2"), "start:2 > status:running go:r2");
}

static void what_pi_takes_for_retryable_may_be_hopeless(void **state)
{
    struct script *s = *state;
    begin(s);
    request_failed(s, "r1", "model_rejected_key", true);
    pi_assistant(s, "error", "403: internal error");
    assert_string_equal(pi_retries(s), "");
    assert_string_equal(request(s, "r2"), "> refuse:r2");
    pi_assistant(s, "error", "given up");
    assert_string_equal(settled_with(s, "given up"),
                        "error!model_rejected_key/terminal idle:error > status:idle");
}

static void a_summary_after_a_refused_request_is_a_new_request(void **state)
{
    struct script *s = *state;
    begin(s);
    request_failed(s, "r1", "model_bad_request", true); /* the conversation is too long */
    pi_assistant(s, "error", "400");
    assert_string_equal(request(s, "r2"), "start:2 > go:r2");
}

static void an_interrupt_ends_a_backoff(void **state)
{
    struct script *s = *state;
    begin(s);
    request_held(s, "r1", -1);
    assert_string_equal(post_interrupt(s, "i1"), "inbox:i1 processed:i1 > cut refuse:r1 abort");
    assert_int_equal(turn_deadline_ms(s->t), -1);
    pi_assistant(s, "aborted", "");
    assert_string_equal(settled_aborted(s), "idle:interrupted > status:idle");
}

static void an_interrupt_ends_a_backoff_without_pi(void **state)
{
    struct script *s = *state;
    begin(s);
    request_failed(s, "r1", "model_stream_broken", false);
    pi_assistant(s, "error", "odd");
    settled_with(s, "odd");
    assert_string_equal(post_interrupt(s, "i1"),
                        "inbox:i1 processed:i1 idle:interrupted > cut status:idle");
    assert_int_equal(turn_deadline_ms(s->t), -1);
}

static void a_crash_in_a_backoff_keeps_time_and_count(void **state)
{
    struct script *s = *state;
    begin(s);
    for (int i = 0; i < 3; i++) {
        request_held(s, "r1", -1);
        tick(s, backoff_of(s));
    }
    request_held(s, "r1", -1);
    int64_t next_at = turn_deadline_ms(s->t);
    script_restart(s, s->n);
    s->now_ms += 1000;
    assert_string_equal(recover(s), "> status:rescheduling warm open");
    assert_string_equal(opened(s), "> resume()");
    assert_string_equal(request(s, "r2"), "> hold:r2");
    assert_int_equal(turn_deadline_ms(s->t), next_at);
    assert_string_equal(tick(s, backoff_of(s)), "start:5 > status:running go:r2");
    assert_string_equal(request_held(s, "r2", -1), "end:5!model_overloaded > refuse:r2");
}

static void a_crash_in_the_last_attempt_leaves_none(void **state)
{
    struct script *s = *state;
    begin(s);
    for (int i = 0; i < 4; i++) {
        request_held(s, "r1", -1);
        tick(s, backoff_of(s));
    }
    script_restart(s, s->n);
    assert_string_equal(recover(s), "end:5!request_lost > status:running warm open");
    assert_string_equal(opened(s), "> resume()");
    assert_string_equal(request(s, "r2"), "> refuse:r2");
    pi_assistant(s, "error", "given up");
    assert_string_equal(settled_with(s, "given up"),
                        "error!request_lost/exhausted idle:retries_exhausted > status:idle");
}

static void a_broker_lost_in_a_backoff_changes_nothing(void **state)
{
    struct script *s = *state;
    begin(s);
    request_held(s, "r1", -1);
    int64_t next_at = turn_deadline_ms(s->t);
    assert_string_equal(broker_lost(s), "");
    pi_assistant(s, "error", "Connection error.");
    assert_string_equal(pi_retries(s), "");
    assert_string_equal(request(s, "r2"), "> hold:r2");
    assert_int_equal(turn_deadline_ms(s->t), next_at);
}

static void a_host_lost_in_a_backoff_comes_back(void **state)
{
    struct script *s = *state;
    begin(s);
    request_failed(s, "r1", "model_stream_broken", false);
    pi_assistant(s, "error", "odd");
    settled_with(s, "odd");
    assert_string_equal(host_lost(s), "> open");
    assert_string_equal(opened(s), "> resume()");
    assert_string_equal(request(s, "r2"), "> hold:r2");
}

static void a_broker_that_cannot_be_reached_is_tried_later(void **state)
{
    struct script *s = *state;
    post(s, "m1", "hi");
    opened(s);
    pi_user(s, "hi");
    for (int attempt = 2; attempt <= 5; attempt++) {
        pi_assistant(s, "error", "fetch failed");
        pi_retries(s);
        pi_assistant(s, "error", "fetch failed");
        assert_string_equal(settled_with(s, "fetch failed"),
                            "error!model_error/retrying rescheduled > status:rescheduling");
        assert_string_equal(tick(s, backoff_of(s)), "> resume()");
    }
    assert_string_equal(request(s, "r1"), "start:1 > status:running go:r1");
    AUTO_JSON events = script_events(s);
    const json_t *last = json_array_get(events, json_array_size(events) - 1);
    assert_int_equal(json_get_int(last, "attempt", 0), 5);
}

static void what_pi_chokes_on_is_not_tried_again(void **state)
{
    struct script *s = *state;
    begin(s);
    request_done(s, "r1");
    pi_assistant(s, "error", "Maximum call stack size exceeded");
    assert_string_equal(settled_with(s, "Maximum call stack size exceeded"),
                        "error!model_error/exhausted idle:retries_exhausted > status:idle");
}

static void an_unrecoverable_request_is_terminal(void **state)
{
    struct script *s = *state;
    begin(s);
    request_failed(s, "r1", "model_rejected_key", true);
    pi_assistant(s, "error", "401");
    post(s, "m2", "two");
    assert_string_equal(settled_with(s, "401"),
                        "error!model_rejected_key/terminal idle:error > status:idle");
    assert_true(turn_is_quiet(s->t)); /* m2 waits for the next post */
    script_restart(s, s->n);
    assert_false(turn_needs_recovery(s->t));
    assert_true(turn_is_quiet(s->t));
    assert_string_equal(post(s, "m3", "three"), "inbox:m3 run_started > status:running warm open");
    assert_string_equal(opened(s), "processed:m2 > prompt(two)");
}

static void a_failure_is_not_remembered_by_the_next_turn(void **state)
{
    struct script *s = *state;
    begin(s);
    exhaust(s);
    settled(s);
    post(s, "m2", "two");
    pi_user(s, "two");
    assert_string_equal(settled(s), "idle:end_turn > status:idle");
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

/* ---- tool calls that do not fit ---- */

static void a_call_that_is_not_in_the_log_does_not_run(void **state)
{
    struct script *s = *state;
    begin_calls(s, "a");
    assert_string_equal(tool(s, "x"), "> give:x");
    assert_string_equal(tool(s, "a"), "> give:a"); /* asked for twice */
}

static void unknown_and_second_results_are_ignored(void **state)
{
    struct script *s = *state;
    begin_calls(s, "a b");
    assert_string_equal(tool_result(s, "x"), "");
    tool_result(s, "a");
    assert_string_equal(tool_result(s, "a"), "");
    tool_result(s, "b");
    pi_result(s, "a");
    assert_string_equal(tool_result(s, "a"), "");
}

static void a_call_that_pi_gave_up_on_is_cancelled(void **state)
{
    struct script *s = *state;
    begin_calls(s, "a");
    assert_string_equal(tool_cancelled(s, "a"), "> cancel:a");
    assert_string_equal(tool_cancelled(s, "x"), "");
    assert_string_equal(tool_result(s, "a"), "> give:a");
    assert_string_equal(tool_cancelled(s, "a"), "");
}

static void a_result_that_is_no_json_becomes_an_error_result(void **state)
{
    struct script *s = *state;
    begin_calls(s, "a b");
    assert_string_equal(script_step(s, (struct turn_input){.kind = TURN_TOOL_RESULT,
                                                           .id = "a",
                                                           .bytes = STR("{\"content\":")}),
                        "result:a > give:a");
    host_lost(s);
    opened(s);
    assert_string_equal(tool_result(s, "b"), "> resume(a,b)");
}

static void calls_that_share_an_id_all_get_a_result(void **state)
{
    struct script *s = *state;
    begin(s);
    pi_calls(s, "a a");
    request_done(s, "r1");
    assert_string_equal(tool(s, "a"), "> start:a");
    host_lost(s);
    opened(s);
    tool_result(s, "a");
    assert_string_equal(tool_result(s, "a"), "> resume(a,a)");
}

static void a_call_id_may_come_again_in_a_later_turn(void **state)
{
    struct script *s = *state;
    begin_calls(s, "a");
    post_interrupt(s, "i1");
    settled_aborted(s);
    post(s, "m2", "two");
    pi_user(s, "two");
    request(s, "r2");
    pi_calls(s, "a");
    request_done(s, "r2");
    assert_string_equal(tool(s, "a"), "> start:a");
    tool_result(s, "a");
    pi_result(s, "a");
    assert_string_equal(script_tell_events(s),
                        "message run_started start:1 message tool_use:a end:1 interrupt "
                        "tool_result:a idle:interrupted message run_started start:2 message "
                        "tool_use:a end:2 tool_result:a");
}

static void numbers_beyond_64_bits_do_not_lose_a_line(void **state)
{
    struct script *s = *state;
    begin(s);
    struct str line =
        STR("{\"type\":\"message\",\"id\":\"big\",\"parentId\":\"pi000001\",\"timestamp\":"
            "\"2026-11-30T12:00:00.000Z\",\"message\":{\"role\":\"assistant\",\"stopReason\":"
            "\"toolUse\",\"content\":[{\"type\":\"toolCall\",\"id\":\"a\",\"name\":\"bash\","
            "\"arguments\":{\"n\":100000000000000000000}}]}}");
    assert_string_equal(script_step(s, (struct turn_input){.kind = TURN_ENTRY, .bytes = line}),
                        "pi:assistant");
    request_done(s, "r1");
    assert_string_equal(tool(s, "a"), "> start:a");
    assert_string_equal(script_tell_events(s), "message run_started start:1 tool_use:a end:1");
}

static void a_line_that_cannot_be_read_is_told(void **state)
{
    struct script *s = *state;
    begin(s);
    AUTO_BUF line = {0};
    buf_add_c(&line, "{\"type\":\"message\",\"id\":\"deep\",\"message\":");
    for (int i = 0; i < 3000; i++)
        buf_add_char(&line, '[');
    for (int i = 0; i < 3000; i++)
        buf_add_char(&line, ']');
    buf_add_char(&line, '}');
    assert_string_equal(
        script_step(s, (struct turn_input){.kind = TURN_ENTRY, .bytes = buf_str(&line)}),
        "error!line_unreadable/exhausted");
    assert_string_equal(tool(s, "a"), "> give:a"); /* what it declared does not run */
    assert_string_equal(settled(s), "");
    assert_string_equal(request_done(s, "r1"), "end:1 idle:end_turn > status:idle");
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

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

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
        TEST(a_span_end_waits_one_second_for_its_line),
        TEST(a_line_waits_one_second_for_its_span_end),
        TEST(a_settled_turn_waits_for_its_span_end),
        TEST(a_new_request_closes_the_span_before_it),
        TEST(a_request_outside_a_turn_is_refused),
        TEST(the_broker_tries_again_before_the_first_byte),
        TEST(an_answer_ends_the_count),
        TEST(retry_after_is_honoured_up_to_a_minute),
        TEST(pi_tries_again_after_the_first_byte),
        TEST(the_request_may_come_before_pis_word),
        TEST(pis_word_may_come_before_the_spans_end),
        TEST(broker_and_pi_share_one_count),
        TEST(a_run_that_pi_gave_up_is_resumed),
        TEST(what_pi_takes_for_retryable_may_be_hopeless),
        TEST(a_summary_after_a_refused_request_is_a_new_request),
        TEST(an_interrupt_ends_a_backoff),
        TEST(an_interrupt_ends_a_backoff_without_pi),
        TEST(a_crash_in_a_backoff_keeps_time_and_count),
        TEST(a_crash_in_the_last_attempt_leaves_none),
        TEST(a_broker_lost_in_a_backoff_changes_nothing),
        TEST(a_host_lost_in_a_backoff_comes_back),
        TEST(a_broker_that_cannot_be_reached_is_tried_later),
        TEST(what_pi_chokes_on_is_not_tried_again),
        TEST(an_unrecoverable_request_is_terminal),
        TEST(a_failure_is_not_remembered_by_the_next_turn),
        TEST(a_host_that_cannot_open_fails_the_turn),
        TEST(a_refused_prompt_fails_the_turn),
        TEST(a_run_that_ends_in_an_exception_is_an_error),
        TEST(a_failed_sandbox_is_an_error_and_a_result),
        TEST(the_start_of_a_sandbox_is_told_before_the_first_result),
        TEST(the_start_of_a_sandbox_that_no_call_needed_is_not_told),
        TEST(a_call_that_is_not_in_the_log_does_not_run),
        TEST(unknown_and_second_results_are_ignored),
        TEST(a_call_that_pi_gave_up_on_is_cancelled),
        TEST(a_result_that_is_no_json_becomes_an_error_result),
        TEST(calls_that_share_an_id_all_get_a_result),
        TEST(a_call_id_may_come_again_in_a_later_turn),
        TEST(numbers_beyond_64_bits_do_not_lose_a_line),
        TEST(a_line_that_cannot_be_read_is_told),
        TEST(calls_open_at_a_crash_are_looked_for),
        TEST(a_request_cut_by_a_crash_is_made_again),
        TEST(a_message_that_came_before_a_crash_is_run),
        TEST(an_interrupt_before_a_crash_still_takes_the_message),
        TEST(an_interrupt_before_a_crash_leaves_the_queue),
        TEST(a_crash_after_the_last_failure_tells_it),
        TEST(a_fork_begins_idle_with_nothing_queued),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
