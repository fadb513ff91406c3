/* The database for commands that work on rows (key, tenant) while the service may be running. */
#ifndef CLI_DATABASE_H
#define CLI_DATABASE_H

#include "cli/command.h"
#include "db/db.h"
#include "parent/request.h"

#define DATABASE_URL_MAX 512

/* --database as it stands in the configuration, else the file in DATA. */
err database_url(const struct parent_config *config, char *out, size_t cap);
/* The value of NAME=… in config_text; E_NOT_FOUND if there is no such line. */
err config_text_value(const struct parent_config *config, const char *name, char *out, size_t cap);
/* Opens the database that --data (or --database) names. As root this process first becomes the
   owner of the file, so that nothing in it comes to belong to root: open nothing else afterwards.
 */
err database_open(const struct invocation *call, struct db **out);

#endif
