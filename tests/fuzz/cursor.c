/* sources: src/base/str.c src/base/arena.c src/base/mem.c src/base/err.c src/base/buf.c */
/* sources: src/base/clock.c src/base/json.c src/base/json_scan.c */
/* Cursors: any text is read without harm; an accepted one is exactly what we would have written;
   any position survives writing and reading. */
#include "http/page.c"

#include <stdlib.h>

static struct str cursor_text;

struct str ctx_query(const struct ctx *ctx, const char *name)
{
    (void)ctx;
    return strcmp(name, "cursor") == 0 ? cursor_text : (struct str){0};
}

err reply_json(struct ctx *ctx, int status, json_t *take_body)
{
    (void)ctx;
    (void)status;
    json_decref(take_body);
    return 0;
}

err reply_json_text(struct ctx *ctx, int status, struct str json)
{
    (void)ctx;
    (void)status;
    (void)json;
    return 0;
}

static void must(bool ok)
{
    if (!ok)
        abort();
}

static const struct route row = {.method = GET, .path = "/v1/a", .list = true, .query = "f g"};
static const struct http_query filters[] = {{{"g", 1}, {"x", 1}}, {{"limit", 5}, {"1", 1}}};
static const struct http_options options = {.cursor_key = {42}};

static void set_up(struct http_exchange *x, struct arena *a)
{
    *x = (struct http_exchange){.options = &options, .path = STR("/v1/a")};
    x->ctx = (struct ctx){.arena = a,
                          .route = &row,
                          .queries = filters,
                          .query_count = 2,
                          .tenant = "tenant_1",
                          .exchange = x};
}

static void try_position(struct http_exchange *x, const uint8_t *data, size_t n)
{
    int64_t at = 0;
    char id[ID_MAX] = "";
    if (n > sizeof at) {
        memcpy(&at, data, sizeof at);
        size_t id_n = n - sizeof at < ID_MAX - 1 ? n - sizeof at : ID_MAX - 1;
        memcpy(id, data + sizeof at, id_n);
    }
    cursor_text = str_of(cursor_write(x, at, id));
    must(cursor_text.n < HTTP_CURSOR_MAX);
    must(page_read(x) == 0 && x->ctx.page.has_after);
    must(x->ctx.page.after_at == at && strcmp(x->ctx.page.after_id, id) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    AUTO_ARENA a = arena_new();
    struct http_exchange x;
    set_up(&x, a);
    cursor_text = (struct str){(const char *)data, n};
    if (n && page_read(&x) == 0) {
        const char *again = cursor_write(&x, x.ctx.page.after_at, x.ctx.page.after_id);
        must(str_is(cursor_text, again));
    }
    set_up(&x, a);
    try_position(&x, data, n);
    return 0;
}
