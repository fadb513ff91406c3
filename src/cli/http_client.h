/* A small HTTP client for commands that talk to a running service. One request at a time, one
   thread. A service on this machine is asked directly, whatever proxy the environment names.

   A service that restarts is waited for: what was refused is sent again, and so is what was cut off
   if that is safe (GET, and POST, which carries an Idempotency-Key: R12). 429 (rate_limited) and
   503 are tried again after Retry-After, up to a minute. Standard error says so. */
#ifndef CLI_HTTP_CLIENT_H
#define CLI_HTTP_CLIENT_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct http_client;

/* api_key may be NULL (then requests go without). */
err http_client_open(const char *base_url, const char *api_key, struct http_client **out);
void http_client_close(struct http_client *c); /* NULL-safe, wipes the key */
/* For https: the certificates in this file and no others; borrowed. NULL: those of the system. */
void http_client_trust(struct http_client *c, const char *file);

/* The body of a 2xx answer is appended to *out. Otherwise the service's own words (detail, the list
   of errors, for a 5xx the request's id), with an error code that fits its status.
   `body` is JSON; body.p NULL sends none. E_UNAVAILABLE also when nobody answers. */
err http_client_send(struct http_client *c, const char *method, const char *path, struct str body,
                     struct buf *out);
/* POSTs a file as it is; "-" is standard input. */
err http_client_upload(struct http_client *c, const char *path, const char *type, const char *file,
                       struct buf *out);
/* POST of a file as one part of a multipart/form-data body; `name` instead of its own, or NULL. */
err http_client_upload_form(struct http_client *c, const char *path, const char *part,
                            const char *file, const char *name, struct buf *out);
err http_client_get(struct http_client *c, const char *path, struct buf *out);

struct http_stream {
    const char *path;
    const char *last_event_id;                     /* NULL: from the beginning */
    bool download;                                 /* any body, not events */
    bool (*on_bytes)(void *arg, struct str bytes); /* false ends the stream */
    void *arg;
    int wake_fd;            /* becomes readable to end the stream; -1 = none */
    bool connected;         /* out: the service accepted; what follows went wrong later */
    int64_t retry_after_ms; /* out: how long a service that refused asks to wait; 0 = it does not */
};
/* Reads server-sent events until the stream ends. 0: it ended, at its end or because we wanted it
   to. E_CLOSED: the connection was lost, or was silent for longer than the service's heartbeat
   allows. E_UNAVAILABLE: nobody answers, or the service cannot at the moment. Else as above. */
err http_client_stream(struct http_client *c, struct http_stream *s);

/* For tunnel.c: a connection alone (the caller cleans it up), and how answers become errors. */
void *http_client_connection(struct http_client *c, const char *url);
const char *http_client_base(const struct http_client *c);
const char *http_client_authorization(const struct http_client *c); /* the whole header line */
err http_client_unreachable(const struct http_client *c, int curl_code);
err http_client_refusal(long status, const struct buf *body);

#endif
