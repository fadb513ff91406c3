/* GET /v1/sessions/:id/diff: every file added, changed or removed since the image that the
   session's sandbox was made from. */
#include "api/copies.h"
#include "api/routes.h"
#include "api/sessions.h"
#include "base/mem.h"
#include "sandbox/patch.h"

#include <sodium.h>

#define ENTRIES_MAX 200000
#define FLUSH_BYTES (16 * KB)
#define PATCH_BYTES_MAX (512 * MB) /* of content, before and now */
#define PATCH "text/x-diff"

struct diff {
    struct copies *copies;
    struct feed *feed;
    char *session, *path;
    struct buf out;
    uint64_t counts[COPYOUT_CHANGE_END];
    bool began;
    /* Of a patch: the entry under way. */
    struct copyout_entry entry;
    struct buf name, targets[2], contents[2]; /* by enum copyout_side */
};

static void diff_free(void *arg)
{
    struct diff *d = arg;
    copies_free(d->copies);
    mem_free(d->session);
    mem_free(d->path);
    buf_done(&d->out);
    buf_done(&d->name);
    for (int i = 0; i < 2; i++) {
        buf_done(&d->targets[i]);
        buf_done(&d->contents[i]);
    }
    mem_free(d);
}

/* ---- JSON ---- */

static const char *const type_words[] = {[COPYOUT_FILE] = "file",
                                         [COPYOUT_FOLDER] = "folder",
                                         [COPYOUT_LINK] = "link",
                                         [COPYOUT_OTHER] = "other"};
static const char *const change_words[] = {
    [COPYOUT_ADDED] = "added", [COPYOUT_CHANGED] = "changed", [COPYOUT_REMOVED] = "removed"};

/* Bytes that are not UTF-8 cannot stand in JSON: then NAME is near enough to read, and NAMEBase64
   is exact. */
static void set_bytes(json_t *o, const char *name, const char *exact_name, struct str bytes)
{
    json_set_str(o, name, bytes);
    if (str_is_utf8(bytes))
        return;
    size_t n = sodium_base64_ENCODED_LEN(bytes.n, sodium_base64_VARIANT_ORIGINAL);
    char *text = mem_alloc(n);
    sodium_bin2base64(text, n, (const unsigned char *)bytes.p, bytes.n,
                      sodium_base64_VARIANT_ORIGINAL);
    json_object_set_new(o, exact_name, json_string(text));
    mem_free(text);
}

static void set_node(json_t *o, const struct copyout_node *node)
{
    char mode[8];
    snprintf(mode, sizeof mode, "%04o", node->mode & 07777);
    json_object_set_new(o, "type", json_string(type_words[node->type]));
    json_object_set_new(o, "mode", json_string(mode));
    if (node->type == COPYOUT_FILE)
        json_object_set_new(o, "size", json_integer((json_int_t)node->size));
    if (node->type == COPYOUT_LINK)
        set_bytes(o, "target", "targetBase64", node->target);
    json_set_time(o, "modifiedAt", node->mtime_ns / 1000000);
}

static json_t *entry_json(const struct diff *d, const struct copyout_entry *e)
{
    AUTO_BUF path = {0};
    buf_printf(&path, "%s%s", d->path, d->path[1] ? "/" : "");
    buf_add_str(&path, e->path);
    json_t *o = json_object();
    set_bytes(o, "path", "pathBase64", buf_str(&path));
    json_object_set_new(o, "change", json_string(change_words[e->change]));
    set_node(o, e->now.type ? &e->now : &e->before);
    if (e->change == COPYOUT_CHANGED) {
        json_t *before = json_object();
        set_node(before, &e->before);
        json_object_set_new(o, "before", before);
    }
    return o;
}

static err flush(struct diff *d)
{
    TRY(feed_write(d->feed, buf_str(&d->out)));
    buf_clear(&d->out);
    return 0;
}

static void begin_json(struct diff *d)
{
    AUTO_JSON path = json_string(d->path);
    if (d->began)
        return;
    d->began = true;
    buf_printf(&d->out, "{\"type\":\"diff\",\"sessionId\":\"%s\",\"path\":", d->session);
    json_write(path, &d->out);
    buf_add_c(&d->out, ",\"changes\":[");
}

static err on_entry(void *arg, const struct copyout_entry *e)
{
    struct diff *d = arg;
    bool first = !d->began;
    begin_json(d);
    AUTO_JSON o = entry_json(d, e);
    if (!first)
        buf_add_char(&d->out, ',');
    json_write(o, &d->out);
    d->counts[e->change]++;
    return d->out.n >= FLUSH_BYTES ? flush(d) : 0;
}

static err on_end(void *arg, enum copyout_trouble now, enum copyout_trouble before)
{
    (void)arg;
    (void)now;
    (void)before;
    return 0;
}

static err on_tick(void *arg)
{
    struct diff *d = arg;
    TRY(feed_check(d->feed));
    return flush(d);
}

static err write_json(struct feed *f, void *arg)
{
    struct diff *d = arg;
    d->feed = f;
    struct copyout_request r = {.root = d->path, .changes = true, .entries = ENTRIES_MAX};
    struct copyout_sink sink = {.begin = on_entry, .end = on_end, .tick = on_tick, .arg = d};
    struct copyout_summary summary = {0};
    if (copies_exist(d->copies))
        TRY(copies_run(d->copies, &r, &sink, &summary));
    begin_json(d);
    buf_printf(&d->out,
               "],\"summary\":{\"added\":%llu,\"changed\":%llu,\"removed\":%llu,"
               "\"leftOut\":%llu},\"truncated\":%s}",
               (unsigned long long)d->counts[COPYOUT_ADDED],
               (unsigned long long)d->counts[COPYOUT_CHANGED],
               (unsigned long long)d->counts[COPYOUT_REMOVED], (unsigned long long)summary.left_out,
               summary.truncated ? "true" : "false");
    return flush(d);
}

/* ---- patch ---- */

static void keep(struct buf *copy, struct str *s)
{
    buf_clear(copy);
    buf_add_str(copy, *s);
    *s = buf_str(copy);
}

/* What it holds lasts only as long as this call, and its content is still to come. */
static err on_patch_entry(void *arg, const struct copyout_entry *e)
{
    struct diff *d = arg;
    d->entry = *e;
    keep(&d->name, &d->entry.path);
    keep(&d->targets[COPYOUT_NOW], &d->entry.now.target);
    keep(&d->targets[COPYOUT_BEFORE], &d->entry.before.target);
    buf_clear(&d->contents[COPYOUT_NOW]);
    buf_clear(&d->contents[COPYOUT_BEFORE]);
    return 0;
}

static err on_patch_content(void *arg, enum copyout_side side, struct str bytes)
{
    struct diff *d = arg;
    buf_add_str(&d->contents[side], bytes); /* at most PATCH_CONTENT_MAX: file_bytes */
    return 0;
}

static err on_patch_end(void *arg, enum copyout_trouble now, enum copyout_trouble before)
{
    struct diff *d = arg;
    patch_add(&d->out, &d->entry, buf_str(&d->contents[COPYOUT_BEFORE]),
              buf_str(&d->contents[COPYOUT_NOW]), now == COPYOUT_FINE && before == COPYOUT_FINE);
    return d->out.n >= FLUSH_BYTES ? flush(d) : 0;
}

static err write_patch(struct feed *f, void *arg)
{
    struct diff *d = arg;
    d->feed = f;
    struct copyout_request r = {.root = d->path,
                                .changes = true,
                                .contents = true,
                                .before = true,
                                .entries = ENTRIES_MAX,
                                .bytes = PATCH_BYTES_MAX,
                                .file_bytes = PATCH_CONTENT_MAX};
    struct copyout_sink sink = {.begin = on_patch_entry,
                                .content = on_patch_content,
                                .end = on_patch_end,
                                .tick = on_tick,
                                .arg = d};
    struct copyout_summary summary = {0};
    if (copies_exist(d->copies))
        TRY(copies_run(d->copies, &r, &sink, &summary));
    if (summary.truncated)
        return fail(E_TOO_LARGE, "more was changed below %s than a patch may hold", d->path);
    if (summary.left_out)
        buf_printf(&d->out, "# left out, too deep or unreadable: %llu folders\n",
                   (unsigned long long)summary.left_out);
    return flush(d);
}

/* ---- the route ---- */

static err wants_patch(struct ctx *ctx, bool *out)
{
    struct str format = ctx_query(ctx, "format");
    *out =
        str_is(format, "patch") || (format.p == NULL && str_is(ctx_header(ctx, "Accept"), PATCH));
    if (format.p == NULL || *out || str_is(format, "json"))
        return 0;
    return fail(E_INVALID, "query parameter format must be json or patch");
}

static err diff_get(struct ctx *ctx)
{
    bool patch;
    struct session_row row;
    const char *path;
    struct feed *feed;
    TRY(wants_patch(ctx, &patch));
    TRY(copies_path(ctx, "/", &path));
    TRY(ctx_session(ctx, &row));
    struct diff *d = mem_alloc(sizeof *d);
    d->copies = copies_new(ctx, &row);
    d->session = mem_strdup(row.id);
    d->path = mem_strdup(path);
    TRY(feed_begin(patch ? write_patch : write_json, d, diff_free, &feed));
    return feed_reply(ctx, patch ? PATCH : "application/json", feed);
}

ROUTES(diff,
       {GET, "/v1/sessions/:id/diff", diff_get, .scope = SCOPE_READ, .where = HTTP_LONG,
        .query = "path format"}, )
