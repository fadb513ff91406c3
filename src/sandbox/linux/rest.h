/* Bringing all processes of a running sandbox to rest, so that its files can be copied, and letting
   them go on. By its v2 control group where there is one: then nobody inside notices. Else by
   SIGSTOP to each, which a shell that watches its jobs may tell.
   A note in the sandbox's folder says that it was brought to rest: whoever finds it (the maker
   died) lets them go on. Under the sandbox's lock, in a maker. */
#ifndef SANDBOX_LINUX_REST_H
#define SANDBOX_LINUX_REST_H

#include "sandbox/state.h"

/* Returns when none of them runs any more; after an error they run. */
err rest_begin(const char *dir, const struct state_run *run, int pidfd);
/* Also when nothing rests. */
void rest_end(const char *dir, const struct state_run *run, int pidfd);

#endif
