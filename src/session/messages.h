/* What the model is shown of a session (§8.3): the messages that Pi makes of its log, after
   compaction and edits, by Pi's own rules; compared with the real SDK by tests. Any thread. */
#ifndef SESSION_MESSAGES_H
#define SESSION_MESSAGES_H

#include "base/err.h"
#include "base/json.h"

/* New array of messages, oldest first: roles system, user, assistant, toolResult, custom,
   bashExecution, compactionSummary, branchSummary. */
err session_messages(const char *logs_dir, const char *tenant, const char *session, json_t **out);

#endif
