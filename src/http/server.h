/* The inside of the server, shared by http.c and stream.c. */
#ifndef HTTP_SERVER_H
#define HTTP_SERVER_H

#include "base/lock.h"
#include "http/http.h"

struct MHD_Connection;
struct MHD_Response;

struct http_server {
    unsigned magic;
    struct http_options options;
    struct MHD_Daemon *daemon;
    struct workers *workers, *long_workers;
    struct idempotency *idempotency;
    struct buckets *buckets;
    size_t body_bytes; /* held by all exchanges; loop thread only */
    pthread_t pulse;
    pthread_mutex_t replying_lock; /* guards replying */
    pthread_cond_t replying_fewer;
    unsigned replying;            /* exchanges and streams, which outlive theirs */
    pthread_mutex_t streams_lock; /* guards what follows */
    pthread_cond_t pulse_stop;
    struct http_stream *streams;
    struct http_upgraded *upgraded;
    pthread_cond_t upgraded_fewer;
    bool stopping;
};

/* http.c: counts an exchange or a stream, for which a stop waits. */
void server_begin_one(struct http_server *server);
void server_end_one(struct http_server *server);

/* stream.c */
/* Which frees the stream; NULL: no memory, and the stream is still the caller's. */
struct MHD_Response *stream_response(struct http_stream *s, bool sized, uint64_t size);
void stream_attach(struct http_stream *s, struct MHD_Connection *connection);
void *streams_pulse(void *server); /* the heartbeat's thread; ends with `stopping` */
/* Sets `stopping` and ends all streams. */
void streams_end(struct http_server *server);

/* upgrade.c */
struct MHD_Response *upgrade_response(struct http_upgraded *u); /* NULL: full */
/* Hangs up on all, whose threads then close them. With `stopping` set. */
void upgrades_end(struct http_server *server);
void upgrades_wait(struct http_server *server); /* until all are closed */

#endif
