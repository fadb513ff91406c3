/* The sandboxes of this service's sessions: made and started when first needed, stopped when idle
   (R30), destroyed with the session, reconciled with what really runs (R35). The parent does the
   work; this keeps one entry a sandbox known to run, so that starts are not repeated and never race
   with stops. Any thread; calls block until done. */
#ifndef SESSION_SANDBOXES_H
#define SESSION_SANDBOXES_H

#include "base/clock.h"
#include "base/err.h"
#include "base/fd.h"
#include "db/db.h"
#include "parent/link.h"
#include "session/samples.h"

struct sandboxes;
struct objects;

/* objects: where the files of resources come from; NULL when no session has any (tests). */
struct sandboxes *sandboxes_new(struct parent_link *parent, struct db *db, struct objects *objects,
                                const struct clock *clock);
/* Makes sure it runs; out_socket is where pi-hands listens. *out_fresh: it was booted
   by this call, so processes of before are gone. Fails with the provider's reason; never runs
   anything elsewhere. */
err sandboxes_start(struct sandboxes *s, const char *tenant, const char *session,
                    const char *environment_json, char out_socket[SOCKET_PATH_MAX],
                    bool *out_fresh);
/* R51: E_QUOTA (host_capacity) when a sandbox of this environment would not fit into the host's
   memory beside those that run. Reserves nothing: sandboxes_start asks again. */
err sandboxes_fit(struct sandboxes *s, const char *environment_json);
/* Makes the sandbox of `session` (it has none yet, and is not started) with the files of `from`: a
   session of this tenant, or a snapshot. *out_live: that one ran, and was held still for the copy.
   E_NOT_FOUND when it has no sandbox. Begins a use, which keeps a sandbox whose session has no row
   yet from being swept away. */
err sandboxes_fork(struct sandboxes *s, const char *tenant, const char *from, const char *session,
                   const char *environment_json, bool *out_live);
/* Ends the use that each successful sandboxes_start or sandboxes_fork began. */
void sandboxes_release(struct sandboxes *s, const char *session);
/* Somebody could not reach it: the next start asks the parent again. */
void sandboxes_forget(struct sandboxes *s, const char *session);
/* Not while somebody uses it: then nothing happens, and the next sweep asks again. */
err sandboxes_stop(struct sandboxes *s, const char *tenant, const char *session);
err sandboxes_destroy(struct sandboxes *s, const char *tenant, const char *session);
/* R35: destroys sandboxes without a live session; corrects rows whose sandbox is gone or crashed.
 */
err sandboxes_reconcile(struct sandboxes *s);
/* §26.4: what the sandbox of this session uses right now; asks the parent. */
err sandboxes_measure(struct sandboxes *s, const char *session, struct sandbox_status *out);
/* The last measurement of each of a tenant's sandboxes: a minute old at most, as the sweep above
   measures, too. *out is the caller's to mem_free. */
size_t sandboxes_samples(struct sandboxes *s, const char *tenant, struct sample **out);
/* Started by this process and not stopped since. */
bool sandboxes_known(struct sandboxes *s, const char *session);
size_t sandboxes_running(struct sandboxes *s);

#endif
