/* Tests src/harness/{harness,host,pool}.c against a scripted parent and scripted hosts, over real
 * sockets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#undef fail /* ours is a function */

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/lock.h"
#include "base/mem.h"
#include "harness/harness.h"
#include "parent/link.h"

#define TENANT_A "tenant_00000000000000000000000001"
#define TENANT_B "tenant_00000000000000000000000002"
#define HOSTS 16
#define WAIT_MS 10000

static struct parent_link *link_to_world;

/* The parent's end: answers START_HOST with a socket pair, whose other end the test plays. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int link;        /* our end of the role's link */
    int host[HOSTS]; /* index = id; -1: gone */
    char tenant[HOSTS][ID_MAX];
    bool refuse; /* START_HOST fails */
    uint32_t last_id;
    int stops, binds;
    char *events; /* one line per event of the supervisor */
} world;

static void stop_host(uint32_t id)
{
    if (id < HOSTS && world.host[id] >= 0)
        shutdown(world.host[id], SHUT_RDWR);
    world.stops++;
}

static void answer(struct parent_message *m)
{
    AUTO_LOCK(&world.lock);
    int pair[2] = {-1, -1};
    m->status = 0;
    if (m->verb == PARENT_START_HOST && world.refuse) {
        m->status = E_UNAVAILABLE;
        snprintf(m->text, sizeof m->text, "no more processes");
    } else if (m->verb == PARENT_START_HOST) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        m->host.id = ++world.last_id;
        assert_true(m->host.id < HOSTS);
        world.host[m->host.id] = pair[1];
        snprintf(world.tenant[m->host.id], ID_MAX, "%s", m->host.tenant);
    } else if (m->verb == PARENT_BIND_HOST) {
        snprintf(world.tenant[m->host.id], ID_MAX, "%s", m->host.tenant);
        world.binds++;
    } else if (m->verb == PARENT_STOP_HOST) {
        stop_host(m->host.id);
    }
    fd_send(world.link, m, sizeof *m, pair, pair[0] >= 0 ? 1 : 0);
    fd_close(&pair[0]);
    pthread_cond_broadcast(&world.changed);
}

static void *parent_thread(void *arg)
{
    (void)arg;
    struct parent_message *m = mem_alloc(sizeof *m);
    size_t n;
    int fds[FD_PASS_MAX];
    while (fd_recv(world.link, m, sizeof *m, &n, fds) == 0)
        answer(m);
    mem_free(m);
    return NULL;
}

#define stop_test(...) (print_error(__VA_ARGS__), print_error("\n"), _fail(__FILE__, __LINE__))

/* The supervisor's events as text. */
static void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *fmt, ...)
{
    AUTO_LOCK(&world.lock);
    char *line, *all;
    va_list ap;
    va_start(ap, fmt);
    assert_true(vasprintf(&line, fmt, ap) >= 0);
    va_end(ap);
    assert_true(asprintf(&all, "%s%s\n", world.events, line) >= 0);
    free(line);
    free(world.events);
    world.events = all;
    pthread_cond_broadcast(&world.changed);
}

static void on_opened(void *arg, const char *session, err e, const char *text)
{
    (void)arg;
    say("opened %s %d %s", session, e, text ? text : "");
}
static void on_replied(void *arg, const char *session, const char *op, bool ok, const char *text)
{
    (void)arg;
    say("replied %s %s %d %s", session, op, ok, text ? text : "");
}
static void on_entry(void *arg, const char *session, struct str line)
{
    (void)arg;
    say("entry %s %.*s", session, STR_ARG(line));
}
static void on_delta(void *arg, const char *session, const json_t *m)
{
    (void)arg;
    say("delta %s %s", session, json_get_c(m, "text"));
}
static void on_tool(void *arg, const char *session, const char *call, const char *name,
                    struct str input)
{
    (void)arg;
    say("tool %s %s %s %.*s", session, call, name, STR_ARG(input));
}
static void on_tool_cancel(void *arg, const char *session, const char *call)
{
    (void)arg;
    say("tool_cancel %s %s", session, call);
}
static void on_retry(void *arg, const char *session, const json_t *m)
{
    (void)arg;
    say("retry %s %lld", session, (long long)json_get_int(m, "attempt", 0));
}
static void on_settled(void *arg, const char *session, bool aborted, const char *error)
{
    (void)arg;
    say("settled %s %d %s", session, aborted, error ? error : "");
}
static void on_lost(void *arg, const char *session, const char *why)
{
    (void)arg;
    say("lost %s %s", session, why);
}

static void on_heard(void *arg)
{
    (void)arg;
    AUTO_LOCK(&world.lock);
    pthread_cond_broadcast(&world.changed);
}

static const struct harness_events events = {
    .opened = on_opened,
    .replied = on_replied,
    .entry = on_entry,
    .delta = on_delta,
    .tool = on_tool,
    .tool_cancel = on_tool_cancel,
    .retry = on_retry,
    .settled = on_settled,
    .lost = on_lost,
    .heard = on_heard,
};

static bool wait_a_moment(void)
{
    return cond_wait_ms(&world.changed, &world.lock, WAIT_MS);
}

static void expect_event(const char *line)
{
    AUTO_LOCK(&world.lock);
    char whole[512];
    snprintf(whole, sizeof whole, "%s\n", line);
    while (!strstr(world.events, whole)) {
        if (!wait_a_moment())
            stop_test("no event \"%s\" among:\n%s", line, world.events);
    }
}

static void await_heard(struct harness *h, const char *session, int64_t wanted)
{
    AUTO_LOCK(&world.lock);
    while (harness_heard(h, session) != wanted) {
        if (!wait_a_moment())
            stop_test("%lld messages heard", (long long)harness_heard(h, session));
    }
}

/* The session was not opened. */
static void expect_refused(const char *session, err e, const char *why)
{
    char line[256];
    snprintf(line, sizeof line, "opened %s %d %s", session, e, why);
    expect_event(line);
}

static int count_events(const char *part)
{
    AUTO_LOCK(&world.lock);
    int n = 0;
    for (const char *p = world.events; (p = strstr(p, part)); p++)
        n++;
    return n;
}

/* The test's end of host `id`, once it is started. */
static int host_socket(uint32_t id)
{
    AUTO_LOCK(&world.lock);
    while (world.last_id < id) {
        if (!wait_a_moment())
            stop_test("host %u was never started", id);
    }
    return world.host[id];
}

static void host_says(uint32_t id, const char *text)
{
    assert_int_equal(fd_write_full(host_socket(id), text, strlen(text)), 0);
}

/* The next line that host `id` gets; the caller frees it. */
static char *host_hears(uint32_t id)
{
    char *line = calloc(1, 1 << 16);
    int fd = host_socket(id);
    for (size_t n = 0;; n++) {
        if (recv(fd, line + n, 1, 0) != 1)
            stop_test("host %u: the connection ended while it waited for a line", id);
        if (line[n] == '\n') {
            line[n] = 0;
            return line;
        }
    }
}

/* Reads an envelope (and its lines) with this op; returns its id. */
static int64_t host_gets(uint32_t id, const char *op)
{
    char *text = host_hears(id);
    json_t *m;
    assert_int_equal(json_read(str_of(text), &m), 0);
    assert_string_equal(json_get_c(m, "op"), op);
    for (int64_t n = json_get_int(m, "lines", 0); n > 0; n--)
        free(host_hears(id));
    int64_t number = json_get_int(m, "id", 0);
    json_decref(m);
    free(text);
    return number;
}

static void host_replies(uint32_t id, int64_t number, bool ok)
{
    char text[128];
    snprintf(text, sizeof text, "{\"t\":\"reply\",\"id\":%lld,\"ok\":%s%s}\n", (long long)number,
             ok ? "true" : "false", ok ? "" : ",\"error\":\"no such model\"");
    host_says(id, text);
}

#define HELLO "{\"t\":\"hello\",\"version\":1,\"confinement\":{\"missing\":[]}}\n"

static json_t *message(const char *op)
{
    return json_pack("{s:s}", "op", op);
}

/* Opens a session in host `id` and lets the host agree. */
static void open_session(struct harness *h, const char *tenant, const char *session, uint32_t id)
{
    char expected[128];
    harness_open(h, tenant, session, json_object(), STR("{\"a\":1}\n{\"b\":2}\n"));
    host_replies(id, host_gets(id, "open"), true);
    snprintf(expected, sizeof expected, "opened %s 0 ", session);
    expect_event(expected);
}

static struct harness *start_with(const struct clock *clock, int64_t idle_ms, unsigned sessions_max)
{
    struct harness *h;
    world.events = strdup("");
    for (size_t i = 0; i < HOSTS; i++)
        world.host[i] = -1;
    struct harness_options o = {.parent = link_to_world,
                                .clock = clock,
                                .events = events,
                                .idle_ms = idle_ms,
                                .sessions_max = sessions_max};
    assert_int_equal(harness_new(&o, &h), 0);
    return h;
}
static struct harness *start(int64_t idle_ms, unsigned sessions_max)
{
    return start_with(clock_real(), idle_ms, sessions_max);
}

static void finish(struct harness *h)
{
    harness_free(h);
    AUTO_LOCK(&world.lock);
    for (size_t i = 0; i < HOSTS; i++)
        fd_close(&world.host[i]);
    free(world.events);
    world.events = NULL;
    world.last_id = 0;
    world.refuse = false;
    world.stops = world.binds = 0;
}

static void no_note(void *arg, const struct parent_message *m, int fds[FD_PASS_MAX])
{
    (void)arg, (void)m, (void)fds;
}

static int start_world(void **state)
{
    (void)state;
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    pthread_mutex_init(&world.lock, NULL);
    cond_init(&world.changed);
    world.link = pair[1];
    link_to_world = parent_link_open(pair[0], no_note, NULL);
    thread_start_detached("fake-parent", parent_thread, NULL);
    return 0;
}

static void the_spare_becomes_the_first_tenants_host(void **state)
{
    (void)state;
    struct harness *h = start(0, 0);
    bool ready;
    char text[256];
    host_socket(1);
    harness_ready(h, &ready, text, sizeof text);
    assert_false(ready);
    assert_string_equal(text, "a Pi host is starting");
    assert_string_equal(world.tenant[1], "");
    harness_open(h, TENANT_A, "sess_1", json_object(), STR("{}\n"));
    host_says(1, HELLO);
    int64_t id = host_gets(1, "open");
    assert_string_equal(world.tenant[1], TENANT_A); /* bound before it hears of the session */
    host_replies(1, id, true);
    expect_event("opened sess_1 0 ");
    assert_string_equal((host_socket(2), world.tenant[2]), ""); /* the next spare */
    finish(h);
}

static void tenants_do_not_share_and_full_hosts_are_passed_over(void **state)
{
    (void)state;
    struct harness *h = start(0, 2);
    host_says(1, HELLO);
    open_session(h, TENANT_A, "sess_1", 1);
    host_says(2, HELLO);
    open_session(h, TENANT_B, "sess_2", 2);
    open_session(h, TENANT_A, "sess_3", 1);
    host_says(3, HELLO);
    open_session(h, TENANT_A, "sess_4", 3);
    assert_string_equal(world.tenant[1], TENANT_A);
    assert_string_equal(world.tenant[2], TENANT_B);
    assert_string_equal(world.tenant[3], TENANT_A);
    finish(h);
}

static void everything_a_host_says_reaches_its_session(void **state)
{
    (void)state;
    struct harness *h = start(0, 0);
    host_says(1, HELLO);
    open_session(h, TENANT_A, "sess_1", 1);
    host_says(1, "{\"t\":\"entry\",\"session\":\"sess_1\",\"lines\":1}\n{\"type\":\"x\"}\n"
                 "{\"t\":\"delta\",\"session\":\"sess_1\",\"kind\":\"text\",\"text\":\"hi\"}\n"
                 "{\"t\":\"tool\",\"session\":\"sess_1\",\"call\":\"c1\",\"name\":\"bash\","
                 "\"lines\":1}\n{\"command\":\"ls\"}\n"
                 "{\"t\":\"tool_cancel\",\"session\":\"sess_1\",\"call\":\"c1\"}\n"
                 "{\"t\":\"unheard\",\"session\":\"sess_1\"}\n"
                 "{\"t\":\"retry\",\"session\":\"sess_1\",\"attempt\":2}\n"
                 "{\"t\":\"entry\",\"session\":\"sess_other\",\"lines\":1}\n{\"type\":\"y\"}\n"
                 "{\"t\":\"settled\",\"session\":\"sess_1\",\"aborted\":false,\"error\":\"oh\"}\n");
    expect_event("settled sess_1 0 oh");
    assert_string_equal(world.events, "opened sess_1 0 \nentry sess_1 {\"type\":\"x\"}\n"
                                      "delta sess_1 hi\ntool sess_1 c1 bash {\"command\":\"ls\"}\n"
                                      "tool_cancel sess_1 c1\nretry sess_1 2\n"
                                      "settled sess_1 0 oh\n");
    finish(h);
}

static void what_a_host_said_is_counted_once_it_was_passed_on(void **state)
{
    (void)state;
    struct harness *h = start(0, 0);
    assert_true(harness_heard(h, "sess_1") == INT64_MAX);
    host_says(1, HELLO);
    open_session(h, TENANT_A, "sess_1", 1);
    open_session(h, TENANT_A, "sess_2", 1);
    host_says(1, "{\"t\":\"entry\",\"session\":\"sess_2\",\"lines\":1}\n{\"type\":\"x\"}\n"
                 "{\"t\":\"unheard\",\"session\":\"sess_1\"}\n");
    await_heard(h, "sess_1", 5); /* a hello and two replies before */
    assert_int_equal(harness_heard(h, "sess_2"), 5);
    assert_int_equal(count_events("entry sess_2"), 1);
    shutdown(host_socket(1), SHUT_RDWR);
    await_heard(h, "sess_1", INT64_MAX);
    assert_int_equal(count_events("lost sess_1"), 1);
    finish(h);
}

static void replies_come_only_to_those_who_asked(void **state)
{
    (void)state;
    struct harness *h = start(0, 0);
    host_says(1, HELLO);
    open_session(h, TENANT_A, "sess_1", 1);
    harness_send(h, "sess_1", message("tool_result"), STR("{\"content\":[]}"), false);
    assert_int_equal(host_gets(1, "tool_result"), 0);
    harness_send(h, "sess_1", message("prompt"), STR("[]"), true);
    host_replies(1, host_gets(1, "prompt"), false);
    expect_event("replied sess_1 prompt 0 no such model");
    harness_send(h, "sess_none", message("prompt"), STR("[]"), true); /* dropped */
    harness_send(h, "sess_1", message("abort"), (struct str){0}, true);
    host_replies(1, host_gets(1, "abort"), true);
    expect_event("replied sess_1 abort 1 ");
    finish(h);
}

static void a_refused_open_leaves_nothing_open(void **state)
{
    (void)state;
    struct harness *h = start(0, 0);
    host_says(1, HELLO);
    harness_open(h, TENANT_A, "sess_1", json_object(), (struct str){0});
    host_replies(1, host_gets(1, "open"), false);
    expect_refused("sess_1", E_INVALID, "no such model");
    open_session(h, TENANT_A, "sess_1", 1);
    finish(h);
}

static void a_host_that_dies_loses_each_session_once_and_they_open_again(void **state)
{
    (void)state;
    struct harness *h = start(0, 0);
    host_says(1, HELLO);
    open_session(h, TENANT_A, "sess_1", 1);
    open_session(h, TENANT_A, "sess_2", 1);
    harness_open(h, TENANT_A, "sess_3", json_object(), (struct str){0});
    harness_send(h, "sess_1", message("prompt"), STR("[]"), true);
    host_says(1, "{\"t\":\"entry\",\"session\":\"sess_1\",\"lines\":1}\n{\"last\":1}\n");
    shutdown(host_socket(1), SHUT_RDWR);
    harness_host_exited(h, 1, 9);
    expect_event("entry sess_1 {\"last\":1}");
    expect_event("lost sess_1 the Pi host ended (signal 9)");
    expect_event("lost sess_2 the Pi host ended (signal 9)");
    expect_refused("sess_3", E_UNAVAILABLE, "the Pi host ended (signal 9)");
    host_says(2, HELLO);
    open_session(h, TENANT_A, "sess_1", 2);
    assert_int_equal(count_events("lost "), 2);
    assert_int_equal(count_events("replied "), 0);
    finish(h);
}

static void closed_and_opened_again_it_hears_nothing_of_the_old_opening(void **state)
{
    (void)state;
    struct harness *h = start(0, 0);
    host_says(1, HELLO);
    open_session(h, TENANT_A, "sess_1", 1);
    harness_close(h, "sess_1");
    harness_open(h, TENANT_A, "sess_1", json_object(), (struct str){0});
    int64_t close = host_gets(1, "close");
    int64_t open = host_gets(1, "open");
    host_says(1, "{\"t\":\"entry\",\"session\":\"sess_1\",\"lines\":1}\n{\"old\":1}\n");
    host_replies(1, close, true);
    host_says(1, "{\"t\":\"entry\",\"session\":\"sess_1\",\"lines\":1}\n{\"new\":1}\n");
    host_replies(1, open, true);
    expect_event("entry sess_1 {\"new\":1}");
    assert_int_equal(count_events("old"), 0);
    finish(h);
}

static void a_host_that_talks_nonsense_is_ended(void **state)
{
    (void)state;
    struct harness *h = start(0, 0);
    host_says(1, HELLO);
    open_session(h, TENANT_A, "sess_1", 1);
    host_says(1, "{\"t\":\"entry\",\"session\":\"sess_1\",\"lines\":2}\n");
    expect_event("lost sess_1 the host sent 2 lines with one message");
    finish(h);
}

static void a_missing_node_is_said_in_opened_and_in_ready(void **state)
{
    (void)state;
    struct harness *h = start(0, 0);
    bool ready;
    char text[256];
    host_socket(1); /* the spare is being started: the session goes there */
    harness_open(h, TENANT_A, "sess_1", json_object(), (struct str){0});
    host_says(1, "{\"t\":\"failed\",\"error\":\"Node is missing: /x; run make setup\"}\n");
    expect_refused("sess_1", E_UNAVAILABLE, "Node is missing: /x; run make setup");
    harness_ready(h, &ready, text, sizeof text);
    assert_false(ready);
    assert_string_equal(text, "Node is missing: /x; run make setup");
    finish(h);
}

static void a_parent_that_cannot_start_hosts_is_said_too(void **state)
{
    (void)state;
    world.refuse = true;
    struct harness *h = start(0, 0);
    harness_open(h, TENANT_A, "sess_1", json_object(), (struct str){0});
    expect_refused("sess_1", E_UNAVAILABLE, "no more processes");
    finish(h);
}

static void idle_hosts_are_stopped_and_the_spare_is_not(void **state)
{
    (void)state;
    struct harness *h = start(1, 0);
    host_says(1, HELLO);
    open_session(h, TENANT_A, "sess_1", 1);
    host_says(2, HELLO);
    harness_close(h, "sess_1");
    /* Until it is stopped, which may be before it was told to close the session. */
    for (char said; recv(host_socket(1), &said, 1, 0) == 1;)
        continue;
    bool ready;
    char text[256];
    harness_ready(h, &ready, text, sizeof text);
    assert_true(ready);
    finish(h);
}

/* Lets time pass until host 1 is pinged; returns the ping's id. */
static int64_t pinged(struct clock *clock)
{
    struct pollfd p = {.fd = host_socket(1), .events = POLLIN};
    while (poll(&p, 1, 20) == 0)
        clock_fake_advance_ms(clock, 200);
    return host_gets(1, "ping");
}

static void a_silent_host_is_asked_and_given_up_when_it_does_not_answer(void **state)
{
    (void)state;
    struct clock *clock = clock_fake_new(1000000);
    struct harness *h = start_with(clock, 0, 0);
    host_says(1, HELLO);
    open_session(h, TENANT_A, "sess_1", 1);
    host_replies(1, pinged(clock), true);
    pinged(clock); /* so the first was answered in time */
    assert_int_equal(count_events("lost"), 0);
    clock_fake_advance_ms(clock, 61000);
    expect_event("lost sess_1 the Pi host has not answered for a minute");
    finish(h);
    clock_fake_free(clock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_spare_becomes_the_first_tenants_host),
        cmocka_unit_test(tenants_do_not_share_and_full_hosts_are_passed_over),
        cmocka_unit_test(everything_a_host_says_reaches_its_session),
        cmocka_unit_test(what_a_host_said_is_counted_once_it_was_passed_on),
        cmocka_unit_test(replies_come_only_to_those_who_asked),
        cmocka_unit_test(a_refused_open_leaves_nothing_open),
        cmocka_unit_test(a_host_that_dies_loses_each_session_once_and_they_open_again),
        cmocka_unit_test(closed_and_opened_again_it_hears_nothing_of_the_old_opening),
        cmocka_unit_test(a_host_that_talks_nonsense_is_ended),
        cmocka_unit_test(a_missing_node_is_said_in_opened_and_in_ready),
        cmocka_unit_test(a_parent_that_cannot_start_hosts_is_said_too),
        cmocka_unit_test(idle_hosts_are_stopped_and_the_spare_is_not),
        cmocka_unit_test(a_silent_host_is_asked_and_given_up_when_it_does_not_answer),
    };
    return cmocka_run_group_tests(tests, start_world, NULL);
}
