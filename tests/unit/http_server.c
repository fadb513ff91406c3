/* The HTTP server over real sockets: what every request meets before and after its handler. */
#include "http_raw.h"

#include "base/lock.h"
#include "base/mem.h"
#include "db/engine.h"

#define JSON_HEAD "Content-Type: application/json\r\n"
#define KEY "Authorization: Bearer good\r\n"

static uint16_t port;
static struct http_server *server;

static err echo(struct ctx *ctx)
{
    json_t *body = json_object();
    json_set_str(body, "tenant", str_of(ctx->tenant));
    json_set_str(body, "param", ctx->params[0].p ? ctx->params[0] : STR(""));
    struct str q = ctx_query(ctx, "q");
    if (q.p)
        json_set_str(body, "q", q);
    if (ctx->json)
        json_object_set(body, "body", ctx->json);
    json_object_set_new(body, "bytes", json_integer((json_int_t)ctx->body.n));
    return reply_json(ctx, 200, body);
}

static err broken(struct ctx *ctx)
{
    (void)ctx;
    return fail(E_INTERNAL, "the table secret_table is gone");
}

static err invalid(struct ctx *ctx)
{
    problem_add(ctx, "/name", "must not be empty");
    problem_add(ctx, "/model/%s", "is %d", 3);
    return fail(E_INVALID, "2 fields are wrong");
}

static err busy(struct ctx *ctx)
{
    reply_header(ctx, "Retry-After", "7");
    return fail_as(E_QUOTA, "rate_limited", "too many tokens");
}

static err silent(struct ctx *ctx)
{
    (void)ctx;
    return 0;
}

static err twice(struct ctx *ctx)
{
    TRY(reply_json(ctx, 201, json_object()));
    return fail(E_CONFLICT, "changed my mind");
}

/* Names the thread that it runs on. */
static err where(struct ctx *ctx)
{
    char name[16];
    assert_int_equal(pthread_getname_np(pthread_self(), name, sizeof name), 0);
    return reply_bytes(ctx, 200, "text/plain", str_of(name));
}

static struct db_engine engine = {.name = "none"};
static struct db db = {.engine = &engine};

static const struct route table[] = {
    {GET, "/healthz", echo, .scope = SCOPE_NONE, .where = HTTP_INLINE},
    {GET, "/open", echo, .scope = SCOPE_NONE},
    {GET, "/v1/things", echo, .scope = SCOPE_READ, .query = "q name"},
    {POST, "/v1/things", echo, .scope = SCOPE_WRITE, .body_max = 64 * KB},
    {GET, "/v1/things/:id", echo, .scope = SCOPE_READ},
    {PATCH, "/v1/things/:id", echo, .scope = SCOPE_WRITE, .body_max = 64 * KB},
    {DELETE, "/v1/things/:id", echo, .scope = SCOPE_WRITE},
    {POST, "/v1/inline", echo, .scope = SCOPE_READ, .where = HTTP_INLINE, .body_max = 1 * MB},
    {POST, "/v1/big", echo, .scope = SCOPE_READ, .body_max = 10 * MB},
    {GET, "/v1/admin", echo, .scope = SCOPE_ADMIN},
    {GET, "/v1/where/inline", where, .scope = SCOPE_NONE, .where = HTTP_INLINE},
    {GET, "/v1/where/row/:id", where, .scope = SCOPE_NONE, .where = HTTP_POINT_READ},
    {GET, "/v1/broken", broken, .scope = SCOPE_NONE},
    {GET, "/v1/invalid", invalid, .scope = SCOPE_NONE},
    {GET, "/v1/busy", busy, .scope = SCOPE_NONE},
    {GET, "/v1/silent", silent, .scope = SCOPE_NONE},
    {GET, "/v1/twice", twice, .scope = SCOPE_NONE},
    {0},
};

static const struct route *const tables[] = {table, NULL};

/* "good" and "reader" are known; "cached" is known without asking a worker. */
static err authenticate(struct service *service, struct str token, struct http_auth *out)
{
    (void)service;
    if (!str_is(token, "good") && !str_is(token, "reader"))
        return fail(E_UNAUTHORIZED, "there is no such API key");
    snprintf(out->tenant, sizeof out->tenant, "tenant_1");
    snprintf(out->key_id, sizeof out->key_id, "key_1");
    out->scope = str_is(token, "good") ? SCOPE_WRITE : SCOPE_READ;
    return 0;
}

static bool authenticate_cached(struct service *service, struct str token, struct http_auth *out)
{
    (void)service;
    if (!str_is(token, "cached"))
        return false;
    snprintf(out->tenant, sizeof out->tenant, "tenant_2");
    out->scope = SCOPE_ADMIN;
    return true;
}

static int start(void **state)
{
    (void)state;
    struct http_options o = {.listen_fd = raw_listen(&port),
                             .tables = tables,
                             .clock = clock_real(),
                             .workers = 2,
                             .db = &db,
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

static struct raw_reply ask(const char *line, const char *fields, const char *body)
{
    AUTO_BUF b = {0};
    buf_printf(&b, "%s HTTP/1.1\r\nHost: x.example.com\r\n%s", line, fields);
    if (body)
        buf_printf(&b, "Content-Length: %zu\r\n", strlen(body));
    buf_printf(&b, "\r\n%s", body ? body : "");
    return raw_ask(port, b.p, b.n);
}

static void expect_problem(const char *line, const char *fields, const char *body, int status,
                           const char *code)
{
    struct raw_reply r = ask(line, fields, body);
    if (r.status != status)
        test_fail("%s: %d instead of %d: %s\n", line, r.status, status, r.body.n ? r.body.p : "");
    assert_string_equal(raw_header(&r, "Content-Type"), "application/problem+json");
    AUTO_JSON j = raw_json(&r);
    if (strcmp(json_get_c(j, "code"), code) != 0)
        test_fail("%s: code %s instead of %s\n", line, json_get_c(j, "code"), code);
    assert_int_equal(json_get_int(j, "status", 0), status);
    assert_non_null(json_get_c(j, "type"));
    assert_non_null(json_get_c(j, "title"));
    assert_non_null(json_get_c(j, "detail"));
    assert_string_equal(json_get_c(j, "requestId"), raw_header(&r, "X-Request-Id"));
    raw_reply_done(&r);
}

static void inline_and_worker_routes_answer(void **state)
{
    (void)state;
    static const char *const paths[] = {"GET /healthz", "GET /open"};
    for (size_t i = 0; i < 2; i++) {
        struct raw_reply r = ask(paths[i], "", NULL);
        assert_int_equal(r.status, 200);
        assert_string_equal(raw_header(&r, "Content-Type"), "application/json");
        assert_string_equal(raw_header(&r, "X-Content-Type-Options"), "nosniff");
        assert_string_equal(raw_header(&r, "Cache-Control"), "no-store");
        assert_int_equal(strncmp(raw_header(&r, "X-Request-Id"), "req_", 4), 0);
        raw_reply_done(&r);
    }
}

static void bodies_arrive_whole_inline_and_on_workers_cached_or_not(void **state)
{
    (void)state;
    static const char *const lines[] = {"POST /v1/inline", "POST /v1/big"};
    static const char *const keys[] = {KEY, "authorization: bEARER cached\r\n"};
    AUTO_BUF body = {0};
    buf_add_char(&body, '"');
    for (int i = 0; i < 300000; i++)
        buf_add_char(&body, (char)('a' + i % 26));
    buf_add_char(&body, '"');
    for (size_t i = 0; i < 4; i++) {
        AUTO_BUF fields = {0};
        buf_printf(&fields, "%s" JSON_HEAD, keys[i / 2]);
        struct raw_reply r = ask(lines[i % 2], fields.p, body.p);
        assert_int_equal(r.status, 200);
        AUTO_JSON j = raw_json(&r);
        assert_int_equal(json_get_int(j, "bytes", 0), body.n);
        assert_true(json_get_str(j, "body").n == body.n - 2);
        raw_reply_done(&r);
    }
}

static bool now(struct db *base)
{
    (void)base;
    return true;
}

static void a_point_read_is_on_the_loop_of_a_database_that_reads_now_only(void **state)
{
    struct raw_reply loop = ask("GET /v1/where/inline", "", NULL);
    struct raw_reply remote = ask("GET /v1/where/row/1", "", NULL);
    stop(state);
    engine.reads_now = now;
    assert_int_equal(start(state), 0);
    struct raw_reply quick = ask("GET /v1/where/row/1", "", NULL);
    assert_non_null(strstr(remote.body.p, "http-"));
    assert_string_not_equal(loop.body.p, remote.body.p);
    assert_string_equal(quick.body.p, loop.body.p);
    raw_reply_done(&loop);
    raw_reply_done(&remote);
    raw_reply_done(&quick);
}

static void problems_have_one_shape(void **state)
{
    (void)state;
    static const struct {
        const char *line, *fields, *body;
        int status;
        const char *code;
    } cases[] = {
        {"GET /nothing", KEY, NULL, 404, "not_found"},
        {"GET /v1/things/", KEY, NULL, 404, "not_found"},
        {"GET /v1/things", "", NULL, 401, "unauthorized"},
        {"GET /v1/things", "Authorization: Basic Zm9v\r\n", NULL, 401, "unauthorized"},
        {"GET /v1/things", "Authorization: Bearer \r\n", NULL, 401, "unauthorized"},
        {"GET /v1/things", "Authorization: Bearer bad\r\n", NULL, 401, "unauthorized"},
        {"DELETE /v1/things/1", "Authorization: Bearer reader\r\n", NULL, 403, "forbidden"},
        {"GET /v1/admin", KEY, NULL, 403, "forbidden"},
        {"PUT /v1/things", KEY, NULL, 405, "method_not_allowed"},
        {"TRACE /v1/things", KEY, NULL, 405, "method_not_allowed"},
        {"FROB /v1/things", KEY, NULL, 405, "method_not_allowed"},
        {"FROB /nothing", KEY, NULL, 404, "not_found"},
        {"GET /v1/things?nmae=x", KEY, NULL, 400, "invalid_query"},
        {"GET /v1/things?limit=1", KEY, NULL, 400, "invalid_query"},
        {"GET /v1/things?q=1&q=2", KEY, NULL, 400, "invalid_query"},
        {"GET /v1/things?q=%zz", KEY, NULL, 400, "bad_target"},
        {"GET /v1/things/a%2Fb", KEY, NULL, 400, "bad_target"},
        {"GET /v1/things/a%00b", KEY, NULL, 400, "bad_target"},
        {"GET /v1/things/%ff", KEY, NULL, 400, "bad_target"},
        {"GET http://x.example.com/v1/things", KEY, NULL, 400, "bad_target"},
        {"POST /v1/things", KEY, "{}", 415, "unsupported_media_type"},
        {"POST /v1/things", KEY "Content-Type: text/plain\r\n", "{}", 415,
         "unsupported_media_type"},
        {"POST /v1/things", KEY "Content-Type: application/json; charset=latin1\r\n", "{}", 415,
         "unsupported_media_type"},
        {"POST /v1/things", KEY "Content-Encoding: gzip\r\n" JSON_HEAD, "{}", 415,
         "unsupported_media_type"},
        {"POST /v1/things", KEY JSON_HEAD, "{", 400, "invalid_json"},
        {"POST /v1/things", KEY JSON_HEAD, "{\"a\":1,\"a\":2}", 400, "invalid_json"},
        {"POST /v1/things", KEY JSON_HEAD, "\"\\ud800\"", 400, "invalid_json"},
        {"POST /v1/things", KEY JSON_HEAD, "\"\xff\"", 400, "invalid_json"},
        {"DELETE /v1/things/1", KEY JSON_HEAD, "{}", 400, "invalid_request"},
        {"GET /v1/broken", "", NULL, 500, "internal"},
        {"GET /v1/silent", "", NULL, 500, "internal"},
        {"GET /v1/twice", "", NULL, 409, "conflict"},
        {"GET /v1/invalid", "", NULL, 400, "invalid_request"},
        {"GET /v1/busy", "", NULL, 429, "rate_limited"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_problem(cases[i].line, cases[i].fields, cases[i].body, cases[i].status,
                       cases[i].code);
}

static void problems_carry_their_headers(void **state)
{
    (void)state;
    struct raw_reply r = ask("GET /v1/things", "", NULL);
    assert_string_equal(raw_header(&r, "WWW-Authenticate"), "Bearer");
    raw_reply_done(&r);
    r = ask("PUT /v1/things/1", "", NULL);
    assert_string_equal(raw_header(&r, "Allow"), "GET, HEAD, PATCH, DELETE, OPTIONS");
    raw_reply_done(&r);
    r = ask("GET /v1/busy", "", NULL);
    assert_string_equal(raw_header(&r, "Retry-After"), "7");
    raw_reply_done(&r);
}

static void internal_errors_do_not_tell_what_broke(void **state)
{
    (void)state;
    struct raw_reply r = ask("GET /v1/broken", "", NULL);
    assert_int_equal(r.status, 500);
    assert_null(strstr(r.body.p, "secret_table"));
    raw_reply_done(&r);
}

static void field_errors_are_listed(void **state)
{
    (void)state;
    struct raw_reply r = ask("GET /v1/invalid", "", NULL);
    AUTO_JSON j = raw_json(&r);
    json_t *errors = json_object_get(j, "errors");
    assert_int_equal(json_array_size(errors), 2);
    assert_string_equal(json_get_c(json_array_get(errors, 0), "path"), "/name");
    assert_string_equal(json_get_c(json_array_get(errors, 0), "message"), "must not be empty");
    raw_reply_done(&r);
}

static void head_and_options_need_no_rows(void **state)
{
    (void)state;
    struct raw_reply r = ask("HEAD /v1/things", KEY, NULL);
    assert_int_equal(r.status, 200);
    assert_true(atoi(raw_header(&r, "Content-Length")) > 0);
    raw_reply_done(&r);
    r = ask("OPTIONS /v1/things", "", NULL);
    assert_int_equal(r.status, 204);
    assert_string_equal(raw_header(&r, "Allow"), "GET, HEAD, POST, OPTIONS");
    assert_string_equal(raw_header(&r, "Content-Type"), "");
    raw_reply_done(&r);
}

static void request_ids_are_the_clients_if_they_are_safe(void **state)
{
    (void)state;
    static const struct {
        const char *sent;
        bool kept;
    } cases[] = {{"abc-DEF_1.2", true},
                 {"a b", false},
                 {"<script>", false},
                 {"", false},
                 {"0123456789012345678901234567890123456789012345678901234567890123", true},
                 {"01234567890123456789012345678901234567890123456789012345678901234", false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char field[128];
        snprintf(field, sizeof field, "X-Request-Id: %s\r\n", cases[i].sent);
        struct raw_reply r = ask("GET /healthz", field, NULL);
        assert_int_equal(r.status, 200);
        assert_int_equal(strcmp(raw_header(&r, "X-Request-Id"), cases[i].sent) == 0, cases[i].kept);
        raw_reply_done(&r);
    }
}

static void params_and_queries_are_decoded(void **state)
{
    (void)state;
    struct raw_reply r = ask("GET /v1/things/a%20%C3%A9%3F", KEY, NULL);
    AUTO_JSON j = raw_json(&r);
    assert_string_equal(json_get_c(j, "param"), "a \xc3\xa9?");
    raw_reply_done(&r);
    r = ask("GET /v1/things?q=a%26b+c%3d&name=", KEY, NULL);
    AUTO_JSON k = raw_json(&r);
    assert_string_equal(json_get_c(k, "q"), "a&b c=");
    raw_reply_done(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inline_and_worker_routes_answer),
        cmocka_unit_test(bodies_arrive_whole_inline_and_on_workers_cached_or_not),
        cmocka_unit_test(a_point_read_is_on_the_loop_of_a_database_that_reads_now_only),
        cmocka_unit_test(problems_have_one_shape),
        cmocka_unit_test(problems_carry_their_headers),
        cmocka_unit_test(internal_errors_do_not_tell_what_broke),
        cmocka_unit_test(field_errors_are_listed),
        cmocka_unit_test(head_and_options_need_no_rows),
        cmocka_unit_test(request_ids_are_the_clients_if_they_are_safe),
        cmocka_unit_test(params_and_queries_are_decoded),
    };
    return cmocka_run_group_tests_name("http_server", tests, start, stop);
}
