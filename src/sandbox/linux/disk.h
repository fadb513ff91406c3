/* The disk limit of a sandbox (diskMiB): its writable layer lies in an ext4 file system of that
   size, in a sparse file mounted through a loop device. Works on any file system of the host, but
   needs root, loop devices and mkfs.ext4. The loop device goes when its last mount does, so nothing
   is left behind whoever dies; until then it holds a lock on the file, so that no file is mounted
   by two. */
#ifndef SANDBOX_LINUX_DISK_H
#define SANDBOX_LINUX_DISK_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define DISK_MIN_MIB 16 /* below, a file system is mostly its own bookkeeping */

/* E_UNAVAILABLE with what is missing and how to get it. Changes nothing. */
err disk_probe(void);
/* Makes the file and the file system in it, unless it is there. */
err disk_make(const char *image, uint32_t mib);
/* *out_mount: a detached mount. Waits a little for a sandbox that is just ending. */
err disk_mount(const char *image, int *out_mount);
/* The same of one that is mounted by a running sandbox; read-only. */
err disk_mount_beside(const char *image, int *out_mount);

#endif
