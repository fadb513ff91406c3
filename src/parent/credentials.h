/* Model keys from the environment: taken at start, sealed at once, wiped from the environment.
   Single-tenant mode only. Parent's only thread. */
#ifndef PARENT_CREDENTIALS_H
#define PARENT_CREDENTIALS_H

#include "base/err.h"
#include "base/id.h"
#include "parent/request.h"

#define ENVIRONMENT_KEYS_MAX 16

struct environment_key {
    const char *provider; /* as in Pi's catalogue */
    uint32_t length;
    unsigned char sealed[PARENT_SEALED_MAX];
};

/* Fills `out` and returns how many there are through *out_n. With tenant "" the keys are only
 *wiped, and out_ignored tells how many there were. */
err credentials_take(const unsigned char public_key[32], const char *tenant, int64_t wall_ms,
                     struct environment_key out[ENVIRONMENT_KEYS_MAX], size_t *out_n,
                     size_t *out_ignored);

/* Opens the sealed credential of `request` (broker only) into `reply`: for a session, or for itself
   when it is tried (§8.5). */
struct vault_key;
err credentials_open(const struct vault_key *key, const struct parent_credential *request,
                     struct parent_credential *reply);

#endif
