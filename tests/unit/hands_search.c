/* grep's child program: its time, its end by cancel, its absence, and what it may say. The
   "ripgrep" here is a script that each test writes anew. */
#include "hands_support.h"

#include "base/clock.h"

static void put_program(const char *script)
{
    unlink(path_in("rg"));
    put_file("rg", str_of(script));
    assert_int_equal(chmod(path_in("rg"), 0755), 0);
}

/* A grep in the test's folder; `limits` as JSON. */
static int start_grep(const char *key, const char *limits)
{
    char call[512];
    snprintf(call, sizeof call,
             "{\"key\":\"%s\",\"tool\":\"grep\",\"input\":{\"pattern\":\"x\"},\"cwd\":\"%s\","
             "\"limits\":%s}",
             key, hands_folder, limits);
    return open_conversation(FRAME_CALL, call);
}

static struct result finish_grep(int fd)
{
    AUTO_BUF payload = {0};
    while (next_frame(fd, &payload) != FRAME_RESULT)
        ;
    close(fd);
    return result_of(buf_str(&payload));
}

static void a_search_that_takes_too_long_is_ended(void **state)
{
    (void)state;
    put_program("#!/bin/sh\nsleep 100 & exec sleep 100\n");
    int64_t start = clock_monotonic_ms(clock_real());
    AUTO_RESULT r = finish_grep(start_grep("slow", "{\"timeoutMs\":1000}"));
    assert_true(r.is_error);
    assert_has(r.text, "took longer than 1 seconds");
    assert_true(clock_monotonic_ms(clock_real()) - start < 50000);
}

static void a_cancelled_search_ends_with_its_program(void **state)
{
    (void)state;
    put_program("#!/bin/sh\necho $$ > pid; exec sleep 100\n");
    assert_int_equal(mkfifo(path_in("pid"), 0600), 0); /* reading it waits for the program */
    int fd = start_grep("cancelled", "{}");
    AUTO_BUF pid = {0};
    get_file("pid", &pid);
    int cancel = open_conversation(FRAME_CANCEL, "{\"key\":\"cancelled\",\"graceMs\":100}");
    AUTO_RESULT r = finish_grep(fd);
    close(cancel);
    assert_true(r.interrupted);
    assert_text(&r, "Operation aborted");
    assert_int_equal(kill((pid_t)strtol(pid.p, NULL, 10), 0), -1);
}

static void without_its_program_it_says_so(void **state)
{
    (void)state;
    unlink(path_in("rg"));
    AUTO_RESULT r = call_tool("grep", "{\"pattern\":\"x\"}");
    assert_true(r.is_error);
    assert_has(r.text, "Failed to run ripgrep: spawn ");
    assert_has(r.text, " ENOENT");
}

static void nonsense_from_its_program_is_passed_over(void **state)
{
    (void)state;
    put_program(
        "#!/bin/sh\nprintf '%s\\n' '' '{' '[]' '{\"type\":\"match\"}' "
        "'{\"type\":\"match\",\"data\":{\"path\":{\"text\":\"./a\"},\"line_number\":\"1\"}}' "
        "'{\"type\":\"match\",\"data\":{\"path\":{\"bytes\":\"Yf8=\"},\"line_number\":7,"
        "\"lines\":{\"bytes\":\"eP8K\"}}}'\n");
    AUTO_RESULT r = call_tool("grep", "{\"pattern\":\"x\"}");
    assert_text(&r, "a\xef\xbf\xbd:7: x\xef\xbf\xbd");
}

static void its_trouble_is_the_result(void **state)
{
    (void)state;
    put_program("#!/bin/sh\necho '  rg: no luck ' >&2; exit 2\n");
    AUTO_RESULT r = call_tool("grep", "{\"pattern\":\"x\"}");
    assert_true(r.is_error);
    assert_text(&r, "rg: no luck");
    put_program("#!/bin/sh\nexit 3\n");
    AUTO_RESULT silent = call_tool("grep", "{\"pattern\":\"x\"}");
    assert_text(&silent, "ripgrep exited with code 3");
}

static void inputs_of_the_wrong_kind_are_errors(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"ls", "{\"path\":7}"},
        {"grep", "{}"},
        {"grep", "{\"pattern\":[]}"},
        {"grep", "{\"pattern\":\"x\",\"path\":{}}"},
        {"find", "{}"},
        {"find", "{\"pattern\":1}"},
        {"find", "{\"pattern\":\"x\",\"path\":true}"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        AUTO_RESULT r = call_tool(bad[i][0], bad[i][1]);
        assert_true(r.is_error);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_search_that_takes_too_long_is_ended),
        cmocka_unit_test(a_cancelled_search_ends_with_its_program),
        cmocka_unit_test(without_its_program_it_says_so),
        cmocka_unit_test(nonsense_from_its_program_is_passed_over),
        cmocka_unit_test(its_trouble_is_the_result),
        cmocka_unit_test(inputs_of_the_wrong_kind_are_errors),
    };
    return cmocka_run_group_tests(tests, hands_setup, hands_teardown);
}
