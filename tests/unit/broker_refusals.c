/* What the model gateway refuses: tokens, targets, models, credentials, addresses; and what it says
   when nobody answers. */
#include "broker_stage.h"

#include <poll.h>

static void an_unknown_token_gets_401(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    open_session(s, "openai-completions", s->base_url, false);
    static const char *const headers[] = {
        "Connection: close\r\n",
        "Connection: close\r\nx-pi-session: x\r\n",
        "Connection: close\r\nx-pi-session: "
        "10112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\r\n",
    };
    for (size_t i = 0; i < 3; i++) {
        AUTO_BUF answer = {0};
        ask(s, "/chat/completions", headers[i], BODY, &answer);
        expect_error(s, &answer, 401, "unknown_token");
    }
    assert_int_equal(s->begins, 0);
    assert_int_equal(s->provider.requests, 0);
    stage_free(s);
}

static void a_token_on_another_tenants_socket_gets_401(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    open_session(s, "openai-completions", s->base_url, false);
    AUTO_FD fd = connect_host(s->foreign_socket);
    send_request(fd, "/chat/completions", WITH_TOKEN, BODY);
    AUTO_BUF answer = {0};
    read_all(fd, &answer);
    expect_error(s, &answer, 401, "unknown_token");
    assert_int_equal(s->begins, 0);
    stage_free(s);
}

/* The socket of a host without a tenant; meanwhile a session is opened. */
static const char *open_spare(struct stage *s, struct arena *a)
{
    reply_with(s, a, SSE_HEAD, GOOD_STREAM);
    const char *path = arena_printf(a, "%s/spare", s->dir);
    assert_int_equal(gateways_open(s->gateways, 3, "", listen_unix(path)), 0);
    open_session(s, "openai-completions", s->base_url, false);
    return path;
}

static void a_spare_hosts_socket_serves_once_it_has_its_tenant(void **state)
{
    (void)state;
    AUTO_ARENA a = arena_new();
    struct stage *s = stage_new();
    const char *path = open_spare(s, a);
    static const int statuses[] = {401, 200};
    for (size_t i = 0; i < 2; i++) {
        AUTO_FD fd = connect_host(path);
        send_request(fd, "/chat/completions", WITH_TOKEN, BODY);
        AUTO_BUF answer = {0};
        read_all(fd, &answer);
        assert_int_equal(status_of(&answer), statuses[i]);
        assert_int_equal(gateways_bind(s->gateways, 3, TENANT), 0);
    }
    assert_int_equal(gateways_bind(s->gateways, 4, TENANT), E_NOT_FOUND);
    unlink(path);
    stage_free(s);
}

/* No answer comes while the request waits for what it has overtaken. */
static void expect_waiting(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 100), 0);
}

static void expect_served(int fd)
{
    AUTO_BUF answer = {0};
    read_all(fd, &answer);
    assert_int_equal(status_of(&answer), 200);
}

static void a_request_may_overtake_its_sessions_registration(void **state)
{
    (void)state;
    AUTO_ARENA a = arena_new();
    struct stage *s = stage_new();
    reply_with(s, a, SSE_HEAD, GOOD_STREAM);
    AUTO_FD fd = connect_host(s->socket);
    send_request(fd, "/chat/completions", WITH_TOKEN, BODY);
    expect_waiting(fd);
    open_session(s, "openai-completions", s->base_url, false);
    expect_served(fd);
    stage_free(s);
}

static void a_request_may_overtake_the_binding_of_its_host(void **state)
{
    (void)state;
    AUTO_ARENA a = arena_new();
    struct stage *s = stage_new();
    const char *path = open_spare(s, a);
    AUTO_FD fd = connect_host(path);
    send_request(fd, "/chat/completions", WITH_TOKEN, BODY);
    expect_waiting(fd);
    assert_int_equal(gateways_bind(s->gateways, 3, TENANT), 0);
    expect_served(fd);
    unlink(path);
    stage_free(s);
}

static void a_closed_session_gets_401(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    open_session(s, "openai-completions", s->base_url, false);
    broker_close_session(s->link, TOKEN);
    wait_registered(s, 0);
    AUTO_BUF answer = {0};
    ask(s, "/chat/completions", WITH_TOKEN, BODY, &answer);
    expect_error(s, &answer, 401, "unknown_token");
    stage_free(s);
}

static void other_targets_and_methods_are_refused(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    open_session(s, "openai-completions", s->base_url, false);
    static const char *const targets[] = {"/models",
                                          "/chat/completions/x",
                                          "/chat/completions?a=b",
                                          "/v1/../chat/completions",
                                          "//chat/completions",
                                          "/responses",
                                          "/v2/chat/completions",
                                          "/chat%2fcompletions"};
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        AUTO_BUF answer = {0};
        ask(s, targets[i], WITH_TOKEN, BODY, &answer);
        expect_error(s, &answer, 404, "not_a_model_request");
    }
    assert_int_equal(s->provider.requests, 0);
    stage_free(s);
}

static void only_the_sessions_model_can_be_asked(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    open_session(s, "openai-completions", s->base_url, false);
    static const char *const bodies[] = {"", "{}", "{\"model\":\"dearer\"}",
                                         "{\"model\":\"m\",\"model\":\"dearer\"}"};
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        AUTO_BUF answer = {0};
        ask(s, "/chat/completions", WITH_TOKEN, str_of(bodies[i]), &answer);
        expect_error(s, &answer, 400, "model_bad_request");
    }
    assert_int_equal(s->begins, 0);
    stage_free(s);
}

static void control_can_refuse(void **state)
{
    (void)state;
    static const int statuses[] = {402, 403};
    for (size_t i = 0; i < 2; i++) {
        struct stage *s = stage_new();
        s->verdict = REFUSE;
        s->refuse_status = statuses[i];
        open_session(s, "openai-completions", s->base_url, false);
        AUTO_BUF answer = {0};
        ask(s, "/chat/completions", WITH_TOKEN, BODY, &answer);
        expect_error(s, &answer, statuses[i], "budget_exhausted");
        assert_int_equal(s->provider.requests, 0);
        assert_true(json_is_null(json_object_get(await_end(s), "usage")));
        stage_free(s);
    }
}

static void control_that_stays_silent_is_not_waited_for_without_end(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    s->verdict = STAY_SILENT;
    s->env.go_timeout_ms = 50;
    open_session(s, "openai-completions", s->base_url, false);
    AUTO_BUF answer = {0};
    ask(s, "/chat/completions", WITH_TOKEN, BODY, &answer);
    expect_error(s, &answer, 424, "model_unreachable");
    assert_int_equal(s->provider.requests, 0);
    stage_free(s);
}

static void refused_credentials(struct stage *s, struct str body, const char *code)
{
    AUTO_BUF answer = {0};
    ask(s, "/chat/completions", WITH_TOKEN, body, &answer);
    expect_error(s, &answer, 403, code);
    assert_string_equal(error_code_of(await_end(s)), code);
    assert_true(json_get_bool(json_object_get(s->end, "error"), "unrecoverable", false));
    assert_int_equal(s->provider.requests, 0);
}

static void a_credential_for_another_use_is_refused(void **state)
{
    (void)state;
    static const char *const boxes[] = {
        NULL, /* cannot be opened */
        "not json",
        "{\"tenant\":\"tenant_b\",\"kind\":\"model_provider_key\",\"origin\":\"ORIGIN\",\"secret\":"
        "\"k\"}",
        "{\"tenant\":\"tenant_a\",\"kind\":\"git\",\"origin\":\"ORIGIN\",\"secret\":\"k\"}",
        "{\"tenant\":\"tenant_a\",\"kind\":\"model_provider_key\",\"origin\":\"ORIGIN\",\"secret\":"
        "\"\"}",
        "{\"tenant\":\"tenant_a\",\"kind\":\"model_provider_key\",\"origin\":\"ORIGIN\",\"secret\":"
        "\"k\\r\\nX: y\"}",
        "{\"tenant\":\"tenant_a\",\"kind\":\"model_provider_key\",\"provider\":\"custom-x\","
        "\"secret\":\"k\"}",
        "{\"tenant\":\"tenant_a\",\"kind\":\"model_provider_key\",\"provider\":\"acme\",\"secret\":"
        "\"k\"}",
        "{\"tenant\":\"tenant_a\",\"kind\":\"model_provider_key\",\"origin\":\"http://"
        "127.0.0.1\",\"secret\":\"k\"}",
        "{\"tenant\":\"tenant_a\",\"kind\":\"model_provider_key\",\"origin\":\"https://"
        "ORIGIN\",\"secret\":\"k\"}",
        "{\"tenant\":\"tenant_a\",\"kind\":\"model_provider_key\",\"origin\":\"http://"
        "localhost\",\"secret\":\"k\"}",
    };
    for (size_t i = 0; i < sizeof boxes / sizeof *boxes; i++) {
        AUTO_ARENA a = arena_new();
        struct stage *s = stage_new();
        const char *hole = boxes[i] ? strstr(boxes[i], "ORIGIN") : NULL;
        s->box = boxes[i];
        if (hole)
            s->box = arena_printf(a, "%.*shttp://127.0.0.1:%d%s", (int)(hole - boxes[i]), boxes[i],
                                  s->provider.port, hole + 6);
        open_session(s, "openai-completions", s->base_url, true);
        refused_credentials(s, BODY, "credential_refused");
        stage_free(s);
    }
}

static void a_catalogue_key_goes_to_the_catalogues_address_only(void **state)
{
    (void)state;
    AUTO_ARENA a = arena_new();
    struct stage *s = stage_new();
    reply_with(s, a, SSE_HEAD, GOOD_STREAM);
    box_for(s, a, "\"provider\":\"acme\"");
    open_catalog_session(s, "large", true);
    AUTO_BUF answer = {0};
    ask(s, "/chat/completions", WITH_TOKEN, BODY_LARGE, &answer);
    assert_int_equal(status_of(&answer), 200);
    assert_non_null(strstr(s->provider.request.p, "Bearer the-key\r\n"));
    stage_free(s);
}

static void a_catalogue_session_needs_its_own_providers_key(void **state)
{
    (void)state;
    AUTO_ARENA a = arena_new();
    struct stage *s = stage_new();
    box_for(s, a, "\"provider\":\"other\"");
    open_catalog_session(s, "large", true);
    refused_credentials(s, BODY_LARGE, "credential_refused");
    stage_free(s);
    s = stage_new();
    open_catalog_session(s, "large", false);
    refused_credentials(s, BODY_LARGE, "credential_missing");
    stage_free(s);
}

static void an_unusable_model_is_not_found(void **state)
{
    (void)state;
    static const char *const models[] = {"odd", "nonesuch"};
    for (size_t i = 0; i < 2; i++) {
        struct stage *s = stage_new();
        open_catalog_session(s, models[i], true);
        AUTO_BUF answer = {0};
        ask(s, "/chat/completions", WITH_TOKEN, BODY, &answer);
        expect_error(s, &answer, 404, "model_not_found");
        stage_free(s);
    }
}

static void a_private_address_is_not_dialled_unless_allowed(void **state)
{
    (void)state;
    static const char *const urls[] = {"http://127.0.0.1:9/v1",           "https://127.0.0.1:9/v1",
                                       "https://169.254.169.254/v1",      "https://localhost/v1",
                                       "http://127.0.0.1@example.com/v1", "ftp://example.com"};
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        struct stage *s = stage_new();
        open_session(s, "openai-completions", urls[i], false);
        AUTO_BUF answer = {0};
        ask(s, "/chat/completions", WITH_TOKEN, BODY, &answer);
        expect_error(s, &answer, 403, "address_not_allowed");
        assert_string_equal(error_code_of(await_end(s)), "address_not_allowed");
        stage_free(s);
    }
}

static void a_provider_that_is_not_there_is_unreachable(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    /* A port that was free a moment ago and that the guard lets through. */
    struct provider gone = {0};
    provider_start(&gone);
    provider_stop(&gone);
    char allow[64], url[64];
    snprintf(allow, sizeof allow, "127.0.0.1:%d", gone.port);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/v1", gone.port);
    dial_guard_free(s->guard);
    assert_int_equal(dial_guard_new(allow, &s->guard), 0);
    s->env.guard = s->guard;
    open_session(s, "openai-completions", url, false);
    AUTO_BUF answer = {0};
    ask(s, "/chat/completions", WITH_TOKEN, BODY, &answer);
    expect_error(s, &answer, 424, "retries_exhausted");
    assert_string_equal(error_code_of(s->held), "model_unreachable");
    assert_non_null(
        strstr(json_get_c(json_object_get(s->held, "error"), "message"), "nothing listens there"));
    assert_true(json_is_null(json_object_get(await_end(s), "usage")));
    stage_free(s);
}

static void a_provider_that_hangs_up_is_unreachable(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    open_session(s, "openai-completions", s->base_url, false);
    AUTO_BUF answer = {0};
    ask(s, "/chat/completions", WITH_TOKEN, BODY, &answer);
    expect_error(s, &answer, 424, "retries_exhausted");
    assert_string_equal(error_code_of(s->held), "model_unreachable");
    stage_free(s);
}

static void a_provider_that_is_silent_for_too_long_is_unreachable(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    s->env.idle_ms = 100;
    s->provider.hold = true;
    open_session(s, "openai-completions", s->base_url, false);
    AUTO_BUF answer = {0};
    ask(s, "/chat/completions", WITH_TOKEN, BODY, &answer);
    expect_error(s, &answer, 424, "retries_exhausted");
    assert_string_equal(error_code_of(s->held), "model_unreachable");
    stage_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unknown_token_gets_401),
        cmocka_unit_test(a_request_may_overtake_its_sessions_registration),
        cmocka_unit_test(a_request_may_overtake_the_binding_of_its_host),
        cmocka_unit_test(a_token_on_another_tenants_socket_gets_401),
        cmocka_unit_test(a_spare_hosts_socket_serves_once_it_has_its_tenant),
        cmocka_unit_test(a_closed_session_gets_401),
        cmocka_unit_test(other_targets_and_methods_are_refused),
        cmocka_unit_test(only_the_sessions_model_can_be_asked),
        cmocka_unit_test(control_can_refuse),
        cmocka_unit_test(control_that_stays_silent_is_not_waited_for_without_end),
        cmocka_unit_test(a_credential_for_another_use_is_refused),
        cmocka_unit_test(a_catalogue_key_goes_to_the_catalogues_address_only),
        cmocka_unit_test(a_catalogue_session_needs_its_own_providers_key),
        cmocka_unit_test(an_unusable_model_is_not_found),
        cmocka_unit_test(a_private_address_is_not_dialled_unless_allowed),
        cmocka_unit_test(a_provider_that_is_not_there_is_unreachable),
        cmocka_unit_test(a_provider_that_hangs_up_is_unreachable),
        cmocka_unit_test(a_provider_that_is_silent_for_too_long_is_unreachable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
