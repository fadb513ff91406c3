/* src/hands/tool_bash.c and output.c. The common cases are compared with Pi itself in
   tests/e2e/tools-diff.test.mjs; here is what differs from it on purpose (R33, R34) and what takes
   two sides. */
#include "hands_support.h"

#include "base/clock.h"

#include <sched.h>

static int64_t now_ms(void)
{
    return clock_monotonic_ms(clock_real());
}

static void output_of_both_kinds_keeps_its_order(void **state)
{
    (void)state;
    AUTO_RESULT r = bash("for i in 1 2 3; do echo out$i; echo err$i >&2; done");
    assert_text(&r, "out1\nerr1\nout2\nerr2\nout3\nerr3\n");
    assert_false(r.is_error);
    assert_true(json_get_int(r.json, "durationMs", -1) >= 0);
}

static void no_output_says_so(void **state)
{
    (void)state;
    AUTO_RESULT r = bash("true");
    assert_text(&r, "(no output)");
}

static void nul_and_broken_bytes_come_as_json(void **state)
{
    (void)state;
    AUTO_RESULT r = bash("printf 'a\\0b\\xffc'");
    assert_true(str_eq(r.text, STR("a\0b\xef\xbf\xbd"
                                   "c")));
}

static void input_is_empty_and_no_startup_file_is_read(void **state)
{
    (void)state;
    put_file(".bashrc", STR("echo FROM_BASHRC\n"));
    put_file(".profile", STR("echo FROM_PROFILE\n"));
    AUTO_RESULT r = bash("cat; readlink /proc/self/fd/0; env | grep -c '^PI_'");
    assert_has(r.text, "/dev/null\n0\n");
    assert_null(memmem(r.text.p, r.text.n, "FROM_", 5));
}

static void it_leads_a_session_without_terminal(void **state)
{
    (void)state;
    AUTO_RESULT r = bash("set -- $(cat /proc/$$/stat); [ $$ = $5 ] && [ $$ = $6 ] && echo leader; "
                         "(: </dev/tty) 2>/dev/null || echo none");
    assert_text(&r, "leader\nnone\n");
}

static void a_background_child_with_the_pipe_does_not_hold_it(void **state)
{
    (void)state;
    int64_t start = now_ms();
    AUTO_RESULT r = bash("sleep 100 & echo $!");
    assert_true(now_ms() - start < 10000);
    assert_false(r.is_error);
    pid_t child = (pid_t)strtol(r.text.p, NULL, 10);
    assert_int_equal(kill(child, SIGKILL), 0); /* it lives on, as in Pi */
}

static void a_chattering_background_child_does_not_hold_it_for_ever(void **state)
{
    (void)state;
    int64_t start = now_ms();
    AUTO_RESULT r = bash("mkfifo never; (exec 3<>never; trap '' PIPE; while echo tick; do "
                         "read -t 0.03 <&3; done) 2>/dev/null & echo started");
    assert_true(now_ms() - start < 30000); /* 2 s, and room for a busy machine */
    assert_false(r.is_error);
    assert_has(r.text, "started\n");
}

/* The child writes when the shell's end closes the fifo, not before. */
static void output_right_after_the_end_of_the_shell_is_kept(void **state)
{
    (void)state;
    AUTO_RESULT r = bash("mkfifo end; (read x <end; echo late) & exec 4>end; echo early");
    assert_text(&r, "early\nlate\n");
}

static void timeout_kills_a_tree_that_ignores_term(void **state)
{
    (void)state;
    int64_t start = now_ms();
    AUTO_RESULT r =
        bash_timeout("trap '' TERM; echo $$; (trap '' TERM; sleep 600 & sleep 600); :", 0.2);
    int64_t took = now_ms() - start;
    assert_true(r.is_error);
    assert_has(r.text, "\n\nCommand timed out after 0.2 seconds");
    assert_true(took >= 2200);
    pid_t group = (pid_t)strtol(r.text.p, NULL, 10);
    assert_true(group > 1);
    while (kill(-group, 0) == 0) /* killed; the last zombies go as they are reaped */
        sched_yield();
}

/* How long one takes, which must be gone with its result. */
static int64_t time_obedient_tree(void)
{
    int64_t start = now_ms();
    AUTO_RESULT r = bash_timeout("echo $$; sleep 600 & sleep 600", 0.1);
    int64_t took = now_ms() - start;
    assert_has(r.text, "\n\nCommand timed out after 0.1 seconds");
    pid_t group = (pid_t)strtol(r.text.p, NULL, 10);
    assert_int_equal(kill(-group, 0), -1);
    return took;
}

/* The grace of two seconds is not waited for: on a busy machine it takes a few tries to see that.
 */
static void timeout_of_an_obedient_tree_is_quick(void **state)
{
    (void)state;
    int tries = 1;
    while (time_obedient_tree() >= 2000)
        assert_true(++tries <= 20);
}

static void the_callers_timeout_holds_where_the_input_has_none(void **state)
{
    (void)state;
    struct hands_call call = {.key = "default_timeout",
                              .tool = "bash",
                              .cwd = hands_folder,
                              .input = STR("{\"command\":\"sleep 100\"}"),
                              .timeout_ms = 1500};
    AUTO_BUF out = {0};
    assert_int_equal(hands_call(hands_socket, &call, &out), 0);
    AUTO_RESULT r = result_of(buf_str(&out));
    assert_text(&r, "Command timed out after 1.5 seconds");
    assert_int_equal(hands_ack(hands_socket, "default_timeout"), 0);
}

static void a_missing_folder_is_named(void **state)
{
    (void)state;
    AUTO_RESULT r = call_in("/no/such", "no_cwd", "bash", "{\"command\":\"true\"}");
    assert_true(r.is_error);
    assert_text(&r, "Working directory does not exist: /no/such\nCannot execute bash commands.");
}

static void wrong_input_is_a_result(void **state)
{
    (void)state;
    AUTO_RESULT missing = call_tool("bash", "{}");
    assert_true(missing.is_error);
    AUTO_RESULT number = call_tool("bash", "{\"command\":7}");
    assert_true(number.is_error);
    assert_has(number.text, "command");
}

static void long_output_is_kept_whole_in_a_file(void **state)
{
    (void)state;
    AUTO_RESULT r = bash("seq 1 200000");
    assert_false(r.is_error);
    const json_t *details = json_object_get(r.json, "details");
    const char *path = json_get_c(details, "fullOutputPath");
    assert_non_null(path);
    assert_has(r.text, "[Showing lines 198001-200000 of 200000. Full output: ");
    assert_has(r.text, path);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    AUTO_BUF kept = {0};
    assert_int_equal(fd_read_file(path, 64 << 20, &kept), 0);
    assert_int_equal(kept.n, 1288895);
    assert_true(str_starts(buf_str(&kept), STR("1\n2\n3\n")));
    assert_true(str_ends(buf_str(&kept), STR("199999\n200000\n")));
    unlink(path);
}

static void endless_output_is_cut_at_64_mib_with_a_note(void **state)
{
    (void)state;
    AUTO_RESULT r = bash("yes 0123456789012345678901234567890123456789012345678901234567890 | "
                         "head -c 70000000; echo END");
    const char *path = json_get_c(json_object_get(r.json, "details"), "fullOutputPath");
    assert_non_null(path);
    assert_has(r.text, "END\n");
    assert_has(r.text, " (only the first 64.0MB of it)]");
    AUTO_BUF kept = {0};
    assert_int_equal(fd_read_file(path, 65 << 20, &kept), 0);
    struct str note = STR("\n[Output cut here: only the first 64.0MB are kept]\n");
    assert_int_equal(kept.n, (64 << 20) + note.n);
    assert_true(str_ends(buf_str(&kept), note));
    unlink(path);
}

static void note_end(void *arg, uint64_t offset, struct str bytes)
{
    *(uint64_t *)arg = offset + bytes.n;
}

static void updates_reach_the_end_of_huge_output(void **state)
{
    (void)state;
    uint64_t end = 0;
    struct hands_call call = {.key = "updates",
                              .tool = "bash",
                              .cwd = hands_folder,
                              .input = STR("{\"command\":\"head -c 5000000 /dev/zero\"}"),
                              .timeout_ms = 60000,
                              .on_update = note_end,
                              .arg = &end};
    AUTO_BUF out = {0};
    assert_int_equal(hands_call(hands_socket, &call, &out), 0);
    assert_int_equal(end, 5000000);
    AUTO_RESULT r = result_of(buf_str(&out));
    unlink(json_get_c(json_object_get(r.json, "details"), "fullOutputPath"));
    assert_int_equal(hands_ack(hands_socket, "updates"), 0);
}

static void cut_text_ends_on_a_code_point(void **state)
{
    (void)state;
    AUTO_RESULT r = bash("yes '🚀' | head -n 40000 | tr -d '\\n'");
    assert_true(str_is_utf8(r.text));
    assert_true(str_starts(r.text, STR("\xf0\x9f\x9a\x80")));
    unlink(json_get_c(json_object_get(r.json, "details"), "fullOutputPath"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(output_of_both_kinds_keeps_its_order),
        cmocka_unit_test(no_output_says_so),
        cmocka_unit_test(nul_and_broken_bytes_come_as_json),
        cmocka_unit_test(input_is_empty_and_no_startup_file_is_read),
        cmocka_unit_test(it_leads_a_session_without_terminal),
        cmocka_unit_test(a_background_child_with_the_pipe_does_not_hold_it),
        cmocka_unit_test(a_chattering_background_child_does_not_hold_it_for_ever),
        cmocka_unit_test(output_right_after_the_end_of_the_shell_is_kept),
        cmocka_unit_test(timeout_kills_a_tree_that_ignores_term),
        cmocka_unit_test(timeout_of_an_obedient_tree_is_quick),
        cmocka_unit_test(the_callers_timeout_holds_where_the_input_has_none),
        cmocka_unit_test(a_missing_folder_is_named),
        cmocka_unit_test(wrong_input_is_a_result),
        cmocka_unit_test(long_output_is_kept_whole_in_a_file),
        cmocka_unit_test(endless_output_is_cut_at_64_mib_with_a_note),
        cmocka_unit_test(updates_reach_the_end_of_huge_output),
        cmocka_unit_test(cut_text_ends_on_a_code_point),
    };
    return cmocka_run_group_tests(tests, hands_setup, hands_teardown);
}
