/* The folders of volumes: DATA/volumes/<tenant>/<volume>, root's and 0700 down to the volume, whose
   files have ids of VOLUME_UID_BASE and up, as nobody on the host has: each sandbox sees them as
   its own (idmapped mounts, linux/mounts.h). As a plain user they are that user's, or his
   subordinate ids'. In a maker; the tenant's folder is flocked while something is decided. */
#ifndef SANDBOX_LINUX_VOLUMES_H
#define SANDBOX_LINUX_VOLUMES_H

#include "base/err.h"
#include "sandbox/provider.h"

#include <stdint.h>

/* The range below those of sandboxes (parent/ranges.h). */
#define VOLUME_UID_BASE (1000000u - 65536u)

/* Before a start: makes the volumes of spec->mounts that are missing, and writes the mounts into
   the sandbox's record, by which volume_remove knows that it may not. The sandbox is locked. */
err volumes_claim(const struct sandbox_spec *spec, const struct sandbox_place *place);
/* Opens a volume's folder, as a bare reference. */
err volumes_open(const char *volumes, const char *tenant, const char *volume, int *out_fd);
/* As sandbox_provider.volume_measure and volume_remove. */
err volumes_measure(const char *tenant, const char *volume, const struct sandbox_place *place,
                    uint64_t *out_bytes);
err volumes_remove(const char *tenant, const char *volume, const struct sandbox_place *place);

#endif
