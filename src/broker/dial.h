/* The dial guard: the only place that connects to the internet (§11.1, R4a, protocols facts §11).
   A URL is checked before parsing (dial_url.h), its host resolved once (dial_resolve.h), every
   answer checked against the deny ranges (dial_ranges.h), one address pinned and connected to; curl
   gets the connected descriptor. Broker only, and `pi-managed guard`, which tells what it would do.
 */
#ifndef BROKER_DIAL_H
#define BROKER_DIAL_H

#include "base/err.h"
#include "base/str.h"
#include "broker/dial_resolve.h"
#include "broker/dial_url.h"

struct dial_guard; /* the --allow-private list, immutable; any thread */

/* What a caller may reach, over and above the deny ranges that hold for all. A host on the
   --allow-private list is exempt from the ranges and from these. */
enum dial_policy {
    DIAL_MODEL,  /* model providers: https only */
    DIAL_FETCH,  /* web_fetch and the like: http too, any port */
    DIAL_WEBHOOK /* https on port 443, a name and no address */
};

/* "host[:port],…" as of --allow-private. E_INVALID names the entry that cannot be read. */
err dial_guard_new(const char *allow_private, struct dial_guard **out);
void dial_guard_free(struct dial_guard *g); /* NULL-safe */

/* Whoever answers for names instead of the system, in dial_resolve()'s manner; before first use. */
typedef err (*dial_resolver)(void *arg, const char *host, int port, struct dial_answers *out);
void dial_guard_set_resolver(struct dial_guard *g, dial_resolver resolver, void *arg);

/* Everything there is to say against a URL, without connecting: dial_connect()'s errors, and the
   addresses it would try. */
err dial_judge(const struct dial_guard *g, enum dial_policy policy, const struct dial_url *url,
               int64_t timeout_ms, int wake_fd, struct dial_answers *out);
/* The --allow-private list names it. */
bool dial_exempt(const struct dial_guard *g, const struct dial_url *url);
/* Resolves, checks all answers, connects, all within timeout_ms. E_FORBIDDEN (code
   address_not_allowed) when the policy forbids the URL or an answer is private and not allowed;
   E_UNAVAILABLE when it cannot be resolved or reached; E_CLOSED when wake_fd (-1: none) became
   readable first. *out_fd is a connected socket. */
err dial_connect(const struct dial_guard *g, enum dial_policy policy, const struct dial_url *url,
                 int64_t timeout_ms, int wake_fd, int *out_fd);
/* Whether a connection made before may serve this URL now: its peer is judged again. */
bool dial_peer_allowed(const struct dial_guard *g, enum dial_policy policy,
                       const struct dial_url *url, int fd);

#endif
