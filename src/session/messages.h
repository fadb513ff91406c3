/* What the model is shown of a session (§8.3): the messages that Pi makes of its log, after
   compaction and edits, by Pi's own rules; compared with the real SDK by tests. Any thread. */
#ifndef SESSION_MESSAGES_H
#define SESSION_MESSAGES_H

#include "base/err.h"
#include "base/json.h"

/* Gets the text of an array of messages in pieces, oldest first: roles system, user, assistant,
   toolResult, custom, bashExecution, compactionSummary, branchSummary. An error ends it. */
typedef err (*messages_write_fn)(void *arg, struct str bytes);
/* Reads the log twice and holds one line of it at a time (and what edits and the last compaction
   say). Nothing was written when the log cannot be read. */
err session_messages(const char *logs_dir, const char *tenant, const char *session,
                     messages_write_fn write, void *arg);

#endif
