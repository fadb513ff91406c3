/* src/cli: options from the command line and the environment, and hints for what is misspelt. */
#include "cli/command.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const struct option options[] = {
    {"data", "DIR", "./here", "a directory"},
    {"log-format", "FORMAT", NULL, "a word"},
    {"json", NULL, NULL, "a flag"},
    {0},
};
static const struct command command = {.name = "test", .arguments = "THING", .options = options};
static const struct command bare = {.name = "bare", .arguments = "", .options = options};

#define PARSE(what, call, ...)                                                                     \
    options_parse(&(what), (int)(sizeof((char *[]){__VA_ARGS__}) / sizeof(char *)),                \
                  (char *[]){__VA_ARGS__}, (call))

static void both_spellings_of_a_value_are_taken(void **state)
{
    (void)state;
    struct invocation call;
    assert_int_equal(PARSE(command, &call, "--data", "/a", "thing", "--log-format=json"), 0);
    assert_string_equal(option_value(&call, "data"), "/a");
    assert_string_equal(option_value(&call, "log-format"), "json");
    assert_string_equal(call.arguments[0], "thing");
    assert_false(option_flag(&call, "json"));
}

static void the_line_wins_over_the_environment_and_that_over_the_fallback(void **state)
{
    (void)state;
    struct invocation call;
    assert_int_equal(PARSE(command, &call, "thing"), 0);
    assert_string_equal(option_value(&call, "data"), "./here");
    assert_null(option_value(&call, "log-format"));
    setenv("PI_MANAGED_DATA", "/from-env", 1);
    setenv("PI_MANAGED_LOG_FORMAT", "text", 1);
    assert_string_equal(option_value(&call, "data"), "/from-env");
    assert_string_equal(option_value(&call, "log-format"), "text");
    assert_int_equal(PARSE(command, &call, "thing", "--data", "/a"), 0);
    assert_string_equal(option_value(&call, "data"), "/a");
    unsetenv("PI_MANAGED_DATA");
    unsetenv("PI_MANAGED_LOG_FORMAT");
}

static void a_flag_in_the_environment_can_be_off(void **state)
{
    (void)state;
    struct invocation call;
    assert_int_equal(PARSE(command, &call, "thing"), 0);
    setenv("PI_MANAGED_JSON", "0", 1);
    assert_false(option_flag(&call, "json"));
    setenv("PI_MANAGED_JSON", "1", 1);
    assert_true(option_flag(&call, "json"));
    unsetenv("PI_MANAGED_JSON");
    assert_int_equal(PARSE(command, &call, "thing", "--json"), 0);
    assert_true(option_flag(&call, "json"));
}

static void what_is_wrong_ends_with_status_2(void **state)
{
    (void)state;
    struct invocation call;
    assert_int_equal(PARSE(command, &call, "thing", "--date", "/a"), 2); /* unknown */
    assert_int_equal(PARSE(command, &call, "thing", "--data"), 2);       /* no value */
    assert_int_equal(PARSE(command, &call, "thing", "--json=yes"), 2);   /* a flag */
    assert_int_equal(PARSE(command, &call, "thing", "-j"), 2);           /* one dash */
    assert_int_equal(PARSE(command, &call, "thing", "another"), 2);      /* one too many */
    assert_int_equal(PARSE(command, &call, "--json"), 2);                /* THING is missing */
    assert_int_equal(PARSE(bare, &call, "thing"), 2);
    assert_int_equal(PARSE(command, &call, "--data", "/a", "thing", "--data=/b"), 2);
}

static void a_near_name_is_suggested_and_a_far_one_is_not(void **state)
{
    (void)state;
    static const char *const names[] = {"serve", "key create", "doctor", NULL};
    assert_string_equal(nearest_name("sevre", names), "serve");
    assert_string_equal(nearest_name("key creat", names), "key create");
    assert_string_equal(nearest_name("dcotor", names), "doctor");
    assert_null(nearest_name("export", names));
    char longest[300];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = 0;
    assert_null(nearest_name(longest, names));
}

static void words_behind_two_dashes_are_left_as_they_are(void **state)
{
    (void)state;
    static const struct command running = {
        .name = "run", .arguments = "NAME", .rest = "CMD", .options = options};
    struct invocation call;
    assert_int_equal(PARSE(running, &call, "--json", "it", "--", "ls", "--data", "-l", "--"), 0);
    assert_true(option_flag(&call, "json"));
    assert_string_equal(call.arguments[0], "it");
    assert_int_equal(call.rest_count, 4);
    assert_string_equal(call.rest[1], "--data");
    assert_string_equal(call.rest[3], "--");
    assert_int_equal(PARSE(running, &call, "it"), 125);
    assert_int_equal(PARSE(running, &call, "it", "--"), 125);
    assert_int_equal(PARSE(running, &call, "it", "ls"), 125);
    assert_int_equal(PARSE(bare, &call, "--", "ls"), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_behind_two_dashes_are_left_as_they_are),
        cmocka_unit_test(both_spellings_of_a_value_are_taken),
        cmocka_unit_test(the_line_wins_over_the_environment_and_that_over_the_fallback),
        cmocka_unit_test(a_flag_in_the_environment_can_be_off),
        cmocka_unit_test(what_is_wrong_ends_with_status_2),
        cmocka_unit_test(a_near_name_is_suggested_and_a_far_one_is_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
