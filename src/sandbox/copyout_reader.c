/* Judges the frames of a COPY_OUT: nothing that pi-hands says is believed. */
#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"
#include "sandbox/copyout.h"

#define READER_MAGIC 0xc09e0047u

enum expect {
    EXPECT_ENTRY,
    EXPECT_CONTENT, /* of the entry that began, or its end */
    EXPECT_NOTHING
};

struct copyout_reader {
    unsigned magic;
    struct copyout_request request; /* with the defaults filled in; strings borrowed */
    struct copyout_sink sink;
    struct copyout_summary summary;
    struct buf waiting; /* a frame that is not whole yet */
    enum expect expect;
    struct buf last; /* the path told last: the next one comes behind it */
    struct buf leaf; /* no folder (now): below it there is only what was removed */
    struct {
        enum copyout_type type;
        uint64_t size, got;
    } sides[2]; /* of the entry under way, by enum copyout_side */
};

struct copyout_reader *copyout_reader_new(const struct copyout_request *request,
                                          const struct copyout_sink *sink)
{
    struct copyout_reader *r = mem_alloc(sizeof *r);
    r->magic = READER_MAGIC;
    r->request = *request;
    r->sink = *sink;
    r->request.entries = request->entries ? request->entries : COPYOUT_ENTRIES_DEFAULT;
    r->request.bytes = request->bytes ? request->bytes : COPYOUT_BYTES_DEFAULT;
    r->request.file_bytes = request->file_bytes ? request->file_bytes : UINT64_MAX;
    return r;
}

void copyout_reader_free(struct copyout_reader *r)
{
    if (r == NULL)
        return;
    CHECK(r, READER_MAGIC);
    buf_done(&r->waiting);
    buf_done(&r->last);
    buf_done(&r->leaf);
    r->magic = 0;
    mem_free(r);
}

static err refuse(const char *what)
{
    return fail(E_INVALID, "the sandbox misbehaved while files were copied out: %s", what);
}

/* ---- an entry ---- */

static uint64_t number(const char *p, size_t bytes)
{
    uint64_t v = 0;
    for (size_t i = 0; i < bytes; i++)
        v |= (uint64_t)(unsigned char)p[i] << 8 * i;
    return v;
}

static bool part_is_clean(struct str part)
{
    return part.n > 0 && part.n <= 255 && !str_is(part, ".") && !str_is(part, "..");
}

static bool path_is_clean(struct str path)
{
    size_t depth = 0;
    if (path.n == 0 || path.n > COPYOUT_PATH_MAX || str_has_nul(path) || path.p[path.n - 1] == '/')
        return false;
    for (struct str part; path.n > 0 && str_split(&path, '/', &part); depth++)
        if (!part_is_clean(part))
            return false;
    return depth <= COPYOUT_DEPTH_MAX;
}

/* Bytewise, with '/' before everything else: the order of a walk. */
static int compare_paths(struct str a, struct str b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    for (size_t i = 0; i < n; i++) {
        int x = a.p[i] == '/' ? 0 : (unsigned char)a.p[i];
        int y = b.p[i] == '/' ? 0 : (unsigned char)b.p[i];
        if (x != y)
            return x - y;
    }
    return a.n < b.n ? -1 : a.n > b.n;
}

static bool is_below(struct str path, struct str folder)
{
    return folder.n > 0 && path.n > folder.n && str_starts(path, folder) && path.p[folder.n] == '/';
}

/* What lies below another entry comes right behind it, or behind what else is below that. */
static err check_order(const struct copyout_reader *r, const struct copyout_entry *e)
{
    if (r->last.n > 0 && compare_paths(buf_str(&r->last), e->path) >= 0)
        return refuse("paths out of order");
    if (e->now.type != COPYOUT_NONE && is_below(e->path, buf_str(&r->leaf)))
        return refuse("a path below something that is no folder");
    return 0;
}

static err check_node(const struct copyout_node *n)
{
    if (n->mode > 07777)
        return refuse("an impossible mode");
    if ((n->type != COPYOUT_FILE && n->size != 0) || n->size > INT64_MAX)
        return refuse("an impossible size");
    if ((n->type == COPYOUT_LINK) != (n->target.n > 0) || n->target.n > COPYOUT_PATH_MAX ||
        str_has_nul(n->target))
        return refuse("an impossible target of a link");
    return 0;
}

static err check_change(const struct copyout_reader *r, const struct copyout_entry *e)
{
    static const bool now_is[] = {true, true, true, false},
                      before_is[] = {false, false, true, true};
    if (r->request.changes != (e->change != COPYOUT_AS_IS) ||
        now_is[e->change] != (e->now.type != COPYOUT_NONE) ||
        before_is[e->change] != (e->before.type != COPYOUT_NONE))
        return refuse("a change that is none");
    if (r->request.files_only && e->now.type != COPYOUT_FILE)
        return refuse("something that is no file");
    if (r->request.only && (!str_is(e->path, r->request.only) || e->now.type != COPYOUT_FILE))
        return refuse("something else than the file asked for");
    return 0;
}

static err check_entry(const struct copyout_reader *r, const struct copyout_entry *e)
{
    if (!path_is_clean(e->path))
        return refuse("an impossible path");
    TRY(check_order(r, e));
    TRY(check_node(&e->now));
    TRY(check_node(&e->before));
    return check_change(r, e);
}

static void decode_node(const char *fixed, enum copyout_side side, struct copyout_node *out)
{
    size_t i = side;
    out->type = (enum copyout_type)(unsigned char)fixed[1 + i];
    out->mode = (uint32_t)number(fixed + 4 + 4 * i, 4);
    out->size = number(fixed + 24 + 8 * i, 8);
    out->mtime_ns = (int64_t)number(fixed + 40 + 8 * i, 8);
    out->ctime_ns = (int64_t)number(fixed + 56 + 8 * i, 8);
}

static err decode_entry(struct str payload, struct copyout_entry *out)
{
    const char *p = payload.p;
    if (payload.n < COPY_ENTRY_BYTES)
        return refuse("a short entry");
    uint64_t path_n = number(p + 12, 4), now_n = number(p + 16, 4), before_n = number(p + 20, 4);
    if (payload.n - COPY_ENTRY_BYTES != path_n + now_n + before_n)
        return refuse("an entry whose parts do not add up");
    if ((unsigned char)p[0] >= COPYOUT_CHANGE_END || (unsigned char)p[1] >= COPYOUT_TYPE_END ||
        (unsigned char)p[2] >= COPYOUT_TYPE_END)
        return refuse("an unknown type");
    *out = (struct copyout_entry){.change = (enum copyout_change)(unsigned char)p[0]};
    decode_node(p, COPYOUT_NOW, &out->now);
    decode_node(p, COPYOUT_BEFORE, &out->before);
    p += COPY_ENTRY_BYTES;
    out->path = (struct str){p, path_n};
    out->now.target = (struct str){p + path_n, now_n};
    out->before.target = (struct str){p + path_n + now_n, before_n};
    out->utf8 = str_is_utf8(out->path);
    return 0;
}

static void remember(struct copyout_reader *r, const struct copyout_entry *e)
{
    buf_clear(&r->last);
    buf_add_str(&r->last, e->path);
    if (is_below(e->path, buf_str(&r->leaf)))
        return;
    buf_clear(&r->leaf);
    if (e->now.type != COPYOUT_FOLDER)
        buf_add_str(&r->leaf, e->path);
}

static err take_entry(struct copyout_reader *r, struct str payload)
{
    struct copyout_entry e;
    if (r->expect != EXPECT_ENTRY)
        return refuse("an entry inside another");
    TRY(decode_entry(payload, &e));
    TRY(check_entry(r, &e));
    if (++r->summary.entries > r->request.entries)
        return refuse("more entries than asked for");
    remember(r, &e);
    const struct copyout_node *nodes[] = {&e.now, &e.before};
    for (size_t i = 0; i < 2; i++) {
        r->sides[i].type = nodes[i]->type;
        r->sides[i].size = nodes[i]->size;
        r->sides[i].got = 0;
    }
    r->expect = EXPECT_CONTENT;
    return r->sink.begin(r->sink.arg, &e);
}

/* ---- its content ---- */

static bool wants(const struct copyout_reader *r, enum copyout_side side)
{
    return r->request.contents && r->sides[side].type == COPYOUT_FILE &&
           r->sides[side].size <= r->request.file_bytes &&
           (side == COPYOUT_NOW || (r->request.changes && r->request.before));
}

static err take_content(struct copyout_reader *r, enum copyout_side side, struct str bytes)
{
    if (r->expect != EXPECT_CONTENT || !wants(r, side) ||
        (side == COPYOUT_BEFORE && r->sides[COPYOUT_NOW].got > 0))
        return refuse("content nobody asked for");
    if (bytes.n == 0 || bytes.n > r->sides[side].size - r->sides[side].got)
        return refuse("more content than it has");
    if (bytes.n > r->request.bytes - r->summary.bytes)
        return refuse("more content than asked for");
    r->sides[side].got += bytes.n;
    r->summary.bytes += bytes.n;
    return r->sink.content(r->sink.arg, side, bytes);
}

static err check_trouble(const struct copyout_reader *r, enum copyout_side side,
                         unsigned char trouble)
{
    if (trouble >= COPYOUT_TROUBLE_END)
        return refuse("an unknown trouble");
    if (trouble == COPYOUT_FINE && wants(r, side) && r->sides[side].got != r->sides[side].size)
        return refuse("less content than it has");
    return 0;
}

static err take_done(struct copyout_reader *r, struct str payload)
{
    if (r->expect != EXPECT_CONTENT || payload.n != 2)
        return refuse("the end of no entry");
    unsigned char now = (unsigned char)payload.p[0], before = (unsigned char)payload.p[1];
    TRY(check_trouble(r, COPYOUT_NOW, now));
    TRY(check_trouble(r, COPYOUT_BEFORE, before));
    r->expect = EXPECT_ENTRY;
    return r->sink.end(r->sink.arg, (enum copyout_trouble)now, (enum copyout_trouble)before);
}

static err take_end(struct copyout_reader *r, struct str payload)
{
    AUTO_JSON o = NULL;
    if (r->expect != EXPECT_ENTRY)
        return refuse("the end inside an entry");
    TRY(json_read(payload, &o));
    int64_t left_out = json_get_int(o, "leftOut", 0);
    r->summary.left_out = left_out > 0 ? (uint64_t)left_out : 0;
    r->summary.truncated = json_get_bool(o, "truncated", false);
    r->expect = EXPECT_NOTHING;
    return 0;
}

/* ---- frames ---- */

/* The error that an ERROR frame stands for. */
static err take_error(struct str payload)
{
    AUTO_JSON o = NULL;
    TRY(json_read(payload, &o));
    struct str code = json_get_str(o, "code"), message = json_get_str(o, "message");
    if (str_is(code, "not_a_folder"))
        return fail_as(E_CONFLICT, "not_a_folder",
                       "the path leads over something in the sandbox that is no folder");
    if (str_is(code, "no_image") || str_is(code, "bad_frame"))
        return fail(E_UNAVAILABLE,
                    "this sandbox was started by an older version of the service that cannot do "
                    "this: it works once the sandbox was stopped and started again");
    return fail(E_UNAVAILABLE, "the sandbox cannot copy files out: %.*s",
                message.n < 200 ? (int)message.n : 200, message.p ? message.p : "");
}

static err take_frame(struct copyout_reader *r, const struct frame *f)
{
    switch (f->type) {
    case FRAME_COPY_ENTRY:
        return take_entry(r, f->payload);
    case FRAME_COPY_OLD:
        return take_content(r, COPYOUT_BEFORE, f->payload);
    case FRAME_COPY_DATA:
        return take_content(r, COPYOUT_NOW, f->payload);
    case FRAME_COPY_DONE:
        return take_done(r, f->payload);
    case FRAME_COPY_END:
        return take_end(r, f->payload);
    case FRAME_PONG:
        return r->sink.tick ? r->sink.tick(r->sink.arg) : 0;
    case FRAME_ERROR:
        return take_error(f->payload);
    default:
        return refuse("an unexpected frame");
    }
}

/* Takes whole frames off the front of *bytes. */
static err take_frames(struct copyout_reader *r, struct str *bytes)
{
    while (r->expect != EXPECT_NOTHING) {
        struct frame f;
        size_t used;
        err e = 0;
        TRY(frame_check_payload(*bytes, FRAME_CHUNK)); /* no frame of this conversation is longer */
        if (!frame_parse(*bytes, &f, &used, &e))
            return e;
        TRY(take_frame(r, &f));
        *bytes = (struct str){bytes->p + used, bytes->n - used};
    }
    return 0;
}

err copyout_reader_feed(struct copyout_reader *r, struct str bytes, bool *out_ended,
                        struct copyout_summary *out_summary)
{
    CHECK(r, READER_MAGIC);
    bool joined = r->waiting.n > 0;
    if (joined) {
        buf_add_str(&r->waiting, bytes);
        bytes = buf_str(&r->waiting);
    }
    TRY(take_frames(r, &bytes));
    if (joined)
        buf_drop(&r->waiting, r->waiting.n - bytes.n);
    else
        buf_add_str(&r->waiting, bytes);
    *out_ended = r->expect == EXPECT_NOTHING;
    *out_summary = r->summary;
    return 0;
}
