/* Streaming replies: a source is pulled on the loop thread; while it has nothing, its connection
   sleeps. The heartbeat wakes all event streams. */
#include "http/server.h"

#include "base/mem.h"
#include "http/exchange.h"

#include <microhttpd.h>
#include <string.h>
#include <sys/socket.h>

#define STREAM_MAGIC 0x5354524du
#define STREAM_BLOCK_BYTES 1024
#define EVENTS_BLOCK_BYTES 128 /* used for HTTP/1.0 only, but there all the time */
#define SIZED_BLOCK_BYTES (32 * KB)

static const char heartbeat[] = ": hb\n\n";

struct http_stream {
    unsigned magic;
    struct http_server *server;
    struct MHD_Connection *connection; /* NULL until the reply is queued */
    struct http_source source;
    bool heartbeats;
    struct http_stream *prev, *next; /* server->streams; guarded by streams_lock */
    pthread_mutex_t stream_lock;     /* guards what follows */
    bool asleep;                     /* the connection is suspended */
    bool woken;                      /* something came since the last read */
    bool beat_due;
    bool ended; /* the next read ends the stream */
};

struct http_stream *http_stream_new(struct http_exchange *x, struct http_source source,
                                    bool heartbeats)
{
    struct http_server *server = x->server;
    struct http_stream *s = mem_alloc(sizeof *s);
    s->magic = STREAM_MAGIC;
    s->server = server;
    s->source = source;
    s->heartbeats = heartbeats;
    pthread_mutex_init(&s->stream_lock, NULL);
    server_begin_one(server);
    AUTO_LOCK(&server->streams_lock);
    s->ended = server->stopping;
    s->next = server->streams;
    if (s->next)
        s->next->prev = s;
    server->streams = s;
    return s;
}

static void unlink_stream(struct http_stream *s)
{
    AUTO_LOCK(&s->server->streams_lock);
    if (s->prev)
        s->prev->next = s->next;
    else
        s->server->streams = s->next;
    if (s->next)
        s->next->prev = s->prev;
}

void http_stream_free(struct http_stream *s)
{
    CHECK(s, STREAM_MAGIC);
    struct http_server *server = s->server;
    unlink_stream(s);
    s->source.closed(s->source.state);
    pthread_mutex_destroy(&s->stream_lock);
    s->magic = 0;
    mem_free(s);
    server_end_one(server);
}

static void on_stream_freed(void *arg)
{
    http_stream_free(arg);
}

void stream_attach(struct http_stream *s, struct MHD_Connection *connection)
{
    AUTO_LOCK(&s->stream_lock);
    s->connection = connection;
}

/* With stream_lock held. */
static void rouse(struct http_stream *s)
{
    if (!s->asleep)
        return;
    s->asleep = false;
    MHD_resume_connection(s->connection);
}

void http_stream_wake(struct http_stream *s)
{
    CHECK(s, STREAM_MAGIC);
    AUTO_LOCK(&s->stream_lock);
    s->woken = true;
    rouse(s);
}

void http_stream_abort(struct http_stream *s)
{
    CHECK(s, STREAM_MAGIC);
    AUTO_LOCK(&s->stream_lock);
    s->ended = true;
    if (s->connection) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(s->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        if (info)
            shutdown(info->connect_fd, SHUT_RDWR);
    }
    rouse(s);
}

/* What to do when the source had nothing: again (true), or *out_n bytes, 0 = asleep. */
static bool wait_for_more(struct http_stream *s, char *out, size_t cap, ssize_t *out_n)
{
    AUTO_LOCK(&s->stream_lock);
    if (s->woken || s->ended)
        return true;
    if (s->beat_due && cap >= sizeof heartbeat - 1) {
        s->beat_due = false;
        memcpy(out, heartbeat, sizeof heartbeat - 1);
        *out_n = sizeof heartbeat - 1;
        return false;
    }
    s->asleep = true;
    MHD_suspend_connection(s->connection);
    *out_n = 0;
    return false;
}

static bool begin_read(struct http_stream *s)
{
    AUTO_LOCK(&s->stream_lock);
    s->woken = false;
    return !s->ended;
}

static ssize_t on_stream_read(void *arg, uint64_t position, char *out, size_t cap)
{
    (void)position;
    struct http_stream *s = arg;
    CHECK(s, STREAM_MAGIC);
    for (;;) {
        if (!begin_read(s))
            return MHD_CONTENT_READER_END_OF_STREAM;
        ssize_t n = s->source.read(s->source.state, out, cap);
        if (n < 0)
            return MHD_CONTENT_READER_END_OF_STREAM;
        if (n > 0)
            return n;
        if (!wait_for_more(s, out, cap, &n))
            return n;
    }
}

/* Wakes every event stream so that it writes: a sleeping connection does not notice that its client
 * left. */
static void beat_all(struct http_server *server) /* with streams_lock held */
{
    for (struct http_stream *s = server->streams; s; s = s->next) {
        if (!s->heartbeats)
            continue;
        AUTO_LOCK(&s->stream_lock);
        s->beat_due = true;
        rouse(s);
    }
}

void *streams_pulse(void *arg)
{
    struct http_server *server = arg;
    AUTO_LOCK(&server->streams_lock);
    while (!server->stopping)
        if (!cond_wait_ms(&server->pulse_stop, &server->streams_lock, server->options.heartbeat_ms))
            beat_all(server);
    return NULL;
}

struct MHD_Response *stream_response(struct http_stream *s, bool sized, uint64_t size)
{
    size_t block = s->heartbeats ? EVENTS_BLOCK_BYTES : STREAM_BLOCK_BYTES;
    return MHD_create_response_from_callback(sized ? size : MHD_SIZE_UNKNOWN,
                                             sized ? SIZED_BLOCK_BYTES : block, on_stream_read, s,
                                             on_stream_freed);
}

/* Each gets its next read, now. */
void streams_end(struct http_server *server)
{
    AUTO_LOCK(&server->streams_lock);
    server->stopping = true;
    pthread_cond_broadcast(&server->pulse_stop);
    for (struct http_stream *s = server->streams; s; s = s->next) {
        AUTO_LOCK(&s->stream_lock);
        s->ended = true;
        rouse(s);
    }
}
