/* The life of the server: overload, stopping with work under way, authentication before the body,
 * TLS. */
#include "http_raw.h"
#include "http_tls.h"

#include "base/lock.h"
#include "http/workers.h"

#include <curl/curl.h>

static uint16_t port;
static struct http_server *server;

/* A gate that handlers wait at, and how many did. */
static pthread_mutex_t gate_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_changed;
static bool gate_open;
static unsigned at_gate, asked;

static void reset_gate(void)
{
    AUTO_LOCK(&gate_lock);
    gate_open = false;
    at_gate = asked = 0;
}

static void wait_at_gate(void)
{
    AUTO_LOCK(&gate_lock);
    at_gate++;
    pthread_cond_broadcast(&gate_changed);
    while (!gate_open)
        if (!cond_wait_ms(&gate_changed, &gate_lock, RAW_WAIT_MS))
            return;
}

static void wait_for_gate(unsigned n)
{
    AUTO_LOCK(&gate_lock);
    while (at_gate < n)
        if (!cond_wait_ms(&gate_changed, &gate_lock, RAW_WAIT_MS))
            test_fail("%u of %u came to the gate\n", at_gate, n);
}

static void open_gate(void)
{
    AUTO_LOCK(&gate_lock);
    gate_open = true;
    pthread_cond_broadcast(&gate_changed);
}

static err slow(struct ctx *ctx)
{
    wait_at_gate();
    return reply_json(ctx, 200, json_string("done"));
}

static err quick(struct ctx *ctx)
{
    return reply_json(ctx, 200, json_string("quick"));
}

static const struct route table[] = {
    {GET, "/slow", slow, .scope = SCOPE_NONE},
    {GET, "/quick", quick, .scope = SCOPE_NONE, .where = HTTP_INLINE},
    {GET, "/long", slow, .scope = SCOPE_NONE, .where = HTTP_LONG},
    {GET, "/usual", quick, .scope = SCOPE_NONE},
    {POST, "/v1/things", quick, .scope = SCOPE_READ, .body_max = 1 * MB},
    {0},
};
static const struct route *const tables[] = {table, NULL};

static err authenticate(struct service *service, struct str token, struct http_auth *out)
{
    (void)service;
    AUTO_LOCK(&gate_lock);
    asked++;
    if (!str_is(token, "good"))
        return fail(E_UNAUTHORIZED, "there is no such API key");
    out->scope = SCOPE_READ;
    return 0;
}

static void start_server(unsigned workers, unsigned queue)
{
    reset_gate();
    struct http_options o = {.listen_fd = raw_listen(&port),
                             .tables = tables,
                             .clock = clock_real(),
                             .workers = workers,
                             .queue_max = queue,
                             .authenticate = authenticate};
    assert_int_equal(http_start(&o, &server), 0);
}

static struct raw_client say(const char *text)
{
    struct raw_client c = raw_connect(port);
    raw_say(&c, text);
    return c;
}

#define GET_SLOW "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"
#define GET_QUICK "GET /quick HTTP/1.1\r\nHost: x\r\n\r\n"

static void expect_status(struct raw_client *c, int status)
{
    struct raw_reply r = raw_read(c, false);
    assert_int_equal(r.status, status);
    raw_reply_done(&r);
}

/* Which connection has something to read. */
static size_t first_answered(struct raw_client *clients, size_t n)
{
    struct pollfd fds[8];
    for (size_t i = 0; i < n; i++)
        fds[i] = (struct pollfd){.fd = clients[i].fd, .events = POLLIN};
    assert_true(poll(fds, n, RAW_WAIT_MS) > 0);
    size_t i = 0;
    while (!fds[i].revents)
        i++;
    return i;
}

static void a_full_queue_is_503_and_the_loop_still_answers(void **state)
{
    (void)state;
    start_server(2, 3);
    struct raw_client clients[8];
    for (int i = 0; i < 2; i++)
        clients[i] = say(GET_SLOW);
    wait_for_gate(2);
    /* Both workers are busy. Three more wait; which of the six they are is the loop's affair. */
    for (int i = 2; i < 8; i++)
        clients[i] = say(GET_SLOW);
    unsigned counts[600] = {0};
    struct raw_client quick_one = say(GET_QUICK);
    expect_status(&quick_one, 200);
    raw_close(&quick_one);
    for (int refused = 0; refused < 3; refused++) {
        struct raw_client *c = &clients[first_answered(clients, 8)];
        struct raw_reply r = raw_read(c, false);
        assert_string_equal(raw_header(&r, "Retry-After"), "1");
        AUTO_JSON j = raw_json(&r);
        assert_string_equal(json_get_c(j, "code"), "overloaded");
        counts[r.status]++;
        raw_reply_done(&r);
    }
    open_gate();
    for (int served = 0; served < 5; served++) {
        struct raw_reply r = raw_read(&clients[first_answered(clients, 8)], false);
        counts[r.status]++;
        raw_reply_done(&r);
    }
    assert_int_equal(counts[503], 3);
    assert_int_equal(counts[200], 5);
    for (int i = 0; i < 8; i++)
        raw_close(&clients[i]);
    http_stop(server, RAW_WAIT_MS);
}

static void long_requests_leave_the_workers_to_others(void **state)
{
    (void)state;
    start_server(1, 10);
    struct raw_client clients[3];
    for (int i = 0; i < 3; i++) /* one runs, two wait for it */
        clients[i] = say("GET /long HTTP/1.1\r\nHost: x\r\n\r\n");
    wait_for_gate(1);
    struct raw_client other = say("GET /usual HTTP/1.1\r\nHost: x\r\n\r\n");
    expect_status(&other, 200);
    raw_close(&other);
    open_gate();
    for (int i = 0; i < 3; i++) {
        expect_status(&clients[i], 200);
        raw_close(&clients[i]);
    }
    http_stop(server, RAW_WAIT_MS);
}

static void *stop_server(void *arg)
{
    http_stop(server, *(int64_t *)arg);
    return NULL;
}

static void stopping_lets_requests_finish(void **state)
{
    (void)state;
    start_server(1, 10);
    struct raw_client c = say(GET_SLOW);
    wait_for_gate(1);
    int64_t grace = RAW_WAIT_MS;
    pthread_t t = thread_start("stopper", stop_server, &grace);
    open_gate();
    struct raw_reply r = raw_read(&c, false);
    assert_int_equal(r.status, 200);
    raw_reply_done(&r);
    pthread_join(t, NULL);
    assert_false(raw_more(&c));
    raw_close(&c);
}

/* Without grace what waits is answered at once; what runs is waited for: nothing may vanish under
 * it. */
static void stopping_without_grace_does_not_hang(void **state)
{
    (void)state;
    start_server(1, 10);
    struct raw_client running = say(GET_SLOW), queued = say(GET_SLOW), idle = say(GET_QUICK);
    wait_for_gate(1);
    expect_status(&idle, 200);
    int64_t grace = 0;
    pthread_t t = thread_start("stopper", stop_server, &grace);
    open_gate();
    pthread_join(t, NULL);
    expect_status(&running, 200);
    struct raw_reply r = raw_read(&queued, false); /* an answer, whichever came first */
    assert_true(r.status == 503 || r.status == 200);
    raw_reply_done(&r);
    raw_close(&running);
    raw_close(&queued);
    raw_close(&idle);
}

static void nobody_is_let_in_with_a_body_before_a_key(void **state)
{
    (void)state;
    start_server(1, 10);
    struct raw_client c = say("POST /v1/things HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer bad\r\n"
                              "Content-Type: application/json\r\nExpect: 100-continue\r\n"
                              "Content-Length: 2\r\n\r\n");
    assert_true(raw_wait_for(&c, "\r\n\r\n"));
    assert_non_null(raw_find(&c.in, "HTTP/1.1 401 "));
    assert_null(raw_find(&c.in, "100 Continue"));
    raw_close(&c);
    c = say("POST /v1/things HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\n"
            "Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    assert_true(raw_wait_for(&c, "HTTP/1.1 100 Continue\r\n\r\n"));
    raw_say(&c, "{}");
    expect_status(&c, 200);
    raw_close(&c);
    assert_int_equal(asked, 2); /* once each, although the handler ran later */
    http_stop(server, 1000);
}

/* `text` is all but the last byte. */
static int whole_request(struct raw_client *c, struct str text)
{
    raw_send(c, text.p, text.n);
    raw_say(c, "\"");
    struct raw_reply r = raw_read(c, false);
    int status = r.status;
    raw_reply_done(&r);
    return status;
}

/* One's body is held while the second comes. False: it was not yet, or one before it still was. */
static bool one_of_two_is_refused(struct raw_client *second, struct str text)
{
    struct raw_client first = raw_connect(port);
    raw_send(&first, text.p, text.n);
    bool refused = whole_request(second, text) == 503;
    if (refused) {
        raw_say(&first, "\"");
        struct raw_reply r = raw_read(&first, false);
        refused = r.status == 200;
        raw_reply_done(&r);
    }
    raw_close(&first);
    return refused;
}

static void bodies_together_are_limited(void **state)
{
    (void)state;
    int tries = 1000;
    reset_gate();
    struct http_options o = {.listen_fd = raw_listen(&port),
                             .tables = tables,
                             .clock = clock_real(),
                             .bodies_max = 100 * KB,
                             .authenticate = authenticate};
    assert_int_equal(http_start(&o, &server), 0);
    AUTO_BUF text = {0};
    buf_printf(&text, "POST /v1/things HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\n"
                      "Content-Type: application/json\r\nContent-Length: 60002\r\n\r\n\"");
    for (int i = 0; i < 60000; i++)
        buf_add_char(&text, 'x');
    struct raw_client second = raw_connect(port);
    while (!one_of_two_is_refused(&second, buf_str(&text)))
        assert_true(--tries > 0);
    while (whole_request(&second, buf_str(&text)) != 200) /* until the first one's is forgotten */
        assert_true(--tries > 0);
    raw_close(&second);
    http_stop(server, 1000);
}

/* ---- the pool by itself ---- */

static unsigned ran, cleaned;

static void job(void *arg, bool stopping)
{
    (void)arg;
    if (!stopping)
        wait_at_gate();
    AUTO_LOCK(&gate_lock);
    ran += !stopping;
    cleaned += stopping;
}

static void the_pool_is_bounded_and_cleans_up(void **state)
{
    (void)state;
    reset_gate();
    struct workers *w = workers_new("test", 1, 2);
    assert_true(workers_post(w, job, NULL));
    wait_for_gate(1);
    assert_true(workers_post(w, job, NULL));
    assert_false(workers_full(w));
    assert_true(workers_post(w, job, NULL));
    assert_true(workers_full(w));
    assert_false(workers_post(w, job, NULL));
    open_gate();
    workers_stop(w);
    assert_false(workers_post(w, job, NULL));
    assert_int_equal(ran + cleaned, 3);
    assert_true(ran >= 1);
    workers_free(w);
}

/* ---- TLS ---- */

static size_t collect(char *p, size_t size, size_t n, void *out)
{
    buf_add(out, p, size * n);
    return size * n;
}

static void tls_works_with_a_key_and_a_certificate(void **state)
{
    (void)state;
    reset_gate();
    char *cert, *key;
    tls_make_certificate(&cert, &key);
    struct http_options o = {.listen_fd = raw_listen(&port),
                             .tables = tables,
                             .clock = clock_real(),
                             .tls_cert_pem = cert,
                             .tls_key_pem = key,
                             .authenticate = authenticate};
    assert_int_equal(http_start(&o, &server), 0);
    char url[64];
    snprintf(url, sizeof url, "https://localhost:%u/quick", port);
    AUTO_BUF body = {0};
    CURL *curl = curl_easy_init();
    struct curl_blob ca = {.data = cert, .len = strlen(cert)};
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_PROXY, "");
    curl_easy_setopt(curl, CURLOPT_IPRESOLVE, (long)CURL_IPRESOLVE_V4);
    curl_easy_setopt(curl, CURLOPT_CAINFO_BLOB, &ca);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, collect);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &body);
    assert_int_equal(curl_easy_perform(curl), CURLE_OK);
    assert_string_equal(body.p, "\"quick\"");
    curl_easy_cleanup(curl);
    http_stop(server, 1000);
    free(cert);
    free(key);
}

static void half_of_a_tls_setting_is_refused(void **state)
{
    (void)state;
    struct http_options o = {
        .tables = tables, .clock = clock_real(), .tls_cert_pem = "x", .authenticate = authenticate};
    assert_int_equal(http_start(&o, &server), E_INVALID);
    o.tls_key_pem = "not a key";
    o.listen_fd = raw_listen(&port);
    assert_int_equal(http_start(&o, &server), E_IO);
    close(o.listen_fd); /* still ours */
}

int main(void)
{
    cond_init(&gate_changed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_full_queue_is_503_and_the_loop_still_answers),
        cmocka_unit_test(long_requests_leave_the_workers_to_others),
        cmocka_unit_test(stopping_lets_requests_finish),
        cmocka_unit_test(stopping_without_grace_does_not_hang),
        cmocka_unit_test(nobody_is_let_in_with_a_body_before_a_key),
        cmocka_unit_test(bodies_together_are_limited),
        cmocka_unit_test(the_pool_is_bounded_and_cleans_up),
        cmocka_unit_test(tls_works_with_a_key_and_a_certificate),
        cmocka_unit_test(half_of_a_tls_setting_is_refused),
    };
    return cmocka_run_group_tests_name("http_life", tests, NULL, NULL);
}
