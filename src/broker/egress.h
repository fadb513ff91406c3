/* The way out of a sandbox in which an image is made (§6.2): a forward proxy on a socket that
   listens inside it. CONNECT for https, absolute URLs for http; only to the hosts packages come
   from, only through the dial guard. What is said inside a tunnel is the package manager's and the
   server's own affair. One request a connection. The client is hostile; threads are bounded. */
#ifndef BROKER_EGRESS_H
#define BROKER_EGRESS_H

#include "base/err.h"
#include "base/str.h"
#include "broker/dial.h"

#define EGRESS_HEAD_MAX 16384

/* Immutable while anything is served. */
struct egress_rules {
    const struct dial_guard *guard;
    const char
        *hosts; /* "host[:port],…": without a port 80 and 443; *.example.com for names below */
};

/* Serves `take_listener` until `take_lifeline` hangs up; returns at once. */
err egress_serve(const struct egress_rules *rules, int take_listener, int take_lifeline);

/* Pure parts, for tests and fuzzing. */

struct egress_request {
    bool tunnel;
    struct dial_url url;
    struct str head; /* what to send to the server; nothing for a tunnel */
};

/* The length of the request head with its blank line, 0 while it is not whole. */
size_t egress_head_length(struct str bytes);
/* `head`: a whole one. E_INVALID says what is wrong with it. */
err egress_parse(struct str head, struct arena *a, struct egress_request *out);
bool egress_allows(const char *hosts, const char *host, int port);

#endif
