/* 20-29: sessions and their inbox (§6.3, R21). Statements: session/store.c. */
#include "db/migrations.h"

extern const struct migration migrations_sessions[];
const struct migration migrations_sessions[] = {
    /* agent and environment are the resolved definitions at creation: what happens to the resources
       afterwards does not change a session. status: idle, running, rescheduling, terminated. Usage
       is the sum of the log's span ends, kept here so that a list need not read logs (R28).
       sandbox_state: none, stopped, running, crashed. deleted_at: hidden, its log archived (R29).
     */
    {20, "sessions",
     "CREATE TABLE sessions ("
     " tenant_id TEXT NOT NULL REFERENCES tenants (id),"
     " id TEXT NOT NULL,"
     " agent_id TEXT NOT NULL,"
     " agent_version INTEGER NOT NULL,"
     " agent TEXT NOT NULL,"
     " environment_id TEXT NOT NULL,"
     " environment TEXT NOT NULL,"
     " title TEXT,"
     " metadata TEXT NOT NULL,"
     " budget TEXT,"
     " vault_ids TEXT NOT NULL,"
     " status TEXT NOT NULL,"
     " stop_reason TEXT,"
     " input_tokens BIGINT NOT NULL DEFAULT 0,"
     " output_tokens BIGINT NOT NULL DEFAULT 0,"
     " cache_read_tokens BIGINT NOT NULL DEFAULT 0,"
     " cache_creation_tokens BIGINT NOT NULL DEFAULT 0,"
     " cost_usd DOUBLE PRECISION NOT NULL DEFAULT 0,"
     " usage_estimated INTEGER NOT NULL DEFAULT 0,"
     " sandbox_state TEXT NOT NULL DEFAULT 'none',"
     " created_at BIGINT NOT NULL,"
     " updated_at BIGINT NOT NULL,"
     " last_activity_at BIGINT NOT NULL,"
     " deleted_at BIGINT,"
     " PRIMARY KEY (tenant_id, id));"
     "CREATE INDEX sessions_by_age ON sessions (tenant_id, created_at, id);"
     "CREATE INDEX sessions_by_status ON sessions (status);"},
    /* Posted events on their way to the log, in order of position within the session; a row goes
       when its line is durable. */
    {21, "inbox",
     "CREATE TABLE inbox ("
     " tenant_id TEXT NOT NULL,"
     " session_id TEXT NOT NULL,"
     " position BIGINT NOT NULL,"
     " event_id TEXT NOT NULL,"
     " event TEXT NOT NULL,"
     " created_at BIGINT NOT NULL,"
     " PRIMARY KEY (tenant_id, session_id, position),"
     " UNIQUE (tenant_id, event_id),"
     " FOREIGN KEY (tenant_id, session_id) REFERENCES sessions (tenant_id, id) ON DELETE "
     "CASCADE);"},
    /* R29: what is to be purged when its time is over. */
    {22, "sessions_deleted",
     "CREATE INDEX sessions_deleted ON sessions (deleted_at) WHERE deleted_at IS NOT NULL;"},
    /* Files to be put into a new sandbox: [{type, fileId, path, key}]; NULL = none. */
    {23, "sessions_resources", "ALTER TABLE sessions ADD COLUMN resources TEXT;"},
    /* Which request (X-Request-Id) made or spoke to which session: for whoever has the one and
       looks for the other. A client may use an id of its own more than once. */
    {24, "session_requests",
     "CREATE TABLE session_requests ("
     " tenant_id TEXT NOT NULL,"
     " request_id TEXT NOT NULL,"
     " session_id TEXT NOT NULL,"
     " PRIMARY KEY (tenant_id, request_id, session_id),"
     " FOREIGN KEY (tenant_id, session_id) REFERENCES sessions (tenant_id, id) ON DELETE "
     "CASCADE);"},
    /* A list begins where its page begins and reads no row that it does not show, whatever it is
       narrowed to. status comes first for those who ask across tenants. */
    {25, "sessions_lists",
     "DROP INDEX sessions_by_age;"
     "DROP INDEX sessions_by_status;"
     "CREATE INDEX sessions_by_age ON sessions (tenant_id, created_at, id)"
     " WHERE deleted_at IS NULL;"
     "CREATE INDEX sessions_by_agent ON sessions (tenant_id, agent_id, created_at, id)"
     " WHERE deleted_at IS NULL;"
     "CREATE INDEX sessions_by_environment ON sessions (tenant_id, environment_id, created_at, id)"
     " WHERE deleted_at IS NULL;"
     "CREATE INDEX sessions_by_status ON sessions (status, tenant_id, created_at, id)"
     " WHERE deleted_at IS NULL;"},
    /* How many sandboxes a tenant has running. */
    {29, "sessions_running",
     "CREATE INDEX sessions_running ON sessions (tenant_id) WHERE sandbox_state = 'running'"},
    {0},
};
