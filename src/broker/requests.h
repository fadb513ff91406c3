/* The requests under way at the gateway, as control addresses them: by request id (go, refuse) or
   by session (cancel). The thread that serves a request waits on its wake descriptor; others change
   its state here. */
#ifndef BROKER_REQUESTS_H
#define BROKER_REQUESTS_H

#include "base/err.h"
#include "base/id.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define REQUEST_DETAIL_MAX 400

enum request_state {
    REQUEST_WAITING,  /* control has not spoken; → GO, REFUSED, CANCELLED */
    REQUEST_GO,       /* dial; → WAITING (request_pause), CANCELLED */
    REQUEST_REFUSED,  /* the end: refusal says what the host gets */
    REQUEST_CANCELLED /* the end: interrupted, or control is gone */
};

struct request_refusal {
    int status;
    char code[ERR_CODE_MAX];
    char detail[REQUEST_DETAIL_MAX];
};

struct request_table;

struct request {
    unsigned magic;
    char id[ID_MAX], session[ID_MAX];
    int wake_fd; /* eventfd: readable once the state is CANCELLED, or left WAITING */
    struct request_table *table;

    /* guarded by the table's lock */
    enum request_state state;
    struct request_refusal refusal;
    int64_t held_until_ms; /* monotonic; control will not speak before */
    int upstream_fd; /* ours, or -1; cancelling shuts it down even while the host's slow reading
                        blocks us */
    struct request *next, *prev;
};

struct request_table *request_table_new(void);
void request_table_free(struct request_table *t); /* with no request in it */
/* NULL when too many are under way already, here or for the descriptors that the process may have.
 */
struct request *request_new(struct request_table *t, const char *session);
void request_free(struct request *r); /* NULL-safe */

/* The serving thread: waits until control has spoken, host_fd hangs up (E_CLOSED) or timeout_ms
   passed since now, or since the hold that control asked for is over (E_TIMEOUT). 0: see
   request_state(). */
err request_wait(struct request *r, int host_fd, int64_t timeout_ms);
enum request_state request_state(struct request *r, struct request_refusal *out_refusal);
/* GO → WAITING: what it was told to do failed. A cancel that came first stands. */
void request_pause(struct request *r);
/* The connection a cancel is to cut; kept as a copy of the descriptor. -1 when there is none any
 * more. */
void request_set_upstream(struct request *r, int fd);

/* Control will speak in so many milliseconds, not before. */
void requests_hold(struct request_table *t, const char *id, int64_t ms);
void requests_go(struct request_table *t, const char *id);
void requests_refuse(struct request_table *t, const char *id, const struct request_refusal *why);
/* Those of the session that were told to go; session NULL: all of them. */
void requests_cancel(struct request_table *t, const char *session);
size_t requests_count(struct request_table *t);

/* True once the peer of a stream socket has gone, as far as can be known without reading. */
bool socket_hung_up(int fd);

#endif
