/* R11: lists over sockets: whole walks, limits, and cursors that were made for something else. */
#include "http_raw.h"

#include "base/arena.h"

#define ITEMS 45

static uint16_t port;
static struct http_server *server;

/* Item i of 1..ITEMS; three share each createdAt, so the id has to decide. */
static int64_t item_at(int i)
{
    return 1800000000000 + i / 3;
}

static void item_id(int i, char out[ID_MAX])
{
    snprintf(out, ID_MAX, "thing_%03d", i);
}

static void key_of(const json_t *row, int64_t *out_at, char out_id[ID_MAX])
{
    *out_at = json_get_int(row, "at", 0);
    snprintf(out_id, ID_MAX, "%s", json_get_c(row, "id"));
}

static bool is_beyond(const struct page *p, int64_t at, const char *id)
{
    if (!p->has_after)
        return true;
    int order = at != p->after_at ? (at > p->after_at ? 1 : -1) : strcmp(id, p->after_id);
    return p->ascending ? order > 0 : order < 0;
}

static err list(struct ctx *ctx)
{
    json_t *rows = json_array();
    for (int k = 1; k <= ITEMS && json_array_size(rows) <= ctx->page.limit; k++) {
        int i = ctx->page.ascending ? k : ITEMS + 1 - k;
        char id[ID_MAX];
        item_id(i, id);
        if (!is_beyond(&ctx->page, item_at(i), id))
            continue;
        json_array_append_new(rows, json_pack("{sIss}", "at", (json_int_t)item_at(i), "id", id));
    }
    return reply_page(ctx, rows, key_of);
}

static const struct route table[] = {
    {GET, "/v1/things", list, .scope = SCOPE_READ, .list = true, .query = "name state"},
    {GET, "/v1/others", list, .scope = SCOPE_READ, .list = true, .query = "name state"},
    {GET, "/v1/events", list, .scope = SCOPE_READ, .list = true, .oldest_first = true,
     .limit_default = 10, .limit_max = 1000},
    {0},
};
static const struct route *const tables[] = {table, NULL};

static bool authenticate_cached(struct service *service, struct str token, struct http_auth *out)
{
    (void)service;
    snprintf(out->tenant, sizeof out->tenant, "tenant_%.*s", STR_ARG(token));
    out->scope = SCOPE_READ;
    return true;
}

static err authenticate(struct service *service, struct str token, struct http_auth *out)
{
    authenticate_cached(service, token, out);
    return 0;
}

static int start(void **state)
{
    (void)state;
    struct http_options o = {.listen_fd = raw_listen(&port),
                             .tables = tables,
                             .clock = clock_real(),
                             .workers = 1,
                             .cursor_key = {1, 2, 3},
                             .authenticate = authenticate,
                             .authenticate_cached = authenticate_cached};
    return http_start(&o, &server);
}

static int stop(void **state)
{
    (void)state;
    http_stop(server, 5000);
    return 0;
}

static struct raw_reply get(const char *tenant, const char *target)
{
    return raw_askf(port, "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", target,
                    tenant);
}

/* The cursor behind the first page of `target`. Free it. */
static char *cursor_of(const char *tenant, const char *target)
{
    struct raw_reply r = get(tenant, target);
    assert_int_equal(r.status, 200);
    AUTO_JSON j = raw_json(&r);
    raw_reply_done(&r);
    assert_non_null(json_get_c(j, "nextCursor"));
    return strdup(json_get_c(j, "nextCursor"));
}

static void expect(const char *tenant, const char *target, int status, const char *code)
{
    struct raw_reply r = get(tenant, target);
    if (r.status != status)
        test_fail("%s: %d instead of %d\n", target, r.status, status);
    AUTO_JSON j = raw_json(&r);
    if (code)
        assert_string_equal(json_get_c(j, "code"), code);
    raw_reply_done(&r);
}

static void walk(const char *base, int limit, bool ascending)
{
    char target[1024], expected[ID_MAX];
    snprintf(target, sizeof target, "%s", base);
    int seen = 0;
    for (;;) {
        struct raw_reply r = get("a", target);
        assert_int_equal(r.status, 200);
        AUTO_JSON j = raw_json(&r);
        raw_reply_done(&r);
        json_t *data = json_object_get(j, "data"), *row;
        size_t i;
        json_array_foreach(data, i, row)
        {
            seen++;
            item_id(ascending ? seen : ITEMS + 1 - seen, expected);
            assert_string_equal(json_get_c(row, "id"), expected);
        }
        if (!json_get_bool(j, "hasMore", false)) {
            assert_true(json_is_null(json_object_get(j, "nextCursor")));
            break;
        }
        assert_int_equal(json_array_size(data), limit);
        snprintf(target, sizeof target, "%s%scursor=%s", base, strchr(base, '?') ? "&" : "?",
                 json_get_c(j, "nextCursor"));
    }
    assert_int_equal(seen, ITEMS);
}

static void a_walk_sees_every_item_once_in_order(void **state)
{
    (void)state;
    walk("/v1/things", 20, false);
    walk("/v1/things?limit=1", 1, false);
    walk("/v1/things?limit=15", 15, false); /* ends exactly at the end of a page */
    walk("/v1/things?limit=100", 100, false);
    walk("/v1/things?order=asc&limit=7", 7, true);
    walk("/v1/things?order=desc&limit=7&name=x", 7, false);
    walk("/v1/events", 10, true);
    walk("/v1/events?order=desc", 10, false);
}

static void limits_and_orders_are_checked(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "limit=0",  "limit=101", "limit=-1",        "limit=",
        "limit=1x", "limit=1.0", "limit=%201",      "order=up",
        "order=",   "order=ASC", "limit=1&limit=2", "limit=99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char target[128];
        snprintf(target, sizeof target, "/v1/things?%s", bad[i]);
        expect("a", target, 400, "invalid_query");
    }
    expect("a", "/v1/events?limit=1000", 200, NULL);
    expect("a", "/v1/events?limit=1001", 400, "invalid_query");
}

static void a_cursor_is_good_only_where_it_was_made(void **state)
{
    (void)state;
    char *c = cursor_of("a", "/v1/things?name=x&state=y&limit=5");
    static const struct {
        const char *tenant, *target;
        int status;
    } cases[] = {
        {"a", "/v1/things?name=x&state=y&limit=5&cursor=", 200},
        {"a", "/v1/things?state=y&limit=9&name=x&cursor=", 200}, /* other limit, other spelling */
        {"a", "/v1/things?name=x&state=y&order=desc&cursor=", 200}, /* the default, said */
        {"b", "/v1/things?name=x&state=y&limit=5&cursor=", 400},
        {"a", "/v1/others?name=x&state=y&limit=5&cursor=", 400},
        {"a", "/v1/things?name=x&state=z&limit=5&cursor=", 400},
        {"a", "/v1/things?name=xs&state=y&cursor=", 400},
        {"a", "/v1/things?name=x&cursor=", 400},
        {"a", "/v1/things?cursor=", 400},
        {"a", "/v1/things?name=x&state=y&order=asc&cursor=", 400},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char target[1024];
        snprintf(target, sizeof target, "%s%s", cases[i].target, c);
        expect(cases[i].tenant, target, cases[i].status,
               cases[i].status == 400 ? "invalid_cursor" : NULL);
    }
    free(c);
}

static void forged_cursors_are_refused(void **state)
{
    (void)state;
    char *c = cursor_of("a", "/v1/things");
    size_t n = strlen(c);
    char target[1024];
    for (size_t i = 0; i < n; i++) { /* every character counts, so every bit of the text does */
        char *changed = strdup(c);
        changed[i] = changed[i] == 'A' ? 'Q' : 'A';
        snprintf(target, sizeof target, "/v1/things?cursor=%s", changed);
        expect("a", target, 400, "invalid_cursor");
        free(changed);
    }
    for (size_t i = 0; i < n; i += 5) {
        snprintf(target, sizeof target, "/v1/things?cursor=%.*s", (int)i, c);
        expect("a", target, 400, "invalid_cursor");
    }
    static const char *const bad[] = {"x", "AQAAAA", "!!!!", "%C3%A9", "a%20b"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        snprintf(target, sizeof target, "/v1/things?cursor=%s", bad[i]);
        expect("a", target, 400, "invalid_cursor");
    }
    snprintf(target, sizeof target, "/v1/things?cursor=%s%s%s%s%s", c, c, c, c, c);
    expect("a", target, 400, "invalid_cursor");
    snprintf(target, sizeof target, "/v1/things?cursor=%s=", c);
    expect("a", target, 400, "invalid_cursor");
    free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_walk_sees_every_item_once_in_order),
        cmocka_unit_test(limits_and_orders_are_checked),
        cmocka_unit_test(a_cursor_is_good_only_where_it_was_made),
        cmocka_unit_test(forged_cursors_are_refused),
    };
    return cmocka_run_group_tests_name("http_page", tests, start, stop);
}
