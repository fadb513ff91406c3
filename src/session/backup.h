/* The database's own copy in the object store, and bringing it back (§28). Only of engines that
   live in the data directory; PostgreSQL has backups of its own. One call at a time. */
#ifndef SESSION_BACKUP_H
#define SESSION_BACKUP_H

#include "base/err.h"
#include "db/db.h"
#include "objects/objects.h"

/* Copies the database into the store, by way of a file in scratch_dir that is gone afterwards. */
err backup_take(struct db *db, struct objects *o, const char *scratch_dir);
/* When data_dir has no control.db and the store has a copy, puts it there and leaves the mark
   below, atomically and in an order that a crash cannot spoil. *out: it did. */
err backup_restore(struct objects *o, const char *data_dir, bool *out);
/* In logs_dir: the rows of sessions may be older than their copies in the store. */
#define BACKUP_RESTORED_MARK ".restored"

#endif
