#include "db/sqlite_guard.h"

#include <stdio.h>
#include <string.h>

static size_t table_at(struct sqlite_guard *g, const char *name)
{
    for (size_t i = 0; i < g->count; i++)
        if (strcmp(g->tables[i].name, name) == 0)
            return i;
    if (g->count == SQLITE_GUARD_TABLES_MAX || strlen(name) >= sizeof g->tables[0].name) {
        g->overflow = true;
        return SQLITE_GUARD_TABLES_MAX;
    }
    snprintf(g->tables[g->count].name, sizeof g->tables[0].name, "%s", name);
    g->tables[g->count].reads_tenant = false;
    return g->count++;
}

/* Called by SQLite for each thing a statement will do, while it is prepared. */
static int authorize(void *arg, int action, const char *table, const char *column,
                     const char *database, const char *trigger)
{
    (void)database;
    (void)trigger;
    struct sqlite_guard *g = arg;
    if (action != SQLITE_READ && action != SQLITE_UPDATE && action != SQLITE_DELETE)
        return SQLITE_OK;
    size_t i = table_at(g, table);
    if (action != SQLITE_READ && g->changed == 0)
        g->changed = i + 1;
    else if (action != SQLITE_READ && g->changed != i + 1)
        g->cascading = true;
    if (g->cascading && g->changed == i + 1)
        return SQLITE_OK;
    if (i < g->count && action == SQLITE_READ && column && strcmp(column, "tenant_id") == 0)
        g->tables[i].reads_tenant = true;
    return SQLITE_OK;
}

void sqlite_guard_watch(struct sqlite_guard *g, sqlite3 *sqlite)
{
    g->sqlite = sqlite;
    sqlite3_set_authorizer(sqlite, authorize, g);
}

void sqlite_guard_begin(struct sqlite_guard *g)
{
    g->count = 0;
    g->overflow = false;
    g->changed = 0;
    g->cascading = false;
}

static bool is_tenant_table(sqlite3 *sqlite, const char *table)
{
    return sqlite3_table_column_metadata(sqlite, NULL, table, "tenant_id", NULL, NULL, NULL, NULL,
                                         NULL) == SQLITE_OK;
}

err sqlite_guard_check(const struct sqlite_guard *g, const char *sql)
{
    if (strncmp(sql, SQLITE_GUARD_ALL, strlen(SQLITE_GUARD_ALL)) == 0)
        return 0;
    if (g->overflow)
        return fail(E_INTERNAL, "database: a statement with too many tables: %.80s", sql);
    for (size_t i = 0; i < g->count; i++)
        if (!g->tables[i].reads_tenant && is_tenant_table(g->sqlite, g->tables[i].name))
            return fail(E_INTERNAL, "database: a statement on %s does not read tenant_id: %.80s",
                        g->tables[i].name, sql);
    return 0;
}
