/* The server itself: libmicrohttpd's loop thread and the hand-over to workers. Streaming replies
   are in stream.c; only these two include microhttpd.h.

   Life of a connection: the loop reads a request line (on_target), its headers and body
   (on_request). When something must block, the connection is suspended FIRST and a worker gets the
   exchange; the worker resumes the connection as its last act and must not touch the exchange
   afterwards. Then the loop calls on_request again and the reply is queued. on_completed frees the
   exchange. A stream's connection sleeps the same way while its source has nothing. */
#include "http/http.h"

#include "base/fd.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "db/db.h"
#include "http/bucket.h"
#include "http/exchange.h"
#include "http/guard.h"
#include "http/server.h"
#include "http/workers.h"

#include <fcntl.h>
#include <microhttpd.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define SERVER_MAGIC 0x48545450u
#define CONNECTION_BYTES (7680) /* headers must fit; nine tenths of what an idle stream costs */
#define CONNECTION_GROWTH_BYTES 1024
#define UPLOAD_PIECE_BYTES (256 * KB)
#define UPLOAD_DEFAULT ((uint64_t)1 << 30)
#define THROW_AWAY_MAX (16 * MB) /* of a refused body; then the client is cut off */
#define WORKERS_DEFAULT 16       /* as many writes wait for one fsync */
#define QUEUE_DEFAULT 1024
#define BODIES_DEFAULT (256 * MB)
#define CONNECTIONS_DEFAULT 20000
#define TIMEOUT_DEFAULT_MS 60000
#define HEARTBEAT_DEFAULT_MS 15000
#define FLUSH_MS 200 /* for replies that are ready when the grace is over */

struct idempotency *http_idempotency(struct http_server *server)
{
    return server->idempotency;
}

struct buckets *http_buckets(struct http_server *server)
{
    return server->buckets;
}

/* ---- requests ---- */

void server_begin_one(struct http_server *server)
{
    AUTO_LOCK(&server->replying_lock);
    server->replying++;
}

void server_end_one(struct http_server *server)
{
    AUTO_LOCK(&server->replying_lock);
    server->replying--;
    pthread_cond_broadcast(&server->replying_fewer);
}

static void end_exchange(struct http_exchange *x)
{
    struct http_server *server = x->server;
    if (x->phase == PHASE_REPLY)
        log_debug("%s %.*s %d %lld ms", x->method_name, STR_ARG(x->path), x->reply.status,
                  (long long)(clock_monotonic_ms(x->options->clock) - x->began_ms));
    server->body_bytes -= x->body.n;
    exchange_free(x);
    server_end_one(server);
}

static void *on_target(void *arg, const char *target, struct MHD_Connection *connection)
{
    (void)connection;
    struct http_server *server = arg;
    server_begin_one(server);
    return exchange_new(server, &server->options, str_of(target));
}

static void on_completed(void *arg, struct MHD_Connection *connection, void **state,
                         enum MHD_RequestTerminationCode code)
{
    (void)arg;
    (void)connection;
    (void)code;
    struct http_exchange *x = *state;
    *state = NULL;
    if (x) /* a stream goes on without */
        end_exchange(x);
}

struct field_list {
    struct arena *arena;
    struct http_field *fields;
    size_t count, cap;
    struct guard_head head;
};

static enum MHD_Result add_field(void *arg, enum MHD_ValueKind kind, const char *name,
                                 size_t name_n, const char *value, size_t value_n)
{
    (void)kind;
    struct field_list *list = arg;
    guard_head_field(&list->head, (struct str){name, name_n}, (struct str){value, value_n});
    if (list->count < list->cap)
        list->fields[list->count++] =
            (struct http_field){.name = arena_str(list->arena, (struct str){name, name_n}),
                                .value = arena_str(list->arena, (struct str){value, value_n})};
    return MHD_YES;
}

/* Of the whole head, its first line included; 0 where the library need not tell: from 1.0 on, which
   is compatible, it refuses by itself what guard_head looks for. */
static size_t head_bytes(struct MHD_Connection *connection)
{
    if (MHD_get_version()[0] != '0')
        return 0;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    return info ? info->header_size : 0;
}

/* Copies the header fields: handlers on other threads read them. `method` and `version`: where the
   library has them in memory, at the two ends of the head's first line. */
static void take_fields(struct http_exchange *x, struct MHD_Connection *connection,
                        const char *method, const char *version)
{
    int n = MHD_get_connection_values_n(connection, MHD_HEADER_KIND, NULL, NULL);
    struct field_list list = {.arena = x->ctx.arena, .cap = n > 0 ? (size_t)n : 0};
    list.fields = arena_alloc(list.arena, (list.cap + 1) * sizeof *list.fields);
    guard_head_line(&list.head, str_of(method), x->ctx.target, str_of(version));
    MHD_get_connection_values_n(connection, MHD_HEADER_KIND, add_field, &list);
    size_t bytes = head_bytes(connection);
    x->head_unclear = bytes > 0 && !guard_head_is_whole(&list.head, method + bytes);
    x->fields = list.fields;
    x->field_count = list.count;
}

static void add_header(struct MHD_Response *r, const char *name, const char *value)
{
    if (MHD_add_response_header(r, name, value) != MHD_YES)
        log_error("the reply header %s was not accepted", name);
}

static bool has_field(const struct http_reply *reply, const char *name)
{
    for (const struct reply_field *f = reply->fields; f; f = f->next)
        if (strcasecmp(f->name, name) == 0)
            return true;
    return false;
}

static struct MHD_Response *make_response(struct http_exchange *x)
{
    struct http_reply *reply = &x->reply;
    struct MHD_Response *r;
    if (reply->stream)
        r = stream_response(reply->stream, reply->sized, reply->size);
    else if (reply->upgraded)
        r = upgrade_response(reply->upgraded);
    else
        r = MHD_create_response_from_buffer(reply->body.n, (void *)reply->body.p,
                                            MHD_RESPMEM_PERSISTENT);
    if (r == NULL)
        return NULL;
    if (reply->content_type)
        add_header(r, "Content-Type", reply->content_type);
    add_header(r, "X-Request-Id", x->ctx.request_id);
    add_header(r, "X-Content-Type-Options", "nosniff");
    if (!has_field(reply, "Cache-Control"))
        add_header(r, "Cache-Control", "no-store");
    if (x->close_after)
        add_header(r, "Connection", "close");
    for (const struct reply_field *f = reply->fields; f; f = f->next)
        add_header(r, f->name, f->value);
    return r;
}

static bool is_stopping(struct http_server *server)
{
    AUTO_LOCK(&server->streams_lock);
    return server->stopping;
}

static enum MHD_Result send_reply(struct http_exchange *x, struct MHD_Connection *connection)
{
    x->phase = PHASE_REPLY;
    x->close_after |= is_stopping(x->server) && !x->reply.upgraded;
    if (x->reply.stream)
        stream_attach(x->reply.stream, connection);
    struct MHD_Response *r = make_response(x);
    if (r == NULL)
        return MHD_NO;
    x->streaming = x->reply.stream != NULL;
    x->reply.stream = NULL; /* the response frees it */
    enum MHD_Result ok = MHD_queue_response(connection, (unsigned)x->reply.status, r);
    MHD_destroy_response(r);
    return ok;
}

static void on_worker_auth(void *arg, bool stopping);
static void on_worker_run(void *arg, bool stopping);

static struct workers *pool_of(const struct http_exchange *x, enum exchange_phase phase)
{
    return phase == PHASE_RUN && x->ctx.route->where == HTTP_LONG ? x->server->long_workers
                                                                  : x->server->workers;
}

/* Suspends, then gives the exchange away; only the loop posts, so a queue that is not full stays
 * so. */
static enum MHD_Result hand_over(struct http_exchange *x, struct MHD_Connection *connection,
                                 enum exchange_phase phase, void (*fn)(void *arg, bool stopping))
{
    struct workers *pool = pool_of(x, phase);
    if (workers_full(pool)) {
        problem_reply(x, fail_as(E_UNAVAILABLE, "overloaded",
                                 "too many requests are waiting: try again in a second"));
        return MHD_YES;
    }
    x->phase = phase;
    x->connection = connection;
    MHD_suspend_connection(connection);
    if (!workers_post(pool, fn, x)) /* stopping between the two: run it here, refused */
        fn(x, true);
    return MHD_YES;
}

static void on_worker_auth(void *arg, bool stopping)
{
    struct http_exchange *x = arg;
    struct MHD_Connection *connection = x->connection;
    struct http_auth auth = {0};
    log_bind(x->ctx.request_id, NULL);
    err e = stopping ? fail(E_UNAVAILABLE, "the service is stopping")
                     : x->options->authenticate(x->options->service, x->token, &auth);
    if (!e)
        e = door_admit(x, &auth);
    if (!e && x->ctx.route->upload)
        e = x->ctx.route->upload->open(&x->ctx);
    if (e)
        problem_reply(x, e);
    log_bind(NULL, NULL);
    MHD_resume_connection(connection);
}

/* Before an upload's body comes, and a piece of it. */
static void on_worker_upload(void *arg, bool stopping)
{
    struct http_exchange *x = arg;
    struct MHD_Connection *connection = x->connection;
    log_bind(x->ctx.request_id, NULL);
    err e = stopping                 ? fail(E_UNAVAILABLE, "the service is stopping")
            : x->phase == PHASE_AUTH ? x->ctx.route->upload->open(&x->ctx)
                                     : door_upload(x);
    if (e)
        problem_reply(x, e);
    log_bind(NULL, NULL);
    MHD_resume_connection(connection);
}

static void on_worker_run(void *arg, bool stopping)
{
    struct http_exchange *x = arg;
    struct MHD_Connection *connection = x->connection;
    if (stopping)
        problem_reply(x, fail(E_UNAVAILABLE, "the service is stopping"));
    else
        exchange_run(x);
    MHD_resume_connection(connection);
}

/* The reply is known before the body came. A short body is read and thrown away, so that the client
   gets the reply and not a reset; a long or a waiting one is cut off, and so is one whose end is in
   doubt. */
static enum MHD_Result settle_early(struct http_exchange *x, struct MHD_Connection *connection)
{
    x->phase = PHASE_BODY;
    if (!x->close_after && !x->expects_continue && x->body_length <= THROW_AWAY_MAX)
        return MHD_YES;
    x->close_after = true;
    return send_reply(x, connection);
}

/* The headers are complete. */
static enum MHD_Result begin(struct http_exchange *x, struct MHD_Connection *connection,
                             const char *method, const char *version)
{
    x->method_name = arena_strdup(x->ctx.arena, method);
    x->phase = PHASE_BODY;
    take_fields(x, connection, method, version);
    door_request_id(x);
    err e = door_open(x);
    if (!e && !x->reply.set) {
        struct http_auth auth = {0};
        if (x->ctx.route->scope == SCOPE_NONE)
            e = door_admit(x, NULL);
        else if (x->options->authenticate_cached &&
                 x->options->authenticate_cached(x->options->service, x->token, &auth))
            e = door_admit(x, &auth);
        else
            return hand_over(x, connection, PHASE_AUTH, on_worker_auth);
        if (!e && x->ctx.route->upload)
            return hand_over(x, connection, PHASE_AUTH, on_worker_upload);
    }
    if (e)
        problem_reply(x, e);
    return x->reply.set ? settle_early(x, connection) : MHD_YES;
}

static void drop_body(struct http_exchange *x)
{
    x->server->body_bytes -= x->body.n;
    buf_done(&x->body);
}

static enum MHD_Result take_body(struct http_exchange *x, struct MHD_Connection *connection,
                                 const char *data, size_t n)
{
    uint64_t most = x->reply.set ? 0 : door_body_max(x);
    if (!x->reply.set && n > most - x->received) {
        problem_reply(
            x, fail(E_TOO_LARGE, "the body is larger than %llu bytes", (unsigned long long)most));
        drop_body(x);
    }
    if (!x->reply.set && n > x->options->bodies_max - x->server->body_bytes) {
        problem_reply(x, fail_as(E_UNAVAILABLE, "overloaded",
                                 "too many large requests at once: try again in a second"));
        drop_body(x);
    }
    if (!x->reply.set) {
        buf_add(&x->body, data, n);
        x->server->body_bytes += n;
        x->received += n;
        if (x->ctx.route->upload && x->body.n >= UPLOAD_PIECE_BYTES)
            return hand_over(x, connection, PHASE_UPLOAD, on_worker_upload);
        return MHD_YES;
    }
    x->thrown_away += n;
    return x->thrown_away <= THROW_AWAY_MAX ? MHD_YES : MHD_NO;
}

static bool runs_on_loop(const struct http_exchange *x)
{
    enum http_where where = x->ctx.route->where;
    return where == HTTP_INLINE || (where == HTTP_POINT_READ && db_reads_now(x->options->db));
}

/* The request is complete. */
static enum MHD_Result run(struct http_exchange *x, struct MHD_Connection *connection)
{
    if (!x->reply.set && runs_on_loop(x))
        exchange_run(x);
    if (!x->reply.set) {
        hand_over(x, connection, PHASE_RUN, on_worker_run);
        if (x->phase == PHASE_RUN)
            return MHD_YES;
    }
    return send_reply(x, connection);
}

static enum MHD_Result go_on(struct http_exchange *x, struct MHD_Connection *connection,
                             const char *method, const char *version, const char *data,
                             size_t *data_n)
{
    if (x->phase == PHASE_HEADERS)
        return begin(x, connection, method, version);
    if (x->phase == PHASE_AUTH) { /* woken by the worker; called like the first time */
        x->phase = PHASE_BODY;
        return x->reply.set ? settle_early(x, connection) : MHD_YES;
    }
    if (x->phase == PHASE_UPLOAD) { /* woken likewise; the piece is not ours any more */
        x->phase = PHASE_BODY;
        x->server->body_bytes -= x->body.n;
        buf_clear(&x->body); /* its memory is for the next piece */
    }
    if (x->phase == PHASE_BODY && *data_n > 0) {
        size_t n = *data_n;
        *data_n = 0;
        return take_body(x, connection, data, n);
    }
    if (x->phase == PHASE_BODY)
        return run(x, connection);
    assert(x->phase == PHASE_RUN);
    return send_reply(x, connection);
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *data_n, void **state)
{
    (void)arg;
    (void)url;
    struct http_exchange *x = *state;
    CHECK(x, EXCHANGE_MAGIC);
    enum MHD_Result ok = go_on(x, connection, method, version, data, data_n);
    if (ok == MHD_YES && x->streaming && !x->ctx.upload) {
        *state = NULL; /* a stream may last for days and needs nothing of its request */
        end_exchange(x);
    }
    return ok;
}

/* ---- start and stop ---- */

static size_t leave_escaped(void *arg, struct MHD_Connection *connection, char *text)
{
    (void)arg;
    (void)connection;
    return strlen(text); /* R13a: routes match the raw target */
}

__attribute__((format(printf, 2, 0))) static void on_library_log(void *arg, const char *fmt,
                                                                 va_list ap)
{
    (void)arg;
    char text[256];
    vsnprintf(text, sizeof text, fmt, ap);
    log_debug("http: %s", text);
}

static err check_options(const struct http_options *o)
{
    for (const struct route *const *table = o->tables; *table; table++)
        for (const struct route *row = *table; row->path; row++) {
            assert(!row->idempotent ||
                   (o->db && row->where != HTTP_INLINE && row->scope != SCOPE_NONE));
            assert(row->where != HTTP_POINT_READ || (o->db && row->method == GET && !row->upgrade));
            assert(row->scope == SCOPE_NONE || o->authenticate);
            assert(!row->upgrade || (!row->idempotent && row->body_max == 0));
            assert(!row->upload || (row->where != HTTP_INLINE && row->body_max == 0));
        }
    if ((o->tls_cert_pem != NULL) != (o->tls_key_pem != NULL))
        return fail(E_INVALID, "TLS needs both a certificate and a key");
    if (o->tls_cert_pem && MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
        return fail(E_UNAVAILABLE, "this build of libmicrohttpd has no TLS: put a TLS proxy in "
                                   "front, or install libmicrohttpd with GnuTLS");
    return 0;
}

static void fill_defaults(struct http_options *o)
{
    o->workers = o->workers ? o->workers : WORKERS_DEFAULT;
    o->queue_max = o->queue_max ? o->queue_max : QUEUE_DEFAULT;
    o->upload_max = o->upload_max ? o->upload_max : UPLOAD_DEFAULT;
    o->bodies_max = o->bodies_max ? o->bodies_max : BODIES_DEFAULT;
    o->connections_max = o->connections_max ? o->connections_max : CONNECTIONS_DEFAULT;
    o->timeout_ms = o->timeout_ms ? o->timeout_ms : TIMEOUT_DEFAULT_MS;
    o->heartbeat_ms = o->heartbeat_ms ? o->heartbeat_ms : HEARTBEAT_DEFAULT_MS;
}

/* The library closes the listener on some of its failures and not on others, so it gets a copy. */
static struct MHD_Daemon *start_daemon(struct http_server *server)
{
    const struct http_options *o = &server->options;
    int listener = fcntl(o->listen_fd, F_DUPFD_CLOEXEC, 0);
    if (listener < 0)
        return NULL;
    struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)o->tls_cert_pem},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)o->tls_key_pem},
        {MHD_OPTION_END, 0, NULL},
    };
    if (o->tls_cert_pem == NULL)
        tls[0] = tls[2];
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC |
                     MHD_ALLOW_UPGRADE | MHD_USE_ERROR_LOG | (o->tls_cert_pem ? MHD_USE_TLS : 0);
    return MHD_start_daemon(
        flags, 0, NULL, NULL, on_request, server, /* */
        MHD_OPTION_EXTERNAL_LOGGER, on_library_log, NULL, MHD_OPTION_LISTEN_SOCKET, listener,
#if MHD_VERSION >= 0x00097701
        MHD_OPTION_CLIENT_DISCIPLINE_LVL, 1,
#else
        MHD_OPTION_STRICT_FOR_CLIENT, 1,
#endif
        MHD_OPTION_URI_LOG_CALLBACK, on_target, server, MHD_OPTION_UNESCAPE_CALLBACK, leave_escaped,
        NULL, MHD_OPTION_NOTIFY_COMPLETED, on_completed, server, MHD_OPTION_CONNECTION_LIMIT,
        o->connections_max, MHD_OPTION_CONNECTION_TIMEOUT, (o->timeout_ms + 999) / 1000,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_BYTES,
        MHD_OPTION_CONNECTION_MEMORY_INCREMENT, (size_t)CONNECTION_GROWTH_BYTES, MHD_OPTION_ARRAY,
        tls, MHD_OPTION_END);
}

static void server_free(struct http_server *server)
{
    workers_free(server->workers);
    workers_free(server->long_workers);
    idempotency_free(server->idempotency);
    buckets_free(server->buckets);
    pthread_cond_destroy(&server->pulse_stop);
    pthread_cond_destroy(&server->upgraded_fewer);
    pthread_cond_destroy(&server->replying_fewer);
    pthread_mutex_destroy(&server->streams_lock);
    pthread_mutex_destroy(&server->replying_lock);
    server->magic = 0;
    mem_free(server);
}

err http_start(const struct http_options *options, struct http_server **out)
{
    TRY(check_options(options));
    struct http_server *server = mem_alloc(sizeof *server);
    server->magic = SERVER_MAGIC;
    server->options = *options;
    fill_defaults(&server->options);
    pthread_mutex_init(&server->replying_lock, NULL);
    pthread_mutex_init(&server->streams_lock, NULL);
    cond_init(&server->replying_fewer);
    cond_init(&server->pulse_stop);
    cond_init(&server->upgraded_fewer);
    server->workers = workers_new("http-", server->options.workers, server->options.queue_max);
    server->long_workers =
        workers_new("http-long-", server->options.workers, server->options.queue_max);
    server->idempotency = idempotency_new(options->db);
    server->buckets = buckets_new();
    server->daemon = start_daemon(server);
    if (server->daemon == NULL) {
        server_free(server);
        return fail(E_IO, "the HTTP server did not start: see the log at debug level (is the TLS "
                          "certificate readable PEM?)");
    }
    close(options->listen_fd);
    server->pulse = thread_start("http-pulse", streams_pulse, server);
    *out = server;
    return 0;
}

static void wait_for_replies(struct http_server *server, int64_t grace_ms)
{
    int64_t until = clock_monotonic_ms(clock_real()) + grace_ms;
    AUTO_LOCK(&server->replying_lock);
    while (server->replying > 0) {
        int64_t left = until - clock_monotonic_ms(clock_real());
        if (left <= 0)
            return;
        cond_wait_ms(&server->replying_fewer, &server->replying_lock, left);
    }
}

void http_stop(struct http_server *server, int64_t grace_ms)
{
    if (server == NULL)
        return;
    CHECK(server, SERVER_MAGIC);
    AUTO_FD listener = MHD_quiesce_daemon(server->daemon);
    streams_end(server);
    upgrades_end(server);
    pthread_join(server->pulse, NULL);
    wait_for_replies(server, grace_ms);
    workers_free(server->workers);
    workers_free(server->long_workers);
    /* Now nothing is suspended: the library insists on that. */
    server->workers = server->long_workers = NULL;
    upgrades_wait(server); /* the library insists on that, too */
    wait_for_replies(server, FLUSH_MS);
    MHD_stop_daemon(server->daemon);
    server_free(server);
}
