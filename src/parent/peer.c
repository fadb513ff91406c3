#include "parent/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/secret.h"

#define WAITING_MAX 512

struct peer_waiting {
    struct peer_waiting *next;
    size_t fd_count;
    int fds[FD_PASS_MAX];
    struct parent_message m;
};

err peer_open(struct peer *p, int *out_child)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return fail_errno("socketpair");
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    *p = (struct peer){.fd = pair[0]};
    *out_child = pair[1];
    return 0;
}

static void drop_first(struct peer *p)
{
    struct peer_waiting *w = p->first;
    p->first = w->next;
    if (p->first == NULL)
        p->last = NULL;
    p->count--;
    for (size_t i = 0; i < w->fd_count; i++)
        fd_close(&w->fds[i]);
    secret_wipe(w, sizeof *w);
    mem_free(w);
}

void peer_close(struct peer *p)
{
    while (p->first)
        drop_first(p);
    fd_close(&p->fd);
}

bool peer_waits(const struct peer *p)
{
    return p->first != NULL;
}

static err keep(struct peer *p, const struct parent_message *m, const int *fds, size_t fd_count)
{
    if (p->count >= WAITING_MAX)
        return fail(E_UNAVAILABLE, "%u messages wait for it: it is stuck", p->count);
    struct peer_waiting *w = mem_alloc(sizeof *w);
    w->m = *m;
    for (; w->fd_count < fd_count; w->fd_count++)
        w->fds[w->fd_count] = fcntl(fds[w->fd_count], F_DUPFD_CLOEXEC, 0);
    if (p->last)
        p->last->next = w;
    else
        p->first = w;
    p->last = w;
    p->count++;
    return 0;
}

err peer_send(struct peer *p, const struct parent_message *m, const int *fds, size_t fd_count)
{
    if (p->fd < 0)
        return fail(E_CLOSED, "it is not running");
    if (p->first)
        return keep(p, m, fds, fd_count);
    errno = 0;
    err e = fd_send(p->fd, m, sizeof *m, fds, fd_count);
    return e == E_IO && errno == EAGAIN ? keep(p, m, fds, fd_count) : e;
}

err peer_flush(struct peer *p)
{
    while (p->first) {
        errno = 0;
        err e = fd_send(p->fd, &p->first->m, sizeof p->first->m, p->first->fds, p->first->fd_count);
        if (e == E_IO && errno == EAGAIN)
            return 0;
        TRY(e);
        drop_first(p);
    }
    return 0;
}

err peer_receive(struct peer *p, struct parent_message *out)
{
    size_t n = 0;
    int fds[FD_PASS_MAX];
    TRY(fd_recv(p->fd, out, sizeof *out, &n, fds));
    for (size_t i = 0; i < FD_PASS_MAX; i++)
        fd_close(&fds[i]);
    return n == sizeof *out ? 0 : fail(E_INVALID, "a message of %zu bytes", n);
}
