/* src/broker/dial.c: which addresses may be dialled. The verdicts of the vectors come from a WHATWG
   URL parser and a CIDR library over the same ranges; the resolver's answers are theirs too. */
#include "../../src/broker/dial_ranges.c"
#include "broker/dial.h"

#include "base/arena.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/lock.h"
#include "cli/guard_cases.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>
#undef fail /* ours */

#define wrong(...) (print_error(__VA_ARGS__), _fail(__FILE__, __LINE__))

static json_t *read_file(const char *path)
{
    AUTO_BUF text = {0};
    json_t *j = NULL;
    assert_int_equal(fd_read_file(path, 1 << 20, &text), 0);
    assert_int_equal(json_read(buf_str(&text), &j), 0);
    return j;
}

static err verdict(const struct dial_guard *g, enum dial_policy policy, const char *url)
{
    AUTO_ARENA a = arena_new();
    struct dial_url parsed;
    struct dial_answers answers;
    TRY(dial_parse(str_of(url), a, &parsed));
    return dial_judge(g, policy, &parsed, 1000, -1, &answers);
}

static void the_vectors_verdicts_hold(void **state)
{
    (void)state;
    AUTO_JSON file = read_file("tests/vectors/ssrf_public.json");
    struct guard_tally tally;
    assert_int_equal(guard_cases_run(file, stderr, &tally), 0);
    assert_int_equal(tally.failed, 0);
    assert_int_equal(tally.passed, json_array_size(json_object_get(file, "cases")));
}

/* The runner can fail: with every verdict turned round, nothing passes but what may be either. */
static void a_wrong_verdict_is_noticed(void **state)
{
    (void)state;
    AUTO_JSON file = read_file("tests/vectors/ssrf_public.json");
    json_t *cases = json_object_get(file, "cases"), *c;
    size_t i;
    json_array_foreach(cases, i, c)
    {
        bool allow = str_is(json_get_str(c, "verdict"), "allow");
        json_set_str(c, "verdict", allow ? STR("deny") : STR("allow"));
    }
    struct guard_tally tally;
    FILE *nowhere = fopen("/dev/null", "w");
    assert_int_equal(guard_cases_run(file, nowhere, &tally), 0);
    fclose(nowhere);
    assert_int_equal(tally.passed, 1); /* s118 */
    assert_int_equal(tally.failed, json_array_size(cases) - 1);
}

/* The table in the code is the table of the vectors. */

static bool has_range(const struct range *table, size_t n, const char *cidr)
{
    char text[64];
    for (size_t i = 0; i < n; i++) {
        snprintf(text, sizeof text, "%s/%d", table[i].prefix, table[i].bits);
        if (strcmp(text, cidr) == 0)
            return true;
    }
    return false;
}

static void check_ranges(const json_t *file, const char *key, const struct range *table, size_t n)
{
    const json_t *list = json_object_get(file, key);
    assert_int_equal(json_array_size(list), n);
    for (size_t i = 0; i < n; i++) {
        const char *cidr = json_string_value(json_array_get(json_array_get(list, i), 0));
        if (!has_range(table, n, cidr))
            wrong("%s is missing\n", cidr);
    }
}

static void check_names(const json_t *file, const char *key, const char *const *table, size_t n)
{
    const json_t *list = json_object_get(file, key);
    assert_int_equal(json_array_size(list), n);
    for (size_t i = 0; i < n; i++) {
        bool found = false;
        for (size_t j = 0; j < n; j++)
            found |= strcmp(table[j], json_string_value(json_array_get(list, i))) == 0;
        assert_true(found);
    }
}

static void the_deny_tables_are_complete(void **state)
{
    (void)state;
    AUTO_JSON file = read_file("tests/vectors/ssrf_ranges.json");
    check_ranges(file, "ipv4_deny", ipv4_deny, COUNT(ipv4_deny));
    check_ranges(file, "ipv6_deny_inside_2000_3", ipv6_deny, COUNT(ipv6_deny));
    check_ranges(file, "ipv6_unwrap", ipv6_wraps_ipv4, COUNT(ipv6_wraps_ipv4));
    check_names(file, "names_deny", names_deny, COUNT(names_deny));
    check_names(file, "suffixes_deny", suffixes_deny, COUNT(suffixes_deny));
}

static void the_edges_of_ranges_are_exact(void **state)
{
    (void)state;
    static const struct {
        const char *address;
        bool denied;
    } cases[] = {
        {"9.255.255.255", false},    {"10.0.0.0", true},
        {"10.255.255.255", true},    {"11.0.0.0", false},
        {"100.63.255.255", false},   {"100.64.0.0", true},
        {"100.127.255.255", true},   {"100.128.0.0", false},
        {"168.63.129.15", false},    {"168.63.129.16", true},
        {"168.63.129.17", false},    {"172.15.255.255", false},
        {"172.16.0.0", true},        {"172.31.255.255", true},
        {"172.32.0.0", false},       {"198.17.255.255", false},
        {"198.18.0.0", true},        {"198.19.255.255", true},
        {"198.20.0.0", false},       {"223.255.255.255", false},
        {"224.0.0.0", true},         {"255.255.255.255", true},
        {"0.255.255.255", true},     {"1.0.0.0", false},
        {"1fff:ffff::1", true},      {"2000::1", false},
        {"2001:1ff:ffff::1", true},  {"2001:200::1", false},
        {"2001:db8:ffff::1", true},  {"2001:db9::1", false},
        {"2002::1", true},           {"2003::1", false},
        {"3ffe::1", false},          {"3fff::1", true},
        {"3fff:fff::1", true},       {"3fff:1000::1", false},
        {"4000::1", true},           {"::ffff:8.8.8.8", false},
        {"::ffff:10.0.0.1", true},   {"64:ff9b::8.8.8.8", false},
        {"64:ff9b::10.0.0.1", true}, {"64:ff9b:1::8.8.8.8", true},
        {"fe80::1", true},           {"::", true},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct dial_answers a;
        assert_int_equal(dial_resolve(cases[i].address, 1, 0, -1, &a), 0);
        if (dial_address_denied((struct sockaddr *)&a.list[0].sa, NULL) != cases[i].denied)
            wrong("%s\n", cases[i].address);
    }
}

static void a_url_is_taken_apart(void **state)
{
    (void)state;
    static const struct {
        const char *url, *scheme, *host, *path;
        int port;
    } cases[] = {
        {"https://Example.COM", "https", "example.com", "/", 443},
        {"HTTP://a.b:8080/x?y#z", "http", "a.b", "/x?y", 8080},
        {"https://a?q", "https", "a", "/?q", 443},
        {"https://[2606:4700:4700::1111]:99/", "https", "2606:4700:4700::1111", "/", 99},
        {"https://1.2.3.4/v1", "https", "1.2.3.4", "/v1", 443},
        {"https://B\xc3\xbc"
         "cher.Example/\xc3\xa9?\xc3\xa9",
         "https", "xn--bcher-kva.example", "/%C3%A9?%C3%A9", 443},
        {"https://a\xe3\x80\x82"
         "b/",
         "https", "a.b", "/", 443}, /* an ideographic full stop */
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        AUTO_ARENA a = arena_new();
        struct dial_url u;
        assert_int_equal(dial_parse(str_of(cases[i].url), a, &u), 0);
        assert_string_equal(u.scheme, cases[i].scheme);
        assert_string_equal(u.host, cases[i].host);
        assert_string_equal(u.path, cases[i].path);
        assert_int_equal(u.port, cases[i].port);
    }
}

static void an_odd_url_is_refused_before_resolving(void **state)
{
    (void)state;
    static const char *const urls[] = {
        "https://a b/",
        "https://a\tb/",
        "https://a/\x7f",
        "https://a\\b/",
        "https://u@a/",
        "https://u:p@a/",
        "https://a/\xff",
        "https://\xef\xbc\x91\xef\xbc\x92\xef\xbc\x97.1/", /* 127.1 in full-width digits */
        "https://a\xef\xbc\xa0"
        "b/", /* a full-width @ */
        "https://a\xef\xbc\x8f"
        "b/",                     /* a full-width slash */
        "https://\xe2\x84\x80/",  /* becomes a/c */
        "https://a\xe3\x80\x82/", /* a trailing dot */
        "https://[fe80::1%25eth0]/",
        "https://a%2eb/",
        "https://127.1/",
        "https://0x7f000001/",
        "https://0x7f.1/",
        "https://0177.0.0.1/",
        "https://2130706433/",
        "https://1.2.3.4.5/",
        "https://1.2.3.256/",
        "https://a.1/",
        "https://a./",
        "https://127.0.0.1./",
        "https://.a/",
        "https://a..b/",
        "https:///x",
        "https://",
        "https:a",
        "https://a:0/",
        "https://a:65536/",
        "https://a:/",
        "https://a:+1/",
        "https://a:80:81/",
        "https://[::1",
        "https://[::1]x/",
        "https://[]/",
        "https://::1/",
        "https://-a/",
        "ftp://a/",
        "file:///etc/passwd",
        "javascript:1",
        "",
        "//a/",
    };
    for (size_t i = 0; i < COUNT(urls); i++) {
        AUTO_ARENA a = arena_new();
        struct dial_url u;
        if (dial_parse(str_of(urls[i]), a, &u) != E_INVALID)
            wrong("%s\n", urls[i]);
    }
    AUTO_ARENA a = arena_new();
    struct dial_url u;
    assert_int_equal(dial_parse(STR("https://a\0b/"), a, &u), E_INVALID);
}

static void a_redirect_leads_where_browsers_go(void **state)
{
    (void)state;
    static const struct {
        const char *base, *location, *to; /* NULL: refused */
    } cases[] = {
        {"https://a/b/c?d", "https://x.test:8443/y", "https://x.test:8443/y"},
        {"https://a/b/c?d", "//x.test/y", "https://x.test:443/y"},
        {"https://a/b/c?d", "/y?z", "https://a:443/y?z"},
        {"https://a/b/c?d", "y", "https://a:443/b/y"},
        {"https://a/b/c?d", "../y/./z/..", "https://a:443/y/"},
        {"https://a/b/c?d", "../../../../y", "https://a:443/y"},
        {"https://a/b/c?d", "?e", "https://a:443/b/c?e"},
        {"https://a/b/c?d", "?e=/../f", "https://a:443/b/c?e=/../f"},
        {"https://a/b/c?d", "", "https://a:443/b/c?d"},
        {"https://a/b/c?d", "#e", "https://a:443/b/c?d"},
        {"https://a/b/c?d", "/\xc3\xa9", "https://a:443/%C3%A9"},
        {"http://a:81/", "b", "http://a:81/b"},
        {"http://a:81/", "https://a/", "https://a:443/"},
        {"http://[2606:4700::1]/", "b", "http://[2606:4700::1]:80/b"},
        {"https://a/", "http://a/", NULL},
        {"https://a/", "file:///etc/passwd", NULL},
        {"https://a/", "javascript:alert(1)", NULL},
        {"https://a/", "//u@b/", NULL},
        {"https://a/", "/\\b", NULL},
        {"https://a/", "b c", NULL},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        AUTO_ARENA a = arena_new();
        struct dial_url base, to;
        assert_int_equal(dial_parse(str_of(cases[i].base), a, &base), 0);
        err e = dial_join(&base, str_of(cases[i].location), a, &to);
        const char *text = e ? "refused" : dial_text(&to, a);
        if (strcmp(text, cases[i].to ? cases[i].to : "refused") != 0)
            wrong("%s + %s = %s\n", cases[i].base, cases[i].location, text);
    }
}

static err resolve_box(void *arg, const char *host, int port, struct dial_answers *out)
{
    (void)arg;
    if (strcmp(host, "box.local") != 0)
        return fail(E_UNAVAILABLE, "unknown");
    return dial_resolve("10.0.0.7", port, 0, -1, out);
}

static void the_list_of_exceptions_is_exact(void **state)
{
    (void)state;
    struct dial_guard *g;
    assert_int_equal(dial_guard_new(" 127.0.0.1:8080, Box.local ,[::1]:9", &g), 0);
    dial_guard_set_resolver(g, resolve_box, NULL);
    assert_int_equal(verdict(g, DIAL_MODEL, "http://127.0.0.1:8080/v1"), 0);
    assert_int_equal(verdict(g, DIAL_MODEL, "https://127.0.0.1:8080/v1"), 0);
    assert_int_equal(verdict(g, DIAL_MODEL, "http://[::1]:9/"), 0);
    assert_int_equal(verdict(g, DIAL_MODEL, "http://127.0.0.1:8081/"), E_FORBIDDEN);
    assert_int_equal(verdict(g, DIAL_MODEL, "http://127.0.0.2:8080/"), E_FORBIDDEN);
    assert_int_equal(verdict(g, DIAL_MODEL, "https://10.0.0.1/"), E_FORBIDDEN);
    assert_string_equal(err_code(), "address_not_allowed");
    assert_int_equal(verdict(g, DIAL_MODEL, "http://box.local:1234/"), 0); /* every port */
    assert_int_equal(verdict(g, DIAL_MODEL, "http://sub.box.local/"), E_FORBIDDEN);
    dial_guard_free(g);
    assert_int_equal(dial_guard_new("a:b", &g), E_INVALID);
    assert_int_equal(dial_guard_new("a:99999", &g), E_INVALID);
    assert_int_equal(dial_guard_new("", &g), 0);
    dial_guard_free(g);
}

static void models_are_asked_over_https_only(void **state)
{
    (void)state;
    struct dial_guard *g;
    assert_int_equal(dial_guard_new(NULL, &g), 0);
    assert_int_equal(verdict(g, DIAL_MODEL, "https://8.8.8.8/"), 0);
    assert_int_equal(verdict(g, DIAL_MODEL, "http://8.8.8.8/"), E_FORBIDDEN);
    assert_int_equal(verdict(g, DIAL_FETCH, "http://8.8.8.8/"), 0);
    dial_guard_free(g);
}

/* Connecting */

static int listen_loopback(int *out_port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 1), 0);
    getsockname(fd, (struct sockaddr *)&a, &n);
    *out_port = ntohs(a.sin_port);
    return fd;
}

static void an_allowed_address_is_connected_to(void **state)
{
    (void)state;
    int port, fd = -1;
    AUTO_FD listener = listen_loopback(&port);
    struct dial_guard *g;
    assert_int_equal(dial_guard_new("127.0.0.1", &g), 0);
    struct dial_url u = {"http", "127.0.0.1", port, "/"};
    assert_int_equal(dial_connect(g, DIAL_MODEL, &u, 5000, -1, &fd), 0);
    struct sockaddr_in peer;
    socklen_t n = sizeof peer;
    assert_int_equal(getpeername(fd, (struct sockaddr *)&peer, &n), 0);
    assert_int_equal(ntohs(peer.sin_port), port);
    close(fd);
    fd_close(&listener);
    assert_int_equal(dial_connect(g, DIAL_MODEL, &u, 5000, -1, &fd), E_UNAVAILABLE);
    dial_guard_free(g);
}

/* For a connection that was kept: what may be reached can have changed for its URL. */
static void a_peer_is_judged_again(void **state)
{
    (void)state;
    int port, fd = -1;
    AUTO_FD listener = listen_loopback(&port);
    struct dial_guard *open, *shut;
    assert_int_equal(dial_guard_new("127.0.0.1,models.test", &open), 0);
    assert_int_equal(dial_guard_new(NULL, &shut), 0);
    struct dial_url here = {"http", "127.0.0.1", port, "/"};
    struct dial_url named = {"https", "models.test", 443, "/"};
    assert_int_equal(dial_connect(open, DIAL_MODEL, &here, 5000, -1, &fd), 0);
    assert_true(dial_peer_allowed(open, DIAL_MODEL, &here, fd));
    assert_true(dial_peer_allowed(open, DIAL_MODEL, &named, fd));
    assert_false(dial_peer_allowed(shut, DIAL_MODEL, &here, fd));
    assert_false(dial_peer_allowed(shut, DIAL_MODEL, &named, fd));      /* a loopback peer */
    assert_false(dial_peer_allowed(open, DIAL_MODEL, &here, listener)); /* connected to nobody */
    close(fd);
    dial_guard_free(open);
    dial_guard_free(shut);
}

/* A lookup that nobody waits for ends by itself, and what it holds goes with it. */
static void a_lookup_can_be_given_up(void **state)
{
    (void)state;
    struct dial_answers answers;
    AUTO_FD wake = eventfd(1, EFD_CLOEXEC);
    for (int i = 0; i < 3; i++) {
        err e = dial_resolve("nobody.invalid", 443, 60000, wake, &answers);
        assert_true(e == E_CLOSED || e == E_UNAVAILABLE); /* it may have failed already */
        e = dial_resolve("nobody.invalid", 443, 0, -1, &answers);
        assert_int_equal(e, E_UNAVAILABLE);
    }
}

static void *look_up_once(void *arg)
{
    struct dial_answers answers;
    err e = dial_resolve("localhost", 443, 60000, -1, &answers);
    *(err *)arg = e || answers.count == 0 ? E_UNAVAILABLE : 0;
    return NULL;
}

/* More than there may be names under way. */
static void a_crowd_that_wants_one_name_gets_it(void **state)
{
    (void)state;
    enum {
        CROWD = 200
    };
    pthread_t threads[CROWD];
    err results[CROWD];
    for (int i = 0; i < CROWD; i++)
        threads[i] = thread_start("asks", look_up_once, &results[i]);
    for (int i = 0; i < CROWD; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(results[i], 0);
    }
}

/* 192.0.2.1 swallows packets where there is a route at all; where there is none the error comes at
 * once. */
static void connecting_can_be_given_up(void **state)
{
    (void)state;
    struct dial_guard *g;
    assert_int_equal(dial_guard_new("192.0.2.1", &g), 0);
    struct dial_url u = {"http", "192.0.2.1", 81, "/"};
    AUTO_FD wake = eventfd(1, EFD_CLOEXEC);
    int fd = -1;
    err e = dial_connect(g, DIAL_MODEL, &u, 60000, wake, &fd);
    assert_true(e == E_CLOSED || e == E_UNAVAILABLE);
    int64_t from_ms = clock_monotonic_ms(clock_real());
    assert_int_equal(dial_connect(g, DIAL_MODEL, &u, 50, -1, &fd), E_UNAVAILABLE);
    assert_true(clock_monotonic_ms(clock_real()) - from_ms < 20000);
    dial_guard_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_vectors_verdicts_hold),
        cmocka_unit_test(a_wrong_verdict_is_noticed),
        cmocka_unit_test(the_deny_tables_are_complete),
        cmocka_unit_test(the_edges_of_ranges_are_exact),
        cmocka_unit_test(a_url_is_taken_apart),
        cmocka_unit_test(an_odd_url_is_refused_before_resolving),
        cmocka_unit_test(a_redirect_leads_where_browsers_go),
        cmocka_unit_test(the_list_of_exceptions_is_exact),
        cmocka_unit_test(models_are_asked_over_https_only),
        cmocka_unit_test(an_allowed_address_is_connected_to),
        cmocka_unit_test(a_peer_is_judged_again),
        cmocka_unit_test(a_lookup_can_be_given_up),
        cmocka_unit_test(a_crowd_that_wants_one_name_gets_it),
        cmocka_unit_test(connecting_can_be_given_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
