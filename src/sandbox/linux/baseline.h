/* What a sandbox was made from, for comparing with what is there now (COPY_OUT with `changes`): a
   read-only mount of the image's files that hangs nowhere. pi-hands alone holds it; from its root
   no
   `..` leads anywhere. Made where root_build is called, before root_enter. */
#ifndef SANDBOX_LINUX_BASELINE_H
#define SANDBOX_LINUX_BASELINE_H

#include "base/err.h"
#include "sandbox/linux/root.h"

/* userns_fd as for root_build. */
err baseline_open(const struct root_plan *plan, int userns_fd, int *out_fd);

#endif
