/* Vaults and what sessions want of them (§12). */
#ifndef API_VAULTS_H
#define API_VAULTS_H

#include "base/err.h"
#include "base/id.h"
#include "base/json.h"

struct ctx;
struct db_conn;

struct vault {
    char id[ID_MAX];
    char *name; /* in the request's arena */
    bool is_default;
    int64_t created_at, updated_at, archived_at; /* archived_at -1: live */
};

/* E_NOT_FOUND (vault_not_found) */
err vault_find(struct ctx *ctx, struct db_conn *c, struct str id, struct vault *out);
/* E_CONFLICT (vault_archived) */
err vault_require_live(const struct vault *v);
/* Each of a session's vaultIds is a live vault of the tenant; problems name the field. */
err vault_check_ids(struct ctx *ctx, struct db_conn *c, const json_t *ids);
/* How many live credentials it has. */
err vault_count(struct db_conn *c, const char *tenant, const char *vault, int64_t *out);

#endif
