/* Connections to providers that wait for the next request: a TLS handshake costs more than all the
   gateway does. One is used again only by the tenant it was made for, for the very origin, after an
   answer that was complete, and while nothing has come on it unasked. Few, and not for long. Any
   thread. */
#ifndef BROKER_UPSTREAM_POOL_H
#define BROKER_UPSTREAM_POOL_H

#include <curl/curl.h>

struct upstream_pool;

struct upstream_pool *upstream_pool_new(void);
void upstream_pool_free(struct upstream_pool *p); /* NULL-safe; closes what waits */
/* A curl multi handle that holds one idle connection for `key`, or NULL. *out_fd is that
   connection, the handle's. */
CURLM *upstream_pool_take(struct upstream_pool *p, const char *key, int *out_fd);
/* Keeps the handle with its one idle connection, or closes it. */
void upstream_pool_give(struct upstream_pool *p, const char *key, CURLM *take_multi, int fd);

#endif
