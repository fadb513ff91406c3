/* Where to begin reading a long log. Whoever passes over a log notes places, and later reads start
   at the nearest one instead of at the top. Places of events are kept beside the log, in
   <session>.places, so that the first read of a new process need not parse everything; the file is
   only a help and may be lost at any time. A place that no longer fits its log (a failed write was
   cut back) is dropped, and the file with it. Any thread. */
#ifndef SESSION_LOG_INDEX_H
#define SESSION_LOG_INDEX_H

#include "base/str.h"

#include <stdint.h>

struct projection;

enum log_order {
    LOG_BY_SEQ,   /* of events: a place knows the projection's state */
    LOG_BY_NUMBER /* of lines: it need not */
};

/* The state between two lines. */
struct log_place {
    int64_t offset, number;        /* bytes and lines before it */
    struct projection *projection; /* the reader's own; NULL for LOG_BY_NUMBER */
    int64_t next_note;             /* the offset from which another place is worth noting */
};

#define LOG_END INT64_MAX
/* The latest place that has event (or line) `first` behind it, and `back` more before the last
   place known: so that a page of `back` rows is full wherever the log ends. Fills *out, always; the
   top of the log if there is none. Free with log_place_done. */
void log_index_find(const char *path, const char *session, enum log_order order, int64_t first,
                    int64_t back, struct log_place *out);
void log_place_done(struct log_place *place);
/* The reader has gone over `line` (without LF): moves the place behind it, and notes it if no place
   lies near. Call it after the projection has the line. */
void log_index_pass(const char *path, enum log_order order, struct log_place *place,
                    struct str line);
/* Removes what is kept beside a log that is removed, and forgets it. */
void log_index_remove(const char *path);
/* For tests, before reads: the bytes between places; and what a new process knows: nothing. */
void log_index_set_interval(int64_t bytes);
void log_index_forget_all(void);

#endif
