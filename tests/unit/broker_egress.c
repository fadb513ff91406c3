/* src/broker/egress.c: what the proxy for builds understands, allows and passes on. The relay
   itself is tested from outside (tests/e2e/packages.test.mjs). */
#include "broker/egress.h"

#include "base/arena.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#undef fail /* ours */

#define wrong(...) (print_error(__VA_ARGS__), _fail(__FILE__, __LINE__))

static void absolute_urls_become_requests_of_the_server(void **state)
{
    (void)state;
    AUTO_ARENA a = arena_new();
    struct egress_request r;
    const char *head = "GET http://deb.example.com:8080/a/b?c HTTP/1.1\r\n"
                       "Host: other.example.com\r\nUser-Agent: apt\r\n"
                       "Proxy-Authorization: Basic eDp5\r\nConnection: keep-alive\r\n\r\n";
    assert_int_equal(egress_parse(str_of(head), a, &r), 0);
    assert_false(r.tunnel);
    assert_string_equal(r.url.host, "deb.example.com");
    assert_int_equal(r.url.port, 8080);
    assert_string_equal(r.head.p, "GET /a/b?c HTTP/1.1\r\nHost: deb.example.com:8080\r\n"
                                  "Connection: close\r\nUser-Agent: apt\r\n\r\n");
}

static void a_tunnel_names_host_and_port(void **state)
{
    (void)state;
    AUTO_ARENA a = arena_new();
    struct egress_request r;
    assert_int_equal(egress_parse(STR("CONNECT pypi.org:443 HTTP/1.1\r\n\r\n"), a, &r), 0);
    assert_true(r.tunnel);
    assert_string_equal(r.url.host, "pypi.org");
    assert_int_equal(r.url.port, 443);
}

static void what_is_no_proxy_request_is_refused(void **state)
{
    static const char *const bad[] = {
        "GET / HTTP/1.1\r\n\r\n",
        "GET https://example.com/ HTTP/1.1\r\n\r\n",
        "GET ftp://example.com/ HTTP/1.1\r\n\r\n",
        "GET http://a@example.com/ HTTP/1.1\r\n\r\n",
        "GET http://127.1/ HTTP/1.1\r\n\r\n",
        "GET http://example.com/ HTTP/2\r\n\r\n",
        "GET http://example.com/\r\n\r\n",
        "GET\r\n\r\n",
        "\r\n\r\n",
        "G T http://example.com/ HTTP/1.1\r\n\r\n",
        "CONNECT example.com:443/x HTTP/1.1\r\n\r\n",
        "CONNECT a@example.com:443 HTTP/1.1\r\n\r\n",
        "GET http://example.com/ HTTP/1.1\r\nno colon\r\n\r\n",
        "GET http://example.com/ HTTP/1.1\r\nA : b\r\n\r\n",
        "GET http://example.com/ HTTP/1.1\r\nA: b\nHost: x\r\n\r\n",
        "GET http://example.com/ HTTP/1.1\r\n folded\r\n\r\n",
    };
    (void)state;
    AUTO_ARENA a = arena_new();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct egress_request r;
        if (egress_parse(str_of(bad[i]), a, &r) == 0)
            wrong("taken: %s\n", bad[i]);
    }
}

static void only_named_hosts_and_ports_are_allowed(void **state)
{
    const char *hosts = "deb.example.com,*.mirror.example.com,127.0.0.1:8080";
    static const struct {
        const char *host;
        int port;
        bool good;
    } cases[] = {
        {"deb.example.com", 80, true},
        {"deb.example.com", 443, true},
        {"deb.example.com", 22, false},
        {"xdeb.example.com", 80, false},
        {"example.com", 80, false},
        {"a.mirror.example.com", 443, true},
        {"a.b.mirror.example.com", 443, true},
        {"mirror.example.com", 443, false},
        {"evilmirror.example.com", 443, false},
        {"127.0.0.1", 8080, true},
        {"127.0.0.1", 80, false},
        {"", 80, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (egress_allows(hosts, cases[i].host, cases[i].port) != cases[i].good)
            wrong("%s:%d\n", cases[i].host, cases[i].port);
    }
    assert_false(egress_allows("", "deb.example.com", 80));
}

static void a_head_ends_with_its_blank_line(void **state)
{
    (void)state;
    assert_int_equal(egress_head_length(STR("a\r\n\r")), 0);
    assert_int_equal(egress_head_length(STR("a\r\n\r\nrest")), 5);
    assert_int_equal(egress_head_length(STR("")), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(absolute_urls_become_requests_of_the_server),
        cmocka_unit_test(a_tunnel_names_host_and_port),
        cmocka_unit_test(what_is_no_proxy_request_is_refused),
        cmocka_unit_test(only_named_hosts_and_ports_are_allowed),
        cmocka_unit_test(a_head_ends_with_its_blank_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
