/* The harness supervisor: Pi hosts, one pool per tenant, one warm spare (R46), each a confined Node
   process that the parent starts. Opens a managed session in a host, relays to it, and tells the
   session what the host says. Hosts with no session for idle_ms are stopped; a host that dies takes
   its sessions' openings with it: each gets on_lost, and whoever still needs one opens it again.
   Calls queue and return at once; events arrive on the host connection's thread in order and may
   block (that is the backpressure). Any thread. */
#ifndef HARNESS_HARNESS_H
#define HARNESS_HARNESS_H

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"

struct harness;
struct parent_link;

/* `session` is the id given to harness_open. `envelope` and `line` are borrowed for the call. */
struct harness_events {
    void (*opened)(void *arg, const char *session, err e, const char *text);
    void (*replied)(void *arg, const char *session, const char *op, bool ok, const char *text);
    void (*entry)(void *arg, const char *session, struct str line);
    void (*delta)(void *arg, const char *session, const json_t *envelope);
    void (*tool)(void *arg, const char *session, const char *call, const char *name,
                 struct str input);
    void (*tool_cancel)(void *arg, const char *session, const char *call);
    void (*retry)(void *arg, const char *session, const json_t *envelope);
    void (*settled)(void *arg, const char *session, bool aborted, const char *error);
    void (*lost)(void *arg, const char *session, const char *why); /* the host is gone */
    void (*heard)(void *arg); /* harness_heard() has risen for some session; NULL = nobody asks */
    void *arg;
};

struct harness_options {
    struct parent_link *parent;
    const struct clock *clock;
    struct harness_events events;
    int64_t idle_ms;       /* 0 = 60000 */
    unsigned sessions_max; /* per host; 0 = 200 */
};

err harness_new(const struct harness_options *options, struct harness **out);
void harness_free(struct harness *h); /* stops hosts */

/* Opens `session` in a host of `tenant`: `envelope` is the open message without id and lines, `log`
   the lines (LF after each). `opened` follows, once. */
void harness_open(struct harness *h, const char *tenant, const char *session, json_t *take_envelope,
                  struct str log);
/* Any other op for an open session; `line` n == 0 = none. Dropped silently when the session is not
   open (its `lost` was or will be delivered). `reply` true: asks for a reply, delivered as
   `replied`. */
void harness_send(struct harness *h, const char *session, json_t *take_envelope, struct str lines,
                  bool reply);
/* No lost follows, but an event on its way may still arrive. The id may be opened again at once. */
void harness_close(struct harness *h, const char *session);
/* How many messages of the host that holds `session` were passed on, whosever they were, since it
   started; INT64_MAX if none holds it. */
int64_t harness_heard(struct harness *h, const char *session);
/* From the parent's note; wakes whoever waited for that host. */
void harness_host_exited(struct harness *h, uint32_t host, int status);
/* For /readyz: true if some host runs, spare or not. Else *out_text says why not (yet). */
void harness_ready(struct harness *h, bool *out_ready, char *out_text, size_t cap);

#endif
