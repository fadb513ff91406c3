/* src/hands/exec.c: plain processes over the connection. */
#include "hands_support.h"

#include <pthread.h>

struct ended {
    struct buf out, errs;
    json_t *exit;
};

static void ended_done(struct ended *e)
{
    buf_done(&e->out);
    buf_done(&e->errs);
    json_decref(e->exit);
}
#define AUTO_ENDED __attribute__((cleanup(ended_done))) struct ended

/* Reads to the EXIT and closes. */
static struct ended read_all(int take_fd)
{
    AUTO_FD fd = take_fd;
    struct ended e = {0};
    AUTO_BUF payload = {0};
    for (;;) {
        enum frame_type type = next_frame(fd, &payload);
        if (type == FRAME_STDOUT)
            buf_add_str(&e.out, buf_str(&payload));
        else if (type == FRAME_STDERR)
            buf_add_str(&e.errs, buf_str(&payload));
        else
            assert_int_equal(type, FRAME_EXIT);
        if (type == FRAME_EXIT)
            break;
    }
    assert_int_equal(json_read(buf_str(&payload), &e.exit), 0);
    return e;
}

static void output_error_and_exit_code_come_apart(void **state)
{
    (void)state;
    AUTO_ENDED e = read_all(open_conversation(
        FRAME_EXEC, "{\"argv\":[\"sh\",\"-c\",\"echo out; echo err >&2; exit 7\"]}"));
    assert_true(str_is(buf_str(&e.out), "out\n"));
    assert_true(str_is(buf_str(&e.errs), "err\n"));
    assert_int_equal(json_get_int(e.exit, "code", -1), 7);
}

static void input_reaches_the_process_and_ends(void **state)
{
    (void)state;
    int fd = open_conversation(FRAME_EXEC, "{\"argv\":[\"cat\"]}");
    assert_int_equal(frame_write(fd, FRAME_STDIN, STR("a\0b")), 0);
    assert_int_equal(frame_write(fd, FRAME_STDIN, STR("")), 0);
    AUTO_ENDED e = read_all(fd);
    assert_true(str_eq(buf_str(&e.out), STR("a\0b")));
    assert_int_equal(json_get_int(e.exit, "code", -1), 0);
}

static void *send_much(void *arg)
{
    int fd = *(int *)arg;
    AUTO_BUF block = {0};
    for (int i = 0; i < 50000; i++)
        buf_add_c(&block, "0123456789abcdefghi\n");
    for (int i = 0; i < 8; i++)
        frame_write(fd, FRAME_STDIN, buf_str(&block));
    frame_write(fd, FRAME_STDIN, STR(""));
    return NULL;
}

static void much_input_and_output_at_once_do_not_deadlock(void **state)
{
    (void)state;
    int fd = open_conversation(FRAME_EXEC, "{\"argv\":[\"cat\"]}");
    pthread_t writer;
    assert_int_equal(pthread_create(&writer, NULL, send_much, &fd), 0);
    AUTO_BUF payload = {0};
    size_t total = 0;
    enum frame_type type;
    while ((type = next_frame(fd, &payload)) == FRAME_STDOUT)
        total += payload.n;
    assert_int_equal(type, FRAME_EXIT);
    pthread_join(writer, NULL);
    close(fd);
    assert_int_equal(total, 8 * 1000000);
}

static void the_environment_is_clean_and_can_be_added_to(void **state)
{
    (void)state;
    AUTO_ENDED e = read_all(open_conversation(
        FRAME_EXEC, "{\"argv\":[\"env\"],\"env\":{\"MORE\":\"yes\",\"TERM\":\"xterm\","
                    "\"PI_X\":\"no\"}}"));
    struct str out = buf_str(&e.out);
    assert_has(out, "PATH=/usr/local/sbin:");
    assert_has(out, "LANG=C.UTF-8\n");
    assert_has(out, "MORE=yes\n");
    assert_has(out, "TERM=xterm\n");
    assert_null(strstr(out.p, "PI_"));
}

static void nothing_is_inherited_but_three_descriptors(void **state)
{
    (void)state;
    AUTO_ENDED fds =
        read_all(open_conversation(FRAME_EXEC, "{\"argv\":[\"ls\",\"-1\",\"/proc/self/fd\"]}"));
    assert_string_equal(fds.out.p, "0\n1\n2\n3\n"); /* 3 is the folder that ls reads */
    AUTO_ENDED signals = read_all(open_conversation(
        FRAME_EXEC, "{\"argv\":[\"grep\",\"-E\",\"Sig(Blk|Ign)\",\"/proc/self/status\"]}"));
    assert_true(str_is(buf_str(&signals.out), "SigBlk:\t0000000000000000\n"
                                              "SigIgn:\t0000000000000000\n"));
}

static void a_missing_program_is_an_error(void **state)
{
    (void)state;
    AUTO_FD fd = open_conversation(FRAME_EXEC, "{\"argv\":[\"no-such-program\"]}");
    AUTO_BUF out = {0};
    assert_int_equal(next_frame(fd, &out), FRAME_ERROR);
    assert_has(buf_str(&out), "no-such-program: No such file");
    AUTO_FD bad = open_conversation(FRAME_EXEC, "{\"argv\":[]}");
    assert_int_equal(next_frame(bad, &out), FRAME_ERROR);
}

static void a_timeout_ends_it(void **state)
{
    (void)state;
    AUTO_ENDED e =
        read_all(open_conversation(FRAME_EXEC, "{\"argv\":[\"sleep\",\"100\"],\"timeoutMs\":50}"));
    assert_int_equal(json_get_int(e.exit, "signal", -1), SIGTERM);
    assert_true(json_get_bool(e.exit, "timedOut", false));
}

static void a_signal_reaches_it(void **state)
{
    (void)state;
    int fd = open_conversation(
        FRAME_EXEC,
        "{\"argv\":[\"sh\",\"-c\",\"trap 'echo int; exit 5' INT; echo up; while :; do read x; "
        "done\"]}");
    AUTO_BUF out = {0};
    assert_int_equal(next_frame(fd, &out), FRAME_STDOUT);
    assert_int_equal(frame_write(fd, FRAME_SIGNAL, STR("{\"signal\":2}")), 0);
    AUTO_ENDED e = read_all(fd);
    assert_true(str_is(buf_str(&e.out), "int\n"));
    assert_int_equal(json_get_int(e.exit, "code", -1), 5);
}

static void the_end_of_the_connection_ends_it(void **state)
{
    (void)state;
    int fd =
        open_conversation(FRAME_EXEC, "{\"argv\":[\"sh\",\"-c\",\"echo $$; exec sleep 100\"]}");
    AUTO_BUF out = {0};
    assert_int_equal(next_frame(fd, &out), FRAME_STDOUT);
    pid_t pid = (pid_t)strtol(out.p, NULL, 10);
    assert_int_equal(kill(pid, 0), 0);
    close(fd);
    while (kill(pid, 0) == 0)
        sched_yield();
}

static void a_terminal_has_a_size_and_echoes(void **state)
{
    (void)state;
    int fd = open_conversation(
        FRAME_EXEC, "{\"argv\":[\"sh\",\"-c\",\"stty size; tty -s && echo tty; read x; stty size; "
                    "echo got $x\"],\"pty\":{\"rows\":10,\"cols\":33}}");
    AUTO_BUF out = {0}, seen = {0};
    while (!seen.p || !strstr(seen.p, "tty\r\n")) {
        assert_int_equal(next_frame(fd, &out), FRAME_STDOUT);
        buf_add_str(&seen, buf_str(&out));
    }
    assert_has(buf_str(&seen), "10 33\r\n");
    assert_int_equal(frame_write(fd, FRAME_RESIZE, STR("{\"rows\":20,\"cols\":44}")), 0);
    assert_int_equal(frame_write(fd, FRAME_STDIN, STR("yo\n")), 0);
    AUTO_ENDED e = read_all(fd);
    assert_has(buf_str(&e.out), "yo\r\n20 44\r\ngot yo\r\n");
    assert_int_equal(json_get_int(e.exit, "code", -1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(output_error_and_exit_code_come_apart),
        cmocka_unit_test(input_reaches_the_process_and_ends),
        cmocka_unit_test(much_input_and_output_at_once_do_not_deadlock),
        cmocka_unit_test(the_environment_is_clean_and_can_be_added_to),
        cmocka_unit_test(nothing_is_inherited_but_three_descriptors),
        cmocka_unit_test(a_missing_program_is_an_error),
        cmocka_unit_test(a_timeout_ends_it),
        cmocka_unit_test(a_signal_reaches_it),
        cmocka_unit_test(the_end_of_the_connection_ends_it),
        cmocka_unit_test(a_terminal_has_a_size_and_echoes),
    };
    return cmocka_run_group_tests(tests, hands_setup, hands_teardown);
}
