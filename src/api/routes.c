/* All routes of the service. */
#include "api/routes.h"

/* One a line: side by side work does not collide. */
/* clang-format off */
extern const struct route
    routes_agents[],
    routes_credentials[],
    routes_diff[],
    routes_entries[],
    routes_environments[],
    routes_events[],
    routes_export[],
    routes_files[],
    routes_import[],
    routes_keys[],
    routes_meta[],
    routes_sandbox[],
    routes_session_fork[],
    routes_session_update[],
    routes_session_views[],
    routes_sessions[],
    routes_shell[],
    routes_stream[],
    routes_tenant[],
    routes_vaults[],
    routes_volumes[],
    routes_workspace[];

const struct route *const api_routes[] = {
    routes_agents,
    routes_credentials,
    routes_diff,
    routes_entries,
    routes_environments,
    routes_events,
    routes_export,
    routes_files,
    routes_import,
    routes_keys,
    routes_meta,
    routes_sandbox,
    routes_session_fork,
    routes_session_update,
    routes_session_views,
    routes_sessions,
    routes_shell,
    routes_stream,
    routes_tenant,
    routes_vaults,
    routes_volumes,
    routes_workspace,
    NULL,
};
/* clang-format on */
