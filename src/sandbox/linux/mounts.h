/* Mounts of a sandbox (sandbox/mounts.h): from a description to a mount that hangs nowhere yet, and
   from there to its place in the sandbox.

   What a mount leads to is opened by descriptor, no link followed on the way, and only that
   descriptor is mounted: nothing that happens to the path meanwhile changes what was checked. All
   are nosuid and nodev; nothing mounted beneath the source comes along.

   Who owns the files: as root a volume's are the sandbox's own, by an idmapped mount; a bind's
   owner on the host is root inside, if he is not the host's root: then nobody is anybody inside,
   the host's mode bits for others hold, and the mount must be read-only, so that nothing inside
   can make files of the host's root. As a plain user all belong to that user, who is root inside.
 */
#ifndef SANDBOX_LINUX_MOUNTS_H
#define SANDBOX_LINUX_MOUNTS_H

#include "base/err.h"
#include "sandbox/provider.h"

struct mounts_plan {
    uint32_t count;
    const struct sandbox_mount *list;
    const char *volumes, *tenant, *allow_mount;
    bool privileged;
    uint32_t uid_base; /* privileged */
};

/* plan->count detached mounts. Called where root_build is: in a mount namespace of our own in which
   the host can be seen. After an error nothing is open. */
err mounts_open(const struct mounts_plan *plan, int out_fds[MOUNTS_MAX]);
/* In the init, in its new root, before anything of the agent's runs there: moves them to their
   targets, whose folders are made. What the agent left in the way of one goes, as long as it is no
   folder; links never lead out of the root's own file system. Closes them. */
err mounts_attach(const struct mounts_plan *plan, int fds[MOUNTS_MAX]);
/* As sandbox_provider.mount_check. */
err mounts_check_here(const struct sandbox_mount *mount, const struct sandbox_place *place);

#endif
