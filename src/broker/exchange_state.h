/* The inside of an exchange, shared by the exchange*.c files and nobody else. */
#ifndef BROKER_EXCHANGE_STATE_H
#define BROKER_EXCHANGE_STATE_H

#include "base/buf.h"
#include "base/id.h"
#include "broker/exchange.h"
#include "broker/requests.h"
#include "broker/wire.h"

#define HEADERS_MAX 100
/* Of a failed answer, for its message. */
#define ERROR_BODY_MAX (16u << 10)
#define ERROR_TEXT_MAX 400

struct exchange {
    const struct exchange_env *env;
    struct arena *arena;
    char tenant[ID_MAX];
    struct str target;
    struct upstream_header headers[HEADERS_MAX];
    size_t header_count;
    const char *connection; /* the Connection header's value */
    struct str token;
    uint64_t said; /* BROKER_SAID_HEADER */
    bool too_many_headers;

    struct buf body;
    size_t spooled; /* of SPOOL_MAX */
    int host_fd;

    const struct wire_api *api; /* never NULL after exchange_admit */
    struct registration *registration;
    const char *base_url, *path; /* path: beneath base_url */
    struct dial_url url;         /* both together, of the attempt under way */
    struct request *request;
    struct upstream *upstream;
    struct wire_meter meter;
    bool metering;     /* the answer has a good status */
    bool event_stream; /* and says that it is one */
    int64_t left;      /* of the answer's body; -1: not known before its end */
    int64_t begin_ms, go_ms, first_ms;

    int status;     /* what the host gets */
    struct buf own; /* our own answer's body, or the start of a failed one */
    size_t own_at;
    struct buf ahead; /* of the provider's failed answer: read, not yet given to the host */
    size_t ahead_at;
    char error_code[ERR_CODE_MAX], error_text[ERROR_TEXT_MAX];
    bool unrecoverable, aborted, reported, answered_by_us;
    struct upstream_header own_headers[3];
};

/* exchange.c */
/* A good status, but nothing of a model in it: some proxy's page. */
bool exchange_is_no_answer(const struct exchange *x);

/* exchange_report.c: what control hears */
err exchange_begin(struct exchange *x);
/* Once per request that control was told of. */
void exchange_report(struct exchange *x);
/* An attempt failed, nothing of it went to the host, and the request waits for control's word
   again (R24). retry_after_ms: when the provider wants to be asked again, -1 = it did not say. */
void exchange_report_attempt(struct exchange *x, int64_t retry_after_ms);
int64_t exchange_now_ms(void);

/* exchange_fault.c: what went wrong */
/* With the connection; or notes that the request was given up. */
void exchange_note_failure(struct exchange *x, err e);
void exchange_classify_status(struct exchange *x);
/* Reads a failed answer ahead, for what it says of the failure. False: it is nothing to try again.
 */
bool exchange_read_ahead(struct exchange *x, int64_t *out_retry_after_ms);
/* The whole answer has come: was it one? */
void exchange_judge_answer(struct exchange *x);
void exchange_mask_key(struct exchange *x);

#endif
