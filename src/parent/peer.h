/* The parent's end of a socket pair to one child. Sending never blocks: what does not fit waits
   here until the socket takes it. Parent's only thread. */
#ifndef PARENT_PEER_H
#define PARENT_PEER_H

#include <stdbool.h>

#include "base/err.h"
#include "base/fd.h"
#include "parent/request.h"

struct peer_waiting;

struct peer {
    int fd; /* -1: no child */
    struct peer_waiting *first, *last;
    unsigned count;
};

/* A fresh SOCK_SEQPACKET pair: our end in *p (must be closed), the child's in *out_child. */
err peer_open(struct peer *p, int *out_child);
void peer_close(struct peer *p);
/* Copies m and duplicates the descriptors. E_UNAVAILABLE when too much waits: the child is stuck.
 */
err peer_send(struct peer *p, const struct parent_message *m, const int *fds, size_t fd_count);
bool peer_waits(const struct peer *p); /* poll for POLLOUT, then peer_flush */
err peer_flush(struct peer *p);
/* One message; E_INVALID when it is not one. Descriptors sent along are closed: no child gives any.
 */
err peer_receive(struct peer *p, struct parent_message *out);

#endif
