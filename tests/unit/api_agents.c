/* src/api/agent_fields.c: which models an agent may name (R40, R47), and how definitions change
 * (§6.3).
 */
#include "../../src/api/agent_fields.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>
#undef fail /* ours */

/* A catalogue of three models. */
static const struct catalog_model models[] = {
    {.provider = "openai", .id = "gpt", .api = "openai-responses"},
    {.provider = "google", .id = "gemini", .api = "google-generative-ai"},
    {.provider = "amazon", .id = "nova", .api = NULL},
};

const struct catalog_model *catalog_find(const struct catalog *c, const char *provider,
                                         const char *id)
{
    (void)c;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (strcmp(models[i].provider, provider) == 0 && strcmp(models[i].id, id) == 0)
            return &models[i];
    return NULL;
}

bool catalog_has_provider(const struct catalog *c, const char *provider)
{
    (void)c;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (strcmp(models[i].provider, provider) == 0)
            return true;
    return false;
}

const char *catalog_providers(const struct catalog *c)
{
    (void)c;
    return "google, openai";
}

struct seen {
    char path[64], text[300];
    int count;
};

static void note(void *arg, const char *path, const char *text)
{
    struct seen *s = arg;
    snprintf(s->path, sizeof s->path, "%s", path);
    snprintf(s->text, sizeof s->text, "%s", text);
    s->count++;
}

static json_t *parse(const char *quoted)
{
    AUTO_BUF text = {0};
    for (const char *c = quoted; *c; c++)
        buf_add_char(&text, *c == '\'' ? '"' : *c);
    json_t *j = NULL;
    assert_int_equal(json_read(buf_str(&text), &j), 0);
    return j;
}

static void models_are_checked_against_the_catalogue(void **state)
{
    (void)state;
    static const struct {
        const char *model, *path, *code; /* path NULL: accepted */
    } rows[] = {
        {"{'provider':'openai','id':'gpt'}", NULL, ""},
        {"{'provider':'google','id':'gemini','thinkingLevel':'low'}", NULL, ""},
        {"{'provider':'openai','id':'gpt','api':null,'baseUrl':null}", NULL, ""},
        {"{'provider':'openai','id':'gpt','cost':{'input':1,'output':2}}", NULL, ""},
        {"{'provider':'openai','id':'gpt-99'}", "/model/id", "model_unknown"},
        {"{'provider':'amazon','id':'nova'}", "/model/provider", "provider_unavailable"},
        {"{'provider':'nobody','id':'x'}", "/model/provider", "provider_unavailable"},
        {"{'provider':'openai','id':'gpt','contextWindow':5}", "/model/contextWindow",
         "invalid_request"},
        {"{'provider':'my','id':'m','api':'openai-completions','baseUrl':'http://127.0.0.1:8080'}",
         NULL, ""},
        {"{'provider':'my','id':'m','api':'anthropic-messages','baseUrl':'https://example.com/a/b',"
         "'contextWindow':5,'maxTokens':4,'input':['text']}",
         NULL, ""},
        {"{'provider':'openai','id':'gpt','api':'openai-responses','baseUrl':'https://"
         "example.com'}",
         NULL, ""},
        {"{'provider':'my','id':'m','api':'openai-completions'}", "/model/baseUrl",
         "invalid_request"},
        {"{'provider':'my','id':'m','baseUrl':'https://example.com'}", "/model/api",
         "invalid_request"},
        {"{'provider':'my','id':'m','api':'soap','baseUrl':'https://example.com'}", "/model/api",
         "invalid_request"},
        {"{'provider':'my','id':'m','api':'openai-completions','baseUrl':''}", "/model/baseUrl",
         "invalid_request"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        AUTO_JSON body = json_pack("{s:s, s:o}", "name", "n", "model", parse(rows[i].model));
        struct seen seen = {0};
        struct fields f = {.report = note, .report_arg = &seen};
        err e = fields_check(&f, body, agent_create_fields);
        if (e != (rows[i].path ? E_INVALID : 0))
            print_error("%s: %s %s\n", rows[i].model, seen.path, seen.text);
        assert_int_equal(e, rows[i].path ? E_INVALID : 0);
        assert_string_equal(seen.path, rows[i].path ? rows[i].path : "");
        if (e)
            assert_string_equal(err_code(), rows[i].code);
        if (strcmp(rows[i].code, "provider_unavailable") == 0)
            assert_non_null(strstr(err_text(), "google, openai"));
    }
}

static void base_urls_are_plain_http_addresses(void **state)
{
    (void)state;
    static const char *const good[] = {"http://a", "https://a:1/v1", "http://[::1]:8/x",
                                       "https://example.com/a-b_c/%20"};
    static const char *const bad[] = {"",           "a",           "ftp://a",         "http://",
                                      "http:///x",  "http://u@a",  "http://a?",       "http://a#",
                                      "http://a b", "http://a\\b", "http://\xc3\xa4", "HTTP://a"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(is_base_url(str_of(good[i])));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(is_base_url(str_of(bad[i])));
}

static void omitted_stays_null_clears_a_value_replaces(void **state)
{
    (void)state;
    AUTO_JSON first = parse("{'name':'n','model':{'id':'m'},'systemPrompt':'p'}");
    AUTO_JSON definition = json_object();
    agent_apply(definition, first);
    AUTO_JSON whole = parse("{'name':'n','model':{'id':'m'},'systemPrompt':'p','tools':null,"
                            "'extensions':[],'skills':[],'mcpServers':[],'multiagent':null,'"
                            "projectContext':true,'metadata':{}}");
    assert_true(json_equal(definition, whole));
    AUTO_JSON change = parse("{'systemPrompt':null,'tools':{'configs':[]},'metadata':{'a':'b'}}");
    agent_apply(definition, change);
    AUTO_JSON changed =
        parse("{'name':'n','model':{'id':'m'},'systemPrompt':null,'tools':{'configs':[]},"
              "'extensions':[],'skills':[],'mcpServers':[],'multiagent':null,'projectContext':true,"
              "'metadata':{'a':'b'}}");
    assert_true(json_equal(definition, changed));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_are_checked_against_the_catalogue),
        cmocka_unit_test(base_urls_are_plain_http_addresses),
        cmocka_unit_test(omitted_stays_null_clears_a_value_replaces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
