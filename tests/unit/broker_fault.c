/* src/broker/fault.c: when a provider wants to be asked again. */
#include "broker/fault.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define NOW 1796040000000 /* 2026-11-30T12:00:00Z */
#define GOOGLE                                                                                     \
    "{\"error\":{\"code\":429,\"details\":[{\"@type\":\"Help\"},"                                  \
    "{\"@type\":\"type.googleapis.com/google.rpc.RetryInfo\",\"retryDelay\":\"34.5s\"}]}}"

static const struct {
    const char *after_ms, *after, *body;
    int64_t expected;
} cases[] = {
    {NULL, NULL, "", -1},
    {NULL, "7", "", 7000},
    {NULL, "1.25", "", 1250},
    {NULL, "0", "", 0},
    {"250", "7", "", 250},
    {"what", "7", "", 7000},
    {NULL, "Mon, 30 Nov 2026 12:00:20 GMT", "", 20000},
    {NULL, "Mon, 30 Nov 2026 11:59:20 GMT", "", 0},
    {NULL, "-1", "", -1},
    {NULL, "soon", "", -1},
    {NULL, "inf", "", -1},
    {NULL, "1e300", "", 86400000},
    {NULL, NULL, GOOGLE, 34500},
    {NULL, NULL, "[" GOOGLE "]", 34500},
    {NULL, "3", GOOGLE, 3000},
    {NULL, NULL, "{\"error\":{\"details\":[{\"retryDelay\":\"34m\"}]}}", -1},
    {NULL, NULL, "{\"error\":{\"details\":7}}", -1},
    {NULL, NULL, "{\"error\"", -1},
};

static void retry_after_in_all_its_forms(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(
            fault_retry_after_ms(cases[i].after_ms, cases[i].after, str_of(cases[i].body), NOW),
            cases[i].expected);
}

static void words_inside_a_stream(void **state)
{
    (void)state;
    static const struct {
        const char *type, *message, *code;
    } streams[] = {
        {"overloaded_error", "Overloaded", "model_overloaded"},
        {"rate_limit_error", "slow down", "model_rate_limited"},
        {"authentication_error", "", "model_rejected_key"},
        {"insufficient_quota", "You exceeded your current quota", "model_no_credit"},
        {"429", "see your billing details", "model_no_credit"},
        {"?", "?", "model_stream_broken"},
    };
    for (size_t i = 0; i < sizeof streams / sizeof *streams; i++)
        assert_string_equal(fault_of_stream(streams[i].type, streams[i].message)->code,
                            streams[i].code);
}

static void what_an_answer_says_of_the_key(void **state)
{
    (void)state;
    static const struct {
        int status;
        const char *body, *code;
    } answers[] = {
        {401, "", "model_rejected_key"},
        {403, "", "model_rejected_key"},
        {400, "{\"error\":{\"details\":[{\"reason\":\"API_KEY_INVALID\"}]}}", "model_rejected_key"},
        {400, "{\"error\":{\"message\":\"no\"}}", "model_bad_request"},
        {402, "", "model_no_credit"},
        {422, "API_KEY_INVALID", "model_bad_request"},
    };
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
        assert_string_equal(fault_of_answer(answers[i].status, str_of(answers[i].body))->code,
                            answers[i].code);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(retry_after_in_all_its_forms),
        cmocka_unit_test(words_inside_a_stream),
        cmocka_unit_test(what_an_answer_says_of_the_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
