/* Finding the sealed credential a session uses. What comes back is sealed: control cannot open it.
 */
#ifndef SESSION_CREDENTIALS_H
#define SESSION_CREDENTIALS_H

#include "base/arena.h"
#include "base/err.h"
#include "db/db.h"

/* The tenant's model key for a catalogue provider or, with a `key` that is an origin, for one
   custom address (R4a): from the first of the session's vaults that has one, else from the default
   vault (single-tenant environment keys, R40). n == 0 if there is none. */
err credential_find(struct db *db, struct arena *a, const char *tenant, const char *vault_ids_json,
                    const char *key, struct str *out_sealed);
/* The same for a catalogue provider, which needs one: E_UNAVAILABLE (credential_missing). */
err credential_for_provider(struct db *db, struct arena *a, const char *tenant,
                            const char *vault_ids_json, const char *provider,
                            struct str *out_sealed);

/* "https://host:port" of a URL, without a port that goes without saying; in the arena. E_INVALID
   for what is no URL that the service would dial. */
err credential_origin(const char *url, struct arena *a, const char **out);

#endif
