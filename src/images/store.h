/* The image store (R32), a folder that the service's parent and an admin's commands share:

   <images>/<name>/<digest>/   0700: what is in an image (set-uid programs, say) is not for other
                               users of this machine
              rootfs/          the file system, the lower layer of sandboxes
              used/<holder>    an empty file for each sandbox made from it
              meta.json        what it is and where it came from
           <name>/tags/<tag>   the digest, one line
           .new-… .old-…       being made, being removed; flocked by who does it
           .lock               flocked while names change
           host/               not ours: see sandbox/linux/image_host.h

   An image is there whole or not at all: it is made in .new-… and renamed. What crashes leave
   behind is never listed and removed by the next import. A digest stays as long as a tag names it
   or a sandbox holds it, so a tag may move while sandboxes run. Any thread, any process. */
#ifndef IMAGES_STORE_H
#define IMAGES_STORE_H

#include "base/err.h"
#include "images/name.h"

#include <limits.h>
#include <stdint.h>

struct image {
    struct image_name name; /* tag "" when it was found by its holder */
    char digest[IMAGE_DIGEST_MAX + 1];
    char folder[PATH_MAX]; /* has meta.json (images/meta.h) */
    char rootfs[PATH_MAX];
};

/* What NAME[:TAG] is now. E_NOT_FOUND says how to get it; E_FORBIDDEN for dir:, tar: and oci:. */
err image_resolve(const char *images, const char *ref, struct image *out);
/* The same for a sandbox, which keeps this very digest until image_release. Again with the same
   holder: what it holds already, wherever the tag points by now. `holder` is an id. */
err image_hold(const char *images, const char *ref, const char *holder, struct image *out);
/* The same for a copy of the sandbox `other`: the very digest that one holds. */
err image_hold_same(const char *images, const char *ref, const char *other, const char *holder);
/* What it holds; E_NOT_FOUND if nothing. */
err image_held(const char *images, const char *ref, const char *holder, struct image *out);
/* Idempotent; OK without a store. The files go too if nothing else keeps them. */
err image_release(const char *images, const char *holder);

struct image_listed {
    struct image image;
    int64_t imported_at_ms;
    uint64_t entries, bytes, holders;
    char source[512], architecture[32];
};

typedef err (*image_list_fn)(void *arg, const struct image_listed *image);
/* Every tag of every image, by name. OK without a store. What is damaged is left out and told at
   the end. */
err image_list(const char *images, image_list_fn fn, void *arg);
/* Takes the tag away. *out_holders: sandboxes that still keep the files (0: they are gone too, or
   another tag keeps them). */
err image_remove(const char *images, const char *ref, uint64_t *out_holders);

/* For import: a folder to make an image in. */
struct image_scratch {
    int lock; /* the folder itself, flocked */
    char path[PATH_MAX];
};

/* Where it is missing; its parent must exist. */
err image_store_make(const char *images);
/* Also removes what crashes left, and makes the store. */
err image_scratch_open(const char *images, struct image_scratch *out);
/* Makes it the image `digest`, tagged; the folder holds rootfs/ and meta.json and nothing else.
   Where that digest is there already, only the tag is set and *out_known is true. */
err image_scratch_commit(const char *images, struct image_scratch *s, const struct image_name *name,
                         const char *digest, bool *out_known);
/* Removes what was not committed. Safe after commit, and on a zeroed struct with lock -1. */
void image_scratch_close(struct image_scratch *s);

#endif
