/* A fork (R29): a new session whose log is the way from the root to one entry of another, with
   control's lines on that way, under a new header and with a pi-managed:fork line at the end
   (LOG.md). The source may be running: what is durable counts. Any thread; reads and writes files.
 */
#ifndef SESSION_FORK_H
#define SESSION_FORK_H

#include "base/err.h"
#include "base/id.h"

#include <stdint.h>

struct fork_request { /* what it points to outlives the fork */
    const char *logs_dir, *tenant;
    const char *from;  /* session */
    const char *entry; /* id of one of Pi's entries; NULL = the leaf */
    const char *to;    /* the new session, which has no log yet */
    int64_t now_ms;
};
struct fork;

/* Reads the log and finds where it would be forked; writes nothing. E_NOT_FOUND (entry_not_found);
   E_CONFLICT (open_tool_calls) names the nearest entry before at which every tool call has its
   result, (nothing_to_fork) when the session has none. */
err fork_open(const struct fork_request *request, struct fork **out);
const char *fork_entry(const struct fork *f); /* where; as long as the fork is open */
/* Writes the new log, of what was there at fork_open, and makes it durable. files_from is for the
   fork line: none, stopped, live. Nothing is left behind on error. */
err fork_write(struct fork *f, const char *files_from);
void fork_close(struct fork *f); /* NULL-safe */

#endif
