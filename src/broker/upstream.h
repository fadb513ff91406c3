/* One request to a model provider over a connection that dial.c made. Pulled by the thread that
   serves the host: nothing is read from the provider that the host has not asked for, beyond one
   bounded buffer, so a slow host slows the provider and memory stays put. One owner, one thread. */
#ifndef BROKER_UPSTREAM_H
#define BROKER_UPSTREAM_H

#include "base/err.h"
#include "base/secret.h"
#include "broker/dial.h"

struct upstream;
struct upstream_pool;

struct upstream_header {
    const char *name, *value;
};

struct upstream_options {
    struct dial_url url; /* strings outlive the upstream */
    const struct upstream_header *headers;
    size_t header_count;
    const char *auth_header, *auth_prefix;
    const struct secret *key;   /* NULL: none is sent */
    bool get;                   /* GET without a body, else POST */
    struct str body;            /* outlives the upstream */
    int host_fd;                /* its hang-up ends the request; -1: nobody waits */
    int wake_fd;                /* readable: the request is cancelled; -1: it cannot be */
    int64_t idle_ms;            /* 0 = 600000: the provider may be silent for so long */
    int64_t deadline_ms;        /* monotonic; 0: none. When it must all be over */
    const char *ca_file;        /* NULL: the certificates that the system trusts */
    struct upstream_pool *pool; /* NULL: the connection is closed with the upstream */
    const char *owner;          /* with `pool`: who may use the connection again */
    /* With `pool`: makes another connection when a kept one turns out to be closed, before the
       provider has answered a byte. */
    err (*dial)(void *arg, int *out_fd);
    void *dial_arg;
};

/* Errors of upstream_open, _head and _read: E_CLOSED, code host_gone or cancelled; E_UNAVAILABLE,
   code model_unreachable (no answer began) or model_stream_broken. */

/* `take_fd` is connected; it is closed with the upstream, or here on error. */
err upstream_open(const struct upstream_options *options, int take_fd, struct upstream **out);
/* On a kept connection to the same origin, if there is one: else NULL. */
struct upstream *upstream_reopen(const struct upstream_options *options);
int upstream_fd(const struct upstream *u); /* a kept connection's; else -1 */
/* Waits for the status line and headers. */
err upstream_head(struct upstream *u, int *out_status);
/* Headers of the answer without hop-by-hop ones, in order; valid after upstream_head. */
const struct upstream_header *upstream_headers(const struct upstream *u, size_t *out_count);
const char *upstream_header(const struct upstream *u, const char *name); /* NULL if absent */
/* Waits for more of the body. *out_n == 0: it is complete. */
err upstream_read(struct upstream *u, char *p, size_t cap, size_t *out_n);
/* From now on the provider may be silent for so long. */
void upstream_limit_idle(struct upstream *u, int64_t idle_ms);
bool upstream_sent_body(const struct upstream *u); /* the provider has the whole request */
/* NULL-safe. The connection is kept if its answer was complete and there is a pool; else it is
   closed at once. */
void upstream_close(struct upstream *u);

/* Connection management and framing headers, which each leg has for itself (RFC 9110 §7.6.1).
   `connection` is the value of the message's Connection header or NULL: what it lists is hop-by-hop
   too. */
bool header_is_hop_by_hop(const char *name, const char *connection);

#endif
