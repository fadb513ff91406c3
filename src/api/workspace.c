/* GET /v1/sessions/:id/workspace: a folder of the session's sandbox as a tar archive, whole or only
   what was added and changed since the image. */
#include "api/copies.h"
#include "api/routes.h"
#include "api/rows.h"
#include "api/sessions.h"
#include "base/mem.h"
#include "sandbox/tar.h"

#define REMARKS_MAX (64 * KB)

struct workspace {
    struct copies *copies;
    struct feed *feed;
    char *path;
    bool changes;
    struct buf out;     /* made, not yet given to the feed */
    struct buf pending; /* the header of an entry of which nothing was read yet */
    struct buf name;    /* of that entry */
    bool skip;
    uint64_t size, got;
    struct buf remarks;
};

static void workspace_free(void *arg)
{
    struct workspace *w = arg;
    copies_free(w->copies);
    mem_free(w->path);
    buf_done(&w->out);
    buf_done(&w->pending);
    buf_done(&w->name);
    buf_done(&w->remarks);
    mem_free(w);
}

static err give(struct workspace *w)
{
    TRY(feed_write(w->feed, buf_str(&w->out)));
    buf_clear(&w->out);
    return 0;
}

/* Told at the end of the archive, and by `pi-managed pull`. */
static void remark(struct workspace *w, const char *what)
{
    if (w->remarks.n > REMARKS_MAX)
        return;
    buf_printf(&w->remarks, "%s: ", what);
    buf_add_str(&w->remarks, buf_str(&w->name));
    buf_add_char(&w->remarks, '\n');
}

static err on_entry(void *arg, const struct copyout_entry *e)
{
    struct workspace *w = arg;
    buf_clear(&w->pending);
    buf_clear(&w->name);
    buf_add_str(&w->name, e->path);
    w->size = e->now.size;
    w->got = 0;
    w->skip = e->now.type == COPYOUT_NONE || e->now.type == COPYOUT_OTHER;
    if (e->now.type == COPYOUT_OTHER)
        remark(w, "left out, neither file, folder nor link");
    if (!w->skip)
        tar_add_header(&w->pending, e->path, &e->now);
    return 0;
}

static void begin_file(struct workspace *w)
{
    buf_add_str(&w->out, buf_str(&w->pending));
    buf_clear(&w->pending);
}

static err on_content(void *arg, enum copyout_side side, struct str bytes)
{
    struct workspace *w = arg;
    (void)side;
    begin_file(w);
    buf_add_str(&w->out, bytes);
    w->got += bytes.n;
    return give(w);
}

/* The header has promised `size` bytes. */
static err fill_up(struct workspace *w)
{
    static const char zeros[16384];
    for (size_t step; w->got < w->size; w->got += step) {
        step = w->size - w->got < sizeof zeros ? (size_t)(w->size - w->got) : sizeof zeros;
        buf_add(&w->out, zeros, step);
        TRY(give(w));
    }
    return 0;
}

static err on_end(void *arg, enum copyout_trouble now, enum copyout_trouble before)
{
    struct workspace *w = arg;
    (void)before;
    if (w->skip)
        return 0;
    if (now != COPYOUT_FINE && w->got == 0 && (w->size > 0 || now == COPYOUT_REFUSED)) {
        remark(w, now == COPYOUT_TOO_LARGE ? "left out, too large"
                  : now == COPYOUT_MOVED   ? "left out, it went away meanwhile"
                                           : "left out, it cannot be read");
        return 0;
    }
    if (now != COPYOUT_FINE)
        remark(w, "it changed while it was read");
    begin_file(w);
    TRY(fill_up(w));
    tar_add_padding(&w->out, w->size);
    return w->out.n >= 16 * KB ? give(w) : 0;
}

static err on_tick(void *arg)
{
    struct workspace *w = arg;
    TRY(feed_check(w->feed));
    return give(w);
}

static err write_tar(struct feed *f, void *arg)
{
    struct workspace *w = arg;
    w->feed = f;
    struct copyout_request r = {.root = w->path, .contents = true, .changes = w->changes};
    struct copyout_sink sink = {
        .begin = on_entry, .content = on_content, .end = on_end, .tick = on_tick, .arg = w};
    struct copyout_summary summary = {0};
    if (copies_exist(w->copies))
        TRY(copies_run(w->copies, &r, &sink, &summary));
    if (summary.truncated)
        return fail(E_TOO_LARGE, "%s is more than one archive may hold", w->path);
    if (summary.left_out)
        buf_printf(&w->remarks, "left out, too deep or unreadable: %llu folders\n",
                   (unsigned long long)summary.left_out);
    if (w->remarks.n > 0)
        tar_add_comment(&w->out, buf_str(&w->remarks));
    tar_add_end(&w->out);
    return give(w);
}

static err workspace_get(struct ctx *ctx)
{
    struct session_row row;
    const char *path;
    struct feed *feed;
    TRY(query_bool_check(ctx, "changes"));
    bool changes = query_bool(ctx, "changes");
    TRY(copies_path(ctx, SANDBOX_WORKDIR, &path));
    if (path[1] == 0 && !changes)
        return fail(E_INVALID, "the whole file system is not copied: name a folder with path, or "
                               "ask for changes=true");
    TRY(ctx_session(ctx, &row));
    struct workspace *w = mem_alloc(sizeof *w);
    w->copies = copies_new(ctx, &row);
    w->path = mem_strdup(path);
    w->changes = changes;
    TRY(feed_begin(write_tar, w, workspace_free, &feed));
    char name[ID_MAX + 40];
    snprintf(name, sizeof name, "attachment; filename=\"%s.tar\"", row.id); /* R39 */
    reply_header(ctx, "Content-Disposition", name);
    return feed_reply(ctx, "application/x-tar", feed);
}

ROUTES(workspace,
       {GET, "/v1/sessions/:id/workspace", workspace_get, .scope = SCOPE_READ, .where = HTTP_LONG,
        .query = "path changes"}, )
