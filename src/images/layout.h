/* An image in a folder: an OCI image layout, or an unpacked archive of docker save. Chooses the
   manifest, checks every blob against its digest and size, and unpacks the layers in order. Nothing
   in the folder is trusted: names are opened beneath it only, and only regular files. */
#ifndef IMAGES_LAYOUT_H
#define IMAGES_LAYOUT_H

#include "base/err.h"
#include "base/json.h"
#include "images/name.h"
#include "images/unpack.h"

/* Told before each layer is read (1 of n …) and after each entry (layer 0): an error ends it. */
typedef err (*layout_tick)(void *arg, size_t layer, size_t layer_count);

struct layout_request {
    int dir;         /* borrowed */
    const char *tag; /* NULL: the only one there is */
    const struct image_limits *limits;
    struct unpack *unpack;
    layout_tick tick;
    void *arg;
};

struct layout_image {
    char digest[IMAGE_DIGEST_MAX + 1]; /* of the manifest (OCI) or of the configuration (docker) */
    char architecture[32];
    size_t layer_count;
    json_t *config; /* as image_meta has it; the caller's */
};

err layout_unpack(const struct layout_request *r, struct layout_image *out);

#endif
