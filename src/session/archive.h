/* Copies of sessions in the object store (§28), from which a lost data directory comes back:

     logs/<tenant>/<session>/<offset>   the log in segments of 4 MiB; offset: 16 hex digits
     sessions/<tenant>/<session>.json   the row
     system/control.db                  the whole database, at most a minute old (backup.h)

   A session is copied when it becomes idle, and 30 s after its first line since the last copy while
   it runs; what the store refuses is tried again. Only whole, durable lines are copied. An idle
   session is therefore whole in the store soon after its status_idle; of a running one at most the
   last 30 s are missing.

   One thread of its own; the functions may be called from any thread. */
#ifndef SESSION_ARCHIVE_H
#define SESSION_ARCHIVE_H

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"
#include "db/db.h"
#include "objects/objects.h"

struct archive;

struct archive_options {
    struct objects *objects;
    struct db *db;
    const struct clock *clock;
    const char *logs_dir;
    const char *scratch_dir; /* control may create a file there, for backups */
    int64_t running_ms;      /* between copies of a running session; 0 = 30 s */
};

struct archive *archive_new(const struct archive_options *o);
/* The database is a copy that was brought back: rows of its last minute may be missing. Before
   archive_recover. */
bool archive_lost_rows(const struct archive *a);
/* Brings back what is in the store and not on disk: logs always, rows when the database itself was
   brought back (backup.h). Before anything uses logs. */
err archive_recover(struct archive *a);
/* Starts the thread, which first looks for logs that a previous process did not copy. */
void archive_start(struct archive *a);
/* Copies what is waiting, once each and for at most grace_ms, and ends the thread. */
void archive_stop(struct archive *a, int64_t grace_ms);
/* NULL-safe; after stop. Not archive_free: libarchive has that name, and the program has both. */
void archive_delete(struct archive *a);

/* The session's log is durable up to `bytes`, its end at an LF. Cheap; never blocks; NULL-safe. */
void archive_note(struct archive *a, const char *tenant, const char *session, int64_t bytes,
                  bool idle);
/* Removes all copies of a session, then its log on disk (R29, purge). Blocks. */
err archive_purge(struct archive *a, const char *tenant, const char *session);

#endif
