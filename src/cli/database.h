/* The database for commands that work on rows (key, tenant) while the service may be running. */
#ifndef CLI_DATABASE_H
#define CLI_DATABASE_H

#include "cli/command.h"
#include "db/db.h"

/* Opens the database in --data. As root this process first becomes the owner of the file, so that
   nothing in it comes to belong to root: open nothing else afterwards. */
err database_open(const struct invocation *call, struct db **out);

#endif
