/* Targets, routes, queries and idempotency keys as pure functions: tables of what goes in and out.
 */
#include "http_raw.h"

#include "base/arena.h"
#include "http/exchange.h"
#include "http/guard.h"
#include "http/route.h"

static err nothing(struct ctx *ctx)
{
    (void)ctx;
    return 0;
}

static const struct route first[] = {
    {GET, "/", nothing, .scope = SCOPE_NONE},
    {GET, "/v1/files/:id", nothing, .scope = SCOPE_NONE},
    {GET, "/v1/files/limits", nothing, .scope = SCOPE_NONE},
    {DELETE, "/v1/files/:id", nothing, .scope = SCOPE_NONE},
    {GET, "/v1/a/:b/c/:d", nothing, .query = "one two"},
    {0},
};
static const struct route second[] = {
    {POST, "/v1/files", nothing, .scope = SCOPE_NONE},
    {GET, "/v1/files", nothing, .list = true, .query = "name"},
    {0},
};
static const struct route *const tables[] = {first, second, NULL};

static void targets_are_split_then_decoded(void **state)
{
    (void)state;
    static const struct {
        const char *target;
        const char *segments; /* joined with '|'; NULL = refused */
        const char *query;
    } cases[] = {
        {"/", "", NULL},
        {"/a", "a", NULL},
        {"/a/", "a|", NULL},
        {"//a", "|a", NULL},
        {"/a/b%20c/%C3%A9", "a|b c|\xc3\xa9", NULL},
        {"/a+b", "a+b", NULL},
        {"/a/..", "a|..", NULL},
        {"/%2e%2E", "..", NULL},
        {"/a?", "a", ""},
        {"/a?b=c/d?e", "a", "b=c/d?e"},
        {"/a%3Fb", "a?b", NULL},
        {"/a%2525", "a%25", NULL},
        {"", NULL, NULL},
        {"*", NULL, NULL},
        {"a", NULL, NULL},
        {"http://x/a", NULL, NULL},
        {"/a%2Fb", NULL, NULL},
        {"/a%2fb", NULL, NULL},
        {"/a%00", NULL, NULL},
        {"/a%", NULL, NULL},
        {"/a%2", NULL, NULL},
        {"/a%2G", NULL, NULL},
        {"/a%/2", NULL, NULL},
        {"/a%25%", NULL, NULL},
        {"/%ff", NULL, NULL},
        {"/%C0%AF", NULL, NULL},
        {"/%C3/%A9", NULL, NULL},
        {"/%ED%A0%80", NULL, NULL},
        {"/a b", NULL, NULL},
        {"/a#b", NULL, NULL},
        {"/a\x7f", NULL, NULL},
        {"/\xc3\xa9", NULL, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        AUTO_ARENA a = arena_new();
        struct route_path path;
        struct str query;
        err e = route_split(a, str_of(cases[i].target), &path, &query);
        if ((e == 0) != (cases[i].segments != NULL))
            test_fail("%s: %d\n", cases[i].target, e);
        if (e)
            continue;
        AUTO_BUF joined = {0};
        for (size_t k = 0; k < path.count; k++) {
            buf_add_c(&joined, k ? "|" : "");
            buf_add_str(&joined, path.segments[k]);
        }
        assert_string_equal(joined.p ? joined.p : "", cases[i].segments);
        assert_int_equal(query.p != NULL, cases[i].query != NULL);
        if (query.p)
            assert_true(str_is(query, cases[i].query));
    }
}

static void too_many_segments_are_not_found(void **state)
{
    (void)state;
    AUTO_ARENA a = arena_new();
    struct route_path path;
    struct str query;
    assert_int_equal(route_split(a, STR("/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16"), &path, &query),
                     0);
    assert_int_equal(
        route_split(a, STR("/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17"), &path, &query),
        E_NOT_FOUND);
    assert_int_equal(
        route_split(a, STR("/1/2/3/4/5/6/7/8/9/10/11/12/13/14/15/16/17%00"), &path, &query),
        E_INVALID);
}

static void routes_match_whole_paths(void **state)
{
    (void)state;
    static const struct {
        enum http_method method;
        const char *target, *row; /* row: NULL = none */
        const char *allow, *params;
    } cases[] = {
        {GET, "/", "/", "GET, HEAD, OPTIONS", ""},
        {GET, "/v1/files", "/v1/files", "GET, HEAD, POST, OPTIONS", ""},
        {POST, "/v1/files", "/v1/files", "GET, HEAD, POST, OPTIONS", ""},
        {PATCH, "/v1/files", NULL, "GET, HEAD, POST, OPTIONS", ""},
        {GET, "/v1/files/f_1", "/v1/files/:id", "GET, HEAD, DELETE, OPTIONS", "f_1,"},
        {GET, "/v1/files/limits", "/v1/files/limits", "GET, HEAD, DELETE, OPTIONS", ""},
        {DELETE, "/v1/files/limits", "/v1/files/:id", "GET, HEAD, DELETE, OPTIONS", "limits,"},
        {GET, "/v1/files/", NULL, "", ""},
        {GET, "/v1/files/a/b", NULL, "", ""},
        {GET, "/v1/a/x/c/y%3Az", "/v1/a/:b/c/:d", "GET, HEAD, OPTIONS", "x,y:z,"},
        {GET, "/v1/a/x/C/y", NULL, "", ""},
        {GET, "/v1/a/x/c", NULL, "", ""},
        {GET, "/v1/files/:id", "/v1/files/:id", "GET, HEAD, DELETE, OPTIONS", ":id,"},
        {0, "/v1/files", NULL, "GET, HEAD, POST, OPTIONS", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        AUTO_ARENA a = arena_new();
        struct route_path path;
        struct str query;
        struct route_match match;
        assert_int_equal(route_split(a, str_of(cases[i].target), &path, &query), 0);
        route_find(tables, &path, cases[i].method, &match);
        if (cases[i].row) {
            assert_non_null(match.route);
            assert_string_equal(match.route->path, cases[i].row);
            assert_int_equal(match.route->method, cases[i].method);
        } else {
            assert_null(match.route);
        }
        assert_string_equal(match.methods ? route_allow(a, match.methods) : "", cases[i].allow);
        AUTO_BUF params = {0};
        for (size_t k = 0; k < HTTP_PARAMS_MAX && match.params[k].p; k++)
            buf_printf(&params, "%.*s,", STR_ARG(match.params[k]));
        assert_string_equal(params.p ? params.p : "", cases[i].params);
    }
}

static void queries_are_decoded_and_checked(void **state)
{
    (void)state;
    static const struct {
        const char *raw;
        const char *pairs; /* NULL = refused by the parser */
        bool known;        /* to the row with "one two" */
    } cases[] = {
        {"", "", true},
        {"one=1", "one=1;", true},
        {"one=1&two=2", "one=1;two=2;", true},
        {"&one=1&&", "one=1;", true},
        {"one", "one=;", true},
        {"one=a=b", "one=a=b;", true},
        {"one=a+b%2Bc", "one=a b+c;", true},
        {"o%6Ee=1", "one=1;", true},
        {"one=%C3%A9", "one=\xc3\xa9;", true},
        {"three=1", "three=1;", false},
        {"on=1", "on=1;", false},
        {"=1", "=1;", false},
        {"one+two=1", "one two=1;", false},
        {"one=1&one=1", NULL, false},
        {"one=1&o%6ee=2", NULL, false},
        {"one=%0", NULL, false},
        {"one=%00", NULL, false},
        {"one=%ff", NULL, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        AUTO_ARENA a = arena_new();
        const struct http_query *queries;
        size_t n;
        err e = query_parse(a, str_of(cases[i].raw), &queries, &n);
        if ((e == 0) != (cases[i].pairs != NULL))
            test_fail("%s: %d\n", cases[i].raw, e);
        if (e)
            continue;
        AUTO_BUF pairs = {0};
        for (size_t k = 0; k < n; k++)
            buf_printf(&pairs, "%.*s=%.*s;", STR_ARG(queries[k].name), STR_ARG(queries[k].value));
        assert_string_equal(pairs.p ? pairs.p : "", cases[i].pairs);
        assert_int_equal(query_check(&first[4], queries, n) == 0, cases[i].known);
    }
}

static void the_guard_counts_and_measures(void **state)
{
    (void)state;
    struct http_field fields[GUARD_FIELDS_MAX + 1];
    for (size_t i = 0; i <= GUARD_FIELDS_MAX; i++)
        fields[i] = (struct http_field){STR("X-A"), STR("b")};
    fields[0] = (struct http_field){STR("hOST"), STR("x")};
    assert_int_equal(guard_check(fields, GUARD_FIELDS_MAX), 0);
    assert_int_equal(guard_check(fields, GUARD_FIELDS_MAX + 1), E_INVALID);
    static char big[GUARD_BYTES_MAX];
    memset(big, 'x', sizeof big);
    fields[1].value = (struct str){big, sizeof big};
    assert_int_equal(guard_check(fields, 2), E_INVALID);
    static const struct {
        struct str name, value;
        bool ok;
    } cases[] = {
        {{"X", 1}, {"a\tb", 3}, true},
        {{"X", 1}, {"", 0}, true},
        {{"X!#$%&'*+-.^_`|~9", 17}, {"a", 1}, true},
        {{"X", 1}, {"\xc3\xa9", 2}, true},
        {{"X", 1}, {"a\0b", 3}, false},
        {{"X", 1}, {"a\nb", 3}, false},
        {{"X", 1}, {"a\rb", 3}, false},
        {{"X", 1}, {"\x1b", 1}, false},
        {{"", 0}, {"a", 1}, false},
        {{"X\0", 2}, {"a", 1}, false},
        {{"X Y", 3}, {"a", 1}, false},
        {{"X\xc3\xa9", 3}, {"a", 1}, false},
        {{"host", 4}, {"y", 1}, false},
        {{"Transfer-Encoding", 17}, {"CHUNKED", 7}, true},
        {{"Transfer-Encoding", 17}, {"chunked ", 8}, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fields[1] = (struct http_field){cases[i].name, cases[i].value};
        if ((guard_check(fields, 2) == 0) != cases[i].ok)
            test_fail("case %zu\n", i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(targets_are_split_then_decoded),
        cmocka_unit_test(too_many_segments_are_not_found),
        cmocka_unit_test(routes_match_whole_paths),
        cmocka_unit_test(queries_are_decoded_and_checked),
        cmocka_unit_test(the_guard_counts_and_measures),
    };
    return cmocka_run_group_tests_name("http_route", tests, NULL, NULL);
}
