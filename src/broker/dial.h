/* The dial guard: the only place that connects to the internet (§11.1, R4a, protocols facts §11).
   A URL is checked before parsing, its host resolved once, every answer checked against the deny
   ranges, one address pinned and connected to; curl gets the connected descriptor. Broker only. */
#ifndef BROKER_DIAL_H
#define BROKER_DIAL_H

#include "base/err.h"
#include "base/str.h"

struct dial_guard; /* the --allow-private list, immutable */

struct dial_url { /* parsed, in the caller's arena */
    const char *scheme; /* "https" or "http" */
    const char *host;
    int port;
    const char *path;   /* with query */
};

struct arena;

/* "host[:port],…" as of --allow-private. */
err dial_guard_new(const char *allow_private, struct dial_guard **out);
void dial_guard_free(struct dial_guard *g);
/* Refuses before resolving: control characters, blanks, backslash, userinfo, zone ids, odd number literals,
   non-ASCII hosts, trailing dots, schemes other than http(s); plain http only to allowed private hosts. */
err dial_parse(struct str url, struct arena *a, struct dial_url *out);
/* Resolves, checks all answers, connects within timeout_ms. E_FORBIDDEN (code address_not_allowed) when an answer
   is private and not allowed; E_UNAVAILABLE when it cannot be resolved or reached. *out_fd is a connected socket. */
err dial_connect(const struct dial_guard *g, const struct dial_url *url, int64_t timeout_ms,
                 int *out_fd);

#endif
