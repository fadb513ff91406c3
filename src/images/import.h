/* Brings an image into the store from a SOURCE:
     dir:/path            a folder, copied
     tar:/path            a tar of a root file system, plain or compressed by gzip, zstd or xz
     oci:/path[:TAG]      an OCI image layout or what docker save writes, each as a folder or as a
   tar Nothing in a source is trusted (see unpack.h, layout.h), and the image appears whole or not
   at all. Any thread; changes the locale of the calling thread meanwhile. */
#ifndef IMAGES_IMPORT_H
#define IMAGES_IMPORT_H

#include "base/err.h"
#include "images/name.h"
#include "images/unpack.h"

struct image_progress {
    size_t layer, layer_count; /* of an OCI image, from 1; 0 of 0 otherwise */
    struct image_counts counts;
};

/* Called often: now and then is up to it. An error ends the import. */
typedef err (*image_progress_fn)(void *arg, const struct image_progress *p);

struct image_import {
    const char *images; /* the store */
    const char *ref;    /* NAME[:TAG] */
    const char *source;
    const char *origin; /* what `image list` shows as its source; NULL: `source` */
    struct image_limits limits;
    image_progress_fn progress; /* may be NULL */
    void *arg;
};

struct image_imported {
    struct image_name name;
    char digest[IMAGE_DIGEST_MAX + 1];
    struct image_counts counts;
    char user[128], working_dir[256]; /* that the image names, "" if none: a sandbox uses neither */
    bool known;                       /* the store had this digest under this name */
};

/* The file or folder that a source names. */
err image_source_path(const char *source, char out[PATH_MAX]);
err image_import(const struct image_import *r, struct image_imported *out);

#endif
