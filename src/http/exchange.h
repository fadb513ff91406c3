/* One request and its reply, as the files of http/ see it; handlers see only the struct ctx inside.
   Made by http.c when a request line arrives, freed by it when the reply is sent or the client is
   gone. Owned by one thread at a time: the loop, or the worker that runs the request while its
   connection sleeps. */
#ifndef HTTP_EXCHANGE_H
#define HTTP_EXCHANGE_H

#include "base/buf.h"
#include "http/http.h"

struct MHD_Connection;

#define EXCHANGE_MAGIC 0x45584348u

struct http_field {
    struct str name, value;
};

struct reply_field {
    struct reply_field *next;
    const char *name, *value; /* in the arena */
};

struct http_reply {
    bool set;
    int status;
    const char *content_type; /* NULL: no body */
    struct str body;          /* in the arena */
    struct reply_field *fields, **fields_end;
    struct http_stream *stream; /* instead of body; the exchange's until the library has it */
    bool sized;                 /* the stream's length is known */
    uint64_t size;
    struct http_upgraded *upgraded; /* likewise, until it began */
};

enum exchange_phase {
    PHASE_HEADERS, /* nothing was looked at yet */
    PHASE_AUTH,    /* asleep; a worker asks whose token it is */
    PHASE_UPLOAD,  /* asleep; a worker hands on a piece of the body */
    PHASE_BODY,    /* the body comes in, or is thrown away when the reply is set already */
    PHASE_RUN,     /* asleep; a worker runs the handler */
    PHASE_REPLY    /* the reply is on its way */
};

struct http_exchange {
    unsigned magic;
    struct ctx ctx;
    struct http_server *server;
    const struct http_options *options;
    enum exchange_phase phase;
    struct MHD_Connection *connection; /* while asleep: what the worker resumes */

    const char *method_name; /* as sent */
    const struct http_field *fields;
    size_t field_count;
    bool head_unclear; /* bytes of the head are in no field: guard_head */
    struct str path; /* decoded segments joined again: what idempotency and cursors are bound to */
    struct str raw_query;
    bool chunked, expects_continue, has_body;
    uint64_t body_length;                          /* Content-Length */
    struct buf body;                               /* of an upload: what was not handed on yet */
    uint64_t received;                             /* bytes of the body that were taken */
    unsigned char fingerprint[UPLOAD_FINGERPRINT]; /* of an upload */
    uint64_t thrown_away; /* body bytes received after the reply was settled */
    struct str token;
    const char *idempotency_key; /* NULL: none */
    int64_t began_ms;

    json_t *problems; /* R10 errors[] */
    struct http_reply reply;
    bool replayed_or_kept; /* R12: nothing is left to store */
    bool close_after;
    bool streaming; /* the reply is a stream that is under way */
};

struct http_exchange *exchange_new(struct http_server *server, const struct http_options *options,
                                   struct str target);
void exchange_free(struct http_exchange *x); /* NULL-safe */
/* Forgets a reply set so far, so that another can be set. */
void exchange_reset_reply(struct http_exchange *x);

/* door.c: everything that is decided before the handler runs. Each returns an error for a problem
   reply; a reply that is set already (OPTIONS) ends the matter, too. */
err door_open(struct http_exchange *x); /* headers, target, route; Expect, lengths */
err door_admit(struct http_exchange *x, const struct http_auth *auth); /* NULL: route needs none */
err door_body(struct http_exchange *x); /* on the thread of the handler: JSON */
/* What the body may be long. */
uint64_t door_body_max(const struct http_exchange *x);
/* Hands a piece of an upload on: what exchange->body holds. Worker. */
err door_upload(struct http_exchange *x);
/* Sets ctx->request_id: the client's own if it is well formed. */
void door_request_id(struct http_exchange *x);

/* Runs body check, idempotency and handler; afterwards a reply is set. Loop or worker. */
void exchange_run(struct http_exchange *x);

/* problem.c */
/* Logs and sets the reply for `e`, whose text is in the error slot. */
void problem_reply(struct http_exchange *x, err e);

/* query.c: decodes the part behind '?'. E_INVALID for bad escapes, non-UTF-8 and duplicates. */
err query_parse(struct arena *a, struct str raw, const struct http_query **out, size_t *out_count);
/* E_INVALID naming the parameter that the row does not know. */
err query_check(const struct route *row, const struct http_query *queries, size_t count);

/* page.c: fills ctx->page from limit, order and cursor. */
err page_read(struct http_exchange *x);

#define CODE_IN_FLIGHT "idempotency_in_flight" /* gets Retry-After: 1 */

/* idempotency.c: bare or quoted key to plain text, E_INVALID if it is neither. */
err idempotency_key_read(struct arena *a, struct str value, const char **out);
/* Runs the handler once per key: replays, refuses or runs and keeps. Sets the reply or returns an
   error. Worker thread. */
struct idempotency;
struct idempotency *idempotency_new(struct db *db);
void idempotency_free(struct idempotency *i);
err idempotency_run(struct idempotency *i, struct http_exchange *x);
struct idempotency *http_idempotency(struct http_server *server);

struct buckets *http_buckets(struct http_server *server);

/* stream.c */
struct http_stream *http_stream_new(struct http_exchange *x, struct http_source source,
                                    bool heartbeats);
void http_stream_free(struct http_stream *s); /* runs source.closed */

/* upgrade.c */
void http_upgraded_drop(struct http_upgraded *u); /* one that never began */

#endif
