/* A new root file system from an image and what a stopped sandbox wrote over it (the upper layer of
   its overlay). The image's files are shared by hard links, so that a derived image takes only the
   space of what changed; the upper layer's are moved. Nothing is followed or opened for writing.

   As root the upper layer's owners are shifted from the sandbox's ids back to 0…65535. What the
   sandbox has of its own is left out: .pi, dev, proc, sys, tmp, workspace, mnt/session. Sockets
   are, too. The layer is hostile: depth, entries and bytes are bounded. One thread; nobody else
   uses either folder meanwhile, and the upper layer is good for nothing afterwards. */
#ifndef IMAGES_MERGE_H
#define IMAGES_MERGE_H

#include "base/err.h"
#include "images/unpack.h"

struct merge_request {
    const char *base;  /* rootfs of an image, on the same file system as `out` */
    const char *upper; /* likewise */
    uint32_t uid_base; /* first id of the sandbox; not looked at as a plain user */
    struct image_limits limits;
    int out; /* an empty folder of ours; borrowed */
};

/* *out_counts: entries of all, bytes of the upper layer's files. */
err images_merge(const struct merge_request *r, struct image_counts *out_counts);

#endif
