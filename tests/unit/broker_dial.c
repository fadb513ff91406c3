/* src/broker/dial.c: which addresses may be dialled. The verdicts of the vectors come from a WHATWG
   URL parser and a CIDR library over the same ranges; the resolver's answers are theirs too. */
#include "../../src/broker/dial.c"

#include "base/buf.h"
#include "base/json.h"
#include "base/lock.h"

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

/* The resolver of the vectors: names stand for what the case says, literals for themselves. */

static const json_t *dns;

static struct addrinfo *answer_new(const char *address, struct addrinfo *next)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM}, *one;
    assert_int_equal(getaddrinfo(address, "443", &hints, &one), 0);
    one->ai_next = next;
    return one;
}

static int resolve_by_vector(const char *host, const char *port, const struct addrinfo *hints,
                             struct addrinfo **out)
{
    if (is_literal(host))
        return getaddrinfo(host, port, hints, out);
    const json_t *answers = json_object_get(dns, host);
    if (json_array_size(answers) == 0)
        return EAI_NONAME;
    *out = NULL;
    for (size_t i = json_array_size(answers); i-- > 0;)
        *out = answer_new(json_string_value(json_array_get(answers, i)), *out);
    return 0;
}

static err verdict(const struct dial_guard *g, enum dial_policy policy, const char *url)
{
    AUTO_ARENA a = arena_new();
    struct dial_url parsed;
    struct addrinfo *answers = NULL;
    TRY(dial_parse(str_of(url), a, &parsed));
    TRY(judge(g, policy, &parsed, &answers));
    freeaddrinfo(answers);
    return 0;
}

static err verdict_of_chain(const struct dial_guard *g, const json_t *v)
{
    enum dial_policy policy =
        str_is(json_get_str(v, "policy"), "webhook") ? DIAL_WEBHOOK : DIAL_FETCH;
    dns = json_object_get(v, "dns");
    TRY(verdict(g, policy, json_get_c(v, "url")));
    size_t i;
    json_t *hop;
    json_array_foreach(json_object_get(v, "redirects"), i, hop)
        TRY(verdict(g, policy, json_string_value(hop)));
    return 0;
}

/* Where we are stricter on purpose: a backslash means one host to WHATWG and another to libcurl. */
static bool stricter_on_purpose(const json_t *v)
{
    return strchr(json_get_c(v, "url"), '\\') != NULL;
}

static void the_vectors_verdicts_hold(void **state)
{
    (void)state;
    AUTO_JSON file = read_file("tests/vectors/ssrf_public.json");
    struct dial_guard *g;
    assert_int_equal(dial_guard_new(NULL, &g), 0);
    g->resolve = resolve_by_vector;
    size_t i, allowed = 0, denied = 0, stricter = 0;
    json_t *v;
    json_array_foreach(json_object_get(file, "cases"), i, v)
    {
        bool allow = str_is(json_get_str(v, "verdict"), "allow");
        bool passed = verdict_of_chain(g, v) == 0;
        if (passed)
            allowed++;
        else
            denied++;
        if (passed == allow)
            continue;
        if (passed || !stricter_on_purpose(v))
            wrong("%s %s: wanted %s: %s\n", json_get_c(v, "id"), json_get_c(v, "url"),
                  json_get_c(v, "verdict"), passed ? "it passed" : err_text());
        stricter++;
    }
    assert_int_equal(allowed + denied, json_array_size(json_object_get(file, "cases")));
    assert_true(allowed > 20 && denied > 70);
    assert_int_equal(stricter, 1);
    dial_guard_free(g);
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
        struct addrinfo *a = answer_new(cases[i].address, NULL);
        if (denied_address(a->ai_addr) != cases[i].denied)
            wrong("%s\n", cases[i].address);
        freeaddrinfo(a);
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
        "https://b\xc3\xbc"
        "cher.example/",
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

static void the_list_of_exceptions_is_exact(void **state)
{
    (void)state;
    struct dial_guard *g;
    assert_int_equal(dial_guard_new(" 127.0.0.1:8080, Box.local ,[::1]:9", &g), 0);
    dns = NULL;
    g->resolve = resolve_by_vector;
    assert_int_equal(verdict(g, DIAL_MODEL, "http://127.0.0.1:8080/v1"), 0);
    assert_int_equal(verdict(g, DIAL_MODEL, "https://127.0.0.1:8080/v1"), 0);
    assert_int_equal(verdict(g, DIAL_MODEL, "http://[::1]:9/"), 0);
    assert_int_equal(verdict(g, DIAL_MODEL, "http://127.0.0.1:8081/"), E_FORBIDDEN);
    assert_int_equal(verdict(g, DIAL_MODEL, "http://127.0.0.2:8080/"), E_FORBIDDEN);
    assert_int_equal(verdict(g, DIAL_MODEL, "https://10.0.0.1/"), E_FORBIDDEN);
    assert_string_equal(err_code(), "address_not_allowed");
    AUTO_JSON answers = json_pack("{s:[s]}", "box.local", "10.0.0.7");
    dns = answers;
    assert_int_equal(verdict(g, DIAL_MODEL, "http://box.local:1234/"), 0); /* every port */
    assert_int_equal(verdict(g, DIAL_MODEL, "http://sub.box.local/"), E_FORBIDDEN);
    dns = NULL;
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
        cmocka_unit_test(the_deny_tables_are_complete),
        cmocka_unit_test(the_edges_of_ranges_are_exact),
        cmocka_unit_test(a_url_is_taken_apart),
        cmocka_unit_test(an_odd_url_is_refused_before_resolving),
        cmocka_unit_test(the_list_of_exceptions_is_exact),
        cmocka_unit_test(models_are_asked_over_https_only),
        cmocka_unit_test(an_allowed_address_is_connected_to),
        cmocka_unit_test(connecting_can_be_given_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
