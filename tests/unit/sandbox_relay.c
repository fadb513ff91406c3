/* src/sandbox/relay.c: a terminal between a client and a sandbox, either of which may misbehave. */
#include "sandbox/relay.h"

#include "base/buf.h"
#include "base/fd.h"
#include "base/json.h"
#include "hands/frames.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <pthread.h>
#include <sys/socket.h>

#define LONG_MS 100000

/* The relay on a thread; the test has the other ends. */
struct stage {
    int client, hands, relay_client, relay_hands;
    struct relay_options options;
    struct str early;
    pthread_t thread;
    err result;
};

static void *run(void *arg)
{
    struct stage *s = arg;
    s->result = relay_run(s->relay_client, s->early, s->relay_hands, &s->options);
    fd_close(&s->relay_client);
    fd_close(&s->relay_hands);
    return NULL;
}

static void open_stage(struct stage *s, int64_t opening_ms, int64_t idle_ms)
{
    int client[2], hands[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, client), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, hands), 0);
    *s = (struct stage){.client = client[0],
                        .relay_client = client[1],
                        .hands = hands[0],
                        .relay_hands = hands[1],
                        .options = {clock_real(), opening_ms, idle_ms, LONG_MS}};
    assert_int_equal(pthread_create(&s->thread, NULL, run, s), 0);
}

static err close_stage(struct stage *s)
{
    fd_close(&s->client);
    fd_close(&s->hands);
    pthread_join(s->thread, NULL);
    return s->result;
}

static void say(int fd, enum frame_type type, const char *payload)
{
    assert_int_equal(frame_write(fd, type, str_of(payload)), 0);
}

static void expect(int fd, enum frame_type type, const char *payload)
{
    AUTO_BUF got = {0};
    enum frame_type got_type;
    assert_int_equal(frame_read(fd, &got_type, &got), 0);
    buf_add(&got, "", 1);
    assert_int_equal(got_type, type);
    if (payload)
        assert_string_equal(got.p, payload);
}

static void expect_error(int fd, const char *code)
{
    AUTO_BUF got = {0};
    AUTO_JSON o = NULL;
    enum frame_type type;
    assert_int_equal(frame_read(fd, &type, &got), 0);
    assert_int_equal(type, FRAME_ERROR);
    assert_int_equal(json_read(buf_str(&got), &o), 0);
    assert_string_equal(json_get_c(o, "code"), code);
    assert_int_equal(frame_read(fd, &type, &got), E_CLOSED);
}

static void open_terminal(struct stage *s)
{
    open_stage(s, LONG_MS, LONG_MS);
    say(s->client, FRAME_EXEC,
        "{\"pty\":{\"rows\":30,\"cols\":90},\"env\":{\"TERM\":\"xterm\","
        "\"LD_PRELOAD\":\"x\"},\"argv\":[\"id\"],\"cwd\":\"/\"}");
    AUTO_BUF got = {0};
    AUTO_JSON o = NULL;
    enum frame_type type;
    assert_int_equal(frame_read(s->hands, &type, &got), 0);
    assert_int_equal(type, FRAME_EXEC);
    assert_int_equal(json_read(buf_str(&got), &o), 0);
    assert_string_equal(json_string_value(json_array_get(json_object_get(o, "argv"), 0)),
                        "/bin/sh");
    assert_string_equal(json_get_c(o, "cwd"), SANDBOX_WORKDIR);
    assert_int_equal(json_object_size(json_object_get(o, "env")), 1);
    assert_int_equal(json_get_int(json_object_get(o, "pty"), "rows", 0), 30);
}

static void input_and_output_go_through_and_the_status_ends_it(void **state)
{
    (void)state;
    struct stage s;
    open_terminal(&s);
    say(s.client, FRAME_STDIN, "ls\n");
    expect(s.hands, FRAME_STDIN, "ls\n");
    say(s.client, FRAME_RESIZE, "{\"rows\":1,\"cols\":2,\"more\":3}");
    expect(s.hands, FRAME_RESIZE, "{\"rows\":1,\"cols\":2}");
    say(s.hands, FRAME_STDOUT, "out");
    expect(s.client, FRAME_STDOUT, "out");
    say(s.hands, FRAME_EXIT, "{\"code\":3,\"more\":[]}");
    expect(s.client, FRAME_EXIT, "{\"code\":3}");
    assert_int_equal(close_stage(&s), 0);
}

static void a_sandbox_that_misbehaves_is_cut_off(void **state)
{
    (void)state;
    static const struct {
        enum frame_type type;
        const char *payload;
    } cases[] = {
        {FRAME_STDERR, "x"}, {FRAME_RESULT, "{}"},     {FRAME_EXIT, "{\"code\":256}"},
        {FRAME_EXIT, "[]"},  {FRAME_EXIT, "not json"}, {FRAME_EXIT, "{\"signal\":1000}"},
        {FRAME_HELLO, "{}"}, {FRAME_COPY_DATA, "x"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stage s;
        open_terminal(&s);
        say(s.hands, cases[i].type, cases[i].payload);
        expect_error(s.client, "bad_frame");
        assert_int_equal(close_stage(&s), E_INVALID);
    }
    struct stage s;
    open_terminal(&s);
    static const unsigned char claim[5] = {0, 0, 0, 5, FRAME_STDOUT}; /* 80 MiB to come */
    assert_int_equal(fd_write_full(s.hands, claim, sizeof claim), 0);
    expect_error(s.client, "bad_frame");
    assert_int_equal(close_stage(&s), E_INVALID);
}

static void an_error_of_the_sandbox_is_told(void **state)
{
    (void)state;
    struct stage s;
    open_terminal(&s);
    say(s.hands, FRAME_ERROR, "{\"code\":\"cannot_run\",\"message\":\"no shell\"}");
    expect(s.client, FRAME_ERROR, "{\"code\":\"internal\",\"message\":\"no shell\"}");
    assert_int_equal(close_stage(&s), 0);
}

static void the_end_of_the_sandbox_is_told_after_its_last_words(void **state)
{
    (void)state;
    struct stage s;
    open_terminal(&s);
    say(s.hands, FRAME_STDOUT, "last");
    fd_close(&s.hands);
    expect(s.client, FRAME_STDOUT, "last");
    expect_error(s.client, "sandbox_ended");
    assert_int_equal(close_stage(&s), E_CLOSED);
}

static void silence_ends_it(void **state)
{
    (void)state;
    struct stage s;
    open_stage(&s, 1, LONG_MS); /* no EXEC in time */
    expect_error(s.client, "idle");
    assert_int_equal(close_stage(&s), E_TIMEOUT);
    open_stage(&s, LONG_MS, 1);
    say(s.client, FRAME_EXEC, "{}");
    expect_error(s.client, "idle");
    assert_int_equal(close_stage(&s), E_TIMEOUT);
}

static void a_client_that_leaves_ends_it(void **state)
{
    (void)state;
    struct stage s;
    open_terminal(&s);
    fd_close(&s.client);
    AUTO_BUF rest = {0};
    enum frame_type type;
    assert_int_equal(frame_read(s.hands, &type, &rest), E_CLOSED);
    assert_int_equal(close_stage(&s), E_CLOSED);
}

/* A flood is taken no faster than the client takes it: the writer is made to wait, and afterwards
   all of it comes. */
static void a_slow_client_makes_the_sandbox_wait(void **state)
{
    (void)state;
    static char piece[FRAME_CHUNK];
    struct stage s;
    open_terminal(&s);
    AUTO_BUF frame = {0};
    frame_add(&frame, FRAME_STDOUT, (struct str){piece, sizeof piece});
    size_t sent = 0, total = 0;
    for (;;) { /* until nothing more is taken */
        struct timeval patience = {.tv_sec = 1};
        setsockopt(s.hands, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
        size_t at = total % frame.n;
        ssize_t n = send(s.hands, frame.p + at, frame.n - at, MSG_NOSIGNAL);
        if (n < 0)
            break;
        total += (size_t)n;
        assert_true(total < 16u << 20); /* it would hold anything */
    }
    sent = total / frame.n;
    assert_true(sent > 0);
    for (size_t i = 0; i < sent; i++)
        expect(s.client, FRAME_STDOUT, NULL);
    close_stage(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(input_and_output_go_through_and_the_status_ends_it),
        cmocka_unit_test(a_sandbox_that_misbehaves_is_cut_off),
        cmocka_unit_test(an_error_of_the_sandbox_is_told),
        cmocka_unit_test(the_end_of_the_sandbox_is_told_after_its_last_words),
        cmocka_unit_test(silence_ends_it),
        cmocka_unit_test(a_client_that_leaves_ends_it),
        cmocka_unit_test(a_slow_client_makes_the_sandbox_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
