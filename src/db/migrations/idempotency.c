/* 30-39: replies kept for Idempotency-Key (R12). Statements: http/. */
#include "db/migrations.h"

extern const struct migration migrations_idempotency[];
const struct migration migrations_idempotency[] = {
    /* scope: method and path; fingerprint: of the raw body; headers: JSON of those the handler set.
     */
    {30, "idempotency",
     "CREATE TABLE idempotency ("
     " tenant_id TEXT NOT NULL,"
     " scope TEXT NOT NULL,"
     " key TEXT NOT NULL,"
     " fingerprint TEXT NOT NULL,"
     " status INTEGER NOT NULL,"
     " headers TEXT NOT NULL,"
     " body BYTEA NOT NULL,"
     " created_at BIGINT NOT NULL,"
     " PRIMARY KEY (tenant_id, scope, key));"
     "CREATE INDEX idempotency_by_age ON idempotency (created_at);"},
    {0},
};
