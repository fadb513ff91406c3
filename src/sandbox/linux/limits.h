/* R51: what happens to limits that were asked for and cannot be had. In a maker. */
#ifndef SANDBOX_LINUX_LIMITS_H
#define SANDBOX_LINUX_LIMITS_H

#include "sandbox/state.h"

/* R51: what was asked for and cannot be had is refused, or at least told. `missing`: CGROUP_NO_…; a
   limit nobody asked for only makes `enforced` false. */
err limits_settle(const struct sandbox_spec *spec, const struct sandbox_place *place,
                  unsigned missing, bool disk_missing, struct state_run *run);
/* Makes the disk (disk.h) that the spec asks for, or says why not. *out_on_disk: the files are in
   `disk`. Once on a disk of its own, always there: that is where its files are. */
err limits_prepare_disk(const struct sandbox_spec *spec, const struct sandbox_place *place,
                        const char *disk, bool *out_on_disk);

#endif
