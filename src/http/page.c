/* R11: lists. A cursor is base64url of {order, sort key of the last row} and a keyed hash over
   that, the tenant, the path and the filters: it is good only where it came from. */
#include "base/buf.h"
#include "http/exchange.h"

#include <sodium.h>
#include <string.h>

#define LIMIT_DEFAULT 20
#define LIMIT_MAX 100
#define CURSOR_VERSION 1
#define HEAD_BYTES 10 /* version, order, sort key */
#define MAC_BYTES 16

static void add_part(struct buf *b, struct str part)
{
    uint64_t n = part.n; /* length first: no two lists of parts look alike */
    buf_add(b, &n, sizeof n);
    buf_add_str(b, part);
}

static bool is_filter(struct str name)
{
    return !str_is(name, "limit") && !str_is(name, "cursor") && !str_is(name, "order");
}

/* The filters in the order of the route row, so that their order in the URL does not matter. */
static void add_filters(struct buf *b, const struct ctx *ctx)
{
    const char *word = ctx->route->query ? ctx->route->query : "";
    while (*word) {
        size_t n = strcspn(word, " ");
        for (size_t i = 0; i < ctx->query_count; i++) {
            struct str name = ctx->queries[i].name;
            if (is_filter(name) && str_eq(name, (struct str){word, n})) {
                add_part(b, name);
                add_part(b, ctx->queries[i].value);
            }
        }
        word += n;
        word += strspn(word, " ");
    }
}

static void cursor_mac(const struct http_exchange *x, struct str payload, unsigned char *out)
{
    AUTO_BUF b = {0};
    add_part(&b, str_of(x->ctx.tenant));
    add_part(&b, x->path);
    add_part(&b, payload);
    add_filters(&b, &x->ctx);
    crypto_generichash(out, MAC_BYTES, (const unsigned char *)b.p, b.n, x->options->cursor_key,
                       sizeof x->options->cursor_key);
}

static const char *cursor_write(const struct http_exchange *x, int64_t at, const char *id)
{
    char raw[HEAD_BYTES + ID_MAX + MAC_BYTES];
    size_t id_n = strnlen(id, ID_MAX - 1), n = HEAD_BYTES + id_n;
    raw[0] = CURSOR_VERSION;
    raw[1] = x->ctx.page.ascending ? 1 : 0;
    for (int i = 0; i < 8; i++)
        raw[2 + i] = (char)((uint64_t)at >> (56 - 8 * i));
    memcpy(raw + HEAD_BYTES, id, id_n);
    cursor_mac(x, (struct str){raw, n}, (unsigned char *)raw + n);
    char *text = arena_alloc(x->ctx.arena, HTTP_CURSOR_MAX);
    sodium_bin2base64(text, HTTP_CURSOR_MAX, (unsigned char *)raw, n + MAC_BYTES,
                      sodium_base64_VARIANT_URLSAFE_NO_PADDING);
    return text;
}

static err bad_cursor(void)
{
    return fail_as(
        E_INVALID, "invalid_cursor",
        "the cursor was not made for this list: pass nextCursor unchanged, with the same "
        "filters and order");
}

static err cursor_read(struct http_exchange *x, struct str text)
{
    unsigned char raw[HEAD_BYTES + ID_MAX + MAC_BYTES], mac[MAC_BYTES];
    size_t n = 0;
    if (sodium_base642bin(raw, sizeof raw, text.p, text.n, NULL, &n, NULL,
                          sodium_base64_VARIANT_URLSAFE_NO_PADDING) != 0)
        return bad_cursor();
    if (n < HEAD_BYTES + MAC_BYTES || n - HEAD_BYTES - MAC_BYTES >= ID_MAX)
        return bad_cursor();
    size_t payload = n - MAC_BYTES;
    cursor_mac(x, (struct str){(char *)raw, payload}, mac);
    struct page *page = &x->ctx.page;
    if (sodium_memcmp(mac, raw + payload, MAC_BYTES) != 0 || raw[0] != CURSOR_VERSION ||
        raw[1] != page->ascending)
        return bad_cursor();
    uint64_t at = 0;
    for (int i = 0; i < 8; i++)
        at = at << 8 | raw[2 + i];
    page->has_after = true;
    page->after_at = (int64_t)at;
    memcpy(page->after_id, raw + HEAD_BYTES, payload - HEAD_BYTES);
    page->after_id[payload - HEAD_BYTES] = 0;
    return 0;
}

static err read_limit(struct http_exchange *x)
{
    const struct route *row = x->ctx.route;
    uint64_t max = row->limit_max ? row->limit_max : LIMIT_MAX;
    uint64_t limit = row->limit_default ? row->limit_default : LIMIT_DEFAULT;
    struct str text = ctx_query(&x->ctx, "limit");
    if (text.p && (!str_to_u64(text, &limit) || limit < 1 || limit > max))
        return fail_as(E_INVALID, "invalid_query", "limit must be a number from 1 to %u",
                       (unsigned)max);
    x->ctx.page.limit = (uint32_t)limit;
    return 0;
}

static err read_order(struct http_exchange *x)
{
    struct str text = ctx_query(&x->ctx, "order");
    if (text.p && !str_is(text, "asc") && !str_is(text, "desc"))
        return fail_as(E_INVALID, "invalid_query", "order must be asc or desc");
    x->ctx.page.ascending = text.p ? str_is(text, "asc") : x->ctx.route->oldest_first;
    return 0;
}

err page_read(struct http_exchange *x)
{
    TRY(read_limit(x));
    TRY(read_order(x));
    struct str cursor = ctx_query(&x->ctx, "cursor");
    return cursor.p ? cursor_read(x, cursor) : 0;
}

static void begin_page(struct buf *text)
{
    buf_add_char(text, '{');
    json_text_key(text, "data");
}

/* After the rows. */
static err finish_page(struct ctx *ctx, struct buf *text, bool more, int64_t last_at,
                       const char *last_id)
{
    json_text_str(text, "nextCursor", more ? cursor_write(ctx->exchange, last_at, last_id) : NULL);
    json_text_bool(text, "hasMore", more);
    if (ctx->page.also) {
        json_text_key(text, ctx->page.also);
        buf_add_str(text, ctx->page.also_json);
    }
    buf_add_char(text, '}');
    return reply_json_text(ctx, 200, buf_str(text));
}

err reply_page_text(struct ctx *ctx, struct str rows, bool more, int64_t last_at,
                    const char *last_id)
{
    AUTO_BUF text = {0};
    buf_reserve(&text, rows.n + HTTP_CURSOR_MAX);
    begin_page(&text);
    buf_add_str(&text, rows);
    return finish_page(ctx, &text, more, last_at, last_id);
}

err reply_page(struct ctx *ctx, json_t *take_rows,
               void (*key_of)(const json_t *row, int64_t *out_at, char out_id[ID_MAX]))
{
    AUTO_JSON rows = take_rows;
    size_t limit = ctx->page.limit;
    bool more = json_array_size(rows) > limit;
    while (json_array_size(rows) > limit)
        json_array_remove(rows, json_array_size(rows) - 1);
    int64_t at = 0;
    char id[ID_MAX] = "";
    if (more)
        key_of(json_array_get(rows, limit - 1), &at, id);
    AUTO_BUF text = {0};
    begin_page(&text);
    json_write(rows, &text);
    return finish_page(ctx, &text, more, at, id);
}
