/* The HTTP server: libmicrohttpd behind http.c and stream.c, which alone include it. Strict parsing
   plus the request guard (guard.c); routes match the raw target (R13a, route.c); errors are
   problem+json (R10, problem.c); SSE in sse.c. Handlers see a struct ctx and nothing of the
   library.

   Threads: one loop thread owns all sockets; a route row says where its handler runs. HTTP_INLINE:
   on the loop, must not block (no database). HTTP_WORKER: on one of the worker threads, plain
   blocking code. HTTP_LONG: likewise, for those that may take seconds and must not keep the others
   waiting. HTTP_POINT_READ: reads one row by its key and nothing else; that takes less than
   handing it over, so it runs on the loop where that is so (db_reads_now), else on a worker. */
#ifndef HTTP_HTTP_H
#define HTTP_HTTP_H

#include "base/arena.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/id.h"
#include "base/json.h"

#include <stdbool.h>
#include <stdint.h>

#define KB ((size_t)1024)
#define MB (1024 * KB)

enum http_method {
    GET = 1,
    POST,
    PATCH,
    DELETE,
    PUT
}; /* HEAD is answered from GET, OPTIONS and 405 from the table */

enum http_scope {
    SCOPE_NONE, /* no key needed: /healthz */
    SCOPE_READ,
    SCOPE_WRITE,
    SCOPE_ADMIN
};

enum http_where {
    HTTP_WORKER,
    HTTP_INLINE,
    HTTP_LONG,
    HTTP_POINT_READ
};

#define HTTP_PARAMS_MAX 4
#define HTTP_CURSOR_MAX 512
#define HTTP_REQUEST_ID_MAX 65 /* a client's own id: 1-64 characters of [A-Za-z0-9._-] */

struct ctx;
typedef err (*http_handler)(struct ctx *ctx);

/* A body that is not held in memory: it is handed on in pieces while it comes, on a worker, and a
   client that is faster than that waits. An error of any of these is the reply. */
struct upload {
    const char *media_type;
    err (*open)(struct ctx *ctx); /* before the body comes; sets ctx->upload */
    err (*write)(struct ctx *ctx, struct str bytes);
    /* The body is complete; the handler comes next. out_fingerprint (UPLOAD_FINGERPRINT bytes):
       what an Idempotency-Key is bound to (R12), in place of the raw body, whose boundaries differ
       from try to try. */
    err (*end)(struct ctx *ctx, unsigned char *out_fingerprint);
    /* When the request is over, however it went, if ctx->upload was set. Must not block. */
    void (*closed)(void *upload);
};
#define UPLOAD_FINGERPRINT 32

/* One row, one endpoint. All cross-cutting behaviour is driven by the row. */
struct route {
    enum http_method method;
    const char *path; /* "/v1/agents/:id": segments starting with ':' become params in order */
    http_handler handler;
    enum http_scope scope;
    enum http_where where;
    bool idempotent; /* R12: Idempotency-Key honoured; the handler writes through ctx_write */
    bool list;       /* R11: ctx->page is filled from limit, cursor, order */
    uint32_t limit_default, limit_max; /* of a list; 0 = 20 and 100 */
    bool oldest_first; /* order of a list when the request names none; false = newest first */
    size_t body_max;   /* 0 = no body allowed; JSON bodies are parsed into ctx->json */
    const struct upload *upload; /* instead of body_max; the limit is http_options.upload_max */
    const char *upgrade; /* the protocol that the request must ask to change to; reply_upgrade */
    const char *query;   /* other allowed query parameters, space separated; any else is 400. In a
                            list they are its filters: a cursor is good only for the same ones */
};

struct http_query {
    struct str name, value;
};

/* R11: what a list request asks for. Handlers select limit+1 rows after (after_at, after_id) in the
   given order and hand them to reply_page. */
struct page {
    uint32_t limit;
    bool ascending; /* order=asc */
    bool has_after;
    int64_t after_at; /* created_at of the last row of the page before, or a seq */
    char after_id[ID_MAX];
    const char *also; /* a member that the reply has beside the usual ones; NULL: none */
    struct str also_json;
};

struct ctx {
    struct arena *arena; /* dies when the reply is sent */
    const struct clock *clock;
    struct service *service; /* api/service.h; opaque here */
    const struct route *route;
    enum http_method method;
    struct str target;                  /* raw, as sent */
    struct str params[HTTP_PARAMS_MAX]; /* decoded segments */
    const struct http_query *queries;
    size_t query_count;
    struct str body;
    json_t *json; /* parsed body, NULL if none; freed with the ctx */
    void *upload; /* the state of route->upload */
    struct page page;
    char request_id[HTTP_REQUEST_ID_MAX];
    char tenant[ID_MAX], key_id[ID_MAX]; /* "" when the route has SCOPE_NONE */
    enum http_scope scope;
    struct http_exchange *exchange; /* http.c's own */
};

struct db;
struct db_conn;

/* Request side */
struct str ctx_header(const struct ctx *ctx, const char *name); /* p NULL when absent */
struct str ctx_query(const struct ctx *ctx, const char *name);  /* decoded; p NULL when absent */
uint64_t ctx_body_length(const struct ctx *ctx); /* Content-Length; 0 when it is not known */

/* Reply side: call exactly one, last. Each takes over the json reference. */
err reply_json(struct ctx *ctx, int status, json_t *take_body);
err reply_json_text(struct ctx *ctx, int status, struct str json); /* written already; copied */
err reply_empty(struct ctx *ctx, int status);
err reply_bytes(struct ctx *ctx, int status, const char *content_type, struct str body);
void reply_header(struct ctx *ctx, const char *name, const char *value); /* before the above */
/* rows: an array of up to limit+1 items; the extra one only says that there is more. key_of gives
   the sort key of the last item shown. Replies {data, nextCursor, hasMore}. */
err reply_page(struct ctx *ctx, json_t *take_rows,
               void (*key_of)(const json_t *row, int64_t *out_at, char out_id[ID_MAX]));
/* The same of an array that is written already, without the extra row, which `more` stands for. */
err reply_page_text(struct ctx *ctx, struct str rows, bool more, int64_t last_at,
                    const char *last_id);
/* R10: one entry of `errors`, for each field that is wrong; path is like "/model/provider". The
   handler then returns fail(E_INVALID, …), whose text is the summary. */
void problem_add(struct ctx *ctx, const char *path, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* R12: runs fn in a database write; if the request carries an Idempotency-Key, the reply that fn
   set is stored in the same savepoint. So: fn does the rows AND sets the reply; effects outside the
   database (waking a session) come after ctx_write returned 0. `arg` and the reply must live in
   ctx->arena. */
err ctx_write(struct ctx *ctx, err (*fn)(struct ctx *ctx, struct db_conn *c, void *arg), void *arg);

/* R12: forgets replies kept longer than 24 h, of all tenants. The service calls it now and then. */
err idempotency_sweep(struct db *db, int64_t now_ms);

/* Streaming replies; for SSE see sse.h, which is a source. The source is pulled on the loop thread.
 */
struct http_source {
    /* Fills up to cap bytes. Returns the count; 0 = nothing now (the connection sleeps until
       http_stream_wake; for text/event-stream only between frames, as the server then sends its
       heartbeat); -1 = end of the stream. Must not block. */
    ssize_t (*read)(void *state, char *out, size_t cap);
    /* The connection is gone or the stream ended; frees state, which cannot be in ctx->arena: that
       is gone already. Loop thread. */
    void (*closed)(void *state);
    void *state;
};
struct http_stream;
/* A reply whose length is known: Content-Length says it, and a source that ends before breaks the
   connection. The source may read a local disk. */
err reply_sized(struct ctx *ctx, int status, const char *content_type, uint64_t size,
                struct http_source source);
err reply_stream(struct ctx *ctx, const char *content_type, struct http_source source,
                 struct http_stream **out);
/* Any thread, any time until `closed` has run; cheap; never blocks. */
void http_stream_wake(struct http_stream *s);
/* The same, for a reader too slow to be served: hangs up at once; `closed` follows. */
void http_stream_abort(struct http_stream *s);

/* Upgrades (RFC 9110 §7.8): after 101 the connection is the handler's own. */
struct http_upgraded;
struct http_takeover {
    /* Loop thread: must not block, so it hands over to a thread of its own. */
    void (*begin)(void *state, struct http_upgraded *u);
    /* Instead of it, when the client left before. */
    void (*dropped)(void *state);
    void *state; /* not in ctx->arena */
};
/* Instead of another reply, on a route with .upgrade. */
err reply_upgrade(struct ctx *ctx, struct http_takeover takeover);
/* For poll, recv and send (never block: MSG_DONTWAIT). It hangs up when the server stops. */
int http_upgraded_fd(const struct http_upgraded *u);
struct str http_upgraded_early(const struct http_upgraded *u); /* what came with the request */
/* Gives the connection back; every upgraded one must be, soon after it hung up. Let the client be
   the first to leave: what it has not read yet may be lost if it still sends meanwhile. */
void http_upgraded_close(struct http_upgraded *take_u);

struct http_auth { /* what a bearer token turned out to be */
    char tenant[ID_MAX], key_id[ID_MAX];
    enum http_scope scope;
    bool limited; /* to requests_per_minute, of the whole tenant */
    double requests_per_minute;
};

struct http_options {
    int listen_fd;
    const char *tls_cert_pem, *tls_key_pem; /* contents, NULL = plain */
    const struct route *const *tables; /* NULL-ended list of tables, each ended by .path NULL */
    struct service *service;
    const struct clock *clock;
    struct db *db; /* idempotency rows; NULL only if no route is idempotent */
    unsigned char cursor_key[32];
    unsigned workers;    /* 0 = 16; as many for HTTP_LONG */
    unsigned queue_max;  /* requests waiting for either; 0 = 1024; beyond it 503 + Retry-After */
    uint64_t upload_max; /* bytes of one upload; 0 = 1 GiB */
    size_t bodies_max;   /* bytes of request bodies held at once; 0 = 256 MiB; beyond it 503 */
    unsigned connections_max; /* 0 = 20000 */
    unsigned timeout_ms;      /* a client that neither sends nor takes anything; 0 = 60000 */
    unsigned heartbeat_ms;    /* of event streams; 0 = 15000 */
    /* E_UNAUTHORIZED with text if not valid. Runs on a worker unless *_cached says yes on the loop.
     */
    err (*authenticate)(struct service *service, struct str token, struct http_auth *out);
    bool (*authenticate_cached)(struct service *service, struct str token, struct http_auth *out);
};
struct http_server;
/* Takes over options->listen_fd when it returns 0. Copies the options, borrows what they point to.
 */
err http_start(const struct http_options *options, struct http_server **out);
/* Stops accepting, ends streams, lets requests under way finish (grace_ms), then closes. A handler
   still running then is waited for: nothing it uses may vanish under it. NULL-safe. */
void http_stop(struct http_server *server, int64_t grace_ms);

#endif
