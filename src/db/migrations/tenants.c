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
    /* limits: JSON {kind: number} (R53); a kind that is not there is unlimited. features: what a
       tier includes, for whoever sells it. The numbers are a start: change them with `plan set`. */
    {3, "quota_plans",
     "CREATE TABLE quota_plans ("
     " name TEXT PRIMARY KEY,"
     " limits TEXT NOT NULL,"
     " features TEXT NOT NULL,"
     " updated_at BIGINT NOT NULL);"
     "INSERT INTO quota_plans (name, limits, features, updated_at) VALUES"
     " ('unlimited', '{}', '{}', 0),"
     " ('free', '{\"concurrentSessions\":20,\"concurrentSandboxes\":2,\"jobs\":3,"
     "\"vaultCredentials\":10,\"memoryStores\":3,\"fileStorageBytes\":1073741824,"
     "\"monthlyTokens\":5000000,\"requestsPerMinute\":120,\"dailyUsd\":5}', '{}', 0),"
     " ('team', '{\"concurrentSessions\":1000,\"concurrentSandboxes\":50,\"jobs\":100,"
     "\"vaultCredentials\":500,\"memoryStores\":100,\"fileStorageBytes\":107374182400,"
     "\"monthlyTokens\":1000000000,\"requestsPerMinute\":6000,\"dailyUsd\":500}', '{}', 0);"
     "ALTER TABLE tenants ADD COLUMN plan TEXT NOT NULL DEFAULT 'unlimited';"
     /* Limits of its own: JSON as above, null = unlimited. */
     "ALTER TABLE tenants ADD COLUMN limits TEXT;"
     "CREATE TABLE quota_usage ("
     " tenant_id TEXT NOT NULL REFERENCES tenants (id),"
     " kind TEXT NOT NULL,"
     " used BIGINT NOT NULL,"
     " PRIMARY KEY (tenant_id, kind));"},
    /* Keys revoked of late: what lasts with one of them ends. */
    {4, "api_keys_revoked",
     "CREATE INDEX api_keys_revoked ON api_keys (revoked_at) WHERE revoked_at IS NOT NULL;"},
    {0},
};
