/* R50, in sanitizer builds (those that tests run): a statement that reads, changes or deletes rows
   of a table with a tenant_id column must read that column. Forgetting it is then a failing test,
   not a leak between tenants. A sweep over all tenants says so: its text begins with
   SQLITE_GUARD_ALL. */
#ifndef DB_SQLITE_GUARD_H
#define DB_SQLITE_GUARD_H

#include "base/err.h"

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>

#define SQLITE_GUARD_ALL "/* all tenants */"
#define SQLITE_GUARD_TABLES_MAX 16

struct sqlite_guard { /* one a connection; not while another statement is prepared */
    sqlite3 *sqlite;
    size_t count;
    bool overflow;
    size_t changed; /* index + 1 of the table that the statement itself changes; 0 = none */
    bool cascading; /* now foreign keys change others: what is read of it is their doing */
    struct {
        char name[64];
        bool reads_tenant;
    } tables[SQLITE_GUARD_TABLES_MAX];
};

/* Listens from now on to what statements of the connection touch. */
void sqlite_guard_watch(struct sqlite_guard *g, sqlite3 *sqlite);
/* Call before and after preparing `sql`. E_INTERNAL naming the table. */
void sqlite_guard_begin(struct sqlite_guard *g);
err sqlite_guard_check(const struct sqlite_guard *g, const char *sql);

#endif
