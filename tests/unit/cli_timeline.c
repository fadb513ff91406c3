/* src/cli/timeline.c: what the events of a session tell, and their sums. */
#include "cli/timeline.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

/* An event: when, in seconds after noon, and its other members, with ' for ". */
struct moment {
    const char *at, *members;
};

static json_t *timeline(const struct moment *moments)
{
    AUTO_BUF text = {0};
    AUTO_JSON events = NULL;
    for (const struct moment *m = moments; m->at; m++)
        buf_printf(&text, "%c{%s,'createdAt':'2026-11-30T12:00:0%sZ'}", m == moments ? '[' : ',',
                   m->members, m->at);
    buf_add_char(&text, ']');
    for (size_t i = 0; i < text.n; i++)
        text.p[i] = text.p[i] == '\'' ? '"' : text.p[i];
    if (json_read(buf_str(&text), &events))
        fail_msg("the test's events are no JSON: %s", text.p);
    return timeline_of(events);
}

static const json_t *row_at(const json_t *timeline, size_t i)
{
    return json_array_get(json_object_get(timeline, "rows"), i);
}

static int64_t total(const json_t *timeline, const char *name)
{
    return json_get_int(json_object_get(timeline, "totals"), name, -1);
}

#define START "'type':'span.model_request_start','provider':'p','model':'m','requestNumber':1,"
#define END "'type':'span.model_request_end','provider':'p','model':'m','requestNumber':1,"
#define BUSY "'error':{'code':'model_overloaded','message':'busy'}"

static void a_failed_attempt_its_backoff_and_the_next_one_are_three_rows(void **state)
{
    (void)state;
    static const struct moment moments[] = {
        {"0.000", "'type':'session.status_run_started'"},
        {"0.100", START "'attempt':1"},
        {"0.150", END "'attempt':1,'durationMs':50," BUSY},
        {"0.150", "'type':'session.error'," BUSY ",'retryStatus':{'type':'retrying','attempt':2,"
                  "'nextRetryAt':'2026-11-30T12:00:01.150Z'}"},
        {"0.150", "'type':'session.status_rescheduled'"},
        {"1.150", START "'attempt':2"},
        {"2.000", END "'attempt':2,'durationMs':850,'error':null,'costUsd':0.25,"
                      "'usage':{'inputTokens':7}"},
        {0},
    };
    AUTO_JSON t = timeline(moments);
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
    static const struct moment moments[] = {
        {"0.000", "'type':'agent.tool_use','toolCallId':'a','name':'bash',"
                  "'input':{'command':'sleep 2'}"},
        {"0.000", "'type':'agent.tool_use','toolCallId':'b','name':'ls'"},
        {"0.500", "'type':'agent.tool_result','toolCallId':'b','isError':true,"
                  "'content':[{'type':'text','text':'no'}]"},
        {"2.000", "'type':'agent.tool_result','toolCallId':'a'"},
        {0},
    };
    AUTO_JSON t = timeline(moments);
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
    static const struct moment moments[] = {
        {"0.000", "'type':'span.sandbox_start','durationMs':9"},
        {0},
    };
    AUTO_JSON t = timeline(moments);
    assert_string_equal(json_get_c(row_at(t, 0), "kind"), "sandbox");
    assert_int_equal(json_get_int(row_at(t, 0), "durationMs", -1), 9);
    assert_int_equal(total(t, "sandboxStarts"), 1);
    assert_int_equal(total(t, "sandboxMs"), 9);
}

static void what_a_turn_left_open_is_marked(void **state)
{
    (void)state;
    static const struct moment moments[] = {
        {"0.000", "'type':'session.status_run_started'"},
        {"0.100", START "'attempt':1"},
        {"3.000", "'type':'session.status_idle','stopReason':{'type':'interrupted'}"},
        {0},
    };
    AUTO_JSON t = timeline(moments);
    assert_true(json_get_bool(row_at(t, 1), "unfinished", false));
    assert_string_equal(json_get_c(row_at(t, 2), "text"), "turn 1 ends: interrupted");
    assert_int_equal(total(t, "runMs"), 3000);
}

static void messages_say_whether_they_wait_or_were_taken_back(void **state)
{
    (void)state;
    static const struct moment moments[] = {
        {"0.000", "'type':'user.message','content':[{'type':'text','text':'a\\nb'}],"
                  "'processedAt':'2026-11-30T12:00:02.000Z'"},
        {"0.000", "'type':'user.message','content':[{'type':'image'}],'processedAt':null"},
        {"0.000", "'type':'user.message','content':[],'withdrawn':true,"
                  "'processedAt':'2026-11-30T12:00:02.000Z'"},
        {0},
    };
    AUTO_JSON t = timeline(moments);
    assert_string_equal(json_get_c(row_at(t, 0), "text"), "a b (given to the agent after 2.0 s)");
    assert_int_equal(json_get_int(row_at(t, 0), "waitedMs", -1), 2000);
    assert_string_equal(json_get_c(row_at(t, 1), "text"), "(waits) [image]");
    assert_string_equal(json_get_c(row_at(t, 2), "text"), "(withdrawn) ");
}

static void nothing_and_strange_things_are_told_too(void **state)
{
    (void)state;
    AUTO_JSON nothing = json_array();
    AUTO_JSON none = timeline_of(nothing);
    assert_int_equal(json_array_size(json_object_get(none, "rows")), 0);
    AUTO_JSON events = NULL;
    static const char text[] = "[{\"type\":\"agent.dream\"},{},7,"
                               "{\"type\":\"span.model_request_end\"},"
                               "{\"type\":\"agent.tool_result\",\"toolCallId\":\"x\"},"
                               "{\"type\":\"session.error\"},{\"type\":\"agent.tool_use\"}]";
    assert_int_equal(json_read(str_of(text), &events), 0);
    AUTO_JSON strange = timeline_of(events);
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
