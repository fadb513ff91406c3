/* A guarded GET: follows redirects by hand, each hop parsed, resolved, checked and dialled anew
   (dial.h), at most DIAL_HOPS_MAX of them, none from https to http. A credential goes to the origin
   it was given for and nowhere else. Time and size are bounded. One call, one thread. */
#ifndef BROKER_FETCH_H
#define BROKER_FETCH_H

#include "base/buf.h"
#include "base/secret.h"
#include "broker/dial.h"

struct upstream_header;

struct fetch_options {
    const struct dial_guard *guard;
    enum dial_policy policy;
    int64_t timeout_ms;      /* for all of it */
    size_t body_max;         /* what is longer is cut, and said to be */
    int wake_fd;             /* -1: none; readable: given up, E_CLOSED */
    const char *auth_header; /* with `key`: sent to the first URL's origin only */
    const char *auth_prefix;
    const struct secret *key;              /* NULL: none */
    const char *ca_file;                   /* NULL: the certificates that the system trusts */
    const struct upstream_header *headers; /* more of them, on every hop */
    size_t header_count;
    bool stay; /* a redirect is the answer: it is not followed */
};

struct fetch_hop {
    const char *url;
    int status; /* 0: it was refused or not reached; the error says why */
};

struct fetch_result { /* strings live in the arena */
    struct fetch_hop hops[DIAL_HOPS_MAX + 1];
    size_t hop_count;         /* filled even when an error is returned */
    const char *content_type; /* of the last hop; NULL: none */
    struct buf body;          /* the caller's */
    bool truncated;
};

/* `out` is zeroed by the caller. E_INVALID, E_FORBIDDEN as of dial.h, E_FORBIDDEN (code
   too_many_redirects), E_UNAVAILABLE (code fetch_failed), E_CLOSED. */
err fetch_get(const struct fetch_options *options, struct str url, struct arena *a,
              struct fetch_result *out);

#endif
