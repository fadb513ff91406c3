/* Can sandboxes be made here? Answered by making one in a temporary folder, all but the program
 * inside. */
#ifndef SANDBOX_LINUX_PROBE_H
#define SANDBOX_LINUX_PROBE_H

#include "sandbox/provider.h"

/* Works in a child process: the caller may have threads. Takes some 50 ms. */
void linux_probe(struct sandbox_caps *out);

#endif
