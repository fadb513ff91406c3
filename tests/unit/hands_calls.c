/* src/hands/calls.c and conn.c: conversations, and calls that outlive them. */
#include "hands_support.h"

#include "base/clock.h"

#include <dirent.h>
#include <pthread.h>

static void hello_tells_version_and_boot_id(void **state)
{
    (void)state;
    AUTO_FD fd = open_conversation(FRAME_HELLO, "{}");
    AUTO_BUF out = {0};
    assert_int_equal(next_frame(fd, &out), FRAME_HELLO);
    AUTO_JSON o = NULL;
    assert_int_equal(json_read(buf_str(&out), &o), 0);
    assert_int_equal(json_get_int(o, "version", 0), HANDS_VERSION);
    assert_int_equal(json_get_int(o, "pid", 0), hands_pid);
    assert_int_equal(json_get_str(o, "bootId").n, 32);
    assert_true(json_get_int(o, "uptimeMs", -1) >= 0);
}

static void ping_is_answered(void **state)
{
    (void)state;
    AUTO_FD fd = open_conversation(FRAME_PING, "{}");
    AUTO_BUF out = {0};
    assert_int_equal(next_frame(fd, &out), FRAME_PONG);
    enum frame_type type;
    assert_int_equal(frame_read(fd, &type, &out), E_CLOSED);
}

static void expect_error(int take_fd, const char *code)
{
    AUTO_FD fd = take_fd;
    AUTO_BUF out = {0};
    assert_int_equal(next_frame(fd, &out), FRAME_ERROR);
    AUTO_JSON o = NULL;
    assert_int_equal(json_read(buf_str(&out), &o), 0);
    assert_string_equal(json_get_c(o, "code"), code);
    assert_true(json_get_str(o, "message").n > 0);
}

static void bad_frames_are_refused_and_the_program_lives(void **state)
{
    (void)state;
    expect_error(open_conversation(FRAME_CALL, "{"), "bad_frame");
    expect_error(open_conversation(FRAME_CALL, "[]"), "bad_frame");
    expect_error(open_conversation(FRAME_CALL, "{\"key\":\"k\"}"), "bad_frame");
    expect_error(open_conversation(FRAME_CALL, "{\"key\":\"\",\"tool\":\"bash\",\"input\":{}}"),
                 "bad_frame");
    expect_error(open_conversation(FRAME_SET_CLOCK, "{\"wallMs\":\"now\"}"), "bad_frame");
    expect_error(open_conversation(FRAME_STDIN, "{}"), "bad_frame");
    expect_error(open_conversation(FRAME_ACK, "{}"), "bad_frame");
    static const char *const raw[] = {"\0\0\0\0\1", "\377\377\377\377\1", "\2\0\0\0\144x"};
    static const size_t raw_n[] = {5, 5, 6};
    for (size_t i = 0; i < 3; i++) {
        int fd = -1;
        assert_int_equal(hands_connect(hands_socket, &fd), 0);
        assert_int_equal(fd_write_full(fd, raw[i], raw_n[i]), 0);
        expect_error(fd, "bad_frame");
    }
    assert_int_equal(hands_hello(hands_socket, 10000), 0);
}

static void nobody_at_the_socket_is_unavailable(void **state)
{
    (void)state;
    int fd = -1;
    assert_int_equal(hands_connect("/tmp/pm-none/none", &fd), E_UNAVAILABLE);
    assert_int_equal(fd, -1);
    assert_int_equal(hands_hello("/tmp/pm-none/none", 1000), E_UNAVAILABLE);
}

static void hello_gives_up_on_a_silent_peer(void **state)
{
    (void)state;
    AUTO_FD listener = listen_at(path_in("silent"));
    assert_int_equal(hands_hello(path_in("silent"), 50), E_TIMEOUT);
}

static void an_unknown_tool_is_a_result_that_names_it(void **state)
{
    (void)state;
    AUTO_RESULT r = call_tool("juggle", "{}");
    assert_true(r.is_error);
    assert_has(r.text, "juggle");
}

/* A call that says `ready`, waits for a line in a fifo, and says it. */
static const char waiting_input[] =
    "{\"command\":\"echo run >> runs; echo ready; read x < fifo; echo got $x\"}";

static void make_fifo(void)
{
    unlink(path_in("fifo"));
    unlink(path_in("runs"));
    assert_int_equal(mkfifo(path_in("fifo"), 0600), 0);
}

static void feed_fifo(const char *line)
{
    AUTO_FD fd = open(path_in("fifo"), O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fd_write_full(fd, line, strlen(line)), 0);
}

static int open_call(const char *key, const char *input)
{
    AUTO_BUF request = {0};
    buf_printf(&request, "{\"key\":\"%s\",\"tool\":\"bash\",\"cwd\":\"%s\",\"input\":%s}", key,
               hands_folder, input);
    return open_conversation(FRAME_CALL, request.p);
}

static void expect_update(int fd, const char *text)
{
    AUTO_BUF out = {0};
    assert_int_equal(next_frame(fd, &out), FRAME_UPDATE);
    assert_true(out.n > 8);
    assert_has((struct str){out.p + 8, out.n - 8}, text);
}

struct output_seen {
    struct buf bytes;
    bool gap;
};

static void note_output(void *arg, uint64_t offset, struct str bytes)
{
    struct output_seen *seen = arg;
    seen->gap |= offset != seen->bytes.n;
    buf_add_str(&seen->bytes, bytes);
}

static void attach_after_a_cut_connection_gets_everything(void **state)
{
    (void)state;
    make_fifo();
    int fd = open_call("cut", waiting_input);
    expect_update(fd, "ready\n");
    close(fd);
    feed_fifo("home\n");
    struct output_seen seen = {0};
    struct hands_call call = {.key = "cut", .on_update = note_output, .arg = &seen};
    AUTO_BUF out = {0};
    assert_int_equal(hands_attach(hands_socket, &call, &out), 0);
    AUTO_RESULT r = result_of(buf_str(&out));
    assert_text(&r, "ready\ngot home\n");
    assert_false(r.is_error);
    assert_false(seen.gap);
    assert_true(str_is(buf_str(&seen.bytes), "ready\ngot home\n"));
    buf_done(&seen.bytes);
    assert_int_equal(hands_ack(hands_socket, "cut"), 0);
}

static void attach_from_an_offset_skips_what_is_known(void **state)
{
    (void)state;
    int fd = open_call("offset", "{\"command\":\"printf 0123456789\"}");
    AUTO_BUF out = {0};
    while (next_frame(fd, &out) != FRAME_RESULT)
        ;
    close(fd);
    fd = open_conversation(FRAME_ATTACH, "{\"key\":\"offset\",\"offset\":7}");
    assert_int_equal(next_frame(fd, &out), FRAME_UPDATE);
    assert_int_equal(out.n, 8 + 3);
    assert_memory_equal(out.p,
                        "\7\0\0\0\0\0\0\0"
                        "789",
                        11);
    assert_int_equal(next_frame(fd, &out), FRAME_RESULT);
    close(fd);
    assert_int_equal(hands_ack(hands_socket, "offset"), 0);
}

static void the_same_key_runs_once(void **state)
{
    (void)state;
    make_fifo();
    int first = open_call("once", waiting_input);
    expect_update(first, "ready\n");
    int second = open_call("once", waiting_input);
    expect_update(second, "ready\n");
    feed_fifo("x\n");
    AUTO_BUF a = {0}, b = {0}, c = {0}, runs = {0};
    while (next_frame(first, &a) != FRAME_RESULT)
        ;
    while (next_frame(second, &b) != FRAME_RESULT)
        ;
    close(first);
    close(second);
    int third = open_call("once", waiting_input); /* long done, not acknowledged yet */
    while (next_frame(third, &c) != FRAME_RESULT)
        ;
    close(third);
    assert_true(str_eq(buf_str(&a), buf_str(&b)));
    assert_true(str_eq(buf_str(&a), buf_str(&c)));
    get_file("runs", &runs);
    assert_true(str_is(buf_str(&runs), "run\n"));
    assert_int_equal(hands_ack(hands_socket, "once"), 0);
}

static void ack_forgets(void **state)
{
    (void)state;
    struct hands_call call = {.key = "forget",
                              .tool = "bash",
                              .cwd = hands_folder,
                              .input = STR("{\"command\":\"echo run >> acked\"}"),
                              .timeout_ms = 60000};
    AUTO_BUF out = {0}, runs = {0};
    assert_int_equal(hands_call(hands_socket, &call, &out), 0);
    assert_int_equal(hands_attach(hands_socket, &call, &out), 0);
    assert_int_equal(hands_ack(hands_socket, "forget"), 0);
    assert_int_equal(hands_attach(hands_socket, &call, &out), E_NOT_FOUND);
    assert_int_equal(hands_ack(hands_socket, "forget"), 0); /* unknown is fine */
    assert_int_equal(hands_call(hands_socket, &call, &out), 0);
    assert_int_equal(hands_ack(hands_socket, "forget"), 0);
    get_file("acked", &runs);
    assert_true(str_is(buf_str(&runs), "run\nrun\n"));
}

static void an_acknowledged_running_call_is_forgotten_at_its_end(void **state)
{
    (void)state;
    make_fifo();
    int fd = open_call("early", waiting_input);
    expect_update(fd, "ready\n");
    assert_int_equal(hands_ack(hands_socket, "early"), 0);
    feed_fifo("x\n");
    AUTO_BUF out = {0};
    while (next_frame(fd, &out) != FRAME_RESULT)
        ;
    close(fd);
    struct hands_call call = {.key = "early"};
    assert_int_equal(hands_attach(hands_socket, &call, &out), E_NOT_FOUND);
}

static void cancel_interrupts_and_keeps_the_output(void **state)
{
    (void)state;
    int fd = open_call("cancel", "{\"command\":\"echo so far; exec sleep 100\"}");
    expect_update(fd, "so far\n");
    assert_int_equal(hands_cancel(hands_socket, "cancel", 1000), 0);
    AUTO_BUF out = {0};
    while (next_frame(fd, &out) != FRAME_RESULT)
        ;
    close(fd);
    AUTO_RESULT r = result_of(buf_str(&out));
    assert_true(r.is_error && r.interrupted);
    assert_text(&r, "so far\n\n\nCommand aborted");
    assert_int_equal(hands_cancel(hands_socket, "cancel", 0), 0); /* ended: no effect */
    assert_int_equal(hands_ack(hands_socket, "cancel"), 0);
    assert_int_equal(hands_cancel(hands_socket, "cancel", 0), E_NOT_FOUND);
}

static void cancel_kills_what_ignores_term(void **state)
{
    (void)state;
    int fd = open_call("stubborn",
                       "{\"command\":\"trap '' TERM; echo $$; while :; do sleep 100; done\"}");
    AUTO_BUF out = {0};
    assert_int_equal(next_frame(fd, &out), FRAME_UPDATE);
    pid_t shell = (pid_t)strtol(out.p + 8, NULL, 10);
    assert_true(shell > 1 && kill(-shell, 0) == 0);
    assert_int_equal(hands_cancel(hands_socket, "stubborn", 50), 0);
    while (next_frame(fd, &out) != FRAME_RESULT)
        ;
    close(fd);
    AUTO_RESULT r = result_of(buf_str(&out));
    assert_true(r.interrupted);
    assert_int_equal(kill(-shell, 0), -1);
    assert_int_equal(hands_ack(hands_socket, "stubborn"), 0);
}

static void a_read_from_an_open_fifo_can_be_cancelled(void **state)
{
    (void)state;
    make_fifo();
    AUTO_FD keep_open = open(path_in("fifo"), O_RDWR | O_CLOEXEC);
    AUTO_BUF request = {0}, out = {0};
    buf_printf(&request, "{\"key\":\"fifo\",\"tool\":\"read\",\"input\":{\"path\":\"%s\"}}",
               path_in("fifo"));
    int fd = open_conversation(FRAME_CALL, request.p);
    err e; /* the call is known as soon as its frame was read */
    while ((e = hands_cancel(hands_socket, "fifo", 0)) == E_NOT_FOUND)
        sched_yield();
    assert_int_equal(e, 0);
    assert_int_equal(next_frame(fd, &out), FRAME_RESULT);
    close(fd);
    AUTO_RESULT r = result_of(buf_str(&out));
    assert_true(r.interrupted);
    assert_text(&r, "Operation aborted");
    assert_int_equal(hands_ack(hands_socket, "fifo"), 0);
}

static void too_many_calls_are_refused_as_busy(void **state)
{
    (void)state;
    AUTO_BUF out = {0};
    char key[32];
    struct hands_call call = {.key = key,
                              .tool = "read",
                              .cwd = "/",
                              .timeout_ms = 60000,
                              .input = STR("{\"path\":\"/none\"}")};
    for (int i = 0; i < HANDS_CALLS_MAX; i++) {
        snprintf(key, sizeof key, "many_%d", i);
        assert_int_equal(hands_call(hands_socket, &call, &out), 0);
    }
    snprintf(key, sizeof key, "too_many");
    assert_int_equal(hands_call(hands_socket, &call, &out), E_UNAVAILABLE);
    for (int i = 0; i < HANDS_CALLS_MAX; i++) {
        snprintf(key, sizeof key, "many_%d", i);
        assert_int_equal(hands_ack(hands_socket, key), 0);
    }
    snprintf(key, sizeof key, "too_many");
    assert_int_equal(hands_call(hands_socket, &call, &out), 0);
    assert_int_equal(hands_ack(hands_socket, key), 0);
}

static size_t count_entries(const char *path)
{
    DIR *dir = opendir(path);
    assert_non_null(dir);
    size_t n = 0;
    for (struct dirent *e; (e = readdir(dir));)
        n += e->d_name[0] != '.';
    closedir(dir);
    return n;
}

static void idle_it_is_one_small_thread_and_leaks_nothing(void **state)
{
    (void)state;
    char tasks[64], fds[64], command[64];
    snprintf(tasks, sizeof tasks, "/proc/%d/task", (int)hands_pid);
    snprintf(fds, sizeof fds, "/proc/%d/fd", (int)hands_pid);
    while (count_entries(tasks) > 1) /* the last conversation's thread ends after its answer */
        sched_yield();
    size_t before = count_entries(fds);
    snprintf(command, sizeof command, "head -c 30000000 /dev/zero | tr '\\0' x");
    AUTO_RESULT r = bash(command);
    assert_false(r.is_error);
    while (count_entries(tasks) > 1)
        sched_yield();
    assert_int_equal(count_entries(fds), before);
    char statm[64];
    snprintf(statm, sizeof statm, "/proc/%d/smaps_rollup", (int)hands_pid);
    AUTO_BUF text = {0};
    assert_int_equal(fd_read_file(statm, 1 << 20, &text), 0);
    char *anonymous = strstr(text.p, "Anonymous:");
    assert_non_null(anonymous);
    assert_true(strtol(anonymous + 10, NULL, 10) < 1024); /* kB */
}

static void orphans_are_reaped(void **state)
{
    (void)state;
    AUTO_RESULT r =
        bash("mkfifo gate; (setsid sh -c 'echo $$ > orphan; read x < gate' >/dev/null 2>&1 &) ;"
             "while [ ! -s orphan ]; do :; done; cat orphan");
    assert_false(r.is_error);
    pid_t orphan = (pid_t)strtol(r.text.p, NULL, 10);
    assert_int_equal(kill(orphan, 0), 0);
    AUTO_FD gate = open(path_in("gate"), O_WRONLY | O_CLOEXEC);
    assert_int_equal(fd_write_full(gate, "x\n", 2), 0);
    while (kill(orphan, 0) == 0) /* a zombie would stay */
        sched_yield();
}

static void set_clock_is_best_effort(void **state)
{
    (void)state;
    char payload[64]; /* the time it is: where the clock may be set, that changes nothing */
    snprintf(payload, sizeof payload, "{\"wallMs\":%lld}", (long long)clock_wall_ms(clock_real()));
    AUTO_FD fd = open_conversation(FRAME_SET_CLOCK, payload);
    AUTO_BUF out = {0};
    assert_int_equal(next_frame(fd, &out), FRAME_OK);
    if (geteuid() != 0)
        assert_has(buf_str(&out), "note");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hello_tells_version_and_boot_id),
        cmocka_unit_test(ping_is_answered),
        cmocka_unit_test(bad_frames_are_refused_and_the_program_lives),
        cmocka_unit_test(nobody_at_the_socket_is_unavailable),
        cmocka_unit_test(hello_gives_up_on_a_silent_peer),
        cmocka_unit_test(an_unknown_tool_is_a_result_that_names_it),
        cmocka_unit_test(attach_after_a_cut_connection_gets_everything),
        cmocka_unit_test(attach_from_an_offset_skips_what_is_known),
        cmocka_unit_test(the_same_key_runs_once),
        cmocka_unit_test(ack_forgets),
        cmocka_unit_test(an_acknowledged_running_call_is_forgotten_at_its_end),
        cmocka_unit_test(cancel_interrupts_and_keeps_the_output),
        cmocka_unit_test(cancel_kills_what_ignores_term),
        cmocka_unit_test(a_read_from_an_open_fifo_can_be_cancelled),
        cmocka_unit_test(too_many_calls_are_refused_as_busy),
        cmocka_unit_test(idle_it_is_one_small_thread_and_leaks_nothing),
        cmocka_unit_test(orphans_are_reaped),
        cmocka_unit_test(set_clock_is_best_effort),
    };
    return cmocka_run_group_tests(tests, hands_setup, hands_teardown);
}
