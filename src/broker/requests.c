#include "broker/requests.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/lock.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define REQUEST_MAGIC 0x4e905e57u
/* Of all hosts together: a thread, up to six descriptors and the buffers of upstream.c each. */
#define REQUESTS_MAX 512

struct request_table {
    pthread_mutex_t lock;
    struct request *first;
    size_t count;
};

struct request_table *request_table_new(void)
{
    struct request_table *t = mem_alloc(sizeof *t);
    pthread_mutex_init(&t->lock, NULL);
    return t;
}

void request_table_free(struct request_table *t)
{
    if (t == NULL)
        return;
    assert(t->first == NULL);
    pthread_mutex_destroy(&t->lock);
    mem_free(t);
}

/* False when there are too many. */
static bool enlist(struct request_table *t, struct request *r)
{
    AUTO_LOCK(&t->lock);
    if (t->count >= REQUESTS_MAX)
        return false;
    r->next = t->first;
    if (t->first)
        t->first->prev = r;
    t->first = r;
    t->count++;
    return true;
}

struct request *request_new(struct request_table *t, const char *session)
{
    AUTO_FD wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake < 0)
        return NULL;
    struct request *r = mem_alloc(sizeof *r);
    *r = (struct request){.magic = REQUEST_MAGIC, .table = t, .upstream_fd = -1};
    id_new("req", clock_wall_ms(clock_real()), r->id);
    snprintf(r->session, sizeof r->session, "%s", session);
    r->wake_fd = wake;
    if (!enlist(t, r)) {
        mem_free(r);
        return NULL;
    }
    fd_take(&wake);
    return r;
}

void request_free(struct request *r)
{
    if (r == NULL)
        return;
    CHECK(r, REQUEST_MAGIC);
    {
        AUTO_LOCK(&r->table->lock);
        if (r->prev)
            r->prev->next = r->next;
        else
            r->table->first = r->next;
        if (r->next)
            r->next->prev = r->prev;
        r->table->count--;
    }
    fd_close(&r->upstream_fd);
    fd_close(&r->wake_fd);
    r->magic = 0;
    mem_free(r);
}

/* With the lock held. */
static void change_state(struct request *r, enum request_state state)
{
    r->state = state;
    uint64_t one = 1;
    ssize_t n = write(r->wake_fd, &one, sizeof one);
    (void)n; /* fails only when it is readable already */
    if (state == REQUEST_CANCELLED && r->upstream_fd >= 0)
        shutdown(r->upstream_fd, SHUT_RDWR);
}

bool socket_hung_up(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLRDHUP};
    return poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

/* From GO on, only a cancel makes the descriptor readable. */
static void take_wake(struct request *r)
{
    AUTO_LOCK(&r->table->lock);
    uint64_t count;
    if (r->state == REQUEST_GO) {
        ssize_t n = read(r->wake_fd, &count, sizeof count);
        (void)n;
    }
}

static int64_t held_until_ms(struct request *r)
{
    AUTO_LOCK(&r->table->lock);
    return r->held_until_ms;
}

err request_wait(struct request *r, int host_fd, int64_t timeout_ms)
{
    CHECK(r, REQUEST_MAGIC);
    int64_t from_ms = clock_monotonic_ms(clock_real());
    struct pollfd fds[2] = {{.fd = r->wake_fd, .events = POLLIN},
                            {.fd = host_fd, .events = POLLRDHUP}};
    for (;;) {
        int64_t held_ms = held_until_ms(r);
        int64_t left_ms =
            (held_ms > from_ms ? held_ms : from_ms) + timeout_ms - clock_monotonic_ms(clock_real());
        if (left_ms <= 0)
            return fail(E_TIMEOUT, "control did not answer");
        int n = poll(fds, 2, (int)left_ms);
        if (n < 0 && errno != EINTR)
            return fail_errno("poll");
        if (n <= 0)
            continue;
        if (fds[0].revents == 0)
            return fail(E_CLOSED, "the host hung up");
        take_wake(r);
        return 0;
    }
}

enum request_state request_state(struct request *r, struct request_refusal *out_refusal)
{
    AUTO_LOCK(&r->table->lock);
    if (out_refusal)
        *out_refusal = r->refusal;
    return r->state;
}

void request_set_upstream(struct request *r, int fd)
{
    int copy = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
    AUTO_LOCK(&r->table->lock);
    fd_close(&r->upstream_fd);
    r->upstream_fd = copy;
    if (fd >= 0 && r->state == REQUEST_CANCELLED)
        shutdown(fd, SHUT_RDWR);
}

static struct request *find(struct request_table *t, const char *id)
{
    for (struct request *r = t->first; id && r; r = r->next)
        if (strcmp(r->id, id) == 0)
            return r;
    return NULL;
}

void request_pause(struct request *r)
{
    AUTO_LOCK(&r->table->lock);
    if (r->state == REQUEST_GO)
        r->state = REQUEST_WAITING;
}

void requests_hold(struct request_table *t, const char *id, int64_t ms)
{
    AUTO_LOCK(&t->lock);
    struct request *r = find(t, id);
    if (r)
        r->held_until_ms = clock_monotonic_ms(clock_real()) + ms;
}

void requests_go(struct request_table *t, const char *id)
{
    AUTO_LOCK(&t->lock);
    struct request *r = find(t, id);
    if (r && r->state == REQUEST_WAITING)
        change_state(r, REQUEST_GO);
}

void requests_refuse(struct request_table *t, const char *id, const struct request_refusal *why)
{
    AUTO_LOCK(&t->lock);
    struct request *r = find(t, id);
    if (r == NULL || r->state != REQUEST_WAITING)
        return;
    r->refusal = *why;
    change_state(r, REQUEST_REFUSED);
}

/* A request that still waits for control's word is not touched by an interrupt: control answers it,
   and it may belong to the next turn already. */
void requests_cancel(struct request_table *t, const char *session)
{
    AUTO_LOCK(&t->lock);
    for (struct request *r = t->first; r; r = r->next) {
        bool meant = session ? r->state == REQUEST_GO && strcmp(r->session, session) == 0
                             : r->state == REQUEST_WAITING || r->state == REQUEST_GO;
        if (meant)
            change_state(r, REQUEST_CANCELLED);
    }
}

size_t requests_count(struct request_table *t)
{
    AUTO_LOCK(&t->lock);
    return t->count;
}
