/* The turn machine and tool calls that do not fit: unknown, twice, given up, unreadable. */
#include "turn_support.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_call_that_is_not_in_the_log_does_not_run),
        TEST(unknown_and_second_results_are_ignored),
        TEST(a_call_that_pi_gave_up_on_is_cancelled),
        TEST(a_result_that_is_no_json_becomes_an_error_result),
        TEST(calls_that_share_an_id_all_get_a_result),
        TEST(a_call_id_may_come_again_in_a_later_turn),
        TEST(numbers_beyond_64_bits_do_not_lose_a_line),
        TEST(a_line_that_cannot_be_read_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
