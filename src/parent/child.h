/* Control or broker as the parent sees it: a process, the socket to it, and how often it died. The
   parent's only thread. */
#ifndef PARENT_CHILD_H
#define PARENT_CHILD_H

#include "base/err.h"
#include "parent/peer.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define CHILD_HELLO_MS 60000 /* one that says nothing for so long is killed */
#define CHILD_BACKOFF_MAX_MS 10000

struct parent_options;

struct child {
    const char *name; /* its role */
    bool has_data;    /* control: DATA and the object store are its own */
    pid_t pid;        /* 0: not running */
    struct peer peer;
    bool ready;                     /* said hello */
    int64_t started_ms, restart_ms; /* restart_ms: when to start it, if not running */
    unsigned failures;
};

/* Starts the process; sets pid and peer. */
err child_spawn(struct child *c, const struct parent_options *o);

/* `e` is what sending to it came to. One that cannot be written to is either gone (its exit is on
   its way) or stuck: then it is killed. */
void child_sent(struct child *c, err e);
void child_send(struct child *c, const struct parent_message *m, const int *fds, size_t n);
/* Answers its request `m` with how it went. */
void child_reply(struct child *c, struct parent_message *m, err e);

/* It died just now: how long to wait before it is started again. One that lived half a minute is
   started at once, others later each time. */
int64_t child_backoff_ms(struct child *c, int64_t now_ms);
/* For logs: what waitpid(2) said of an end. Returns `out`. */
const char *child_status_text(int status, char *out, size_t cap);

#endif
