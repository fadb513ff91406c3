/* Environments (§6.2): what sessions.c takes from them. */
#ifndef API_ENVIRONMENTS_H
#define API_ENVIRONMENTS_H

#include "base/id.h"
#include "base/json.h"
#include "db/db.h"

struct environment_found {
    char id[ID_MAX];
    json_t *definition; /* the caller's */
    bool archived;
};
/* E_NOT_FOUND also for another tenant's. */
err environment_find(struct db_conn *c, const char *tenant, struct str id,
                     struct environment_found *out);

#endif
