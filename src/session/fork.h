/* A fork (R29): a new session whose log is the way from the root to one entry of another, with
   control's lines on that way, under a new header and with a pi-managed:fork line at the end
   (LOG.md). The source may be running: what is durable counts. Any thread; reads and writes files.
 */
#ifndef SESSION_FORK_H
#define SESSION_FORK_H

#include "base/err.h"
#include "base/id.h"

#include <stdint.h>

struct fork_request {
    const char *logs_dir, *tenant;
    const char *from;       /* session */
    const char *entry;      /* id of one of Pi's entries; NULL = the leaf */
    const char *to;         /* the new session, which has no log yet */
    const char *files_from; /* for the fork line: none, stopped, live */
    int64_t now_ms;
};

/* Writes the new log and makes it durable; out_entry (ID_MAX) is where it was forked. E_NOT_FOUND
   (entry_not_found); E_CONFLICT (open_tool_calls) names the nearest entry before at which every
   tool call has its result, (nothing_to_fork) when the session has none. Nothing is left behind on
   error. */
err fork_log(const struct fork_request *f, char out_entry[ID_MAX]);

/* Where the log would be forked, and whether it can be; writes nothing. */
err fork_check(const struct fork_request *f, char out_entry[ID_MAX]);

#endif
