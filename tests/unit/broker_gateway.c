/* The model gateway end to end: what it relays, and what it makes of a provider's errors. */
#include "broker_stage.h"

/* Happy paths */

static const struct happy {
    const char *api, *target, *body;
    const char *auth; /* as the provider must see it */
    int64_t input, output, cache_read, cache_write;
} happy[] = {
    {"openai-completions", "/chat/completions",
     "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}],\"usage\":null}\n\n"
     "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
     "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":5,"
     "\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\ndata: [DONE]\n\n",
     "Authorization: Bearer the-key\r\n", 6, 5, 4, 0},
    {"anthropic-messages", "/v1/messages?beta=true",
     "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{"
     "\"input_tokens\":7,\"output_tokens\":1,\"cache_read_input_tokens\":3,"
     "\"cache_creation_input_tokens\":2}}}\n\n"
     "event: content_block_delta\ndata: "
     "{\"type\":\"content_block_delta\",\"delta\":{\"text\":\"hi\"}}\n\n"
     "event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":9}}\n\n"
     "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
     "x-api-key: the-key\r\n", 7, 9, 3, 2},
    {"openai-responses", "/responses",
     "event: response.output_text.delta\n"
     "data: {\"type\":\"response.output_text.delta\",\"delta\":\"hi\"}\n\n"
     "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"usage\":{"
     "\"input_tokens\":20,\"output_tokens\":8,\"input_tokens_details\":{\"cached_tokens\":5}}}}"
     "\n\n",
     "Authorization: Bearer the-key\r\n", 15, 8, 5, 0},
    {"google-generative-ai", "/models/m:streamGenerateContent?alt=sse",
     "data: "
     "{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"hi\"}]},\"finishReason\":\"STOP\"}],"
     "\"usageMetadata\":{\"promptTokenCount\":12,\"candidatesTokenCount\":3,"
     "\"thoughtsTokenCount\":2,\"cachedContentTokenCount\":2}}\r\n\r\n",
     "x-goog-api-key: the-key\r\n", 10, 5, 2, 0},
};

static void check_happy(const struct happy *h)
{
    AUTO_ARENA a = arena_new();
    struct stage *s = stage_new();
    reply_with(s, a, SSE_HEAD, h->body);
    box_for(s, a, origin_of(s, a));
    open_session(s, h->api, s->base_url, true);
    AUTO_BUF answer = {0}, body = {0};
    ask(s, h->target,
        WITH_TOKEN "Authorization: Bearer placeholder\r\nx-api-key: placeholder\r\n"
                   "x-goog-api-key: placeholder\r\nX-Custom: kept\r\nAccept-Encoding: gzip\r\n"
                   "Keep-Alive: 3\r\nX-Pi-Said: 41\r\n",
        BODY, &answer);
    bool broken;
    body_of(&answer, &body, &broken);
    assert_int_equal(status_of(&answer), 200);
    assert_false(broken);
    assert_string_equal(body.p, h->body); /* byte for byte */
    assert_non_null(strstr(answer.p, "X-Request-Id: up-1\r\n"));
    const char *date = strcasestr(answer.p, "\r\nDate: ");
    assert_non_null(date);
    assert_non_null(strstr(answer.p, "Date: Mon, 30 Nov 2026 01:02:03 GMT\r\n"));
    assert_null(strcasestr(date + 2, "\r\nDate: ")); /* the provider's, once */
    assert_null(strcasestr(answer.p, "x-hop"));
    assert_null(strcasestr(answer.p, "keep-alive"));

    const char *seen = s->provider.request.p;
    char *line = arena_printf(a, "POST /v1%s HTTP/1.1\r\n", h->target);
    assert_memory_equal(seen, line, strlen(line));
    assert_non_null(strstr(seen, h->auth));
    assert_non_null(strstr(seen, "X-Custom: kept\r\n"));
    assert_non_null(strstr(seen, "\r\n\r\n{\"model\":\"m\"}"));
    assert_non_null(strstr(seen, arena_printf(a, "Host: 127.0.0.1:%d\r\n", s->provider.port)));
    assert_int_equal(s->said, 41);
    static const char *const never[] = {"placeholder", "x-pi-s",     TOKEN,
                                        "gzip",        "Keep-Alive", "Expect:"};
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        assert_null(strcasestr(seen, never[i]));

    const json_t *end = await_end(s), *usage = json_object_get(end, "usage");
    assert_int_equal(json_get_int(end, "status", 0), 200);
    assert_true(json_is_null(json_object_get(end, "error")));
    assert_true(json_is_integer(json_object_get(end, "ttftMs")));
    assert_false(json_get_bool(end, "aborted", true));
    assert_int_equal(json_get_int(usage, "inputTokens", -1), h->input);
    assert_int_equal(json_get_int(usage, "outputTokens", -1), h->output);
    assert_int_equal(json_get_int(usage, "cacheReadInputTokens", -1), h->cache_read);
    assert_int_equal(json_get_int(usage, "cacheCreationInputTokens", -1), h->cache_write);
    assert_null(json_object_get(usage, "estimated"));
    stage_free(s);
}

static void every_wire_api_is_relayed_byte_for_byte(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof happy / sizeof *happy; i++)
        check_happy(&happy[i]);
}

static void the_path_of_the_real_address_may_be_repeated(void **state)
{
    (void)state;
    AUTO_ARENA a = arena_new();
    struct stage *s = stage_new();
    reply_with(s, a, SSE_HEAD, happy[0].body);
    open_session(s, "openai-completions", s->base_url, false);
    AUTO_BUF answer = {0};
    ask(s, "/v1/chat/completions", WITH_TOKEN, BODY, &answer);
    assert_int_equal(status_of(&answer), 200);
    assert_memory_equal(s->provider.request.p, "POST /v1/chat/completions ", 26);
    stage_free(s);
}

static void two_requests_on_one_connection_open_the_box_once(void **state)
{
    (void)state;
    AUTO_ARENA a = arena_new();
    struct stage *s = stage_new();
    s->provider.reply = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                        "Content-Length: 14\r\n\r\ndata: [DONE]\n\n";
    box_for(s, a, origin_of(s, a));
    open_session(s, "openai-completions", s->base_url, true);
    AUTO_FD fd = connect_host(s->socket);
    for (int i = 0; i < 2; i++) {
        send_request(fd, "/chat/completions", "x-pi-session: " TOKEN "\r\n", BODY);
        AUTO_BUF answer = {0};
        char part[4096];
        while (answer.p == NULL || strstr(answer.p, "[DONE]\n\n") == NULL) {
            ssize_t n = read(fd, part, sizeof part);
            assert_true(n > 0);
            buf_add(&answer, part, (size_t)n);
        }
        assert_non_null(strstr(answer.p, "Content-Length: 14\r\n"));
    }
    assert_int_equal(s->provider.requests, 2);
    assert_int_equal(s->opened, 1);
    stage_free(s);
}

#define NO_LUCK "{\"error\":{\"message\":\"no luck with the-key today\"}}"

static const struct upstream_failure {
    int status;
    const char *body, *code;
    bool again; /* the host gets nothing of it, control decides */
} upstream_failures[] = {
    {400, NO_LUCK, "model_bad_request", false},
    {401, NO_LUCK, "model_rejected_key", false},
    {402, NO_LUCK, "model_no_credit", false},
    {403, NO_LUCK, "model_rejected_key", false},
    {404, NO_LUCK, "model_not_found", false},
    {429, NO_LUCK, "model_rate_limited", true},
    {429, "{\"error\":{\"message\":\"no the-key\",\"code\":\"insufficient_quota\"}}",
     "model_no_credit", false},
    {408, NO_LUCK, "model_overloaded", true},
    {500, NO_LUCK, "model_overloaded", true},
    {529, NO_LUCK, "model_overloaded", true},
    {503, "<html>busy</html>", "model_overloaded", true},
    {302, NO_LUCK, "model_bad_request", false},
};

static void check_failure(const struct upstream_failure *f, struct stage *s,
                          const struct buf *answer)
{
    const json_t *end = await_end(s);
    if (f->again) {
        assert_int_equal(status_of(answer), 424);
        assert_non_null(strstr(answer->p, "given up"));
        assert_int_equal(s->held_count, 1);
        end = s->held;
    } else {
        assert_int_equal(status_of(answer), f->status);
        assert_non_null(strstr(answer->p, f->body));
        assert_int_equal(s->held_count, 0);
    }
    const json_t *error = json_object_get(end, "error");
    const char *message = json_get_c(error, "message");
    assert_int_equal(json_get_int(end, "status", 0), f->status);
    assert_string_equal(error_code_of(end), f->code);
    assert_null(strstr(message, "the-key"));
    if (f->body[0] == '{')
        assert_non_null(strstr(message, f->body == (const char *)NO_LUCK
                                            ? "no luck with ******* today"
                                            : "no *******"));
    assert_int_equal(json_get_bool(error, "unrecoverable", true), !f->again);
    assert_true(json_is_null(json_object_get(end, "usage")));
    assert_int_equal(s->provider.requests, 1);
}

static void the_providers_own_errors_are_classified(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof upstream_failures / sizeof *upstream_failures; i++) {
        const struct upstream_failure *f = &upstream_failures[i];
        AUTO_ARENA a = arena_new();
        struct stage *s = stage_new();
        s->provider.reply = arena_printf(
            a,
            "HTTP/1.1 %d Odd\r\nContent-Type: application/json\r\nLocation: http://x.test/\r\n"
            "Content-Length: %zu\r\nConnection: close\r\n\r\n%s",
            f->status, strlen(f->body), f->body);
        box_for(s, a, origin_of(s, a));
        open_session(s, "openai-completions", s->base_url, true);
        AUTO_BUF answer = {0};
        ask(s, "/chat/completions", WITH_TOKEN, BODY, &answer);
        check_failure(f, s, &answer);
        stage_free(s);
    }
}

static void another_attempt_may_succeed(void **state)
{
    (void)state;
    AUTO_ARENA a = arena_new();
    struct stage *s = stage_new();
    static const char *const replies[] = {
        "HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n", "", /* hangs up */
        "HTTP/1.1 429 Slow\r\nretry-after-ms: 20\r\nContent-Length: 2\r\n\r\n{}", NULL};
    reply_with(s, a, SSE_HEAD, happy[0].body);
    s->provider.replies = replies;
    s->attempts_left = 3;
    s->hold_ms = 1;
    open_session(s, "openai-completions", s->base_url, false);
    AUTO_BUF answer = {0}, body = {0};
    ask(s, "/chat/completions", WITH_TOKEN, BODY, &answer);
    bool broken;
    body_of(&answer, &body, &broken);
    assert_string_equal(body.p, happy[0].body);
    const json_t *end = await_end(s);
    assert_true(json_is_null(json_object_get(end, "error")));
    assert_int_equal(json_get_int(end, "status", 0), 200);
    assert_int_equal(s->provider.requests, 4);
    assert_int_equal(s->begins, 1);
    assert_int_equal(s->held_count, 3);
    assert_int_equal(json_get_int(s->held, "retryAfterMs", 0), 20);
    stage_free(s);
}

static void an_answer_without_a_body_is_complete(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    s->provider.reply = "HTTP/1.1 404 Odd\r\nX-Odd: 7\r\nContent-Length: 0\r\n\r\n";
    open_session(s, "openai-completions", s->base_url, false);
    AUTO_BUF answer = {0};
    ask(s, "/chat/completions", WITH_TOKEN, BODY, &answer);
    assert_int_equal(status_of(&answer), 404);
    assert_non_null(strstr(answer.p, "X-Odd: 7\r\n"));
    const json_t *end = await_end(s);
    assert_false(json_get_bool(end, "aborted", true));
    assert_string_equal(error_code_of(end), "model_not_found");
    stage_free(s);
}

/* Its first part was read for the message; the rest follows it. */
static void a_long_failed_answer_is_relayed_whole(void **state)
{
    (void)state;
    AUTO_ARENA a = arena_new();
    struct stage *s = stage_new();
    AUTO_BUF body = {0}, got = {0};
    buf_add_c(&body, "insufficient_quota ");
    while (body.n < 100000)
        buf_printf(&body, "%zu ", body.n);
    s->provider.reply =
        arena_printf(a, "HTTP/1.1 429 Odd\r\nContent-Length: %zu\r\n\r\n%s", body.n, body.p);
    open_session(s, "openai-completions", s->base_url, false);
    AUTO_BUF answer = {0};
    ask(s, "/chat/completions", WITH_TOKEN, BODY, &answer);
    bool broken;
    body_of(&answer, &got, &broken);
    assert_int_equal(status_of(&answer), 429);
    assert_true(str_eq(buf_str(&got), buf_str(&body)));
    stage_free(s);
}

static void a_host_may_hang_up_during_a_backoff(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    s->provider.reply = "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n";
    s->ignore_held = true;
    open_session(s, "openai-completions", s->base_url, false);
    AUTO_FD fd = connect_host(s->socket);
    send_request(fd, "/chat/completions", WITH_TOKEN, BODY);
    assert_true(wait_true(&s->m, &s->c, &s->was_held));
    fd_close(&fd);
    assert_true(json_get_bool(await_end(s), "aborted", false));
    stage_free(s);
}

/* A proxy's page with status 200 costs nothing, and is worth another attempt. */
static void a_page_is_no_answer(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    s->provider.reply = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 20\r\n"
                        "Connection: close\r\n\r\n<html>log in!</html>";
    open_session(s, "openai-completions", s->base_url, false);
    AUTO_BUF answer = {0};
    ask(s, "/chat/completions", WITH_TOKEN, BODY, &answer);
    assert_non_null(strstr(answer.p, "<html>log in!</html>"));
    const json_t *end = await_end(s);
    assert_string_equal(error_code_of(end), "model_stream_broken");
    assert_true(json_is_null(json_object_get(end, "usage")));
    assert_false(json_get_bool(json_object_get(end, "error"), "unrecoverable", true));
    stage_free(s);
}

static const struct {
    const char *api, *target, *odd;
    bool choked;
} nonsense[] = {
    {"openai-completions", "/chat/completions", "data: {oops\n\n", true},
    {"openai-completions", "/chat/completions", ": a comment\n\n", false},
    {"openai-completions", "/chat/completions", "data:\n\n", false},
    {"anthropic-messages", "/v1/messages", "data: {oops\n\n", false},
    {"anthropic-messages", "/v1/messages", "event: ping\ndata: {oops\n\n", true},
    {"openai-responses", "/responses", "event: x\ndata: {oops\n\n", true},
    {"google-generative-ai", "/models/m:streamGenerateContent", "data: {oops\n\n", true},
};

static const struct happy *happy_of(const char *api)
{
    for (size_t i = 0; i < sizeof happy / sizeof *happy; i++)
        if (strcmp(happy[i].api, api) == 0)
            return &happy[i];
    return NULL;
}

static void nonsense_in_an_answer_is_noticed_where_it_matters(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof nonsense / sizeof *nonsense; i++) {
        AUTO_ARENA a = arena_new();
        struct stage *s = stage_new();
        const struct happy *h = happy_of(nonsense[i].api);
        reply_with(s, a, SSE_HEAD, arena_printf(a, "%s%s", nonsense[i].odd, h->body));
        open_session(s, h->api, s->base_url, false);
        AUTO_BUF answer = {0};
        ask(s, h->target, WITH_TOKEN, BODY, &answer);
        const json_t *end = await_end(s);
        assert_string_equal(error_code_of(end), nonsense[i].choked ? "model_stream_broken" : "");
        assert_int_equal(json_get_int(json_object_get(end, "usage"), "outputTokens", -1),
                         h->output);
        stage_free(s);
    }
}

/* Servers that forget to call a stream a stream. */
static void a_stream_under_another_name_is_metered(void **state)
{
    (void)state;
    AUTO_ARENA a = arena_new();
    struct stage *s = stage_new();
    reply_with(s, a,
               "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n",
               happy[0].body);
    open_session(s, "openai-completions", s->base_url, false);
    AUTO_BUF answer = {0};
    ask(s, "/chat/completions", WITH_TOKEN, BODY, &answer);
    const json_t *end = await_end(s), *usage = json_object_get(end, "usage");
    assert_true(json_is_null(json_object_get(end, "error")));
    assert_int_equal(json_get_int(usage, "outputTokens", -1), happy[0].output);
    assert_null(json_object_get(usage, "estimated"));
    stage_free(s);
}

static void an_error_inside_a_stream_is_classified(void **state)
{
    (void)state;
    AUTO_ARENA a = arena_new();
    struct stage *s = stage_new();
    reply_with(s, a, SSE_HEAD,
               "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\","
               "\"message\":\"Overloaded\"}}\n\n");
    open_session(s, "anthropic-messages", s->base_url, false);
    AUTO_BUF answer = {0};
    ask(s, "/v1/messages?beta=true", WITH_TOKEN, BODY, &answer);
    assert_int_equal(status_of(&answer), 200);
    assert_string_equal(error_code_of(await_end(s)), "model_overloaded");
    stage_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_wire_api_is_relayed_byte_for_byte),
        cmocka_unit_test(the_path_of_the_real_address_may_be_repeated),
        cmocka_unit_test(two_requests_on_one_connection_open_the_box_once),
        cmocka_unit_test(the_providers_own_errors_are_classified),
        cmocka_unit_test(another_attempt_may_succeed),
        cmocka_unit_test(a_long_failed_answer_is_relayed_whole),
        cmocka_unit_test(a_host_may_hang_up_during_a_backoff),
        cmocka_unit_test(an_answer_without_a_body_is_complete),
        cmocka_unit_test(a_page_is_no_answer),
        cmocka_unit_test(nonsense_in_an_answer_is_noticed_where_it_matters),
        cmocka_unit_test(a_stream_under_another_name_is_metered),
        cmocka_unit_test(an_error_inside_a_stream_is_classified),
    };
    return cmocka_run_group_tests(tests, once, NULL);
}
