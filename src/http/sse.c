#include "http/sse.h"

#include "base/buf.h"
#include "base/lock.h"
#include "base/mem.h"

#include <inttypes.h>

#define SSE_MAGIC 0x53534521u
#define BYTES_MAX_DEFAULT (1 * MB)

/* "open" reaches a browser only with the first body byte; 3 s is the pause before it reconnects. */
#define FIRST_WORDS ": connected\nretry: 3000\n\n"

struct frame {
    struct frame *next;
    bool droppable;
    size_t n;
    char bytes[];
};

struct sse {
    unsigned magic;
    struct sse_options options;
    pthread_mutex_t sse_lock; /* guards what follows */
    unsigned refs;
    struct http_stream *stream;  /* NULL before the reply and after closed */
    struct frame *first, **last; /* waiting; the first may be partly sent */
    size_t sent;                 /* of the first frame */
    size_t waiting;              /* bytes of all frames, less `sent` */
    bool ending;                 /* end once drained */
    bool gone;                   /* client left or was hung up on: frames are refused */
    bool fed;                    /* pushed to since `hungry` was last told */
};

void sse_format(struct buf *out, int64_t id, const char *type, struct str data)
{
    if (id)
        buf_printf(out, "id: %" PRId64 "\n", id);
    if (type)
        buf_printf(out, "event: %s\n", type);
    size_t start = 0;
    for (size_t i = 0; i <= data.n; i++) {
        if (i < data.n && data.p[i] != '\n' && data.p[i] != '\r')
            continue;
        buf_add_c(out, "data: ");
        buf_add(out, data.p + start, i - start);
        buf_add_char(out, '\n');
        if (i + 1 < data.n && data.p[i] == '\r' && data.p[i + 1] == '\n')
            i++;
        start = i + 1;
    }
    buf_add_char(out, '\n');
}

static void add_frame(struct sse *s, struct str bytes, bool droppable)
{
    struct frame *f = mem_alloc(size_add(sizeof *f, bytes.n));
    f->droppable = droppable;
    f->n = bytes.n;
    memcpy(f->bytes, bytes.p, bytes.n);
    *s->last = f;
    s->last = &f->next;
    s->waiting += f->n;
}

/* Frees the first frame. */
static void take_first(struct sse *s)
{
    struct frame *f = s->first;
    s->first = f->next;
    if (s->first == NULL)
        s->last = &s->first;
    s->waiting -= f->n - s->sent;
    s->sent = 0;
    mem_free(f);
}

struct sse *sse_new(const struct sse_options *options)
{
    struct sse *s = mem_alloc(sizeof *s);
    s->magic = SSE_MAGIC;
    s->options = *options;
    if (s->options.bytes_max == 0)
        s->options.bytes_max = BYTES_MAX_DEFAULT;
    pthread_mutex_init(&s->sse_lock, NULL);
    s->refs = 1;
    s->last = &s->first;
    s->fed = true;
    add_frame(s, STR(FIRST_WORDS), false);
    return s;
}

struct sse *sse_ref(struct sse *s)
{
    CHECK(s, SSE_MAGIC);
    AUTO_LOCK(&s->sse_lock);
    s->refs++;
    return s;
}

static bool drop_ref(struct sse *s)
{
    AUTO_LOCK(&s->sse_lock);
    assert(s->refs > 0);
    return --s->refs == 0;
}

void sse_unref(struct sse *s)
{
    if (s == NULL)
        return;
    CHECK(s, SSE_MAGIC);
    if (!drop_ref(s))
        return;
    while (s->first)
        take_first(s);
    if (s->options.freed)
        s->options.freed(s->options.arg);
    pthread_mutex_destroy(&s->sse_lock);
    s->magic = 0;
    mem_free(s);
}

/* With the lock held: leaves out deltas that were not begun, oldest first, until there is room. */
static void drop_deltas(struct sse *s, size_t needed)
{
    struct frame **at = &s->first;
    if (s->sent > 0)
        at = &s->first->next;
    while (*at && s->waiting + needed > s->options.bytes_max) {
        struct frame *f = *at;
        if (!f->droppable) {
            at = &f->next;
            continue;
        }
        *at = f->next;
        if (f->next == NULL)
            s->last = at;
        s->waiting -= f->n;
        mem_free(f);
    }
}

/* With the lock held. */
static void hang_up(struct sse *s)
{
    s->gone = true;
    if (s->stream)
        http_stream_abort(s->stream);
}

bool sse_push(struct sse *s, struct str frames, enum sse_kind kind)
{
    CHECK(s, SSE_MAGIC);
    AUTO_LOCK(&s->sse_lock);
    if (s->gone || s->ending)
        return false;
    if (s->waiting + frames.n > s->options.bytes_max && s->waiting > 0) {
        if (kind == SSE_DROPPABLE)
            return true;
        drop_deltas(s, frames.n);
        /* A single frame may be larger than the queue; then it must be the only one. */
        if (s->waiting + frames.n > s->options.bytes_max && s->waiting > 0) {
            hang_up(s);
            return false;
        }
    }
    add_frame(s, frames, kind == SSE_DROPPABLE);
    s->fed = true;
    if (s->stream)
        http_stream_wake(s->stream);
    return true;
}

size_t sse_room(struct sse *s)
{
    CHECK(s, SSE_MAGIC);
    AUTO_LOCK(&s->sse_lock);
    if (s->gone || s->ending || s->waiting >= s->options.bytes_max)
        return 0;
    return s->options.bytes_max - s->waiting;
}

void sse_end(struct sse *s)
{
    CHECK(s, SSE_MAGIC);
    AUTO_LOCK(&s->sse_lock);
    s->ending = true;
    if (s->stream)
        http_stream_wake(s->stream);
}

static size_t drain(struct sse *s, char *out, size_t cap)
{
    size_t n = 0;
    while (s->first && n < cap) {
        size_t left = s->first->n - s->sent, part = left < cap - n ? left : cap - n;
        memcpy(out + n, s->first->bytes + s->sent, part);
        n += part;
        s->sent += part;
        s->waiting -= part;
        if (s->sent == s->first->n)
            take_first(s);
    }
    return n;
}

/* What the queue holds; *out_hungry when it is the first time it holds nothing. */
static ssize_t read_locked(struct sse *s, char *out, size_t cap, bool *out_hungry)
{
    AUTO_LOCK(&s->sse_lock);
    size_t n = s->gone ? 0 : drain(s, out, cap);
    if (n > 0)
        return (ssize_t)n;
    if (s->gone || s->ending)
        return -1;
    *out_hungry = s->fed;
    s->fed = false;
    return 0;
}

static ssize_t on_read(void *state, char *out, size_t cap)
{
    struct sse *s = state;
    CHECK(s, SSE_MAGIC);
    bool hungry = false;
    ssize_t n = read_locked(s, out, cap, &hungry);
    if (hungry && s->options.hungry)
        s->options.hungry(s->options.arg); /* what it pushes wakes the stream again */
    return n;
}

static void on_closed(void *state)
{
    struct sse *s = state;
    CHECK(s, SSE_MAGIC);
    pthread_mutex_lock(&s->sse_lock);
    s->gone = true;
    s->stream = NULL;
    pthread_mutex_unlock(&s->sse_lock);
    if (s->options.closed)
        s->options.closed(s->options.arg);
    sse_unref(s);
}

err sse_reply(struct ctx *ctx, struct sse *s)
{
    CHECK(s, SSE_MAGIC);
    /* no-transform keeps proxies from compressing, which would hold frames back; the other is
     * nginx's. */
    reply_header(ctx, "Cache-Control", "no-cache, no-transform");
    reply_header(ctx, "X-Accel-Buffering", "no");
    sse_ref(s);
    struct http_source source = {.read = on_read, .closed = on_closed, .state = s};
    struct http_stream *stream;
    err e = reply_stream(ctx, "text/event-stream", source, &stream);
    if (e) {
        sse_unref(s);
        return e;
    }
    AUTO_LOCK(&s->sse_lock);
    s->stream = stream;
    return 0;
}
