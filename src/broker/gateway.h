/* The model gateway: one listening unix socket per Pi host, bound to the host's tenant. A thread a
   connection, made by libmicrohttpd; this file is the only one of the broker that knows it. Any
   thread. */
#ifndef BROKER_GATEWAY_H
#define BROKER_GATEWAY_H

#include "base/err.h"

#include <stdint.h>

struct exchange_env;
struct gateways;

struct gateways *gateways_new(const struct exchange_env *env);
/* Serves `take_listen_fd` until gateways_close(host) or gateways_free. */
err gateways_open(struct gateways *g, uint32_t host, const char *tenant, int take_listen_fd);
/* A spare host got its tenant: from now on its requests are that tenant's. E_NOT_FOUND if unknown.
 */
err gateways_bind(struct gateways *g, uint32_t host, const char *tenant);
/* The host is gone: ends its connections. Returns at once; threads end in the background. */
void gateways_close(struct gateways *g, uint32_t host);
void gateways_free(struct gateways *g); /* NULL-safe; waits for all threads */

#endif
