/* Model keys that the service was started with (R40, single-tenant mode): the parent seals them,
   control keeps them as credentials of the tenant's default vault. */
#ifndef API_CREDENTIALS_ENV_H
#define API_CREDENTIALS_ENV_H

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"

struct db;

/* Upserts by provider, for config.tenant. From PARENT_NOTE_CREDENTIAL. Blocks for the database. */
err credentials_env_upsert(struct db *db, const struct clock *clock, const char *tenant,
                           const char *provider, struct str sealed);

#endif
