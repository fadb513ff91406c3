/* What can be read of a session's log beyond its events (§8.3): the tree of its entries, the
   messages that the model is shown, and what it has used. */
#include <stdio.h>

#include "api/feed.h"
#include "api/routes.h"
#include "api/service.h"
#include "api/sessions.h"
#include "base/mem.h"
#include "session/history.h"
#include "session/manager.h"
#include "session/messages.h"

#define PREVIEW_BYTES 200
#define SHORT_LOG_BYTES ((int64_t)1 << 20) /* read by the worker itself */
#define LEAF_PAGE 64
#define LEAF_BYTES (4 * MB)

static const char *logs_dir(const struct ctx *ctx)
{
    return session_manager_logs_dir(ctx->service->sessions);
}

/* ---- tree ---- */

static bool is_control(const json_t *entry)
{
    return str_is(json_get_str(entry, "type"), "custom") &&
           str_starts(json_get_str(entry, "customType"), STR("pi-managed:"));
}

static struct str text_of(const json_t *entry)
{
    const json_t *message = json_object_get(entry, "message");
    const json_t *content = json_object_get(message ? message : entry, "content");
    if (json_is_string(content))
        return (struct str){json_string_value(content), json_string_length(content)};
    size_t i;
    json_t *block;
    json_array_foreach(content, i, block)
    {
        struct str text = json_get_str(block, "text");
        if (text.p)
            return text;
    }
    return json_get_str(entry, "summary");
}

static void copy_text(json_t *node, const json_t *from, const char *name)
{
    struct str text = json_get_str(from, name);
    if (text.p)
        json_set_str(node, name, text);
}

/* A line of the log as a node: what is needed to draw the tree and to pick an entry. */
static json_t *node_of(const json_t *row, const char *leaf)
{
    const json_t *entry = json_object_get(row, "entry");
    json_t *node = json_object();
    json_object_set(node, "position", json_object_get(row, "position"));
    const char *id = json_get_c(entry, "id"), *parent = json_get_c(entry, "parentId");
    bool header = str_is(json_get_str(entry, "type"), "session");
    json_object_set_new(node, "id", id && !header ? json_string(id) : json_null());
    json_object_set_new(node, "parentId", parent ? json_string(parent) : json_null());
    copy_text(node, entry, "type");
    copy_text(node, entry, "customType");
    copy_text(node, entry, "timestamp");
    copy_text(node, json_object_get(entry, "message"), "role");
    struct str text = text_of(entry);
    if (text.p)
        json_set_str(
            node, "text",
            (struct str){text.p,
                         str_utf8_floor(text, text.n < PREVIEW_BYTES ? text.n : PREVIEW_BYTES)});
    if (id && leaf[0] && strcmp(id, leaf) == 0)
        json_object_set_new(node, "leaf", json_true());
    return node;
}

/* The last of Pi's entries is where the conversation stands. */
static err find_leaf(struct ctx *ctx, const char *session, char out[ID_MAX])
{
    bool cut = false;
    struct history_query q = {.limit = LEAF_PAGE, .bytes_max = LEAF_BYTES, .out_cut = &cut};
    for (out[0] = 0;;) {
        json_t *found = NULL;
        TRY(history_entries(logs_dir(ctx), ctx->tenant, session, &q, &found));
        AUTO_JSON rows = found;
        size_t i;
        json_t *row;
        json_array_foreach(rows, i, row)
        {
            const json_t *entry = json_object_get(row, "entry");
            const char *id = json_get_c(entry, "id");
            if (id && !is_control(entry) && !str_is(json_get_str(entry, "type"), "session")) {
                snprintf(out, ID_MAX, "%s", id);
                return 0;
            }
            q.after = json_get_int(row, "position", 0);
        }
        if (json_array_size(rows) < LEAF_PAGE && !cut)
            return 0;
        q.has_after = true;
    }
}

static err tree_list(struct ctx *ctx)
{
    struct session_row row;
    TRY(ctx_session(ctx, &row));
    char leaf[ID_MAX];
    TRY(find_leaf(ctx, row.id, leaf));
    json_t *found = NULL;
    TRY(session_position_page(ctx, row.id, &found));
    AUTO_JSON rows = found;
    json_t *nodes = json_array();
    size_t i;
    json_t *one;
    json_array_foreach(rows, i, one) json_array_append_new(nodes, node_of(one, leaf));
    return reply_page(ctx, nodes, session_position_key);
}

/* ---- messages ---- */

static err keep_piece(void *text, struct str bytes)
{
    buf_add_str(text, bytes);
    return 0;
}

static err reply_messages(struct ctx *ctx, const char *session)
{
    AUTO_BUF text = {0};
    buf_add_c(&text, "{\"data\":");
    TRY(session_messages(logs_dir(ctx), ctx->tenant, session, keep_piece, &text));
    buf_add_char(&text, '}');
    return reply_json_text(ctx, 200, buf_str(&text));
}

/* Those of a long session: neither held in memory nor made on a worker. */
struct messages {
    const char *logs_dir;
    char tenant[ID_MAX], session[ID_MAX];
};

static err write_piece(void *feed, struct str bytes)
{
    return feed_write(feed, bytes);
}

static err write_messages(struct feed *f, void *arg)
{
    const struct messages *m = arg;
    TRY(feed_check(f));
    TRY(feed_write(f, STR("{\"data\":")));
    TRY(session_messages(m->logs_dir, m->tenant, m->session, write_piece, f));
    return feed_write(f, STR("}"));
}

static err messages_get(struct ctx *ctx)
{
    struct session_row row;
    TRY(ctx_session(ctx, &row));
    if (history_bytes(logs_dir(ctx), ctx->tenant, row.id) <= SHORT_LOG_BYTES)
        return reply_messages(ctx, row.id);
    struct messages *m = mem_alloc(sizeof *m);
    m->logs_dir = logs_dir(ctx);
    memcpy(m->tenant, ctx->tenant, sizeof m->tenant);
    memcpy(m->session, row.id, sizeof m->session);
    struct feed *feed;
    TRY(feed_begin(write_messages, m, mem_free, &feed));
    return feed_reply(ctx, "application/json", feed);
}

/* ---- usage ---- */

static err usage_get(struct ctx *ctx)
{
    struct session_row row;
    TRY(ctx_session(ctx, &row));
    AUTO_BUF text = {0};
    session_usage_write(&row.usage, &text);
    return reply_json_text(ctx, 200, buf_str(&text));
}

ROUTES(session_views,
       {GET, "/v1/sessions/:id/tree", tree_list, .scope = SCOPE_READ, .where = HTTP_LONG,
        .list = true, .limit_default = 100, .limit_max = 1000, .oldest_first = true,
        .query = "from"},
       {GET, "/v1/sessions/:id/messages", messages_get, .scope = SCOPE_READ},
       {GET, "/v1/sessions/:id/usage", usage_get, .scope = SCOPE_READ}, )
