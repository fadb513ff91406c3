/* 1-9: tenants and their API keys (R14). */
#include "db/migrations.h"

extern const struct migration migrations_tenants[];
const struct migration migrations_tenants[] = {
    {1, "tenants",
     "CREATE TABLE tenants ("
     " id TEXT PRIMARY KEY,"
     " name TEXT NOT NULL UNIQUE,"
     " created_at BIGINT NOT NULL);"},
    /* lookup: the 12 characters in the token that find the row without hashing; hash: the argon2id
       PHC string of the whole token; revoked_at NULL = live. */
    {2, "api_keys",
     "CREATE TABLE api_keys ("
     " tenant_id TEXT NOT NULL REFERENCES tenants (id),"
     " id TEXT NOT NULL,"
     " lookup TEXT NOT NULL UNIQUE,"
     " name TEXT NOT NULL,"
     " scope TEXT NOT NULL,"
     " hash TEXT NOT NULL,"
     " last4 TEXT NOT NULL,"
     " created_at BIGINT NOT NULL,"
     " revoked_at BIGINT,"
     " PRIMARY KEY (tenant_id, id));"
     "CREATE INDEX api_keys_by_age ON api_keys (tenant_id, created_at, id);"},
    {0},
};
