/* Bytes as an attacker or a poor network sends them: the smuggling table, limits, framing,
 * connections. */
#include "http_raw.h"

#include "base/lock.h"

static uint16_t port;
static struct http_server *server;
static pthread_mutex_t count_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned smuggled, ran;

static err echo(struct ctx *ctx)
{
    pthread_mutex_lock(&count_lock);
    ran++;
    pthread_mutex_unlock(&count_lock);
    return reply_bytes(ctx, 200, "application/json", ctx->body.n ? ctx->body : STR("\"nothing\""));
}

static err get_smuggled(struct ctx *ctx)
{
    pthread_mutex_lock(&count_lock);
    smuggled++;
    pthread_mutex_unlock(&count_lock);
    return reply_empty(ctx, 204);
}

static const struct route table[] = {
    {POST, "/echo", echo, .body_max = 100 * KB, .scope = SCOPE_NONE},
    {POST, "/inline", echo, .body_max = 100 * KB, .scope = SCOPE_NONE, .where = HTTP_INLINE},
    {GET, "/echo", echo, .scope = SCOPE_NONE},
    {GET, "/smuggled", get_smuggled, .scope = SCOPE_NONE},
    {0},
};
static const struct route *const tables[] = {table, NULL};

static struct http_server *start_server(uint16_t *out_port, unsigned timeout_ms)
{
    struct http_options o = {.listen_fd = raw_listen(out_port),
                             .tables = tables,
                             .clock = clock_real(),
                             .workers = 2,
                             .timeout_ms = timeout_ms};
    struct http_server *started;
    assert_int_equal(http_start(&o, &started), 0);
    return started;
}

static int start(void **state)
{
    (void)state;
    server = start_server(&port, 0);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    http_stop(server, 5000);
    return 0;
}

#define SMUGGLED "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
#define SEND "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
#define BODY "\"0123456789\"" /* 12 bytes */

/* Bytes that two parsers might read differently. Refused = a 4xx or 5xx or a closed connection, and
   whatever hid in the body never ran. */
struct malformed {
    const char *name, *bytes;
    size_t n; /* 0: a C string */
};

static const struct malformed smuggling[] = {
    {"two differing Content-Length",
     SEND "Content-Length: 12\r\nContent-Length: 0\r\n\r\n" BODY SMUGGLED, 0},
    {"two equal Content-Length",
     SEND "Content-Length: 12\r\nContent-Length: 12\r\n\r\n" BODY SMUGGLED, 0},
    {"Content-Length list", SEND "Content-Length: 12, 12\r\n\r\n" BODY SMUGGLED, 0},
    {"Content-Length and chunked",
     SEND "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" SMUGGLED, 0},
    {"chunked and Content-Length",
     SEND "Transfer-Encoding: chunked\r\nContent-Length: 100\r\n\r\n0\r\n\r\n" SMUGGLED, 0},
    {"xchunked with Content-Length",
     SEND "Transfer-Encoding: xchunked\r\nContent-Length: 12\r\n\r\n" BODY SMUGGLED, 0},
    {"xchunked", SEND "Transfer-Encoding: xchunked\r\n\r\n" SMUGGLED, 0},
    {"chunked twice",
     SEND "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" SMUGGLED, 0},
    {"chunked, identity", SEND "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" SMUGGLED, 0},
    {"gzip, chunked", SEND "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" SMUGGLED, 0},
    {"Content-Length +12", SEND "Content-Length: +12\r\n\r\n" BODY SMUGGLED, 0},
    {"Content-Length 0x0c", SEND "Content-Length: 0x0c\r\n\r\n" BODY SMUGGLED, 0},
    {"Content-Length -1", SEND "Content-Length: -1\r\n\r\n" BODY SMUGGLED, 0},
    {"Content-Length 2^64+12", SEND "Content-Length: 18446744073709551628\r\n\r\n" BODY SMUGGLED,
     0},
    {"space before the colon of Content-Length", SEND "Content-Length : 12\r\n\r\n" BODY SMUGGLED,
     0},
    {"space before the colon of Transfer-Encoding",
     SEND "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" SMUGGLED, 0},
    {"bare CR hides Transfer-Encoding (CVE-2023-30589)",
     "GET /echo HTTP/1.1\r\nHost: x\r\nX-Abc: y\rTransfer-Encoding: "
     "chunked\r\n\r\n1\r\nA\r\n0\r\n\r\n" SMUGGLED,
     0},
    {"chunk size 0x", SEND "Transfer-Encoding: chunked\r\n\r\n0x5\r\n12345\r\n0\r\n\r\n" SMUGGLED,
     0},
    {"bad chunk terminator",
     SEND "Transfer-Encoding: chunked\r\n\r\n5\r\n12345XX0\r\n\r\n" SMUGGLED, 0},
    {"chunk size overflow",
     SEND "Transfer-Encoding: chunked\r\n\r\n10000000000000005\r\n12345\r\n0\r\n\r\n" SMUGGLED, 0},
    {"negative chunk size",
     SEND "Transfer-Encoding: chunked\r\n\r\n-5\r\n12345\r\n0\r\n\r\n" SMUGGLED, 0},
    {"no Host", "GET /echo HTTP/1.1\r\nX-A: b\r\n\r\n", 0},
    {"two Hosts", "GET /echo HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 0},
    {"header name with a blank", "GET /echo HTTP/1.1\r\nHost: x\r\nX A: b\r\n\r\n", 0},
    {"header name with a bracket", "GET /echo HTTP/1.1\r\nHost: x\r\nX[A]: b\r\n\r\n", 0},
    {"DEL in a value", "GET /echo HTTP/1.1\r\nHost: x\r\nX-A: b\x7f\r\n\r\n", 0},
    {"two Authorizations",
     "GET /echo HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n",
     0},
#define BYTES(text) text, sizeof(text) - 1
    {"NUL in a value", BYTES("GET /echo HTTP/1.1\r\nHost: x\r\nX-A: a\0b\r\nX-B: c\r\n\r\n")},
    {"NUL in the last value", BYTES("GET /echo HTTP/1.1\r\nHost: x\r\nX-A: a\0b\r\n\r\n")},
    {"NULs like a line end",
     BYTES("GET /echo HTTP/1.1\r\nHost: x\r\nX-A: a\0\0b\r\nX-B: c\r\n\r\n")},
    {"NULs like the end of the head",
     BYTES("GET /echo HTTP/1.1\r\nHost: x\r\nX-A: a\0\0\0\0b\r\n\r\n")},
    {"a value that begins with NUL", BYTES("GET /echo HTTP/1.1\r\nHost: x\r\nX-A:\0b\r\n\r\n")},
    {"NUL in a name", BYTES("GET /echo HTTP/1.1\r\nHost: x\r\nX\0A: b\r\n\r\n")},
    {"NUL in the target", BYTES("GET /echo\0/x HTTP/1.1\r\nHost: x\r\n\r\n")},
    {"NUL and a bare LF", BYTES("GET /echo HTTP/1.1\r\nHost: x\r\nX-A: a\0b\nX-B: c\r\n\r\n")},
    {"a bare LF", "GET /echo HTTP/1.1\r\nHost: x\r\nX-A: a\nX-B: c\r\n\r\n", 0},
    {"a bare LF that hides Content-Length", SEND "X-A: a\nContent-Length: 12\r\n\r\n" BODY SMUGGLED,
     0},
    {"bare LFs end the head", "GET /echo HTTP/1.1\r\nHost: x\n\n" SMUGGLED, 0},
    {"a folded line", "GET /echo HTTP/1.1\r\nHost: x\r\nX-A: a\r\n b\r\nX-B: c\r\n\r\n", 0},
    {"a folded last line", "GET /echo HTTP/1.1\r\nHost: x\r\nX-A: a\r\n\tb\r\n\r\n", 0},
    {"a header without a name", "GET /echo HTTP/1.1\r\nHost: x\r\n: a\r\nX-B: c\r\n\r\n", 0},
    {"Expect of something else", SEND "Expect: 200-ok\r\nContent-Length: 12\r\n\r\n" BODY SMUGGLED,
     0},
    {"HTTP/1.0 chunked",
     "POST /echo HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n" SMUGGLED, 0},
    {"not HTTP", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 15},
    {"a tab for a blank", "GET\t/echo\tHTTP/1.1\r\nHost: x\r\n\r\n", 0},
    {"raw blank in the target", "GET /echo /x HTTP/1.1\r\nHost: x\r\n\r\n", 0},
    {"raw UTF-8 in the target", "GET /echo/\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n", 0},
};

static bool is_refused(const struct malformed *m)
{
    struct raw_client c = raw_connect(port);
    raw_send(&c, m->bytes, m->n ? m->n : strlen(m->bytes));
    shutdown(c.fd, SHUT_WR);
    struct raw_reply r = raw_read(&c, false);
    bool refused = r.status == 0 || r.status >= 400;
    /* Where the framing is in doubt the connection ends, and no second reply says that something
       else ran. */
    bool ends = r.status == 0 || strcasecmp(raw_header(&r, "Connection"), "close") == 0;
    while (ends && raw_more(&c))
        ;
    refused &= ends ? raw_find(&c.in, "HTTP/1.1 ") == NULL : strstr(m->bytes, SMUGGLED) == NULL;
    if (!refused)
        print_error("%s: %d, ends %d, then %zu bytes\n", m->name, r.status, ends, c.in.n);
    raw_close(&c);
    raw_reply_done(&r);
    return refused;
}

static void smuggling_is_refused(void **state)
{
    (void)state;
    unsigned wrong = 0;
    for (size_t i = 0; i < sizeof smuggling / sizeof smuggling[0]; i++)
        wrong += !is_refused(&smuggling[i]);
    assert_int_equal(wrong, 0);
    assert_int_equal(smuggled, 0);
    assert_int_equal(ran, 0);
    struct raw_reply r = raw_ask(port, SMUGGLED, strlen(SMUGGLED));
    assert_int_equal(r.status, 204); /* the counter counts */
    assert_int_equal(smuggled, 1);
    raw_reply_done(&r);
}

static void huge_headers_are_refused(void **state)
{
    (void)state;
    AUTO_BUF one = {0}, many = {0}, target = {0};
    buf_add_c(&one, "GET /echo HTTP/1.1\r\nHost: x\r\nX-Big: ");
    for (int i = 0; i < 64 * 1024; i++)
        buf_add_char(&one, 'a');
    buf_add_c(&one, "\r\n\r\n");
    buf_add_c(&many, "GET /echo HTTP/1.1\r\nHost: x\r\n");
    for (int i = 0; i < 100; i++)
        buf_printf(&many, "X-%d: b\r\n", i);
    buf_add_c(&many, "\r\n");
    buf_add_c(&target, "GET /echo?");
    for (int i = 0; i < 64 * 1024; i++)
        buf_add_char(&target, 'a');
    buf_add_c(&target, " HTTP/1.1\r\nHost: x\r\n\r\n");
    const struct malformed cases[] = {{"one header of 64 KB", one.p, one.n},
                                      {"100 headers", many.p, many.n},
                                      {"a target of 64 KB", target.p, target.n}};
    for (size_t i = 0; i < 3; i++)
        assert_true(is_refused(&cases[i]));
}

static struct raw_reply post(const char *path, const char *fields, const struct buf *body)
{
    AUTO_BUF b = {0};
    buf_printf(&b,
               "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n%sContent-Length: "
               "%zu\r\n\r\n",
               path, fields, body->n);
    buf_add_str(&b, buf_str(body));
    return raw_ask(port, b.p, b.n);
}

static void fill_string(struct buf *b, size_t n)
{
    buf_add_char(b, '"');
    while (b->n < n - 1)
        buf_add_char(b, 'x');
    buf_add_char(b, '"');
}

static void bodies_are_limited_to_the_byte(void **state)
{
    (void)state;
    static const char *const paths[] = {"/echo", "/inline"};
    for (size_t i = 0; i < 2; i++) {
        AUTO_BUF fits = {0}, over = {0};
        fill_string(&fits, 100 * KB);
        fill_string(&over, 100 * KB + 1);
        struct raw_reply r = post(paths[i], "", &fits);
        assert_int_equal(r.status, 200);
        assert_int_equal(r.body.n, fits.n);
        raw_reply_done(&r);
        r = post(paths[i], "", &over);
        assert_int_equal(r.status, 413);
        raw_reply_done(&r);
    }
}

/* A client that sends its whole body before it reads gets the reply, not a reset. */
static void a_refused_large_body_still_gets_its_413(void **state)
{
    (void)state;
    AUTO_BUF body = {0};
    fill_string(&body, 8 * MB);
    struct raw_reply r = post("/echo", "", &body);
    assert_int_equal(r.status, 413);
    AUTO_JSON j = raw_json(&r);
    assert_string_equal(json_get_c(j, "code"), "too_large");
    raw_reply_done(&r);
}

static void a_waiting_client_is_refused_before_it_sends(void **state)
{
    (void)state;
    struct raw_client c = raw_connect(port);
    raw_say(&c, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                "Expect: 100-continue\r\nContent-Length: 5000000\r\n\r\n");
    assert_true(raw_wait_for(&c, "\r\n\r\n"));
    assert_non_null(raw_find(&c.in, "HTTP/1.1 413 "));
    while (raw_more(&c))
        ;
    raw_close(&c);
    c = raw_connect(port);
    raw_say(&c, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                "Expect: 100-continue\r\nContent-Length: 12\r\n\r\n");
    assert_true(raw_wait_for(&c, "HTTP/1.1 100 Continue\r\n\r\n"));
    raw_say(&c, BODY);
    struct raw_reply r = raw_read(&c, false);
    assert_int_equal(r.status, 200);
    raw_reply_done(&r);
    raw_close(&c);
}

static void a_body_of_a_terabyte_is_cut_off(void **state)
{
    (void)state;
    struct raw_reply r =
        raw_askf(port, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: "
                       "application/json\r\nContent-Length: 1000000000000\r\n\r\n");
    assert_int_equal(r.status, 413);
    assert_string_equal(raw_header(&r, "Connection"), "close");
    raw_reply_done(&r);
}

static void chunked_bodies_are_put_together(void **state)
{
    (void)state;
    struct raw_reply r = raw_askf(
        port, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
              "Transfer-Encoding: Chunked\r\n\r\n1\r\n\"\r\n5\r\nabcde\r\n1\r\n\"\r\n0\r\n\r\n");
    assert_int_equal(r.status, 200);
    assert_string_equal(r.body.p, "\"abcde\"");
    raw_reply_done(&r);
}

static void chunked_bodies_are_limited_too(void **state)
{
    (void)state;
    struct raw_client c = raw_connect(port);
    raw_say(&c, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                "Transfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 200; i++) {
        AUTO_BUF chunk = {0};
        buf_add_c(&chunk, "400\r\n");
        for (int k = 0; k < 1024; k++)
            buf_add_char(&chunk, ' ');
        buf_add_c(&chunk, "\r\n");
        raw_send(&c, chunk.p, chunk.n);
    }
    raw_say(&c, "0\r\n\r\n" SMUGGLED);
    struct raw_reply r = raw_read(&c, false);
    assert_int_equal(r.status, 413);
    raw_reply_done(&r);
    r = raw_read(&c, false); /* the framing is intact: the next request is served */
    assert_int_equal(r.status, 204);
    raw_reply_done(&r);
    raw_close(&c);
}

static void an_endless_chunked_body_is_cut_off(void **state)
{
    (void)state;
    struct raw_client c = raw_connect(port);
    raw_say(&c, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                "Transfer-Encoding: chunked\r\n\r\n");
    AUTO_BUF chunk = {0};
    buf_add_c(&chunk, "10000\r\n");
    for (int k = 0; k < 65536; k++)
        buf_add_char(&chunk, ' ');
    buf_add_c(&chunk, "\r\n");
    for (int i = 0; i < 2000; i++) /* 128 MB */
        raw_send(&c, chunk.p, chunk.n);
    raw_say(&c, "0\r\n\r\n");
    struct raw_reply r = raw_read(&c, false);
    assert_int_equal(r.status, 0);
    raw_reply_done(&r);
    raw_close(&c);
}

static void keep_alive_and_pipelining_keep_the_order(void **state)
{
    (void)state;
    struct raw_client c = raw_connect(port);
    AUTO_BUF all = {0};
    for (int i = 0; i < 50; i++) {
        char body[16];
        int n = snprintf(body, sizeof body, "[%d]", i);
        buf_printf(&all,
                   "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                   "Content-Length: %d\r\n\r\n%s",
                   i % 2 ? "/echo" : "/inline", n, body);
    }
    raw_send(&c, all.p, all.n);
    for (int i = 0; i < 50; i++) {
        char body[16];
        snprintf(body, sizeof body, "[%d]", i);
        struct raw_reply r = raw_read(&c, false);
        assert_int_equal(r.status, 200);
        assert_string_equal(r.body.p, body);
        raw_reply_done(&r);
    }
    raw_close(&c);
}

static void an_error_keeps_the_connection(void **state)
{
    (void)state;
    struct raw_client c = raw_connect(port);
    raw_say(&c, "POST /nothing HTTP/1.1\r\nHost: x\r\nContent-Length: 12\r\n\r\n" BODY SMUGGLED);
    struct raw_reply r = raw_read(&c, false);
    assert_int_equal(r.status, 404);
    raw_reply_done(&r);
    r = raw_read(&c, false);
    assert_int_equal(r.status, 204);
    raw_reply_done(&r);
    raw_close(&c);
}

/* An escape that is refused does not put the framing in doubt: reply and connection are sound. */
static void a_bad_target_with_a_body_keeps_the_connection(void **state)
{
    (void)state;
    struct raw_client c = raw_connect(port);
    raw_say(&c, "POST /e%2Fcho HTTP/1.1\r\nHost: x\r\nContent-Length: 12\r\n\r\n" BODY SMUGGLED);
    struct raw_reply r = raw_read(&c, false);
    assert_int_equal(r.status, 400);
    raw_reply_done(&r);
    r = raw_read(&c, false);
    assert_int_equal(r.status, 204);
    raw_reply_done(&r);
    raw_close(&c);
}

static void a_request_byte_by_byte_is_served(void **state)
{
    (void)state;
    struct raw_client c = raw_connect(port);
    const char *text = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                       "Content-Length: 12\r\n\r\n" BODY;
    for (; *text; text++)
        raw_send(&c, text, 1);
    struct raw_reply r = raw_read(&c, false);
    assert_int_equal(r.status, 200);
    assert_string_equal(r.body.p, BODY);
    raw_reply_done(&r);
    raw_close(&c);
}

static void a_silent_client_is_let_go(void **state)
{
    (void)state;
    uint16_t impatient_port;
    struct http_server *impatient = start_server(&impatient_port, 1000);
    struct raw_client idle = raw_connect(impatient_port), half = raw_connect(impatient_port);
    raw_say(&half, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 12\r\n\r\n\"01");
    while (raw_more(&idle)) /* ends after timeout_ms, or the wait of raw_more fails the test */
        ;
    while (raw_more(&half))
        ;
    raw_close(&idle);
    raw_close(&half);
    http_stop(impatient, 1000);
}

static void a_client_that_leaves_early_costs_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        struct raw_client c = raw_connect(port);
        raw_say(&c, i % 2 ? "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 12\r\n\r\n\"01"
                          : SMUGGLED);
        raw_close(&c);
    }
    struct raw_reply r = raw_ask(port, SMUGGLED, strlen(SMUGGLED));
    assert_int_equal(r.status, 204);
    raw_reply_done(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(smuggling_is_refused), /* first: it counts what ran */
        cmocka_unit_test(huge_headers_are_refused),
        cmocka_unit_test(bodies_are_limited_to_the_byte),
        cmocka_unit_test(a_refused_large_body_still_gets_its_413),
        cmocka_unit_test(a_waiting_client_is_refused_before_it_sends),
        cmocka_unit_test(a_body_of_a_terabyte_is_cut_off),
        cmocka_unit_test(chunked_bodies_are_put_together),
        cmocka_unit_test(chunked_bodies_are_limited_too),
        cmocka_unit_test(an_endless_chunked_body_is_cut_off),
        cmocka_unit_test(keep_alive_and_pipelining_keep_the_order),
        cmocka_unit_test(an_error_keeps_the_connection),
        cmocka_unit_test(a_bad_target_with_a_body_keeps_the_connection),
        cmocka_unit_test(a_request_byte_by_byte_is_served),
        cmocka_unit_test(a_silent_client_is_let_go),
        cmocka_unit_test(a_client_that_leaves_early_costs_nothing),
    };
    return cmocka_run_group_tests_name("http_parsing", tests, start, stop);
}
