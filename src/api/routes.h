/* All routes: one table a resource, one list of tables. Tables are declared by ROUTES at the bottom
   of a resource's file; adding a resource is a file and a line in routes.c. */
#ifndef API_ROUTES_H
#define API_ROUTES_H

#include "http/http.h"

/* ROUTES(agents, {GET, "/v1/agents", …}, …) */
#define ROUTES(resource, ...)                                                                      \
    extern const struct route routes_##resource[];                                                 \
    const struct route routes_##resource[] = {__VA_ARGS__{0}};

extern const struct route *const api_routes[]; /* NULL-ended, for http_options.tables */

#endif
