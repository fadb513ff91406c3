/* The sandbox's file system: building its root mount outside, entering it inside.
   root_build runs where mounting is allowed: in the maker as root (the overlay's lower layer is
   idmapped to the sandbox's ids), in the init as a plain user (overlay with userxattr). root_enter
   runs in the init. */
#ifndef SANDBOX_LINUX_ROOT_H
#define SANDBOX_LINUX_ROOT_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct root_plan {
    const char *fs_dir;   /* <dir>/fs: upper/ and work/, or plain/ */
    const char *skeleton; /* of the image host: the lower layer */
    /* For another image, both or none: its root file system is the lower layer in place of the
       skeleton; on it lies `tools`, which has /.pi and the folders that are mounted on. */
    const char *image, *tools;
    const char *runtime; /* rg, for a plain root */
    uid_t owner;         /* host uid of the sandbox's root */
    uint32_t tmp_mib;    /* size of /tmp */
    const char *disk;    /* the file with what is otherwise in fs_dir, mounted there; or NULL */
};

/* Makes the folders of plan->fs_dir that are missing. Before root_build, in the maker. (Those on a
   disk of its own are made by root_build.) */
err root_prepare(const struct root_plan *plan);
/* Removes what an overlay leaves in <dir>/fs when it is gone: a folder that even its owner cannot
   list, and so cannot `rm -r`. */
err root_clean(const char *dir);
/* *out_mount: a detached mount of the root. userns_fd >= 0: privileged. Changes the mount namespace
   of the caller, which must be its own, and the working directory. */
err root_build(const struct root_plan *plan, int userns_fd, int *out_mount);
/* Makes `mount` the root of this mount namespace, with /usr, /proc, /dev, /sys, /tmp; the host's
   files are out of reach afterwards. The working directory is /. */
err root_enter(const struct root_plan *plan, int mount);

#endif
