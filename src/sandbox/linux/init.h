/* The sandbox's init as the host sees it: naming it for good, holding it by pidfd, ending it. */
#ifndef SANDBOX_LINUX_INIT_H
#define SANDBOX_LINUX_INIT_H

#include "sandbox/state.h"

/* Fills the identity of a live process of this machine boot. */
err init_identify(pid_t pid, struct state_init *out);
/* A pidfd for exactly that process; -1 when it ended (a zombie counts: the host's init may never
   reap it), or its pid belongs to another process by now, or the machine was restarted. */
int init_open(const struct state_init *id);
/* True when nothing keeps it from ending: it was killed, crashed or is on its way out, and may
   still be there, and answer, for a moment. False when it is gone. */
bool init_is_dying(const struct state_init *id);
/* True once every process of the sandbox is dead: the kernel lets a pid namespace's init end last.
 */
bool init_wait_end(int pidfd, int timeout_ms);
/* TERM, wait, KILL, wait. grace_ms 0 goes straight to KILL. E_TIMEOUT if it survives even that. */
err init_end(int pidfd, uint32_t grace_ms);

#endif
