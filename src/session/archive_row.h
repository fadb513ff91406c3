/* A session's row as JSON, for its copy in the object store (archive.h), and back. Inside db_read
   and db_write. */
#ifndef SESSION_ARCHIVE_ROW_H
#define SESSION_ARCHIVE_ROW_H

#include "base/arena.h"
#include "base/json.h"
#include "db/db.h"

/* {"tenant":{id,name,createdAt}, "session":{column: value}}; also of a deleted session. E_NOT_FOUND
   when there is no row. New reference. */
err archive_row_read(struct db_conn *c, const char *tenant, const char *session, json_t **out);
/* Inserts the row, or replaces one that was changed earlier; makes the tenant if it is missing. */
err archive_row_write(struct db_conn *c, struct arena *a, const json_t *row);

#endif
