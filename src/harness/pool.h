/* The books of the supervisor: hosts, which sessions they hold, and which replies are due. Only
   data; every function is called with the supervisor's lock held, except where it says otherwise.
 */
#ifndef HARNESS_POOL_H
#define HARNESS_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"

struct host;

#define OP_MAX 24

/* A message with an id that the host has not answered. */
struct due {
    struct due *next;
    int64_t id;
    enum {
        DUE_OPEN,  /* the answer decides whether the session is open */
        DUE_REPLY, /* somebody asked for the answer */
        DUE_PING,  /* asks whether the host still answers anything */
        DUE_CLOSE, /* until it comes, what the host says of the session is of the closed opening */
    } kind;
    char session[ID_MAX];
    char op[OP_MAX];
};

struct pool_host {
    struct pool_host *next;
    struct host *host;
    char tenant[ID_MAX]; /* "": spare */
    enum {
        HOST_STARTING, /* started, no hello yet; messages wait */
        HOST_READY,
        HOST_STOPPING, /* gets no new sessions */
        HOST_ENDED     /* its last event came; the keeper frees it */
    } state;
    unsigned sessions;
    int64_t idle_since_ms; /* monotonic; when `sessions` became 0 */
    int64_t heard_ms;      /* when it last said anything */
    int64_t heard;         /* messages of its that were passed on */
    int64_t pinged_ms;     /* 0: it has said something since it was last asked */
    bool listening; /* false while a session takes in what it said: its silence is ours then */
    struct due *due;
};

struct pool_session {
    struct pool_session *next; /* in its bucket */
    char id[ID_MAX];
    struct pool_host *at;
    bool opening; /* `opened` is due */
};

#define POOL_BUCKETS 1024

struct pool {
    struct pool_host *hosts;
    struct pool_session *buckets[POOL_BUCKETS];
};

struct pool_session *pool_find(struct pool *p, const char *session);
struct pool_session *pool_add(struct pool *p, struct pool_host *at, const char *session);
/* Frees the entry. `now_ms` starts the host's idle time if it was the last. */
void pool_remove(struct pool *p, struct pool_session *s, int64_t now_ms);
/* Unlinks one session of that host, for telling it that the host is gone; the caller frees it with
 * mem_free. */
struct pool_session *pool_evict(struct pool *p, struct pool_host *at);

/* The tenant's host with the fewest sessions, or NULL if all are full. "" finds a spare. */
struct pool_host *pool_pick(struct pool *p, const char *tenant, unsigned sessions_max);

void pool_expect(struct pool_host *at, int64_t id, int kind, const char *session, const char *op);
/* Unlinks the due reply; NULL if none has that id. The caller frees it with mem_free. */
struct due *pool_settle(struct pool_host *at, int64_t id);
bool pool_closing(const struct pool_host *at, const char *session);
void pool_forget_due(struct pool_host *at);

#endif
