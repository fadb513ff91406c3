/* src/broker/key_check.c: which keys are tried, where, and what is made of the answers. */
#include "broker_stage.h"

#include "broker/key_check.c"

#define OK                                                                                         \
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: "       \
    "close\r\n\r\n{}"
#define ANSWER(status, body)                                                                       \
    "HTTP/1.1 " status "\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n" body

#define ACME "{\"tenant\":\"tenant_a\",\"kind\":\"model_provider_key\",\"secret\":\"k-acme\","

/* The verdict on a key for a provider of the catalogue. */
static void try_key(struct stage *s, const char *provider, struct finding *out)
{
    AUTO_JSON m = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:s}", "tenant", TENANT, "session",
                            SESSION, "provider", provider, "model", "large", "api", "", "baseUrl",
                            "https://attacker.example.com", "custom", 0, "sealed", "c2VhbGVk");
    struct check k = {.env = &s->env};
    assert_int_equal(registry_describe(s->env.registry, m, &k.registration), 0);
    assert_int_equal(registry_count(s->env.registry), 0);
    if (judge(&k, out) != 0)
        say(out, "unknown", err_text());
    registration_unref(k.registration);
}

static void a_key_of_a_provider_is_tried_at_the_catalogues_address(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    struct finding v;
    s->box = ACME "\"provider\":\"acme\"}";
    s->provider.reply = ANSWER("401 Unauthorized", "{}");
    try_key(s, "acme", &v);
    assert_string_equal(v.word, "invalid");
    assert_int_equal(s->provider.requests, 1);
    assert_memory_equal(s->provider.request.p, "GET /v1/models HTTP/1.1\r\n", 25);
    assert_non_null(strstr(s->provider.request.p, "Authorization: Bearer k-acme\r\n"));
    stage_free(s);
}

static void a_key_is_valid_if_nobody_gets_in_without_it(void **state)
{
    (void)state;
    static const struct {
        const char *keyless, *verdict;
    } cases[] = {
        {ANSWER("401 Unauthorized", "{}"), "valid"},
        {ANSWER("302 Found", ""), "valid"},
        {OK, "unknown"},
        {ANSWER("429 Slow Down", "{}"), "unknown"},
        {ANSWER("503 Later", "{}"), "unknown"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stage *s = stage_new();
        struct finding v;
        const char *const replies[] = {OK, cases[i].keyless, NULL};
        s->box = ACME "\"provider\":\"acme\"}";
        s->provider.replies = replies;
        try_key(s, "acme", &v);
        assert_string_equal(v.word, cases[i].verdict);
        assert_int_equal(v.reason[0] == 0, strcmp(v.word, "valid") == 0);
        assert_int_equal(s->provider.requests, 2);
        assert_null(strstr(s->provider.request.p, "k-acme"));
        stage_free(s);
    }
}

static void a_provider_that_repeats_the_key_is_not_quoted(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    struct finding v;
    s->box = ACME "\"provider\":\"acme\"}";
    s->provider.reply =
        ANSWER("400 Bad Request", "{\"error\":{\"message\":\"API_KEY_INVALID: k-acme\"}}");
    try_key(s, "acme", &v);
    assert_string_equal(v.word, "invalid");
    assert_non_null(strstr(v.reason, "status 400"));
    assert_null(strstr(v.reason, "k-acme"));
    s->provider.reply = ANSWER("400 Bad Request", "{\"error\":{\"message\":\"k-acme\"}}");
    try_key(s, "acme", &v);
    assert_string_equal(v.word, "unknown");
    assert_null(strstr(v.reason, "k-acme"));
    stage_free(s);
}

static void a_key_that_may_not_go_there_is_not_sent(void **state)
{
    (void)state;
    static const struct {
        const char *box, *provider, *reason;
    } cases[] = {
        {ACME "\"provider\":\"other\"}", "acme", "another provider"},
        {ACME "\"origin\":\"https://a.example.com\"}", "acme", "another provider"},
        {ACME "\"provider\":\"nobody\"}", "nobody", "no usable model"},
        {"{\"tenant\":\"tenant_b\",\"kind\":\"model_provider_key\",\"provider\":\"acme\","
         "\"secret\":\"k\"}",
         "acme", "another tenant"},
        {NULL, "acme", "could not be opened"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stage *s = stage_new();
        struct finding v;
        s->box = cases[i].box;
        try_key(s, cases[i].provider, &v);
        assert_string_equal(v.word, "unknown");
        assert_non_null(strstr(v.reason, cases[i].reason));
        assert_int_equal(s->provider.requests, 0);
        stage_free(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_key_of_a_provider_is_tried_at_the_catalogues_address),
        cmocka_unit_test(a_key_is_valid_if_nobody_gets_in_without_it),
        cmocka_unit_test(a_provider_that_repeats_the_key_is_not_quoted),
        cmocka_unit_test(a_key_that_may_not_go_there_is_not_sent),
    };
    return cmocka_run_group_tests(tests, once, NULL);
}
