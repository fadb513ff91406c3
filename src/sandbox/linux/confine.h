/* Takes from the calling process, for good, what a sandbox must not have: capabilities and system
 * calls. */
#ifndef SANDBOX_LINUX_CONFINE_H
#define SANDBOX_LINUX_CONFINE_H

#include "base/err.h"

/* Keeps what ordinary package and build tools need inside their own user namespace. */
err confine_capabilities(void);
/* Builds the filter of confine_system_calls, once. */
err confine_prepare(void);
/* no_new_privs and a deny list: mounts, namespaces, kernel keys, modules, io_uring, bpf and the
   like fail with EPERM. */
err confine_system_calls(void);

#endif
