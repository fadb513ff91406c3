/* One Pi host as the supervisor sees it: a process that the parent starts, its stream socket, a
   thread that reads it and one that writes to it. Knows nothing of sessions. Calls return at once;
   events come on the reading thread, in order, and may block it. */
#ifndef HARNESS_HOST_H
#define HARNESS_HOST_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/json.h"

struct host;
struct parent_link;

struct host_events {
    void (*message)(void *arg, struct host *h, const json_t *envelope, struct str line);
    /* The last event, once, whatever happened: could not be started, left, sent nonsense, was
     * stopped. */
    void (*ended)(void *arg, struct host *h, const char *why);
    void *arg;
};

#define HOST_QUEUE_MAX                                                                             \
    (256u << 20) /* bytes waiting for a host that does not read: beyond, it is stuck */

/* `tenant` "" = a spare. What is sent before the host is ready waits. */
struct host *host_new(struct parent_link *parent, const char *tenant,
                      const struct host_events *events);
/* After `ended` only, and not from it. NULL-safe. */
void host_free(struct host *h);

void host_send(struct host *h, struct buf *take_bytes);
/* A spare gets its tenant before anything sent later reaches it. */
void host_bind(struct host *h, const char *tenant);
/* Ends the connection, whereupon the process is ended too. */
void host_stop(struct host *h, const char *why);
/* The parent says that host `id` exited; true if that is this one. */
bool host_note_exit(struct host *h, uint32_t id, int status);
uint32_t host_id(struct host *h); /* 0 until the parent has answered */

#endif
