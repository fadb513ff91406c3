/* 10-19: agents and environments (§6.1, §6.2). */
#include "db/migrations.h"

extern const struct migration migrations_agents[];
const struct migration migrations_agents[] = {
    /* agents holds what changes; each version's definition is a row that is never changed. */
    {10, "agents",
     "CREATE TABLE agents ("
     " tenant_id TEXT NOT NULL REFERENCES tenants (id),"
     " id TEXT NOT NULL,"
     " name TEXT NOT NULL,"
     " version INTEGER NOT NULL,"
     " created_at BIGINT NOT NULL,"
     " updated_at BIGINT NOT NULL,"
     " archived_at BIGINT,"
     " PRIMARY KEY (tenant_id, id),"
     " UNIQUE (tenant_id, name));"
     "CREATE INDEX agents_by_age ON agents (tenant_id, created_at, id);"
     "CREATE TABLE agent_versions ("
     " tenant_id TEXT NOT NULL,"
     " agent_id TEXT NOT NULL,"
     " version INTEGER NOT NULL,"
     " definition TEXT NOT NULL," /* JSON: name, model, systemPrompt, tools … as validated */
     " created_at BIGINT NOT NULL,"
     " PRIMARY KEY (tenant_id, agent_id, version),"
     " FOREIGN KEY (tenant_id, agent_id) REFERENCES agents (tenant_id, id));"},
    {11, "environments",
     "CREATE TABLE environments ("
     " tenant_id TEXT NOT NULL REFERENCES tenants (id),"
     " id TEXT NOT NULL,"
     " name TEXT NOT NULL,"
     " definition TEXT NOT NULL," /* JSON: type, image, resources, networking … as validated */
     " created_at BIGINT NOT NULL,"
     " updated_at BIGINT NOT NULL,"
     " archived_at BIGINT,"
     " PRIMARY KEY (tenant_id, id),"
     " UNIQUE (tenant_id, name));"
     "CREATE INDEX environments_by_age ON environments (tenant_id, created_at, id);"},
    {0},
};
