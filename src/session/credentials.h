/* Finding the sealed credential a session uses. What comes back is sealed: control cannot open it.
 */
#ifndef SESSION_CREDENTIALS_H
#define SESSION_CREDENTIALS_H

#include "base/arena.h"
#include "base/err.h"
#include "db/db.h"

/* The tenant's model key for a catalogue provider: from the first of the session's vaults that has
   one, else from the default vault (single-tenant environment keys, R40). E_UNAVAILABLE
   (credential_missing) if none. */
err credential_for_provider(struct db *db, struct arena *a, const char *tenant,
                            const char *vault_ids_json, const char *provider,
                            struct str *out_sealed);

#endif
