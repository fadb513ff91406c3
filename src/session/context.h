/* What a host needs of a log to go on (LOG.md, wake): the header, the system, model and thinking
   lines, and every ancestor of the leaf from the last compaction's firstKeptEntryId on. Control's
   own lines only where an imported log has them as ancestors. */
#ifndef SESSION_CONTEXT_H
#define SESSION_CONTEXT_H

#include "session/log_tree.h"

#include "base/buf.h"
#include "base/err.h"

struct context_choice;

/* Which lines those are. */
struct context {
    struct log_tree tree;
    struct context_choice *choices; /* its own; one a line */
};
/* Reads the log once; one thread. After an error there is nothing to close. */
err context_open(const char *logs_dir, const char *tenant, const char *session, struct arena *a,
                 struct context *out);
void context_close(struct context *c);
bool context_wants(const struct context *c, size_t line);

/* Appends the lines, LF after each, oldest first; *out_count how many. Any thread. */
err context_lines(const char *logs_dir, const char *tenant, const char *session, struct buf *out,
                  size_t *out_count);

#endif
