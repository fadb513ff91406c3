/* Names of images in the store (R32): NAME[:TAG]. A name becomes a folder and a tag a file, so both
   are narrow: NAME is lower-case letters and digits with single . _ - between them, TAG as other
   registries have it. `host` is no image of the store. Pure functions, any thread. */
#ifndef IMAGES_NAME_H
#define IMAGES_NAME_H

#include "base/err.h"
#include "base/str.h"

#define IMAGE_NAME_MAX 96
#define IMAGE_TAG_MAX 64
#define IMAGE_DIGEST_MAX 64 /* sha256 in lower-case hex */

struct image_name {
    char name[IMAGE_NAME_MAX + 1];
    char tag[IMAGE_TAG_MAX + 1]; /* "latest" when none was given */
};

/* E_INVALID says what is wrong with it. */
err image_name_parse(const char *ref, struct image_name *out);
/* E_INVALID unless `image` is what an environment may name: host, or a name of the store.
   E_FORBIDDEN for dir:, tar: and oci: paths, which an admin would have to allow. */
err image_name_check(const char *image);
/* Images that the service makes for environments (sandbox/bake.h). */
#define IMAGE_NAME_BAKED "baked" /* with packages */
#define IMAGE_NAME_LOCAL "local" /* imported from an allowed path */
bool image_is_derived(const struct image_name *n);

/* True for dir:, tar: and oci: with an absolute path without . and .. that is, or lies beneath, one
   of the comma-separated absolute paths of `allowed` (--allow-image). */
bool image_path_allowed(const char *image, const char *allowed);
bool image_digest_valid(struct str hex);

#define IMAGE_SHOWN_MAX 160
/* What an archive calls something, fit for a message: cut, control characters and bytes that are no
   UTF-8 replaced. Returns out. */
const char *image_shown(const char *raw, char out[IMAGE_SHOWN_MAX]);

#endif
