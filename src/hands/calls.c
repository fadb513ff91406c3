#include "hands/calls.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/lock.h"
#include "base/mem.h"
#include "hands/frames.h"
#include "hands/threads.h"
#include "hands/tools.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define CALL_MAGIC 0xca11ca11u
#define PEER_CHECK_MS 5000

struct call {
    uint32_t magic;
    struct str key;
    json_t *request; /* of the runner alone, until it ran */
    int cancel_fd;

    pthread_mutex_t mutex;
    pthread_cond_t changed; /* more output, or the end */
    unsigned refs;
    bool cancelled, forgotten, done;
    uint32_t grace_ms;
    struct buf log; /* the newest output; its first byte has the offset log_start */
    uint64_t log_start;
    struct buf result; /* the RESULT object; never changes once `done` */
};

static struct {
    pthread_mutex_t mutex;
    struct call *calls[HANDS_CALLS_MAX]; /* a reference each */
    size_t n;
} table = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static struct call *call_ref(struct call *c)
{
    CHECK(c, CALL_MAGIC);
    AUTO_LOCK(&c->mutex);
    c->refs++;
    return c;
}

void call_unref(struct call *c)
{
    CHECK(c, CALL_MAGIC);
    pthread_mutex_lock(&c->mutex);
    unsigned left = --c->refs;
    pthread_mutex_unlock(&c->mutex);
    if (left > 0)
        return;
    c->magic = 0;
    pthread_mutex_destroy(&c->mutex);
    pthread_cond_destroy(&c->changed);
    json_decref(c->request);
    fd_close(&c->cancel_fd);
    buf_done(&c->log);
    buf_done(&c->result);
    mem_free((char *)c->key.p);
    mem_free(c);
}

static struct call *find_locked(struct str key)
{
    for (size_t i = 0; i < table.n; i++)
        if (str_eq(table.calls[i]->key, key))
            return table.calls[i];
    return NULL;
}

static void remove_locked(struct call *c)
{
    for (size_t i = 0; i < table.n; i++)
        if (table.calls[i] == c) {
            table.calls[i] = table.calls[--table.n];
            call_unref(c);
            return;
        }
}

static void finish(struct call *c, struct buf *take_result)
{
    AUTO_LOCK(&table.mutex);
    pthread_mutex_lock(&c->mutex);
    c->result = *take_result;
    c->done = true;
    bool forget = c->forgotten;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->mutex);
    if (forget)
        remove_locked(c);
}

static void *run(void *arg)
{
    struct call *c = arg;
    struct buf result = {0};
    tool_run(c, c->request, &result);
    json_decref(c->request);
    c->request = NULL;
    finish(c, &result);
    call_unref(c);
    return NULL;
}

static struct call *call_new(struct str key, json_t *take_request)
{
    struct call *c = mem_alloc(sizeof *c);
    c->magic = CALL_MAGIC;
    c->key = (struct str){mem_copy(key.p, key.n), key.n};
    c->request = take_request;
    c->cancel_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&c->mutex, NULL);
    cond_init(&c->changed);
    c->refs = 1;
    return c;
}

err call_start(struct str key, json_t *take_request, struct call **out)
{
    AUTO_JSON request = take_request;
    AUTO_LOCK(&table.mutex);
    struct call *c = find_locked(key);
    if (c) {
        *out = call_ref(c);
        return 0;
    }
    if (table.n == HANDS_CALLS_MAX)
        return fail(E_QUOTA, "%u calls are known here already: acknowledge some", HANDS_CALLS_MAX);
    c = call_new(key, request);
    request = NULL;
    bool started = c->cancel_fd >= 0;
    if (started && !thread_try("call", run, call_ref(c))) {
        call_unref(c);
        started = false;
    }
    if (!started) {
        call_unref(c);
        return fail(E_QUOTA, "no thread or descriptor is left in this sandbox");
    }
    table.calls[table.n++] = c;
    *out = call_ref(c);
    return 0;
}

struct call *call_find(struct str key)
{
    AUTO_LOCK(&table.mutex);
    struct call *c = find_locked(key);
    return c ? call_ref(c) : NULL;
}

err call_cancel(struct str key, uint32_t grace_ms)
{
    struct call *c = call_find(key);
    if (c == NULL)
        return fail(E_NOT_FOUND, "no call has this key");
    pthread_mutex_lock(&c->mutex);
    if (!c->cancelled && !c->done) {
        c->cancelled = true;
        c->grace_ms = grace_ms;
        uint64_t one = 1;
        ssize_t r = write(c->cancel_fd, &one, sizeof one);
        (void)r; /* cannot fail: the counter is far from full */
    }
    pthread_mutex_unlock(&c->mutex);
    call_unref(c);
    return 0;
}

void call_forget(struct str key)
{
    AUTO_LOCK(&table.mutex);
    struct call *c = find_locked(key);
    if (c == NULL)
        return;
    pthread_mutex_lock(&c->mutex);
    c->forgotten = true;
    bool done = c->done;
    pthread_mutex_unlock(&c->mutex);
    if (done)
        remove_locked(c);
}

static bool peer_gone(int fd)
{
    char byte;
    ssize_t r = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return r == 0 || (r < 0 && errno != EAGAIN && errno != EINTR);
}

/* Waits for news and copies output from *offset on (at most one frame) behind 8 bytes of offset.
   True when the call is done and everything was copied. */
static bool next_output(struct call *c, uint64_t *offset, struct buf *out)
{
    AUTO_LOCK(&c->mutex);
    if (!c->done && c->log_start + c->log.n <= *offset)
        cond_wait_ms(&c->changed, &c->mutex, PEER_CHECK_MS);
    buf_clear(out);
    if (*offset < c->log_start)
        *offset = c->log_start; /* older output is no longer kept */
    uint64_t end = c->log_start + c->log.n;
    if (end <= *offset)
        return c->done;
    size_t n = (size_t)(end - *offset);
    n = n < FRAME_CHUNK - 8 ? n : FRAME_CHUNK - 8;
    for (int i = 0; i < 8; i++)
        buf_add_char(out, (char)(*offset >> 8 * i & 0xff));
    buf_add(out, c->log.p + (*offset - c->log_start), n);
    *offset += n;
    return false;
}

err call_follow(struct call *c, uint64_t offset, int fd)
{
    AUTO_BUF chunk = {0};
    while (!next_output(c, &offset, &chunk)) {
        if (chunk.n > 0)
            TRY(frame_write(fd, FRAME_UPDATE, buf_str(&chunk)));
        else if (peer_gone(fd))
            return fail(E_CLOSED, "the peer is gone");
    }
    return frame_write(fd, FRAME_RESULT, buf_str(&c->result));
}

void call_output(struct call *c, struct str bytes)
{
    AUTO_LOCK(&c->mutex);
    buf_add_str(&c->log, bytes);
    if (c->log.n >
        2 * CALL_LOG_MAX) { /* twice, so that each byte is moved at most once on average */
        size_t drop = c->log.n - CALL_LOG_MAX;
        buf_drop(&c->log, drop);
        c->log_start += drop;
    }
    pthread_cond_broadcast(&c->changed);
}

int call_cancel_fd(const struct call *c)
{
    return c->cancel_fd;
}

bool call_cancelled(struct call *c, uint32_t *out_grace_ms)
{
    AUTO_LOCK(&c->mutex);
    if (c->cancelled && out_grace_ms)
        *out_grace_ms = c->grace_ms;
    return c->cancelled;
}
