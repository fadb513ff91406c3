/* The link between control and the broker by itself: frames in pieces, frames that can never be
   right, registrations, what control's end does while the broker is slow, away, or new. */
#include "base/fd.h"
#include "base/lock.h"
#include "broker/frames.h"
#include "broker/link.h"
#include "broker/protocol.h"
#include "broker/registry.h"

#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>
#undef fail /* ours */

#define WAIT_MS 20000

/* Frames */

static void a_frame_is_recognised_when_its_last_byte_is_there(void **state)
{
    (void)state;
    AUTO_JSON m = json_pack("{s:s, s:i}", "op", "x", "n", 5);
    AUTO_BUF frame = {0};
    assert_int_equal(broker_frame_encode(m, &frame), 0);
    for (size_t n = 0; n <= frame.n; n++) {
        json_t *got;
        size_t used;
        assert_int_equal(broker_frame_parse((struct str){frame.p, n}, &used, &got), 0);
        assert_int_equal(got != NULL, n == frame.n);
        assert_int_equal(used, n == frame.n ? n : 0);
        if (got)
            assert_true(json_equal(got, m));
        json_decref(got);
    }
}

static void a_frame_that_can_never_be_right_is_refused(void **state)
{
    (void)state;
    static const struct str frames[] = {
        {"\0\0\0\0", 4},     {"\x01\0\x10\0", 4}, {"\xff\xff\xff\xff", 4},      {"\x02\0\0\0{}", 6},
        {"\x02\0\0\0[]", 6}, {"\x02\0\0\0{x", 6}, {"\x08\0\0\0{\"op\":1}", 12},
    };
    for (size_t i = 0; i < sizeof frames / sizeof *frames; i++) {
        json_t *got = NULL;
        size_t used = 1;
        assert_int_equal(broker_frame_parse(frames[i], &used, &got), E_INVALID);
        assert_null(got);
        assert_int_equal(used, 0);
    }
}

static void a_message_beyond_the_limit_is_not_sent(void **state)
{
    (void)state;
    AUTO_BUF big = {0}, frame = {0};
    for (size_t i = 0; i < BROKER_FRAME_MAX; i++)
        buf_add_char(&big, 'x');
    AUTO_JSON m = json_pack("{s:s, s:s}", "op", "x", "big", big.p);
    buf_add_c(&frame, "kept");
    assert_int_equal(broker_frame_encode(m, &frame), E_TOO_LARGE);
    assert_int_equal(frame.n, 4);
}

/* Registrations */

#define TOKEN "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static json_t *open_message(const char *token, const char *session)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:s}", "op", "session_open",
                     "token", token, "tenant", "tenant_a", "session", session, "provider", "p",
                     "model", "m", "api", "openai-completions", "baseUrl", "https://a.test/v1",
                     "custom", 1, "sealed", "c2VhbGVk");
}

static void a_registration_is_found_by_its_token_only(void **state)
{
    (void)state;
    struct registry *r = registry_new();
    AUTO_JSON m = open_message(TOKEN, "sess_a");
    assert_int_equal(registry_open(r, m), 0);
    struct registration *g = registry_find(r, STR(TOKEN));
    assert_non_null(g);
    assert_string_equal(g->session, "sess_a");
    assert_true(str_is(buf_str(&g->sealed), "sealed"));
    registration_unref(g);
    char other[] = TOKEN;
    for (size_t i = 0; i < sizeof other - 1; i++) {
        char was = other[i];
        other[i] = was == '0' ? '1' : '0';
        assert_null(registry_find(r, str_of(other)));
        other[i] = was;
    }
    assert_null(registry_find(r, STR("")));
    assert_null(registry_find(r, (struct str){TOKEN, 63}));
    registry_free(r);
}

static void a_request_keeps_its_registration_when_the_session_closes(void **state)
{
    (void)state;
    struct registry *r = registry_new();
    AUTO_JSON m = open_message(TOKEN, "sess_a");
    AUTO_JSON again = open_message(TOKEN, "sess_b");
    assert_int_equal(registry_open(r, m), 0);
    struct registration *held = registry_find(r, STR(TOKEN));
    assert_int_equal(registry_open(r, again), 0); /* replaces */
    assert_int_equal(registry_count(r), 1);
    struct registration *now = registry_find(r, STR(TOKEN));
    assert_string_equal(now->session, "sess_b");
    assert_string_equal(held->session, "sess_a");
    registration_unref(now);
    registry_close(r, TOKEN);
    assert_null(registry_find(r, STR(TOKEN)));
    assert_string_equal(held->provider, "p");
    registration_unref(held);
    registry_free(r);
}

static void an_incomplete_registration_is_refused(void **state)
{
    (void)state;
    static const char *const members[] = {"token", "tenant",  "session", "provider",
                                          "model", "baseUrl", "api"};
    struct registry *r = registry_new();
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        AUTO_JSON m = open_message(TOKEN, "sess_a");
        json_object_del(m, members[i]);
        assert_int_equal(registry_open(r, m), E_INVALID);
        assert_non_null(strstr(err_text(), members[i]));
    }
    AUTO_JSON m = open_message(TOKEN, "sess_a");
    json_object_set_new(m, "sealed", json_string("not base64!"));
    assert_int_equal(registry_open(r, m), E_INVALID);
    AUTO_JSON weak = open_message("1234", "sess_a");
    assert_int_equal(registry_open(r, weak), E_INVALID);
    assert_int_equal(registry_count(r), 0);
    registry_free(r);
}

static void a_thousand_registrations_are_kept_apart(void **state)
{
    (void)state;
    struct registry *r = registry_new();
    char token[65], session[32];
    for (unsigned i = 0; i < 3000; i++) {
        snprintf(token, sizeof token, "%064x", i);
        snprintf(session, sizeof session, "sess_%u", i);
        AUTO_JSON m = open_message(token, session);
        assert_int_equal(registry_open(r, m), 0);
    }
    for (unsigned i = 0; i < 3000; i++) {
        snprintf(token, sizeof token, "%064x", i);
        snprintf(session, sizeof session, "sess_%u", i);
        struct registration *g = registry_find(r, str_of(token));
        assert_string_equal(g->session, session);
        registration_unref(g);
    }
    registry_clear(r);
    assert_int_equal(registry_count(r), 0);
    registry_free(r);
}

/* Control's end */

struct control {
    pthread_mutex_t m;
    pthread_cond_t c;
    int lost, begins, ends;
};

static void count(struct control *t, int *what)
{
    AUTO_LOCK(&t->m);
    ++*what;
    pthread_cond_broadcast(&t->c);
}

static void on_begin(void *arg, const char *session, const char *request, int64_t bytes,
                     int64_t said)
{
    struct control *t = arg;
    assert_string_equal(session, "sess_a");
    assert_string_equal(request, "req_1");
    assert_int_equal(bytes, 77);
    assert_int_equal(said, 12);
    count(t, &t->begins);
}

static void on_end(void *arg, const char *session, const char *request, const json_t *end)
{
    struct control *t = arg;
    assert_string_equal(session, "sess_a");
    assert_string_equal(request, "req_1");
    assert_int_equal(json_get_int(end, "status", 0), 200);
    count(t, &t->ends);
}

static void on_lost(void *arg)
{
    struct control *t = arg;
    count(t, &t->lost);
}

static void wait_count(struct control *t, const int *what, int wanted)
{
    AUTO_LOCK(&t->m);
    while (*what < wanted)
        assert_true(cond_wait_ms(&t->c, &t->m, WAIT_MS));
    assert_int_equal(*what, wanted);
}

static struct broker_link *link_new(struct control *t)
{
    pthread_mutex_init(&t->m, NULL);
    cond_init(&t->c);
    struct broker_events events = {on_begin, on_end, on_lost, t};
    return broker_link_new(&events);
}

static int attach(struct broker_link *l)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    broker_link_attach(l, pair[1]);
    return pair[0];
}

static void open_session(struct broker_link *l, const char *token, const char *session)
{
    struct broker_session s = {.token = token,
                               .tenant = "tenant_a",
                               .session = session,
                               .provider = "p",
                               .model = "m",
                               .api = "openai-completions",
                               .base_url = "https://a.test",
                               .custom = true,
                               .sealed = {"\0\x01sealed", 8}};
    broker_open_session(l, &s);
}

/* The next message that control sent. */
static json_t *next(int broker)
{
    AUTO_BUF scratch = {0};
    json_t *m;
    assert_int_equal(broker_frame_read(broker, &scratch, &m), 0);
    return m;
}

static void expect_open(int broker, const char *session)
{
    AUTO_JSON m = next(broker);
    assert_string_equal(json_get_c(m, "op"), "session_open");
    assert_string_equal(json_get_c(m, "session"), session);
    assert_string_equal(json_get_c(m, "sealed"), "AAFzZWFsZWQ=");
    assert_true(json_get_bool(m, "custom", false));
}

/* A link in use: its broker has heard of one session. */
static int attach_and_open(struct broker_link *l)
{
    int broker = attach(l);
    open_session(l, "aa", "sess_a");
    expect_open(broker, "sess_a");
    return broker;
}

static void open_sessions_are_sent_to_each_new_broker(void **state)
{
    (void)state;
    struct control t = {0};
    struct broker_link *l = link_new(&t);
    open_session(l, "aa", "sess_a"); /* before there is a broker */
    AUTO_FD first = attach(l);
    expect_open(first, "sess_a");
    open_session(l, "bb", "sess_b");
    expect_open(first, "sess_b");
    broker_close_session(l, "aa");
    AUTO_JSON closed = next(first);
    assert_string_equal(json_get_c(closed, "op"), "session_close");
    assert_string_equal(json_get_c(closed, "token"), "aa");
    fd_close(&first);
    wait_count(&t, &t.lost, 1);
    broker_request_go(l, "req_1", 1); /* void: there is nobody */
    AUTO_FD second = attach(l);
    expect_open(second, "sess_b");
    broker_request_cancel(l, "sess_b");
    AUTO_JSON cancel = next(second); /* neither sess_a nor the old go */
    assert_string_equal(json_get_c(cancel, "op"), "request_cancel");
    broker_link_free(l);
}

static void the_link_is_up_after_hello_until_it_breaks(void **state)
{
    (void)state;
    struct control t = {0};
    struct broker_link *l = link_new(&t);
    assert_false(broker_link_up(l));
    AUTO_FD broker = attach(l);
    AUTO_JSON hello = json_pack("{s:s, s:s}", "op", "hello", "version", "1");
    AUTO_JSON begin = json_pack("{s:s, s:s, s:s, s:i, s:i}", "op", "request_begin", "request",
                                "req_1", "session", "sess_a", "inputTokens", 77, "said", 12);
    AUTO_JSON odd = json_pack("{s:s}", "op", "from_the_future");
    AUTO_JSON end = json_pack("{s:s, s:s, s:s, s:i}", "op", "request_end", "request", "req_1",
                              "session", "sess_a", "status", 200);
    assert_int_equal(broker_frame_write(broker, hello), 0);
    assert_int_equal(broker_frame_write(broker, odd), 0);
    assert_int_equal(broker_frame_write(broker, begin), 0);
    wait_count(&t, &t.begins, 1);
    assert_true(broker_link_up(l));
    assert_int_equal(broker_frame_write(broker, end), 0);
    wait_count(&t, &t.ends, 1);
    fd_close(&broker);
    wait_count(&t, &t.lost, 1);
    assert_false(broker_link_up(l));
    broker_link_free(l);
}

static void a_newer_broker_replaces_one_that_still_hangs_on(void **state)
{
    (void)state;
    struct control t = {0};
    struct broker_link *l = link_new(&t);
    open_session(l, "aa", "sess_a");
    AUTO_FD first = attach(l);
    expect_open(first, "sess_a");
    AUTO_FD second = attach(l);
    expect_open(second, "sess_a");
    wait_count(&t, &t.lost, 1);
    broker_link_free(l);
}

static void a_broker_that_talks_nonsense_is_cut_off(void **state)
{
    (void)state;
    struct control t = {0};
    struct broker_link *l = link_new(&t);
    AUTO_FD broker = attach(l);
    assert_int_equal(fd_write_full(broker, "GET / HTTP/1.1\r\n\r\n", 18), 0);
    wait_count(&t, &t.lost, 1);
    char byte;
    assert_true(read(broker, &byte, 1) <= 0); /* an end, or a reset: not all of it was read */
    broker_link_free(l);
}

/* A broker that reads nothing: calls return all the same, and the order is kept. */
static void calls_do_not_wait_for_a_slow_broker(void **state)
{
    (void)state;
    struct control t = {0};
    struct broker_link *l = link_new(&t);
    AUTO_FD broker = attach_and_open(l);
    enum {
        MANY = 20000
    };
    for (int64_t i = 0; i < MANY; i++)
        broker_request_go(l, "req_with_a_name_as_long_as_any_real_one", i);
    for (int64_t i = 0; i < MANY; i++) {
        AUTO_JSON m = next(broker);
        assert_int_equal(json_get_int(m, "number", -1), i);
    }
    broker_link_free(l);
}

/* Keys that are tried */

struct trial {
    struct broker_link *link;
    int64_t timeout_ms;
    struct broker_verdict verdict;
};

static void *try_key(void *arg)
{
    struct trial *t = arg;
    struct broker_session s = {.tenant = "tenant_a",
                               .session = "cred_a",
                               .provider = "p",
                               .model = "m",
                               .sealed = STR("sealed")};
    broker_check_key(t->link, &s, t->timeout_ms, &t->verdict);
    return NULL;
}

static void expect_verdict(const struct trial *t, const char *verdict, const char *reason)
{
    assert_string_equal(t->verdict.verdict, verdict);
    assert_non_null(strstr(t->verdict.reason, reason));
}

static void a_verdict_reaches_whoever_waits_for_it(void **state)
{
    (void)state;
    struct control t = {0};
    struct broker_link *l = link_new(&t);
    AUTO_FD broker = attach_and_open(l);
    static const char *const verdicts[] = {"valid", "invalid", "unknown", "odd"};
    struct trial trials[4];
    pthread_t threads[4];
    json_t *asked[4];
    for (size_t i = 0; i < 4; i++) {
        trials[i] = (struct trial){.link = l, .timeout_ms = WAIT_MS};
        threads[i] = thread_start("trial", try_key, &trials[i]);
        asked[i] = next(broker);
        assert_string_equal(json_get_c(asked[i], "op"), "credential_check");
        assert_string_equal(json_get_c(asked[i], "session"), "cred_a");
        assert_string_equal(json_get_c(asked[i], "sealed"), "c2VhbGVk");
    }
    struct trial fifth = {.link = l, .timeout_ms = WAIT_MS};
    try_key(&fifth);
    expect_verdict(&fifth, "unknown", "other keys");
    for (size_t i = 4; i-- > 0;) { /* the last first */
        AUTO_JSON m =
            json_pack("{s:s, s:s, s:s, s:s}", "op", "credential_checked", "check",
                      json_get_c(asked[i], "check"), "verdict", verdicts[i], "reason", verdicts[i]);
        assert_int_equal(broker_frame_write(broker, m), 0);
        pthread_join(threads[i], NULL);
        expect_verdict(&trials[i], i < 3 ? verdicts[i] : "unknown", verdicts[i]);
        json_decref(asked[i]);
    }
    broker_link_free(l);
}

static void without_a_broker_a_key_is_unknown(void **state)
{
    (void)state;
    struct control t = {0};
    struct broker_link *l = link_new(&t);
    struct trial trial = {.link = l, .timeout_ms = WAIT_MS};
    try_key(&trial);
    expect_verdict(&trial, "unknown", "starting");
    AUTO_FD broker = attach_and_open(l);
    struct trial late = {.link = l, .timeout_ms = 1};
    try_key(&late);
    expect_verdict(&late, "unknown", "in time");
    AUTO_JSON ignored = next(broker);
    pthread_t thread = thread_start("trial", try_key, &trial);
    AUTO_JSON asked = next(broker);
    fd_close(&broker);
    pthread_join(thread, NULL);
    expect_verdict(&trial, "unknown", "went away");
    wait_count(&t, &t.lost, 1);
    broker_link_free(l);
}

static void a_stop_does_not_wait_for_providers(void **state)
{
    (void)state;
    struct control t = {0};
    struct broker_link *l = link_new(&t);
    AUTO_FD broker = attach_and_open(l);
    struct trial trial = {.link = l, .timeout_ms = WAIT_MS * 10}, later = trial;
    pthread_t thread = thread_start("trial", try_key, &trial);
    AUTO_JSON asked = next(broker);
    broker_end_checks(l);
    pthread_join(thread, NULL);
    expect_verdict(&trial, "unknown", "stops");
    try_key(&later);
    expect_verdict(&later, "unknown", "stops");
    broker_link_free(l);
}

static int once(void **state)
{
    (void)state;
    return sodium_init() < 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_frame_is_recognised_when_its_last_byte_is_there),
        cmocka_unit_test(a_frame_that_can_never_be_right_is_refused),
        cmocka_unit_test(a_message_beyond_the_limit_is_not_sent),
        cmocka_unit_test(a_registration_is_found_by_its_token_only),
        cmocka_unit_test(a_request_keeps_its_registration_when_the_session_closes),
        cmocka_unit_test(an_incomplete_registration_is_refused),
        cmocka_unit_test(a_thousand_registrations_are_kept_apart),
        cmocka_unit_test(open_sessions_are_sent_to_each_new_broker),
        cmocka_unit_test(the_link_is_up_after_hello_until_it_breaks),
        cmocka_unit_test(a_newer_broker_replaces_one_that_still_hangs_on),
        cmocka_unit_test(a_broker_that_talks_nonsense_is_cut_off),
        cmocka_unit_test(calls_do_not_wait_for_a_slow_broker),
        cmocka_unit_test(a_verdict_reaches_whoever_waits_for_it),
        cmocka_unit_test(without_a_broker_a_key_is_unknown),
        cmocka_unit_test(a_stop_does_not_wait_for_providers),
    };
    return cmocka_run_group_tests(tests, once, NULL);
}
