/* sources: src/base/str.c src/base/arena.c src/base/mem.c src/base/err.c src/base/buf.c */
/* sources: src/base/clock.c src/base/json.c src/base/json_scan.c src/base/id.c src/api/fields.c */
/* Bodies of POST /v1/agents: whatever is accepted has the shape that the rest relies on, whatever
   is refused says where, in valid UTF-8. */
#include "../../src/api/agent_fields.c"

#include <stdlib.h>

static const struct catalog_model model = {.provider = "p", .id = "m", .api = "openai-responses"};

const struct catalog_model *catalog_find(const struct catalog *c, const char *provider,
                                         const char *id)
{
    (void)c;
    return strcmp(provider, "p") == 0 && strcmp(id, "m") == 0 ? &model : NULL;
}

bool catalog_has_provider(const struct catalog *c, const char *provider)
{
    (void)c;
    return strcmp(provider, "p") == 0;
}

const char *catalog_providers(const struct catalog *c)
{
    (void)c;
    return "p";
}

/* The server's side of a request is not part of this. */
void problem_add(struct ctx *ctx, const char *path, const char *fmt, ...)
{
    (void)ctx;
    (void)path;
    (void)fmt;
}

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void look(void *arg, const char *path, const char *text)
{
    must(path[0] == 0 || path[0] == '/');
    must(strlen(path) < FIELDS_PATH_MAX && str_is_utf8(str_of(path)));
    must(text[0] != 0);
    ++*(size_t *)arg;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    AUTO_JSON body = NULL;
    if (json_read((struct str){(const char *)data, n}, &body))
        return 0;
    size_t reports = 0;
    struct fields f = {.report = look, .report_arg = &reports};
    err e = fields_check(&f, body, agent_create_fields);
    must((e == 0) == (f.count == 0));
    must(reports == (f.count < FIELDS_PROBLEMS_MAX ? f.count : FIELDS_PROBLEMS_MAX));
    if (e) {
        must(err_text()[0] != 0);
        return 0;
    }
    must(json_get_c(body, "name") && str_characters(json_get_str(body, "name")) <= 128);
    must(!str_has_nul(json_get_str(body, "name")));
    const json_t *m = json_object_get(body, "model");
    must(json_get_c(m, "provider") && json_get_c(m, "id"));
    must((json_get_c(m, "api") != NULL) == (json_get_c(m, "baseUrl") != NULL));
    AUTO_JSON definition = json_object();
    agent_apply(definition, body);
    must(json_object_size(definition) == 10);
    must(json_array_size(json_object_get(definition, "mcpServers")) <= 20);
    err whole = agent_check_whole(definition), runnable = agent_check_runnable(definition);
    must((!whole && !runnable) || err_text()[0] != 0);
    AUTO_JSON again = json_deep_copy(definition);
    agent_apply(again, body); /* applying twice is applying once */
    must(json_equal(again, definition));
    return 0;
}
