/* Copies a folder of this machine into an image: files, links and fifos of its own file system
   (what is mounted in it comes as empty folders), nothing followed. In the order of names, so that
   equal trees have equal digests. Several names of one file become files of their own. */
#ifndef IMAGES_COPY_H
#define IMAGES_COPY_H

#include "base/err.h"
#include "images/name.h"

struct unpack;

/* Called after each entry; an error ends the copying. */
typedef err (*copy_tick)(void *arg);

/* `path`: the folder. `store`: a descriptor of the image store, which must not lie in it. */
err copy_folder(const char *path, int store, struct unpack *u, copy_tick tick, void *arg,
                char out_digest[IMAGE_DIGEST_MAX + 1]);

#endif
