/* All routes of the service. */
#include "api/routes.h"

extern const struct route routes_agents[], routes_diff[], routes_entries[], routes_environments[],
    routes_events[], routes_export[], routes_keys[], routes_meta[], routes_sandbox[],
    routes_sessions[], routes_stream[], routes_workspace[];

const struct route *const api_routes[] = {
    routes_meta,   routes_keys,      routes_agents, routes_environments, routes_sessions,
    routes_events, routes_entries,   routes_stream, routes_export,       routes_sandbox,
    routes_diff,   routes_workspace, NULL,
};
