/* The turn machine when the model cannot be had: who tries again, when, and how often (R24). */
#include "turn_support.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
