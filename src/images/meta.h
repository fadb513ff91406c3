/* meta.json of an image in the store: what it is, where it came from, and what its maker wanted for
   the programs in it. Pure file access; any thread. */
#ifndef IMAGES_META_H
#define IMAGES_META_H

#include <stdint.h>

#include "base/err.h"
#include "base/json.h"
#include "images/name.h"
#include "images/unpack.h"

struct image_meta {
    const char *name, *digest, *source, *architecture;
    struct image_counts counts;
    const json_t *config; /* {env?: ["A=b"], user?, workingDir?} of the source, or NULL; borrowed */
};

/* Into `folder`/meta.json, with the time of now. */
err image_meta_write(const char *folder, const struct image_meta *meta);
/* The object as written; new reference. E_NOT_FOUND, or E_INVALID when it is damaged. */
err image_meta_read(const char *folder, json_t **out);

#define IMAGE_ENV_MAX 256 /* variables */

/* NULL-ended; the strings are `meta`'s. What is no string is left out. */
void image_meta_env(const json_t *meta, const char *out[IMAGE_ENV_MAX + 1]);

#endif
