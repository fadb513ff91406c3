/* 60-69: what is spent (R53). */
#include "db/migrations.h"

extern const struct migration migrations_spend[];
const struct migration migrations_spend[] = {
    /* day: since the epoch, UTC. The sum of costUsd of the spans that ended then. */
    {60, "tenant_spend",
     "CREATE TABLE tenant_spend ("
     " tenant_id TEXT NOT NULL REFERENCES tenants (id),"
     " day BIGINT NOT NULL,"
     " usd DOUBLE PRECISION NOT NULL,"
     " PRIMARY KEY (tenant_id, day));"},
    {0},
};
