/* A role's end of its socket to the parent: calls that wait, notes that arrive. */
#include "parent/link.h"

#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/secret.h"

/* The slowest verb starts a sandbox; the parent gives its maker MAKER_TIMEOUT_MS. */
#define CALL_TIMEOUT_MS 180000

struct waiter {
    struct waiter *next;
    uint32_t id;
    bool done;
    struct parent_message *m; /* the reply lands here */
    int fd;
};

struct parent_link {
    int fd;
    parent_note_fn on_note;
    void *arg;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t replied;
    uint32_t last_id;
    struct waiter *waiting;
};

static void close_all(int fds[FD_PASS_MAX])
{
    for (size_t i = 0; i < FD_PASS_MAX; i++)
        fd_close(&fds[i]);
}

/* A reply nobody waits for any more (its call timed out) is dropped with its descriptor. */
static void deliver_reply(struct parent_link *link, const struct parent_message *m, int *fd)
{
    AUTO_LOCK(&link->lock);
    for (struct waiter *w = link->waiting; w; w = w->next) {
        if (w->id != m->id)
            continue;
        *w->m = *m;
        w->fd = fd_take(fd);
        w->done = true;
        pthread_cond_broadcast(&link->replied);
        return;
    }
}

static void *read_link(void *arg)
{
    struct parent_link *link = arg;
    struct parent_message *m = mem_alloc(sizeof *m);
    for (;;) {
        size_t n = 0;
        int fds[FD_PASS_MAX];
        err e = fd_recv(link->fd, m, sizeof *m, &n, fds);
        if (e || n != sizeof *m) {
            if (e && e != E_CLOSED)
                log_error("the link to the parent broke: %s", err_text());
            _exit(e == E_CLOSED ? 0 : 1); /* a role never outlives its parent */
        }
        if (m->id == 0) {
            link->on_note(link->arg, m, fds);
        } else {
            deliver_reply(link, m, &fds[0]);
            close_all(fds);
        }
        secret_wipe(m, sizeof *m); /* it may have been an opened credential */
    }
}

struct parent_link *parent_link_open(int fd, parent_note_fn on_note, void *arg)
{
    struct parent_link *link = mem_alloc(sizeof *link);
    *link = (struct parent_link){.fd = fd, .on_note = on_note, .arg = arg};
    pthread_mutex_init(&link->lock, NULL);
    cond_init(&link->replied);
    thread_start_detached("parent-link", read_link, link);
    return link;
}

static void enlist(struct parent_link *link, struct waiter *w)
{
    AUTO_LOCK(&link->lock);
    if (++link->last_id == 0) /* 0 means a note */
        link->last_id = 1;
    w->id = link->last_id;
    w->next = link->waiting;
    link->waiting = w;
}

static void delist(struct parent_link *link, const struct waiter *w)
{
    for (struct waiter **at = &link->waiting; *at; at = &(*at)->next) {
        if (*at == w) {
            *at = w->next;
            return;
        }
    }
}

static int64_t timeout_of(uint32_t verb)
{
    return CALL_TIMEOUT_MS + (verb == PARENT_IMAGE_PREPARE ? PARENT_IMAGE_TIMEOUT_MS : 0);
}

static bool wait_for_reply(struct parent_link *link, struct waiter *w, int64_t timeout_ms)
{
    int64_t left, until = clock_monotonic_ms(clock_real()) + timeout_ms;
    AUTO_LOCK(&link->lock);
    while (!w->done && (left = until - clock_monotonic_ms(clock_real())) > 0)
        cond_wait_ms(&link->replied, &link->lock, left); /* each reply wakes all who wait */
    delist(link, w);
    return w->done;
}

/* The lock keeps the reply, which lands in the same message, behind the last look at the request.
 */
static err send_request(struct parent_link *link, struct waiter *w)
{
    AUTO_LOCK(&link->lock);
    err e = fd_send(link->fd, w->m, sizeof *w->m, NULL, 0);
    if (e)
        delist(link, w);
    return e;
}

err parent_call(struct parent_link *link, struct parent_message *m, int *out_fd)
{
    struct waiter w = {.m = m, .fd = -1};
    uint32_t verb = m->verb;
    enlist(link, &w);
    m->id = w.id;
    TRY(send_request(link, &w));
    if (!wait_for_reply(link, &w, timeout_of(verb)))
        return fail(E_TIMEOUT, "the parent did not answer request %u in %lld s", verb,
                    (long long)(timeout_of(verb) / 1000));
    if (m->status) {
        fd_close(&w.fd);
        return fail_as(m->status, m->code, "%.*s", PARENT_TEXT_MAX - 1, m->text);
    }
    if (out_fd)
        *out_fd = fd_take(&w.fd);
    fd_close(&w.fd);
    return 0;
}

err parent_hello(struct parent_link *link)
{
    struct parent_message *m = mem_alloc(sizeof *m);
    m->verb = PARENT_HELLO;
    err e = fd_send(link->fd, m, sizeof *m, NULL, 0);
    mem_free(m);
    return e;
}
