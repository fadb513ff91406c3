/* 50-59: uploaded files and session outputs (§21). Statements: api/file_rows.c. */
#include "db/migrations.h"

extern const struct migration migrations_files[];
const struct migration migrations_files[] = {
    /* state: pending (its object is being written, or a crash left it), ready, deleting (its object
       goes next). session_id and path: where an output was found; changed_at is its file's own time
       of change there, in nanoseconds as text, by which one that did not change is recognised. */
    {50, "files",
     "CREATE TABLE files ("
     " tenant_id TEXT NOT NULL REFERENCES tenants (id),"
     " id TEXT NOT NULL,"
     " state TEXT NOT NULL,"
     " name TEXT NOT NULL,"
     " mime_type TEXT NOT NULL,"
     " size BIGINT NOT NULL,"
     " sha256 TEXT NOT NULL,"
     " metadata TEXT NOT NULL,"
     " session_id TEXT,"
     " path TEXT,"
     " changed_at TEXT,"
     " created_at BIGINT NOT NULL,"
     " PRIMARY KEY (tenant_id, id));"
     "CREATE INDEX files_by_age ON files (tenant_id, created_at, id) WHERE state = 'ready';"
     "CREATE UNIQUE INDEX files_outputs ON files (tenant_id, session_id, path)"
     " WHERE state = 'ready' AND session_id IS NOT NULL;"
     "CREATE INDEX files_unfinished ON files (created_at) WHERE state <> 'ready';"},
    {0},
};
