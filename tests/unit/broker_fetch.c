/* src/broker/fetch.c: where a credential goes when redirects lead away, and what bounds an answer.
 */
#include "broker_stage.h"

#include "broker/fetch.h"

#include <sys/eventfd.h>

struct pair {
    struct provider first, second;
    struct dial_guard *guard;
    struct secret *key;
};

static void pair_start(struct pair *p)
{
    char allow[64];
    *p = (struct pair){0};
    provider_start(&p->first);
    provider_start(&p->second);
    snprintf(allow, sizeof allow, "127.0.0.1:%d,127.0.0.1:%d", p->first.port, p->second.port);
    assert_int_equal(dial_guard_new(allow, &p->guard), 0);
    p->key = secret_new(STR("the-key"));
}

static void pair_stop(struct pair *p)
{
    provider_stop(&p->first);
    provider_stop(&p->second);
    dial_guard_free(p->guard);
    secret_free(p->key);
}

static struct fetch_options options_of(const struct pair *p)
{
    return (struct fetch_options){.guard = p->guard,
                                  .policy = DIAL_FETCH,
                                  .timeout_ms = 60000,
                                  .body_max = 1000,
                                  .wake_fd = -1,
                                  .auth_header = "Authorization",
                                  .auth_prefix = "Bearer ",
                                  .key = p->key};
}

static const char *redirect_to(struct arena *a, int port, const char *path)
{
    return arena_printf(a,
                        "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:%d%s\r\n"
                        "Content-Length: 0\r\nConnection: close\r\n\r\n",
                        port, path);
}

#define PAGE                                                                                       \
    "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\nConnection: "             \
    "close\r\n\r\n"                                                                                \
    "hello"

static void a_credential_stays_with_its_origin(void **state)
{
    (void)state;
    AUTO_ARENA a = arena_new();
    struct pair p;
    pair_start(&p);
    p.first.reply = redirect_to(a, p.second.port, "/there");
    p.second.reply = PAGE;
    struct fetch_result r = {0};
    struct fetch_options o = options_of(&p);
    const char *url = arena_printf(a, "http://127.0.0.1:%d/here", p.first.port);
    assert_int_equal(fetch_get(&o, str_of(url), a, &r), 0);
    assert_int_equal(r.hop_count, 2);
    assert_int_equal(r.hops[0].status, 302);
    assert_int_equal(r.hops[1].status, 200);
    assert_string_equal(r.content_type, "text/plain");
    assert_true(str_is(buf_str(&r.body), "hello"));
    assert_memory_equal(p.first.request.p, "GET /here HTTP/1.1\r\n", 20);
    assert_non_null(strstr(p.first.request.p, "Authorization: Bearer the-key\r\n"));
    assert_memory_equal(p.second.request.p, "GET /there HTTP/1.1\r\n", 21);
    assert_null(strcasestr(p.second.request.p, "authorization"));
    assert_null(strstr(p.second.request.p, "the-key"));
    buf_done(&r.body);
    pair_stop(&p);
}

static void a_long_answer_is_cut_and_said_to_be(void **state)
{
    (void)state;
    AUTO_ARENA a = arena_new();
    struct pair p;
    pair_start(&p);
    p.first.reply = SSE_HEAD;
    p.first.flood = 1u << 20;
    struct fetch_result r = {0};
    struct fetch_options o = options_of(&p);
    const char *url = arena_printf(a, "http://127.0.0.1:%d/", p.first.port);
    assert_int_equal(fetch_get(&o, str_of(url), a, &r), 0);
    assert_int_equal(r.body.n, 1000);
    assert_true(r.truncated);
    buf_done(&r.body);
    pair_stop(&p);
}

static void a_silent_server_is_not_waited_for_without_end(void **state)
{
    (void)state;
    AUTO_ARENA a = arena_new();
    struct pair p;
    pair_start(&p);
    p.first.hold = true; /* takes the request and says nothing */
    struct fetch_result r = {0};
    struct fetch_options o = options_of(&p);
    o.timeout_ms = 200;
    const char *url = arena_printf(a, "http://127.0.0.1:%d/", p.first.port);
    assert_int_equal(fetch_get(&o, str_of(url), a, &r), E_UNAVAILABLE);
    assert_string_equal(err_code(), "fetch_failed");
    assert_int_equal(r.hop_count, 1);
    assert_int_equal(r.hops[0].status, 0);
    pair_stop(&p);
}

static void a_fetch_can_be_given_up(void **state)
{
    (void)state;
    AUTO_ARENA a = arena_new();
    struct pair p;
    pair_start(&p);
    p.first.hold = true;
    AUTO_FD wake = eventfd(1, EFD_CLOEXEC);
    struct fetch_result r = {0};
    struct fetch_options o = options_of(&p);
    o.wake_fd = wake;
    const char *url = arena_printf(a, "http://127.0.0.1:%d/", p.first.port);
    assert_int_equal(fetch_get(&o, str_of(url), a, &r), E_CLOSED);
    pair_stop(&p);
}

static void a_redirect_to_what_is_not_allowed_is_refused(void **state)
{
    (void)state;
    AUTO_ARENA a = arena_new();
    struct pair p;
    pair_start(&p);
    p.first.reply = redirect_to(a, 1, "/");
    struct fetch_result r = {0};
    struct fetch_options o = options_of(&p);
    const char *url = arena_printf(a, "http://127.0.0.1:%d/", p.first.port);
    assert_int_equal(fetch_get(&o, str_of(url), a, &r), E_FORBIDDEN);
    assert_string_equal(err_code(), "address_not_allowed");
    assert_int_equal(r.hop_count, 2);
    pair_stop(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_credential_stays_with_its_origin),
        cmocka_unit_test(a_long_answer_is_cut_and_said_to_be),
        cmocka_unit_test(a_silent_server_is_not_waited_for_without_end),
        cmocka_unit_test(a_fetch_can_be_given_up),
        cmocka_unit_test(a_redirect_to_what_is_not_allowed_is_refused),
    };
    return cmocka_run_group_tests(tests, once, NULL);
}
