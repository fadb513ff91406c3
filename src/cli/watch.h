/* Follows a session's event stream for as long as it takes: over lost connections and restarts of
   the service, each persisted event once and in order (Last-Event-ID). Ctrl-C ends the watching,
   never the session. One thread. */
#ifndef CLI_WATCH_H
#define CLI_WATCH_H

#include "cli/remote.h"

struct watch {
    const char *session;
    int64_t after; /* seq; the watch begins behind it, and keeps it up to date */
    bool deltas;   /* ask for answers and the output of tools as they grow */
    /* Each frame. `event` is borrowed. False: enough. */
    bool (*on_event)(void *arg, const char *type, const json_t *event);
    void (*on_lost)(void *arg, const char *why); /* previews shown so far will not be completed */
    void (*on_again)(void *arg);                 /* connected again */
    void *arg;
};

enum watch_end {
    WATCH_ENOUGH,
    WATCH_INTERRUPTED, /* SIGINT */
    WATCH_DELETED,     /* the session is gone */
};

/* Fails when the first connection does, when the service refuses, and after ten minutes without
   it. */
err watch_session(struct remote *r, struct watch *w, enum watch_end *out);

#endif
