/* Two threads and a queue around one stream socket. */
#include "harness/host.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/lock.h"
#include "base/mem.h"
#include "harness/wire.h"
#include "parent/link.h"

#define HOST_MAGIC 0x686f7374u
#define READ_BYTES (64u << 10)
#define KEEP_BYTES (1u << 20) /* a reader's buffer that grew beyond this is given back */
#define EXIT_NOTE_MS 1000     /* the socket closes a moment before the parent reports the exit */
#define WAIT_MS 60000

struct outgoing {
    struct outgoing *next;
    struct buf bytes; /* empty: bind to the tenant */
    char tenant[ID_MAX];
};

struct host {
    unsigned magic;
    struct parent_link *parent;
    struct host_events events;
    char tenant[ID_MAX]; /* as started */
    pthread_t reader, writer;

    pthread_mutex_t lock; /* guards what follows; a leaf lock */
    pthread_cond_t changed;
    uint32_t id;
    int fd;        /* -1 until started; closed by host_free */
    bool stopping; /* no more is written; the reader is on its way out */
    bool exited;
    int exit_status;
    char why[ERR_TEXT_MAX]; /* first reason for the end */
    struct outgoing *first, **last;
    size_t queued_bytes;
};

static void give_reason(struct host *h, const char *why)
{
    if (!h->why[0])
        snprintf(h->why, sizeof h->why, "%s", why);
}

/* With the lock held. */
static void stop_locked(struct host *h, const char *why)
{
    give_reason(h, why);
    h->stopping = true;
    if (h->fd >= 0)
        shutdown(h->fd, SHUT_RDWR);
    pthread_cond_broadcast(&h->changed);
}

void host_stop(struct host *h, const char *why)
{
    CHECK(h, HOST_MAGIC);
    AUTO_LOCK(&h->lock);
    stop_locked(h, why);
}

static void enqueue(struct host *h, struct outgoing *o)
{
    AUTO_LOCK(&h->lock);
    *h->last = o;
    h->last = &o->next;
    h->queued_bytes += o->bytes.n;
    if (h->queued_bytes > HOST_QUEUE_MAX)
        stop_locked(h, "the Pi host has stopped reading what it is sent");
    pthread_cond_broadcast(&h->changed);
}

void host_send(struct host *h, struct buf *take_bytes)
{
    CHECK(h, HOST_MAGIC);
    struct outgoing *o = mem_alloc(sizeof *o);
    o->bytes = *take_bytes;
    *take_bytes = (struct buf){0};
    enqueue(h, o);
}

void host_bind(struct host *h, const char *tenant)
{
    CHECK(h, HOST_MAGIC);
    struct outgoing *o = mem_alloc(sizeof *o);
    snprintf(o->tenant, sizeof o->tenant, "%s", tenant);
    enqueue(h, o);
}

static struct outgoing *next_outgoing(struct host *h)
{
    AUTO_LOCK(&h->lock);
    while (!h->stopping && (!h->first || h->fd < 0))
        cond_wait_ms(&h->changed, &h->lock, WAIT_MS); /* for something to send */
    if (h->stopping)
        return NULL;
    struct outgoing *o = h->first;
    h->first = o->next;
    if (!h->first)
        h->last = &h->first;
    h->queued_bytes -= o->bytes.n;
    return o;
}

static void free_outgoing(struct outgoing *o)
{
    buf_done(&o->bytes);
    mem_free(o);
}

static err bind_tenant(struct host *h, const char *tenant)
{
    struct parent_message *m = mem_alloc(sizeof *m);
    m->verb = PARENT_BIND_HOST;
    m->host.id = host_id(h);
    snprintf(m->host.tenant, sizeof m->host.tenant, "%s", tenant);
    err e = parent_call(h->parent, m, NULL);
    mem_free(m);
    return e;
}

static void *write_thread(void *arg)
{
    struct host *h = arg;
    for (struct outgoing *o; (o = next_outgoing(h));) {
        err e =
            o->bytes.n ? fd_write_full(h->fd, o->bytes.p, o->bytes.n) : bind_tenant(h, o->tenant);
        free_outgoing(o);
        if (e)
            host_stop(h, e == E_CLOSED ? "the Pi host ended" : err_text());
    }
    return NULL;
}

static err start_process(struct host *h)
{
    int fd = -1;
    struct parent_message *m = mem_alloc(sizeof *m);
    m->verb = PARENT_START_HOST;
    snprintf(m->host.tenant, sizeof m->host.tenant, "%s", h->tenant);
    err e = parent_call(h->parent, m, &fd);
    uint32_t id = m->host.id;
    mem_free(m);
    TRY(e);
    AUTO_LOCK(&h->lock);
    h->id = id;
    h->fd = fd;
    if (h->stopping)
        shutdown(h->fd, SHUT_RDWR);
    pthread_cond_broadcast(&h->changed);
    return 0;
}

static err read_some(struct host *h, struct wire_reader *r)
{
    if (r->at == r->bytes.n && r->bytes.cap > KEEP_BYTES && !r->envelope)
        wire_done(r);
    char *to = wire_space(r, READ_BYTES);
    ssize_t n;
    do
        n = recv(h->fd, to, READ_BYTES - 1, 0);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno != ECONNRESET)
        return fail_errno("reading from the Pi host");
    if (n <= 0)
        return fail(E_CLOSED, "the Pi host ended");
    wire_added(r, (size_t)n);
    return 0;
}

/* Until there is a reason to end, which is in the error slot. */
static void read_messages(struct host *h)
{
    struct wire_reader r = {0};
    err e = 0;
    while (!e) {
        json_t *envelope;
        struct str line;
        e = read_some(h, &r);
        while (!e && wire_take(&r, &envelope, &line, &e)) {
            h->events.message(h->events.arg, h, envelope, line);
            json_decref(envelope);
        }
    }
    wire_done(&r);
}

/* The process ends with its connection, on its own or not. */
static void end_process(struct host *h)
{
    struct parent_message *m = mem_alloc(sizeof *m);
    m->verb = PARENT_STOP_HOST;
    m->host.id = host_id(h);
    parent_call(h->parent, m, NULL); /* fails when it has ended already: as wished */
    mem_free(m);
}

/* Appends how the process ended, if the parent says so soon. */
static void describe_end(struct host *h, char *out, size_t cap)
{
    AUTO_LOCK(&h->lock);
    while (h->id && !h->exited && cond_wait_ms(&h->changed, &h->lock, EXIT_NOTE_MS))
        ; /* for the parent's note */
    int s = h->exit_status;
    if (h->exited && WIFSIGNALED(s))
        snprintf(out, cap, "%s (signal %d)", h->why, WTERMSIG(s));
    else if (h->exited && WEXITSTATUS(s) > 128)
        snprintf(out, cap, "%s (signal %d)", h->why, WEXITSTATUS(s) - 128);
    else if (h->exited)
        snprintf(out, cap, "%s (exit status %d)", h->why, WEXITSTATUS(s));
    else
        snprintf(out, cap, "%s", h->why);
}

static void *read_thread(void *arg)
{
    struct host *h = arg;
    char why[ERR_TEXT_MAX + 32];
    if (start_process(h) == 0)
        read_messages(h);
    host_stop(h, err_text()); /* of whichever failed */
    if (host_id(h))
        end_process(h);
    describe_end(h, why, sizeof why);
    h->events.ended(h->events.arg, h, why);
    return NULL;
}

struct host *host_new(struct parent_link *parent, const char *tenant,
                      const struct host_events *events)
{
    struct host *h = mem_alloc(sizeof *h);
    *h = (struct host){.magic = HOST_MAGIC, .parent = parent, .events = *events, .fd = -1};
    snprintf(h->tenant, sizeof h->tenant, "%s", tenant);
    h->last = &h->first;
    pthread_mutex_init(&h->lock, NULL);
    cond_init(&h->changed);
    h->reader = thread_start("host-read", read_thread, h);
    h->writer = thread_start("host-write", write_thread, h);
    return h;
}

void host_free(struct host *h)
{
    if (!h)
        return;
    CHECK(h, HOST_MAGIC);
    pthread_join(h->reader, NULL);
    pthread_join(h->writer, NULL);
    while (h->first) {
        struct outgoing *o = h->first;
        h->first = o->next;
        free_outgoing(o);
    }
    fd_close(&h->fd);
    pthread_mutex_destroy(&h->lock);
    pthread_cond_destroy(&h->changed);
    h->magic = 0;
    mem_free(h);
}

bool host_note_exit(struct host *h, uint32_t id, int status)
{
    CHECK(h, HOST_MAGIC);
    AUTO_LOCK(&h->lock);
    if (h->id != id)
        return false;
    h->exited = true;
    h->exit_status = status;
    stop_locked(h, "the Pi host ended");
    return true;
}

uint32_t host_id(struct host *h)
{
    AUTO_LOCK(&h->lock);
    return h->id;
}
