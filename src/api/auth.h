/* API keys at the door (R14): pmk_<12 base62 id>_<43 base62 secret><6 base62 CRC-32 of all before
   it>. The database holds an argon2id hash. A token is hashed once; for 60 s its keyed digest is
   enough, with a look at the row (revoked?) each second. Unknown ids, bad checksums and wrong
   secrets seen before never reach argon2; at most two hashes run at a time. Any thread. */
#ifndef API_AUTH_H
#define API_AUTH_H

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"
#include "http/http.h"

#include <stdint.h>

struct auth;
struct db;

#define KEY_LOOKUP_LENGTH 12
#define KEY_SECRET_LENGTH 43
#define KEY_TOKEN_LENGTH (4 + KEY_LOOKUP_LENGTH + 1 + KEY_SECRET_LENGTH + 6)
#define KEY_HASH_MAX 128

struct auth *auth_new(struct db *db, const struct clock *clock);
void auth_free(struct auth *a); /* NULL-safe */

/* For http_options. E_UNAUTHORIZED for anything that is not a live key; E_QUOTA when too many
   unknown tokens for one key, or too many at once, ask to be hashed. Blocks for the database and
   argon2. */
err auth_authenticate(struct service *service, struct str token, struct http_auth *out);
/* True without blocking when the token was verified less than 60 s and looked up less than 1 s ago.
 */
bool auth_authenticate_cached(struct service *service, struct str token, struct http_auth *out);
/* Forgets a key at once; call after its revocation was committed. */
void auth_forget(struct auth *a, const char *key_id);

/* Tokens. key_token_make draws a new one; `out` has KEY_TOKEN_LENGTH + 1 bytes. */
void key_token_make(char *out);
/* Well formed with a right checksum; then *out_lookup is the id part, borrowed. */
bool key_token_parse(struct str token, struct str *out_lookup);
/* argon2id (19456 KiB, 2, 1); `out` has KEY_HASH_MAX bytes. About 50 ms. */
err key_hash_make(struct str token, char *out);
bool key_hash_verify(const char *hash, struct str token);

enum http_scope key_scope_of(struct str name); /* SCOPE_NONE if unknown */
const char *key_scope_name(enum http_scope scope);

#endif
