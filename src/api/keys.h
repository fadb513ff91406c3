/* API keys and tenants as rows: for the routes and for `pi-managed init`, `key` and `tenant`, which
   open the database themselves. Functions with a db_conn run inside db_read or db_write. Strings
   that they return live in the arena. */
#ifndef API_KEYS_H
#define API_KEYS_H

#include "api/auth.h"
#include "base/arena.h"
#include "base/id.h"
#include "db/db.h"

struct key_new {
    char tenant[ID_MAX], id[ID_MAX];
    const char *name;
    enum http_scope scope;
    int64_t created_at_ms;
    char token[KEY_TOKEN_LENGTH + 1]; /* shown once, stored nowhere; wipe it after use */
    char hash[KEY_HASH_MAX];
};

/* Draws a token and hashes it (50 ms): outside of any database transaction. `name` is borrowed. */
err key_draw(const char *tenant, const char *name, enum http_scope scope, int64_t now_ms,
             struct key_new *out);
/* E_NOT_FOUND if there is no such tenant. */
err key_insert(struct db_conn *c, const struct key_new *key);

struct key_row_shown {
    char id[ID_MAX];
    const char *name, *scope, *last4;
    int64_t created_at_ms, revoked_at_ms; /* -1: live */
};
struct key_filter {
    bool has_after, ascending;
    int64_t after_at_ms;
    const char *after_id;
    uint32_t limit;
};
/* In (created_at, id) order; *out is an arena array. */
err key_list(struct db_conn *c, struct arena *a, const char *tenant,
             const struct key_filter *filter, struct key_row_shown **out, size_t *out_n);
/* E_NOT_FOUND if the tenant has no such key; one revoked already stays as it is. */
err key_revoke(struct db_conn *c, const char *tenant, struct str id, int64_t now_ms);

struct tenant_row {
    char id[ID_MAX];
    const char *name;
    int64_t created_at_ms;
};
/* E_CONFLICT (name_taken). out_id has ID_MAX bytes. */
err tenant_insert(struct db_conn *c, const char *name, int64_t now_ms, char *out_id);
/* Oldest first. */
err tenant_list(struct db_conn *c, struct arena *a, struct tenant_row **out, size_t *out_n);

#endif
