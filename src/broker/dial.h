/* The dial guard: the only place that connects to the internet (§11.1, R4a, protocols facts §11).
   A URL is checked before parsing, its host resolved once, every answer checked against the deny
   ranges, one address pinned and connected to; curl gets the connected descriptor. Broker only. */
#ifndef BROKER_DIAL_H
#define BROKER_DIAL_H

#include "base/err.h"
#include "base/str.h"

struct dial_guard; /* the --allow-private list, immutable; any thread */

struct dial_url {       /* parsed, in the caller's arena */
    const char *scheme; /* "https" or "http" */
    const char *host;   /* lower case; an IPv6 literal without its brackets */
    int port;
    const char *path; /* with query, without fragment; "/" when empty */
};

/* What a caller may reach, over and above the deny ranges that hold for all. A host on the
   --allow-private list is exempt from the ranges and from these. */
enum dial_policy {
    DIAL_MODEL,  /* model providers: https only */
    DIAL_FETCH,  /* web_fetch and the like: http too, any port */
    DIAL_WEBHOOK /* https on port 443, a name and no address */
};

struct arena;

/* "host[:port],…" as of --allow-private. E_INVALID names the entry that cannot be read. */
err dial_guard_new(const char *allow_private, struct dial_guard **out);
void dial_guard_free(struct dial_guard *g); /* NULL-safe */
/* Refuses before resolving: control characters, blanks, backslash, userinfo, zone ids, percent
   signs in the host, odd number literals (127.1, 0x7f000001), non-ASCII hosts, trailing dots,
   schemes other than http(s). */
err dial_parse(struct str url, struct arena *a, struct dial_url *out);
/* True for two URLs of one origin: scheme, host and port (R4a). */
bool dial_same_origin(const struct dial_url *a, const struct dial_url *b);
/* Resolves, checks all answers, connects within timeout_ms. E_FORBIDDEN (code address_not_allowed)
   when the policy forbids the URL or an answer is private and not allowed; E_UNAVAILABLE when it
   cannot be resolved or reached; E_CLOSED when wake_fd (-1: none) became readable first. *out_fd is
   a connected socket. Resolving itself cannot be woken: it takes what the system's resolver takes.
 */
err dial_connect(const struct dial_guard *g, enum dial_policy policy, const struct dial_url *url,
                 int64_t timeout_ms, int wake_fd, int *out_fd);

#endif
