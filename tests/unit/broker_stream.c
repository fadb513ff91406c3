/* The model gateway end to end: answers that end before their time, big and slow ones, a link that
 * breaks. */
#include "broker_stage.h"

/* Streams that end before their time */

static void a_stream_that_ends_early_is_broken_and_estimated(void **state)
{
    (void)state;
    AUTO_ARENA a = arena_new();
    struct stage *s = stage_new();
    reply_with(s, a, SSE_HEAD,
               "data: {\"choices\":[{\"delta\":{\"content\":\"forty characters of text make ten "
               "tokens\"}}]}\n\n");
    open_session(s, "openai-completions", s->base_url, false);
    AUTO_BUF answer = {0};
    ask(s, "/chat/completions", WITH_TOKEN, STR("{\"model\":\"m\",\"messages\":[]}"), &answer);
    const json_t *end = await_end(s), *usage = json_object_get(end, "usage");
    assert_string_equal(error_code_of(end), "model_stream_broken");
    assert_true(json_get_bool(usage, "estimated", false));
    assert_int_equal(json_get_int(usage, "outputTokens", 0), 10);
    assert_int_equal(json_get_int(usage, "inputTokens", 0), 7);
    stage_free(s);
}

/* The meter gives an event up beyond 8 MiB; the host gets it, and the answer is not called broken
 * for that. */
static void an_event_beyond_the_meters_limit_is_relayed_and_estimated(void **state)
{
    (void)state;
    AUTO_ARENA a = arena_new();
    struct stage *s = stage_new();
    size_t n = 9u << 20;
    char *event = arena_alloc(a, n + 1);
    memset(event, 'x', n);
    memcpy(event, "data: ", 6);
    memcpy(event + n - 2, "\n\n", 2);
    reply_with(s, a, SSE_HEAD, event);
    open_session(s, "openai-responses", s->base_url, false);
    AUTO_BUF answer = {0}, body = {0};
    ask(s, "/responses", WITH_TOKEN, BODY, &answer);
    bool broken;
    body_of(&answer, &body, &broken);
    assert_false(broken);
    assert_int_equal(body.n, n);
    const json_t *end = await_end(s);
    assert_true(json_is_null(json_object_get(end, "error")));
    assert_true(json_get_bool(json_object_get(end, "usage"), "estimated", false));
    stage_free(s);
}

static void a_cut_connection_breaks_the_answer_to_the_host(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    s->provider.reply = SSE_HEAD "40\r\ndata: {\"choices\"";
    open_session(s, "openai-completions", s->base_url, false);
    AUTO_BUF answer = {0}, body = {0};
    ask(s, "/chat/completions", WITH_TOKEN, BODY, &answer);
    bool broken;
    body_of(&answer, &body, &broken);
    assert_int_equal(status_of(&answer), 200);
    assert_true(broken); /* no terminating chunk */
    assert_string_equal(error_code_of(await_end(s)), "model_stream_broken");
    stage_free(s);
}

#define FIRST_EVENT                                                                                \
    SSE_HEAD "45\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"four characters per "            \
             "tok\"}}]}\n\n\r\n"

/* A host that has got the reply up to these words, of an answer that does not end. */
static int host_that_read(struct stage *s, const char *reply, const char *words)
{
    s->provider.reply = reply;
    s->provider.hold = true;
    open_session(s, "openai-completions", s->base_url, false);
    int fd = connect_host(s->socket);
    send_request(fd, "/chat/completions", WITH_TOKEN, BODY);
    AUTO_BUF answer = {0};
    char part[4096];
    while (answer.p == NULL || strstr(answer.p, words) == NULL) {
        ssize_t n = read(fd, part, sizeof part);
        assert_true(n > 0);
        buf_add(&answer, part, (size_t)n);
    }
    return fd;
}

/* A host with an answer under way. */
static int host_in_mid_answer(struct stage *s)
{
    return host_that_read(s, FIRST_EVENT, "per tok");
}

static void expect_aborted(struct stage *s)
{
    const json_t *end = await_end(s), *usage = json_object_get(end, "usage");
    assert_true(json_get_bool(end, "aborted", false));
    assert_true(json_is_null(json_object_get(end, "error")));
    assert_true(json_get_bool(usage, "estimated", false));
    assert_int_equal(json_get_int(usage, "outputTokens", 0), 6);
}

static void a_host_that_hangs_up_closes_the_upstream(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    int fd = host_in_mid_answer(s);
    close(fd);
    assert_true(wait_true(&s->provider.m, &s->provider.c, &s->provider.saw_close));
    expect_aborted(s);
    stage_free(s);
}

/* Pi closes the connection as soon as it has read an error: whether there is another attempt hangs
   on what the provider said. */
static void a_host_that_hangs_up_after_an_error_aborts_nothing(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    int fd = host_that_read(s,
                            SSE_HEAD "41\r\ndata: {\"error\":{\"type\":\"server_error\","
                                     "\"message\":\"out of luck\"}}\n\n\r\n",
                            "out of luck");
    close(fd);
    const json_t *end = await_end(s);
    assert_false(json_get_bool(end, "aborted", true));
    assert_string_not_equal(error_code_of(end), "");
    assert_non_null(strstr(json_get_c(json_object_get(end, "error"), "message"), "out of luck"));
    stage_free(s);
}

static void a_host_that_hangs_up_after_the_last_word_aborts_nothing(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    int fd = host_that_read(
        s, SSE_HEAD "32\r\ndata: {\"choices\":[{\"finish_reason\":\"stop\"}]}    \n\n\r\n", "stop");
    close(fd);
    const json_t *end = await_end(s);
    assert_false(json_get_bool(end, "aborted", true));
    assert_string_equal(error_code_of(end), "");
    stage_free(s);
}

static void a_host_that_hangs_up_after_nonsense_aborts_nothing(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    int fd = host_that_read(s, SSE_HEAD "11\r\ndata: {not json\n\n\r\n", "not json");
    close(fd);
    const json_t *end = await_end(s);
    assert_false(json_get_bool(end, "aborted", true));
    assert_string_equal(error_code_of(end), "model_stream_broken");
    assert_non_null(strstr(json_get_c(json_object_get(end, "error"), "message"), "no JSON"));
    stage_free(s);
}

static void a_cancel_closes_the_upstream_at_once(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    AUTO_FD fd = host_in_mid_answer(s);
    int64_t from_ms = clock_monotonic_ms(clock_real());
    broker_request_cancel(s->link, SESSION);
    assert_true(wait_true(&s->provider.m, &s->provider.c, &s->provider.saw_close));
    /* well before the next look at the host's socket; CI machines are slow */
    assert_true(clock_monotonic_ms(clock_real()) - from_ms < 4000);
    AUTO_BUF rest = {0};
    read_all(fd, &rest); /* the gateway ends it */
    expect_aborted(s);
    stage_free(s);
}

static void a_cancel_before_the_first_byte_reaches_the_waiting_host(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    s->provider.hold = true;
    open_session(s, "openai-completions", s->base_url, false);
    AUTO_FD fd = connect_host(s->socket);
    send_request(fd, "/chat/completions", WITH_TOKEN, BODY);
    assert_true(wait_requests(&s->provider, 1));
    broker_request_cancel(s->link, SESSION);
    AUTO_BUF answer = {0};
    read_all(fd, &answer);
    expect_error(s, &answer, 424, "cancelled");
    assert_true(json_get_bool(await_end(s), "aborted", false));
    stage_free(s);
}

static void a_host_that_hangs_up_while_control_thinks_is_let_go(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    s->verdict = STAY_SILENT;
    open_session(s, "openai-completions", s->base_url, false);
    int fd = connect_host(s->socket);
    send_request(fd, "/chat/completions", WITH_TOKEN, BODY);
    assert_true(wait_true(&s->m, &s->c, &s->begun));
    close(fd);
    assert_true(json_get_bool(await_end(s), "aborted", false));
    assert_int_equal(s->provider.requests, 0);
    stage_free(s);
}

static void an_ended_host_ends_its_requests(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    AUTO_FD fd = host_in_mid_answer(s);
    gateways_close(s->gateways, 1);
    assert_true(wait_true(&s->provider.m, &s->provider.c, &s->provider.saw_close));
    expect_aborted(s);
    stage_free(s);
}

/* Size */

static void a_big_body_goes_through(void **state)
{
    (void)state;
    AUTO_ARENA a = arena_new();
    struct stage *s = stage_new();
    reply_with(s, a, SSE_HEAD, GOOD_STREAM);
    open_session(s, "openai-completions", s->base_url, false);
    size_t n = 20u << 20;
    char *big = mem_alloc(n);
    for (size_t i = 0; i < n; i++)
        big[i] = (char)('a' + i % 23);
    static const char start[] = "{\"model\":\"m\",\"x\":\"";
    memcpy(big, start, sizeof start - 1);
    memcpy(big + n - 2, "\"}", 2);
    AUTO_BUF answer = {0};
    ask(s, "/chat/completions", WITH_TOKEN, (struct str){big, n}, &answer);
    assert_int_equal(status_of(&answer), 200);
    assert_memory_equal(strstr(s->provider.request.p, "\r\n\r\n") + 4, big, n);
    mem_free(big);
    stage_free(s);
}

static void a_body_beyond_the_limit_gets_413(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    open_session(s, "openai-completions", s->base_url, false);
    AUTO_FD fd = connect_host(s->socket);
    size_t n = EXCHANGE_BODY_MAX + 1;
    AUTO_BUF head = {0}, answer = {0};
    buf_printf(&head,
               "POST /chat/completions HTTP/1.1\r\nHost: g\r\n" WITH_TOKEN
               "Content-Length: %zu\r\n\r\n",
               n);
    assert_int_equal(fd_write_full(fd, head.p, head.n), 0);
    static char part[1u << 20];
    for (size_t left = n; left;) {
        size_t now = left < sizeof part ? left : sizeof part;
        assert_int_equal(fd_write_full(fd, part, now), 0);
        left -= now;
    }
    read_all(fd, &answer);
    expect_error(s, &answer, 413, "model_bad_request");
    assert_int_equal(s->begins, 0);
    stage_free(s);
}

/* The provider must be stopped by a host that does not read: what it could send is what the sockets
   and our one buffer hold, however long we wait. */
static void a_slow_host_slows_the_provider(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    s->provider.reply = SSE_HEAD;
    s->provider.flood = 256u << 20;
    open_session(s, "openai-completions", s->base_url, false);
    AUTO_FD fd = connect_host(s->socket);
    send_request(fd, "/chat/completions", WITH_TOKEN, BODY);
    {
        AUTO_LOCK(&s->provider.m);
        while (s->provider.flooded == 0)
            assert_true(cond_wait_ms(&s->provider.c, &s->provider.m, WAIT_MS));
    }
    size_t before = 0, now = 1;
    while (before != now) { /* until the provider stands still for half a second */
        before = now;
        AUTO_LOCK(&s->provider.m);
        for (int64_t end = clock_monotonic_ms(clock_real()) + 500;
             clock_monotonic_ms(clock_real()) < end;)
            cond_wait_ms(&s->provider.c, &s->provider.m, 100);
        now = s->provider.flooded;
    }
    assert_true(now < 32u << 20); /* kernel buffers; 256 MiB were offered */
    AUTO_BUF some = {0};
    buf_reserve(&some, 8u << 20);
    assert_int_equal(fd_read_full(fd, some.p, 8u << 20), 0); /* and it goes on when read */
    close(fd_take(&fd));
    assert_true(json_get_bool(await_end(s), "aborted", false));
    stage_free(s);
}

/* The link */

static void sessions_are_registered_again_at_a_new_broker(void **state)
{
    (void)state;
    AUTO_ARENA a = arena_new();
    struct stage *s = stage_new();
    reply_with(s, a, SSE_HEAD, GOOD_STREAM);
    open_session(s, "openai-completions", s->base_url, false);
    shutdown(s->link_copy, SHUT_RDWR);
    assert_true(wait_true(&s->m, &s->c, &s->link_lost));
    assert_false(broker_link_up(s->link));
    wait_registered(s, 0); /* as a new broker begins */
    attach(s);
    wait_registered(s, 1);
    assert_true(broker_link_up(s->link));
    AUTO_BUF answer = {0};
    ask(s, "/chat/completions", WITH_TOKEN, BODY, &answer);
    assert_int_equal(status_of(&answer), 200);
    {
        AUTO_LOCK(&s->m);
        assert_int_equal(s->lost, 1);
    }
    stage_free(s);
}

static void a_lost_link_ends_requests_and_forgets_tokens(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    AUTO_FD fd = host_in_mid_answer(s);
    shutdown(s->link_copy, SHUT_RDWR);
    assert_true(wait_true(&s->provider.m, &s->provider.c, &s->provider.saw_close));
    AUTO_BUF rest = {0};
    read_all(fd, &rest);
    wait_registered(s, 0);
    stage_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_that_ends_early_is_broken_and_estimated),
        cmocka_unit_test(an_event_beyond_the_meters_limit_is_relayed_and_estimated),
        cmocka_unit_test(a_cut_connection_breaks_the_answer_to_the_host),
        cmocka_unit_test(a_host_that_hangs_up_closes_the_upstream),
        cmocka_unit_test(a_host_that_hangs_up_after_an_error_aborts_nothing),
        cmocka_unit_test(a_host_that_hangs_up_after_the_last_word_aborts_nothing),
        cmocka_unit_test(a_host_that_hangs_up_after_nonsense_aborts_nothing),
        cmocka_unit_test(a_cancel_closes_the_upstream_at_once),
        cmocka_unit_test(a_cancel_before_the_first_byte_reaches_the_waiting_host),
        cmocka_unit_test(a_host_that_hangs_up_while_control_thinks_is_let_go),
        cmocka_unit_test(an_ended_host_ends_its_requests),
        cmocka_unit_test(a_big_body_goes_through),
        cmocka_unit_test(a_body_beyond_the_limit_gets_413),
        cmocka_unit_test(a_slow_host_slows_the_provider),
        cmocka_unit_test(sessions_are_registered_again_at_a_new_broker),
        cmocka_unit_test(a_lost_link_ends_requests_and_forgets_tokens),
    };
    return cmocka_run_group_tests(tests, once, NULL);
}
