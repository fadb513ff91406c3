/* 40-49: vaults and sealed credentials (§12). */
#include "db/migrations.h"

extern const struct migration migrations_vaults[];
const struct migration migrations_vaults[] = {
    /* One default vault a tenant holds the service's own model keys (single-tenant mode, R40). */
    {40, "vaults",
     "CREATE TABLE vaults ("
     " tenant_id TEXT NOT NULL REFERENCES tenants (id),"
     " id TEXT NOT NULL,"
     " name TEXT NOT NULL,"
     " is_default INTEGER NOT NULL DEFAULT 0,"
     " created_at BIGINT NOT NULL,"
     " updated_at BIGINT NOT NULL,"
     " archived_at BIGINT,"
     " PRIMARY KEY (tenant_id, id),"
     " UNIQUE (tenant_id, name));"
     "CREATE UNIQUE INDEX vaults_one_default ON vaults (tenant_id) WHERE is_default = 1;"},
    /* sealed: a box that only the parent opens; NULL once purged. key: what the kind is unique by,
       for model_provider_key the provider. */
    {41, "credentials",
     "CREATE TABLE credentials ("
     " tenant_id TEXT NOT NULL,"
     " id TEXT NOT NULL,"
     " vault_id TEXT NOT NULL,"
     " kind TEXT NOT NULL,"
     " key TEXT NOT NULL,"
     " sealed BYTEA,"
     " created_at BIGINT NOT NULL,"
     " updated_at BIGINT NOT NULL,"
     " archived_at BIGINT,"
     " PRIMARY KEY (tenant_id, id),"
     " FOREIGN KEY (tenant_id, vault_id) REFERENCES vaults (tenant_id, id) ON DELETE CASCADE);"
     "CREATE UNIQUE INDEX credentials_live ON credentials (tenant_id, vault_id, kind, key)"
     " WHERE archived_at IS NULL;"},
    {0},
};
