/* What has to be looked for, because nobody says when it is due: sandboxes that are idle (R30) or
   nobody's (R35), work that nobody goes on with (R26), deleted sessions to purge (R29). One thread
   of the manager; the functions may be called from any. */
#ifndef SESSION_SWEEP_H
#define SESSION_SWEEP_H

#include "base/err.h"

#include <stddef.h>

struct session_manager;

/* The thread; arg is the manager. Ends when that stops. */
void *sweep_thread(void *arg);
/* Wakes sessions with work that nobody does: left by a previous process, or dropped because the
   disk or the database refused. Harmless for a session that is running. *out_n: how many. */
err sweep_wake_unfinished(struct session_manager *m, size_t *out_n);
/* Removes the log, its copies, and last the row: without it nobody would know of the rest. */
err sweep_purge(struct session_manager *m, const char *tenant, const char *session);

#endif
