/* src/sandbox/exec.c: commands in a sandbox, driven from our own descriptors. Without a sandbox:
   against the pi-hands program alone. */
#include "sandbox/exec.h"

#include "hands_support.h"

#include <poll.h>
#include <pthread.h>
#include <sys/signalfd.h>

#define ARGV(...)                                                                                  \
    .argv = (char *[]){__VA_ARGS__}, .argc = sizeof((char *[]){__VA_ARGS__}) / sizeof(char *)

struct ran {
    struct buf out, errs;
    struct exec_ended ended;
    err e;
};

static void ran_done(struct ran *r)
{
    buf_done(&r->out);
    buf_done(&r->errs);
}
#define AUTO_RAN __attribute__((cleanup(ran_done))) struct ran

/* Fills what the request leaves open; keeps the output. */
static void run(struct exec_request request, struct ran *r)
{
    request.cwd = hands_folder;
    request.keep_out = &r->out;
    request.keep_errs = &r->errs;
    request.keep_max = request.keep_max ? request.keep_max : 64u << 20;
    r->e = exec_run(hands_socket, &request, &r->ended);
}
#define RUN(r, ...) run((struct exec_request){.in = -1, .signals = -1, ARGV(__VA_ARGS__)}, r)

static void output_comes_apart_with_the_status(void **state)
{
    (void)state;
    AUTO_RAN r = {0};
    RUN(&r, "sh", "-c", "echo out; echo err >&2; exit 7");
    assert_int_equal(r.e, 0);
    assert_true(str_is(buf_str(&r.out), "out\n"));
    assert_true(str_is(buf_str(&r.errs), "err\n"));
    assert_int_equal(exec_status(&r.ended), 7);
    assert_false(r.ended.cut);
}

static void a_signal_is_128_and_its_number(void **state)
{
    (void)state;
    AUTO_RAN r = {0};
    RUN(&r, "sh", "-c", "kill -9 $$");
    assert_int_equal(r.e, 0);
    assert_int_equal(r.ended.signal, SIGKILL);
    assert_int_equal(exec_status(&r.ended), 137);
}

static void what_cannot_be_run_is_told_apart_from_what_is_not_there(void **state)
{
    (void)state;
    AUTO_RAN r = {0};
    RUN(&r, "no-such-program");
    assert_int_equal(exec_status_of_err(r.e), EXEC_STATUS_NOT_FOUND);
    assert_has(str_of(err_text()), "no-such-program: No such file");
    put_file("plain", STR("text"));
    RUN(&r, (char *)path_in("plain"));
    assert_int_equal(exec_status_of_err(r.e), EXEC_STATUS_NOT_RUN);
    RUN(&r, "echo", "\xff");
    assert_int_equal(exec_status_of_err(r.e), EXEC_STATUS_FAILED);
    assert_has(str_of(err_text()), "word 2 of the command is not UTF-8");
    struct exec_request request = {.in = -1, .signals = -1, ARGV("true")};
    assert_int_equal(exec_run("/nonexistent/socket", &request, &r.ended), E_UNAVAILABLE);
}

static void without_input_the_command_sees_its_end(void **state)
{
    (void)state;
    AUTO_RAN r = {0};
    RUN(&r, "cat");
    assert_int_equal(r.e, 0);
    assert_int_equal(r.out.n, 0);
}

static void what_is_over_the_limit_is_cut_and_told(void **state)
{
    (void)state;
    AUTO_RAN r = {0};
    run((struct exec_request){.in = -1,
                              .signals = -1,
                              .keep_max = 10,
                              ARGV("sh", "-c", "echo 0123456789; echo more; echo e >&2")},
        &r);
    assert_true(str_is(buf_str(&r.out), "0123456789"));
    assert_true(str_is(buf_str(&r.errs), "e\n"));
    assert_true(r.ended.cut);
}

/* Everything through real pipes, in both directions at once. */
#define MUCH (4u << 20)

struct feeder {
    int fd;
    struct buf bytes;
};

static void *feed(void *arg)
{
    struct feeder *f = arg;
    fd_write_full(f->fd, f->bytes.p, f->bytes.n);
    fd_close(&f->fd);
    return NULL;
}

static void *drink(void *arg)
{
    struct feeder *f = arg;
    char bytes[1000];
    for (ssize_t n; (n = read(f->fd, bytes, sizeof bytes)) > 0;)
        buf_add(&f->bytes, bytes, (size_t)n);
    return NULL;
}

static void binary_input_comes_back_whole_through_pipes(void **state)
{
    (void)state;
    int in[2], out[2];
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    struct feeder from = {.fd = in[1]}, to = {.fd = out[0]};
    uint32_t x = 1;
    while (from.bytes.n < MUCH)
        buf_add_char(&from.bytes, (char)((x = x * 1664525u + 1013904223u) >> 24));
    pthread_t threads[2];
    assert_int_equal(pthread_create(&threads[0], NULL, feed, &from), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, drink, &to), 0);
    struct exec_request request = {.in = in[0],
                                   .out = out[1],
                                   .err_fd = out[1],
                                   .signals = -1,
                                   .cwd = hands_folder,
                                   ARGV("cat")};
    struct exec_ended ended;
    assert_int_equal(exec_run(hands_socket, &request, &ended), 0);
    close(out[1]);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    assert_int_equal(exec_status(&ended), 0);
    assert_true(str_eq(buf_str(&from.bytes), buf_str(&to.bytes)));
    close(in[0]);
    close(out[0]);
    buf_done(&from.bytes);
    buf_done(&to.bytes);
}

static void nobody_reads_so_the_command_is_ended(void **state)
{
    (void)state;
    int out[2];
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    close(out[0]);
    struct exec_request request = {
        .in = -1, .out = out[1], .err_fd = out[1], .signals = -1, .cwd = hands_folder, ARGV("yes")};
    struct exec_ended ended;
    assert_int_equal(exec_run(hands_socket, &request, &ended), 0);
    assert_int_equal(exec_status(&ended), 128 + SIGPIPE);
    close(out[1]);
}

static int blocked_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &set, NULL), 0);
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    assert_true(fd >= 0);
    return fd;
}

/* Sends ourselves a signal each time the command says it is ready for one. */
struct signaller {
    int fd;
    const int *numbers;
    unsigned times;
};

static void *signal_when_told(void *arg)
{
    struct signaller *s = arg;
    char c;
    for (unsigned i = 0; i < s->times && read(s->fd, &c, 1) == 1; i++)
        kill(getpid(), s->numbers[i]);
    return NULL;
}

static struct exec_ended run_signalled(const int *numbers, unsigned times, char *script)
{
    AUTO_FD signals = blocked_signals();
    int out[2];
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    struct signaller s = {.fd = out[0], .numbers = numbers, .times = times};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, signal_when_told, &s), 0);
    struct exec_request request = {.in = -1,
                                   .out = out[1],
                                   .err_fd = out[1],
                                   .signals = signals,
                                   .cwd = hands_folder,
                                   ARGV("bash", "-c", script)};
    struct exec_ended ended = {0};
    assert_int_equal(exec_run(hands_socket, &request, &ended), 0);
    close(out[1]);
    pthread_join(thread, NULL);
    close(out[0]);
    return ended;
}

/* Short sleeps: a shell that gets a signal while it starts a child can miss it until that ends. */
static void signals_are_passed_on(void **state)
{
    (void)state;
    struct exec_ended ended = run_signalled(
        (int[]){SIGINT}, 1, "trap 'exit 5' INT; printf .; while :; do sleep 0.05; done");
    assert_int_equal(exec_status(&ended), 5);
    ended = run_signalled((int[]){SIGTERM}, 1, "printf .; exec sleep 100");
    assert_int_equal(exec_status(&ended), 128 + SIGTERM);
}

/* Three different ones: the same one twice may become one. */
static void the_third_signal_ends_a_command_that_ignores_them(void **state)
{
    (void)state;
    struct exec_ended ended = run_signalled((int[]){SIGHUP, SIGINT, SIGTERM}, 3,
                                            "trap '' HUP INT TERM; printf ...; exec sleep 100");
    assert_true(ended.signal == SIGHUP || ended.signal == SIGINT || ended.signal == SIGTERM);
}

static void a_terminal_is_one(void **state)
{
    (void)state;
    AUTO_RAN r = {0};
    run((struct exec_request){.in = -1,
                              .signals = -1,
                              .terminal = true,
                              .term = "vt100",
                              ARGV("sh", "-c", "tty -s && stty size && echo $TERM")},
        &r);
    assert_int_equal(r.e, 0);
    assert_has(buf_str(&r.out), "24 80\r\nvt100\r\n");
}

static int setup(void **state)
{
    signal(SIGPIPE, SIG_IGN);
    return hands_setup(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(output_comes_apart_with_the_status),
        cmocka_unit_test(a_signal_is_128_and_its_number),
        cmocka_unit_test(what_cannot_be_run_is_told_apart_from_what_is_not_there),
        cmocka_unit_test(without_input_the_command_sees_its_end),
        cmocka_unit_test(what_is_over_the_limit_is_cut_and_told),
        cmocka_unit_test(binary_input_comes_back_whole_through_pipes),
        cmocka_unit_test(nobody_reads_so_the_command_is_ended),
        cmocka_unit_test(signals_are_passed_on),
        cmocka_unit_test(the_third_signal_ends_a_command_that_ignores_them),
        cmocka_unit_test(a_terminal_is_one),
    };
    return cmocka_run_group_tests(tests, setup, hands_teardown);
}
