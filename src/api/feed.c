#include "api/feed.h"

#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"

#define FEED_MAGIC 0xfeedfeedu
#define QUEUE_BYTES (256 * KB)
#define FIRST_WORD_MS 15000 /* then the reply begins without one */
#define STALL_MS 120000     /* a client that takes nothing for so long; the server ends it sooner */

struct feed {
    unsigned magic;
    feed_writer write;
    void *arg;
    void (*free_arg)(void *arg);
    pthread_mutex_t feed_lock; /* guards what follows; outside a stream's lock */
    pthread_cond_t changed;
    unsigned refs; /* the writer's thread, and the request or its stream */
    struct http_stream *stream;
    bool began, ended, closed; /* closed: nobody reads any more */
    struct err_slot failure;
    size_t at, n; /* in the ring: what was not taken yet */
    char ring[QUEUE_BYTES];
};

static pthread_mutex_t count_lock = PTHREAD_MUTEX_INITIALIZER; /* guards count */
static unsigned count;

static bool count_one(void)
{
    AUTO_LOCK(&count_lock);
    return count < FEEDS_MAX && ++count;
}

static void uncount_one(void)
{
    AUTO_LOCK(&count_lock);
    count--;
}

static void feed_unref(struct feed *f)
{
    pthread_mutex_lock(&f->feed_lock);
    unsigned left = --f->refs;
    pthread_mutex_unlock(&f->feed_lock);
    if (left > 0)
        return;
    pthread_mutex_destroy(&f->feed_lock);
    pthread_cond_destroy(&f->changed);
    f->magic = 0;
    mem_free(f);
}

/* ---- the writer's side ---- */

/* With feed_lock held. */
static void tell_reader(struct feed *f)
{
    f->began = true;
    if (f->stream && !f->closed)
        http_stream_wake(f->stream);
    pthread_cond_broadcast(&f->changed);
}

/* With feed_lock held: as much as there is room for. */
static size_t put(struct feed *f, struct str bytes)
{
    size_t end = (f->at + f->n) % QUEUE_BYTES, room = QUEUE_BYTES - f->n;
    size_t straight = QUEUE_BYTES - end < room ? QUEUE_BYTES - end : room;
    size_t n = bytes.n < straight ? bytes.n : straight;
    memcpy(f->ring + end, bytes.p, n);
    f->n += n;
    return n;
}

static err gone(void)
{
    return fail(E_CLOSED, "the client is gone");
}

err feed_write(struct feed *f, struct str bytes)
{
    CHECK(f, FEED_MAGIC);
    AUTO_LOCK(&f->feed_lock);
    while (bytes.n > 0) {
        if (f->closed)
            return gone();
        size_t n = put(f, bytes);
        bytes = (struct str){bytes.p + n, bytes.n - n};
        if (n > 0)
            tell_reader(f);
        else if (!cond_wait_ms(&f->changed, &f->feed_lock, STALL_MS) && f->n == QUEUE_BYTES)
            return fail(E_TIMEOUT, "the client takes nothing");
    }
    return 0;
}

err feed_check(struct feed *f)
{
    CHECK(f, FEED_MAGIC);
    AUTO_LOCK(&f->feed_lock);
    f->began = true; /* it goes well so far: the reply need not wait for the first word */
    pthread_cond_broadcast(&f->changed);
    return f->closed ? gone() : 0;
}

/* With feed_lock held. */
static void cut_off(struct feed *f)
{
    if (f->failure.e && f->stream && !f->closed)
        http_stream_abort(f->stream);
}

static void *run(void *arg)
{
    struct feed *f = arg;
    err e = f->write(f, f->arg);
    if (e && e != E_CLOSED && f->began)
        log_warn("a reply was cut off: %s", err_text());
    pthread_mutex_lock(&f->feed_lock);
    if (e)
        err_save(&f->failure);
    f->ended = true;
    cut_off(f);
    tell_reader(f);
    pthread_mutex_unlock(&f->feed_lock);
    f->free_arg(f->arg);
    feed_unref(f);
    uncount_one();
    return NULL;
}

/* ---- the reader's side ---- */

/* Loop thread. */
static ssize_t on_read(void *state, char *out, size_t cap)
{
    struct feed *f = state;
    CHECK(f, FEED_MAGIC);
    AUTO_LOCK(&f->feed_lock);
    if (f->n == 0)
        return f->ended ? -1 : 0;
    size_t straight = QUEUE_BYTES - f->at < f->n ? QUEUE_BYTES - f->at : f->n;
    size_t n = cap < straight ? cap : straight;
    memcpy(out, f->ring + f->at, n);
    bool was_full = f->n == QUEUE_BYTES;
    f->at = (f->at + n) % QUEUE_BYTES;
    f->n -= n;
    if (was_full || f->n < QUEUE_BYTES / 2)
        pthread_cond_broadcast(&f->changed);
    return (ssize_t)n;
}

static void on_closed(void *state)
{
    struct feed *f = state;
    pthread_mutex_lock(&f->feed_lock);
    f->closed = true;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->feed_lock);
    feed_unref(f);
}

err feed_begin(feed_writer write, void *take_arg, void (*free_arg)(void *), struct feed **out)
{
    if (!count_one()) {
        free_arg(take_arg);
        return fail_as(E_UNAVAILABLE, "overloaded",
                       "too many long replies are under way: try again in a second");
    }
    struct feed *f = mem_alloc(sizeof *f);
    *f = (struct feed){
        .magic = FEED_MAGIC, .write = write, .arg = take_arg, .free_arg = free_arg, .refs = 2};
    pthread_mutex_init(&f->feed_lock, NULL);
    cond_init(&f->changed);
    thread_start_detached("feed", run, f);
    pthread_mutex_lock(&f->feed_lock);
    while (!f->began && cond_wait_ms(&f->changed, &f->feed_lock, FIRST_WORD_MS))
        continue;
    struct err_slot failure = f->failure;
    bool nothing = f->n == 0;
    pthread_mutex_unlock(&f->feed_lock);
    if (failure.e && nothing) {
        on_closed(f);
        return err_restore(&failure);
    }
    *out = f;
    return 0;
}

err feed_reply(struct ctx *ctx, const char *content_type, struct feed *take_feed)
{
    struct feed *f = take_feed;
    struct http_source source = {.read = on_read, .closed = on_closed, .state = f};
    struct http_stream *stream;
    err e = reply_stream(ctx, content_type, source, &stream);
    if (e) {
        on_closed(f);
        return e;
    }
    AUTO_LOCK(&f->feed_lock);
    f->stream = stream;
    cut_off(f);
    return 0;
}
