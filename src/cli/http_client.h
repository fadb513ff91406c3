/* A small HTTP client for commands that talk to a running service: PI_MANAGED_URL and
   PI_MANAGED_API_KEY. One request at a time, one thread. */
#ifndef CLI_HTTP_CLIENT_H
#define CLI_HTTP_CLIENT_H

#include "base/buf.h"
#include "base/err.h"

struct http_client;

/* api_key may be NULL (then requests go without). */
err http_client_open(const char *base_url, const char *api_key, struct http_client **out);
void http_client_close(struct http_client *c); /* NULL-safe, wipes the key */
/* GET base_url + path; the body of a 2xx answer is appended to *out. Otherwise the service's own
   detail text, with its status as the error code. */
err http_client_get(struct http_client *c, const char *path, struct buf *out);

#endif
