/* clang-format off */
/* The session manager: runs the turn machine of every live session.

   One user.message, from socket to log and back:
     api/events.c   validates, db_write: inbox row (+ idempotency row) → COMMIT → 202 → session_wake
     executor       one of a few threads takes the session (a session is never on two), reads the inbox, feeds the turn
                    machine; the machine answers with LINES and EFFECTS; lines are appended and fsynced; only then
                    are their events published and the effects done (host prompt, tool start, …)
     harness        Pi asks the model through the broker; each entry, delta and tool call comes back as a message into
                    the session's mailbox → executor → machine → lines, effects, as above
     tool thread    starts the sandbox if needed, runs the call through hands, posts the result to the mailbox

   So nothing leaves before the line it comes from is durable, and order within a session is the order of its mailbox.
   Idle sessions are unloaded: all state is in the log and the row. */
/* clang-format on */
#ifndef SESSION_MANAGER_H
#define SESSION_MANAGER_H

#include "base/clock.h"
#include "base/err.h"
#include "broker/link.h"
#include "harness/harness.h"
#include "session/hub.h"

struct session_manager;
struct archive;
struct db;
struct parent_link;
struct catalog;
struct objects;

struct session_manager_options {
    struct db *db;
    const struct clock *clock;
    struct parent_link *parent;
    struct catalog *catalog;
    const char *logs_dir;
    struct objects *objects; /* files of resources */
    struct archive *archive; /* hears of durable lines; NULL = no copies are kept */
    unsigned executors;      /* 0 = 8 */
    int64_t retention_ms;    /* deleted sessions are purged after this (R29); 0 = 30 days */
    int64_t unload_ms;       /* idle sessions leave memory and their host after this; 0 = 60 s */
};

struct session_manager *session_manager_new(const struct session_manager_options *o);
/* The manager hears from both (events below) and calls both; once, before start. */
void session_manager_connect(struct session_manager *m, struct harness *h, struct broker_link *b);
struct harness_events session_manager_harness_events(struct session_manager *m);
struct broker_events session_manager_broker_events(struct session_manager *m);
/* Wakes what a previous process left unfinished (R26) and starts the sweeps (R30, R35). */
err session_manager_start(struct session_manager *m);
/* Stops taking work; running turns stay as they are in the log and go on at the next start. */
void session_manager_stop(struct session_manager *m);

/* Something is in the inbox of this session. After the COMMIT. Any thread. */
void session_wake(struct session_manager *m, const char *tenant, const char *session);
/* R51: E_QUOTA (host_capacity) when no sandbox of this environment would fit into the host's memory
   now. Blocks. */
err session_fits(struct session_manager *m, const char *environment_json);
/* R21: withdraws a queued message. E_NOT_FOUND if unknown, E_CONFLICT (already_processed) if it is
 * too late. Blocks. */
err session_withdraw(struct session_manager *m, const char *tenant, const char *session,
                     const char *event_id);
/* §6.3: changes title (string or null), metadata (object) or members of the agent (object: tools,
   mcpServers, whole values) of a session, and tells who watches. E_CONFLICT (session_not_idle) when
   the agent is to change while it runs. Blocks. */
err session_change(struct session_manager *m, const char *tenant, const char *session,
                   const json_t *change);
/* R29: stops what runs, destroys the sandbox, marks the row deleted; at_once purges the log and the
 * row, too. Blocks. */
err session_delete(struct session_manager *m, const char *tenant, const char *session,
                   bool at_once);
/* Somebody else wrote the whole log of a new session (a fork): it is to be copied to the store. */
void session_logged(struct session_manager *m, const char *tenant, const char *session);
struct hub *session_manager_hub(struct session_manager *m);
struct sandboxes *session_manager_sandboxes(struct session_manager *m);
const char *session_manager_logs_dir(const struct session_manager *m);

#endif
