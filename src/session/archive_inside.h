/* The inside of the archive, shared by archive.c, archive_copy.c and archive_recover.c. */
#ifndef SESSION_ARCHIVE_INSIDE_H
#define SESSION_ARCHIVE_INSIDE_H

#include "base/arena.h"
#include "base/id.h"
#include "base/lock.h"
#include "session/archive.h"

#define ARCHIVE_MAGIC 0xa2c41fe5u
#define ARCHIVE_BUCKETS 256
#define ARCHIVE_SEGMENT_BYTES INT64_C(4194304)
#define ARCHIVE_LOGS "logs/"
#define ARCHIVE_ROWS "sessions/"

struct waiting {
    struct waiting *next; /* in its bucket */
    char tenant[ID_MAX], session[ID_MAX];
    int64_t bytes;  /* durable length of the log */
    int64_t due_ms; /* monotonic */
};

struct archive {
    unsigned magic;
    struct archive_options o;
    pthread_t thread;
    bool started;
    int64_t last_backup,
        backup_due_ms;            /* thread only: db_stats.writes then; when the next is due */
    bool failing;                 /* thread only: the last copy was refused */
    pthread_mutex_t waiting_lock; /* guards what follows; lock order 8 */
    pthread_cond_t changed;       /* the table, `stopping`, or a copy or backup was made */
    struct waiting *buckets[ARCHIVE_BUCKETS];
    int64_t next_ms;      /* nothing in the table is due before */
    char copying[ID_MAX]; /* the session being copied now, or "" */
    bool stopping;
    int64_t stop_by_ms;
};

/* archive_copy.c. The thread only, but for the two that measure. */
err archive_copy(struct archive *a, const struct waiting *w); /* E_NOT_FOUND: gone meanwhile */
err archive_remove_copies(struct archive *a, const char *tenant, const char *session);
/* Of the log on disk up to its last LF, and of its copy; 0 when there is none. */
err archive_log_bytes(struct archive *a, const char *tenant, const char *session, int64_t *out);
err archive_stored_bytes(struct archive *a, const char *tenant, const char *session, int64_t *out);
/* From the last part of a segment's key; -1 if it is none. */
int64_t archive_segment_offset(const char *name);

#endif
