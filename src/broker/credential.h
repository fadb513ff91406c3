/* From a session's sealed credential to the key for its model requests (§2, R4, R4a). The parent
   opens the box for the session; what stands inside it decides where the key may go. */
#ifndef BROKER_CREDENTIAL_H
#define BROKER_CREDENTIAL_H

#include "base/err.h"
#include "base/secret.h"

struct arena;
struct catalog;
struct dial_url;
struct registration;

/* Opens a sealed box for one session; the parent's answer in production. *out is the caller's. */
typedef err (*credential_opener)(void *arg, const char *session, struct str sealed,
                                 struct secret **out);

struct credential_source {
    credential_opener open;
    void *arg;
    const struct catalog *catalog; /* NULL: only custom providers can be reached */
};

/* Where a session's requests go: the catalogue's address for the provider and model (what control
   says of them counts for nothing), the custom address of a custom session. *out_api is the wire
   API's name. E_NOT_FOUND (code model_not_found). */
err credential_target(const struct credential_source *source, const struct registration *g,
                      const char **out_base_url, const char **out_api);

/* The key to send to `origin`, or NULL when none is to be sent (a custom provider without
   credential). Opened once per registration. Borrowed from the registration. E_FORBIDDEN with code
   credential_missing or credential_refused. */
err credential_key(const struct credential_source *source, struct registration *g,
                   const struct dial_url *origin, const struct secret **out);

#endif
