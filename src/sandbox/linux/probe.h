/* Can sandboxes be made here? Answered by making one in a temporary folder, all but the program
 * inside. */
#ifndef SANDBOX_LINUX_PROBE_H
#define SANDBOX_LINUX_PROBE_H

#include "sandbox/provider.h"

/* The trial runs in a child process. Also warms up (boot.h): call it once from the parent's only
 * thread. */
void linux_probe(struct sandbox_caps *out);

#endif
