/* The database for commands that work on rows (key, tenant) while the service may be running. */
#ifndef CLI_DATABASE_H
#define CLI_DATABASE_H

#include "base/json.h"
#include "cli/command.h"
#include "db/db.h"

/* Opens the database in --data. As root this process first becomes the owner of the file, so that
   nothing in it comes to belong to root: open nothing else afterwards. */
err database_open(const struct invocation *call, struct db **out);
/* Opens it, runs fn in one write, closes it. */
err database_write(const struct invocation *call, db_fn fn, void *arg);
/* One line on standard output. */
void database_print(json_t *take_line);

#endif
