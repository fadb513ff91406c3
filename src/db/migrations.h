/* Numbered, forward-only schema changes, ten numbers a topic: 0-9 tenants and keys, 10-19 agents
   and environments, 20-29 sessions and inbox, 30-39 idempotency, 40-49 vaults, 50-59 files, 60-69
   jobs, 70-79 webhooks, 80-89 memory and skills, 90-99 work queue. One file a topic in
   src/db/migrations/; a row runs once, in order of number, each in its own transaction. */
#ifndef DB_MIGRATIONS_H
#define DB_MIGRATIONS_H

struct migration {
    int number;
    const char *name;
    const char *sql; /* both engines (SQLite takes BIGINT, BYTEA and DOUBLE PRECISION as they are);
                        several statements */
};

/* Tables of topics, NULL at the end; each table ends with name NULL. */
extern const struct migration *const db_migrations[];

#endif
