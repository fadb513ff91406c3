/* What handlers can reach: the parts of the running control process. Made once in api/control.c,
   never changes afterwards. */
#ifndef API_SERVICE_H
#define API_SERVICE_H

#include "base/clock.h"
#include "parent/request.h"

struct service {
    const struct clock *clock;
    struct db *db;
    struct parent_link *parent;
    struct harness *harness;
    struct broker_link *broker;
    struct session_manager *sessions;
    struct catalog *catalog;
    struct objects *objects;
    struct archive *archive;
    struct auth *auth;
    struct lastings *lastings;
    struct workers
        *replays; /* threads on which event streams catch up: workers_new("replay", 4, 4096) */
    struct parent_config config;
};

#endif
