/* What a host needs of a log to go on (LOG.md, wake): the header, the system, model and thinking
   lines, and every ancestor of the leaf from the last compaction's firstKeptEntryId on. Control's
   own lines only where an imported log has them as ancestors. */
#ifndef SESSION_CONTEXT_H
#define SESSION_CONTEXT_H

#include "base/buf.h"
#include "base/err.h"

/* Appends the lines, LF after each, oldest first; *out_count how many. Any thread. */
err context_lines(const char *logs_dir, const char *tenant, const char *session, struct buf *out,
                  size_t *out_count);

#endif
