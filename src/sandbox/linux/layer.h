/* Copies the writable layer of one sandbox for another: files with owners, modes, times, holes,
   names that share a file, extended attributes, and what the overlay keeps there to hide files of
   the image. Nothing may change in either meanwhile. In a maker. */
#ifndef SANDBOX_LINUX_LAYER_H
#define SANDBOX_LINUX_LAYER_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct layer {
    const char *dir;   /* the sandbox's folder */
    uint32_t uid_base; /* of its ids, as root */
    bool mounted;      /* it runs: its disk is mounted already */
    bool on_disk;      /* there is <dir>/disk.img */
};

/* Where the layer is, beside the record of the sandbox. */
#define LAYER_FOLDER "fs"
#define LAYER_DISK "disk.img"

/* `to` has no files yet. On disk when this returns. What is half made after an error is to be
   removed with the folder. */
err layer_copy(const struct layer *from, const struct layer *to);

#endif
