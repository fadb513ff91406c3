/* Names to addresses by the system's resolver, on a thread of its own: the C library's call cannot
   be interrupted, so whoever waits too long leaves it behind. How many may be under way is bounded.
 */
#ifndef BROKER_DIAL_RESOLVE_H
#define BROKER_DIAL_RESOLVE_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* All answers are checked, so there is a limit to how many there may be. */
#define DIAL_ANSWERS_MAX 64

struct dial_address {
    struct sockaddr_storage sa; /* with the port */
    socklen_t n;
};

struct dial_answers {
    size_t count;
    struct dial_address list[DIAL_ANSWERS_MAX];
};

/* E_UNAVAILABLE when there is no answer in timeout_ms, none at all, or too many lookups are under
   way; E_CLOSED when wake_fd (-1: none) became readable first. A literal address is its own answer,
   without a thread. */
err dial_resolve(const char *host, int port, int64_t timeout_ms, int wake_fd,
                 struct dial_answers *out);

#endif
