/* Model keys from the environment, as sealed credentials of the default vault. */
#include "api/credentials_env.h"

#include "api/rows.h"
#include "db/db.h"

#define DEFAULT_VAULT "default"
#define KIND "model_provider_key"

static const char sql_vault[] = "SELECT id FROM vaults WHERE tenant_id = $1 AND is_default = 1";
static const char sql_vault_insert[] =
    "INSERT INTO vaults (tenant_id, id, name, is_default, created_at, updated_at)"
    " VALUES ($1, $2, '" DEFAULT_VAULT "', 1, $3, $3)";
static const char sql_update[] =
    "UPDATE credentials SET sealed = $4, updated_at = $5 WHERE tenant_id = $1 AND vault_id = $2"
    " AND kind = '" KIND "' AND key = $3 AND archived_at IS NULL";
static const char sql_insert[] =
    "INSERT INTO credentials (tenant_id, id, vault_id, kind, key, sealed, created_at, updated_at)"
    " VALUES ($1, $2, $3, '" KIND "', $4, $5, $6, $6)";

struct upsert {
    const char *tenant, *provider;
    struct str sealed;
    int64_t now;
    char vault[ID_MAX];
};

/* The id in the first column of the first row; "" when there is none. */
static err read_id(struct db_rows *r, char out[ID_MAX])
{
    out[0] = 0;
    if (db_next(r))
        row_id(r, 0, out);
    return db_rows_done(r);
}

static err find_or_make_vault(struct db_conn *c, struct upsert *u)
{
    struct db_rows *r;
    TRY(db_query(c, sql_vault, DB_ARGS(DB_C(u->tenant)), &r));
    TRY(read_id(r, u->vault));
    if (u->vault[0])
        return 0;
    id_new("vault", u->now, u->vault);
    return db_exec(c, sql_vault_insert, DB_ARGS(DB_C(u->tenant), DB_C(u->vault), DB_I(u->now)),
                   NULL);
}

static err upsert_in(struct db_conn *c, void *arg)
{
    struct upsert *u = arg;
    TRY(find_or_make_vault(c, u));
    int64_t changed;
    TRY(db_exec(
        c, sql_update,
        DB_ARGS(DB_C(u->tenant), DB_C(u->vault), DB_C(u->provider), DB_B(u->sealed), DB_I(u->now)),
        &changed));
    if (changed)
        return 0;
    char id[ID_MAX];
    return db_exec(c, sql_insert,
                   DB_ARGS(DB_C(u->tenant), DB_C(id_new("cred", u->now, id)), DB_C(u->vault),
                           DB_C(u->provider), DB_B(u->sealed), DB_I(u->now)),
                   NULL);
}

err credentials_env_upsert(struct db *db, const struct clock *clock, const char *tenant,
                           const char *provider, struct str sealed)
{
    struct upsert u = {
        .tenant = tenant, .provider = provider, .sealed = sealed, .now = clock_wall_ms(clock)};
    return db_write(db, upsert_in, &u);
}
