/* The `linux` provider: a sandbox is a set of Linux namespaces around an overlay file system,
   limited by cgroups where the host lets us. Works for root (a uid range per sandbox) and for a
   plain user (one uid). Folder of a sandbox: spec.json run.json      see sandbox/state.h fs/ (0700)
   upper/ work/ (the overlay's writable layer) or plain/ where no overlay works Everything mounted
   is mounted in a mount namespace that dies with the sandbox: a host restart or a kill -9 of
   everything leaves no mount behind. Verbs run in a maker process: one thread, one verb. */
#ifndef SANDBOX_LINUX_LINUX_H
#define SANDBOX_LINUX_LINUX_H

#include "sandbox/provider.h"

extern const struct sandbox_provider sandbox_linux;

#endif
