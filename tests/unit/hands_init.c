/* src/hands/main.c as pid 1 of a pid namespace, as in a sandbox. */
#include "hands_support.h"

#include <sched.h>
#include <sys/syscall.h>

static bool possible;

static int setup(void **state)
{
    (void)state;
    hands_make_folder();
    int listener = listen_at(hands_socket);
    hands_pid = (pid_t)syscall(SYS_clone, CLONE_NEWUSER | CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0);
    if (hands_pid == 0)
        hands_exec(listener);
    close(listener);
    possible = hands_pid > 0; /* some machines allow no user namespaces */
    if (possible)
        assert_int_equal(hands_hello(hands_socket, 10000), 0);
    return 0;
}

static int teardown(void **state)
{
    if (possible)
        return hands_teardown(state);
    hands_remove_folder();
    return 0;
}

static void it_is_pid_1(void **state)
{
    (void)state;
    if (!possible)
        skip();
    AUTO_FD fd = open_conversation(FRAME_HELLO, "{}");
    AUTO_BUF out = {0};
    assert_int_equal(next_frame(fd, &out), FRAME_HELLO);
    assert_has(buf_str(&out), "\"pid\":1,");
}

static void signals_from_inside_do_not_end_it(void **state)
{
    (void)state;
    if (!possible)
        skip();
    AUTO_RESULT r = bash("kill -TERM 1; kill -KILL 1; kill -INT 1; kill -HUP 1; echo sent");
    assert_text(&r, "sent\n");
    assert_int_equal(hands_hello(hands_socket, 10000), 0);
}

/* The end itself is in the teardown: TERM from outside, exit status 0. */
static void term_from_outside_ends_everything(void **state)
{
    (void)state;
    if (!possible)
        skip();
    AUTO_RESULT r = bash("sleep 1000 >/dev/null 2>&1 & setsid sleep 1000 >/dev/null 2>&1 &");
    assert_false(r.is_error);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_pid_1),
        cmocka_unit_test(signals_from_inside_do_not_end_it),
        cmocka_unit_test(term_from_outside_ends_everything),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
