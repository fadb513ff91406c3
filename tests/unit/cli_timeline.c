/* src/cli/timeline.c: what the events of a session tell, and their sums. */
#include "cli/timeline.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static json_t *timeline(const char *events)
{
    AUTO_JSON j = NULL;
    if (json_read(str_of(events), &j))
        fail_msg("the test's events are no JSON");
    return timeline_of(j);
}

static const json_t *row_at(const json_t *timeline, size_t i)
{
    return json_array_get(json_object_get(timeline, "rows"), i);
}

static int64_t total(const json_t *timeline, const char *name)
{
    return json_get_int(json_object_get(timeline, "totals"), name, -1);
}

#define AT(seconds) "\"createdAt\":\"2026-11-30T12:00:0" seconds "Z\""
#define MODEL "\"provider\":\"p\",\"model\":\"m\",\"requestNumber\":1"

static void a_failed_attempt_its_backoff_and_the_next_one_are_three_rows(void **state)
{
    (void)state;
    AUTO_JSON t = timeline("[{\"type\":\"session.status_run_started\"," AT(
        "0.000") "},"
                 "{\"type\":\"span.model_request_start\",\"attempt\":1," MODEL "," AT(
                     "0.100") "},"
                              "{\"type\":\"span.model_request_end\",\"attempt\":1," MODEL "," AT(
                                  "0.150") ","
                                           "\"durationMs\":50,\"error\":{\"code\":\"model_"
                                           "overloaded\",\"message\":\"busy\"}},"
                                           "{\"type\":\"session.error\"," AT(
                                               "0.150") ",\"error\":{\"code\":\"model_overloaded\","
                                                        "\"message\":\"busy\"},\"retryStatus\":{"
                                                        "\"type\":\"retrying\",\"attempt\":2,"
                                                        "\"nextRetryAt\":\"2026-11-30T12:00:01."
                                                        "150Z\"}},"
                                                        "{\"type\":\"session.status_"
                                                        "rescheduled\"," AT(
                                                            "0.150") "},"
                                                                     "{\"type\":\"span.model_"
                                                                     "request_start\",\"attempt\":"
                                                                     "2," MODEL "," AT(
                                                                         "1.150") "},"
                                                                                  "{\"type\":"
                                                                                  "\"span.model_"
                                                                                  "request_end\","
                                                                                  "\"attempt\":"
                                                                                  "2," MODEL "," AT(
                                                                                      "2.000") ","
                                                                                               "\"d"
                                                                                               "ura"
                                                                                               "tio"
                                                                                               "nMs"
                                                                                               "\":"
                                                                                               "850"
                                                                                               ",\""
                                                                                               "err"
                                                                                               "or"
                                                                                               "\":"
                                                                                               "nul"
                                                                                               "l,"
                                                                                               "\"c"
                                                                                               "ost"
                                                                                               "Usd"
                                                                                               "\":"
                                                                                               "0."
                                                                                               "25,"
                                                                                               "\"u"
                                                                                               "sag"
                                                                                               "e\""
                                                                                               ":{"
                                                                                               "\"i"
                                                                                               "npu"
                                                                                               "tTo"
                                                                                               "ken"
                                                                                               "s\""
                                                                                               ":7}"
                                                                                               "}"
                                                                                               "]");
    assert_int_equal(json_array_size(json_object_get(t, "rows")), 4);
    assert_string_equal(json_get_c(row_at(t, 2), "kind"), "retry");
    assert_int_equal(json_get_int(row_at(t, 2), "durationMs", -1), 1000);
    assert_non_null(strstr(json_get_c(row_at(t, 1), "text"), "failed: model_overloaded: busy"));
    assert_null(strstr(json_get_c(row_at(t, 3), "text"), "failed"));
    assert_non_null(strstr(json_get_c(row_at(t, 3), "text"), "attempt 2"));
    assert_int_equal(json_get_int(row_at(t, 3), "offsetMs", -1), 1150);
    assert_int_equal(total(t, "modelRequests"), 2);
    assert_int_equal(total(t, "failedModelRequests"), 1);
    assert_int_equal(total(t, "retries"), 1);
    assert_int_equal(total(t, "modelMs"), 900);
    assert_int_equal(total(t, "inputTokens"), 7);
}

static void parallel_calls_have_their_own_durations(void **state)
{
    (void)state;
    AUTO_JSON t = timeline(
        "[{\"type\":\"agent.tool_use\",\"toolCallId\":\"a\",\"name\":\"bash\",\"input\":"
        "{\"command\":\"sleep 2\"}," AT(
            "0.000") "},"
                     "{\"type\":\"agent.tool_use\",\"toolCallId\":\"b\",\"name\":\"ls\"," AT(
                         "0.000") "},"
                                  "{\"type\":\"agent.tool_result\",\"toolCallId\":\"b\","
                                  "\"isError\":true,\"content\":"
                                  "[{\"type\":\"text\",\"text\":\"no\"}]," AT(
                                      "0.500") "},"
                                               "{\"type\":\"agent.tool_result\",\"toolCallId\":"
                                               "\"a\"," AT("2.000") "}]");
    assert_string_equal(json_get_c(row_at(t, 0), "text"), "bash sleep 2");
    assert_int_equal(json_get_int(row_at(t, 0), "durationMs", -1), 2000);
    assert_string_equal(json_get_c(row_at(t, 1), "text"), "ls; failed: no");
    assert_int_equal(json_get_int(row_at(t, 1), "durationMs", -1), 500);
    assert_int_equal(total(t, "toolMs"), 2500);
    assert_int_equal(total(t, "failedToolCalls"), 1);
}

static void the_start_of_a_sandbox_is_a_row(void **state)
{
    (void)state;
    AUTO_JSON t = timeline("[{\"type\":\"span.sandbox_start\",\"durationMs\":9," AT("0.000") "}]");
    assert_string_equal(json_get_c(row_at(t, 0), "kind"), "sandbox");
    assert_int_equal(json_get_int(row_at(t, 0), "durationMs", -1), 9);
    assert_int_equal(total(t, "sandboxStarts"), 1);
    assert_int_equal(total(t, "sandboxMs"), 9);
}

static void what_a_turn_left_open_is_marked(void **state)
{
    (void)state;
    AUTO_JSON t = timeline("[{\"type\":\"session.status_run_started\"," AT(
        "0.000") "},"
                 "{\"type\":\"span.model_request_start\",\"attempt\":1," MODEL
                 "," AT("0.100") "},"
                                 "{\"type\":\"session.status_idle\",\"stopReason\":{\"type\":"
                                 "\"interrupted\"}," AT("3.000") "}]");
    assert_true(json_get_bool(row_at(t, 1), "unfinished", false));
    assert_string_equal(json_get_c(row_at(t, 2), "text"), "turn 1 ends: interrupted");
    assert_int_equal(total(t, "runMs"), 3000);
}

static void messages_say_whether_they_wait_or_were_taken_back(void **state)
{
    (void)state;
    AUTO_JSON t = timeline(
        "[{\"type\":\"user.message\",\"content\":[{\"type\":\"text\",\"text\":\"a\\nb\"}],"
        "\"processedAt\":\"2026-11-30T12:00:02.000Z\"," AT(
            "0.000") "},"
                     "{\"type\":\"user.message\",\"content\":[{\"type\":\"image\"}],"
                     "\"processedAt\":null," AT(
                         "0.000") "},"
                                  "{\"type\":\"user.message\",\"content\":[],\"withdrawn\":true,"
                                  "\"processedAt\":\"2026-11-30T12:00:02.000Z\"," AT("0.000") "}]");
    assert_string_equal(json_get_c(row_at(t, 0), "text"), "a b (given to the agent after 2.0 s)");
    assert_int_equal(json_get_int(row_at(t, 0), "waitedMs", -1), 2000);
    assert_string_equal(json_get_c(row_at(t, 1), "text"), "(waits) [image]");
    assert_string_equal(json_get_c(row_at(t, 2), "text"), "(withdrawn) ");
}

static void nothing_and_strange_things_are_told_too(void **state)
{
    (void)state;
    AUTO_JSON none = timeline("[]");
    assert_int_equal(json_array_size(json_object_get(none, "rows")), 0);
    AUTO_JSON strange = timeline("[{\"type\":\"agent.dream\"},{},7,"
                                 "{\"type\":\"span.model_request_end\"},"
                                 "{\"type\":\"agent.tool_result\",\"toolCallId\":\"x\"},"
                                 "{\"type\":\"session.error\"},{\"type\":\"agent.tool_use\"}]");
    assert_string_equal(json_get_c(row_at(strange, 0), "text"), "agent.dream");
    assert_int_equal(total(strange, "modelRequests"), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_attempt_its_backoff_and_the_next_one_are_three_rows),
        cmocka_unit_test(parallel_calls_have_their_own_durations),
        cmocka_unit_test(the_start_of_a_sandbox_is_a_row),
        cmocka_unit_test(what_a_turn_left_open_is_marked),
        cmocka_unit_test(messages_say_whether_they_wait_or_were_taken_back),
        cmocka_unit_test(nothing_and_strange_things_are_told_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
