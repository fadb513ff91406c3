/* The image `host` (R32): the host's /usr, read-only, around a small generated root. Nothing else
   of the host is in it: no /etc, /home, /root, /var or /opt. The generated root ("skeleton") is
   made once, kept in DATA/images/host/<key>/, and shared by all sandboxes as the lower layer of
   their overlay; the key changes when something it was made from changes (a host upgrade, a new
   build). */
#ifndef SANDBOX_LINUX_IMAGE_HOST_H
#define SANDBOX_LINUX_IMAGE_HOST_H

#include "base/err.h"

#include <limits.h>
#include <stdint.h>
#include <sys/types.h>

#define IMAGE_PATH_MAX 512

/* What the sandboxes of one build and one host share. */
struct image_host {
    char root[IMAGE_PATH_MAX];  /* the skeleton */
    char tools[IMAGE_PATH_MAX]; /* of it only /.pi and the folders that are mounted on: a layer over
                                   the root file system of other images */
};

/* Makes the skeleton unless it is there, marks it as used by `id`. `images` is DATA/images,
   `runtime` holds rg. */
err image_host_use(const char *images, const char *runtime, const char *id, struct image_host *out);
/* The sandbox `id` runs no more. */
err image_host_release(const char *images, const char *id);
/* Builds a skeleton straight into the empty folder `dir`, everything owned by `owner`. Without a
   runtime (NULL) it gets no tools. */
err image_host_build(const char *dir, const char *runtime, uid_t owner);

/* Top-level names that belong to /usr: symbolic links where the host has merged them, else folders
   that are mounted beside /usr. NULL at the end. */
extern const char *const image_host_merged[];

#endif
