/* The JSON of OCI image layouts and of docker-save archives: pure functions from text to fixed
   structs, everything bounded and checked (digests, sizes, media types, paths). Any thread. */
#ifndef IMAGES_OCI_H
#define IMAGES_OCI_H

#include "base/err.h"
#include "base/str.h"
#include "images/name.h"

#include <limits.h>

#define OCI_JSON_MAX (4u << 20) /* of one index, manifest or configuration */
#define OCI_LAYERS_MAX 256
#define OCI_PATH_MAX 256

struct oci_descriptor {
    char digest[IMAGE_DIGEST_MAX + 1]; /* sha256 */
    uint64_t size;
    bool is_index;
};

struct oci_manifest {
    struct oci_descriptor config;
    struct oci_descriptor layers[OCI_LAYERS_MAX];
    size_t layer_count;
};

#define OCI_ENV_MAX 16384

struct oci_config {
    char architecture[32];
    /* What its maker wanted for the programs in it. */
    char env[OCI_ENV_MAX]; /* NAME=VALUE, NUL behind each */
    size_t env_n;          /* bytes used */
    char user[128], working_dir[256];
    char diff_ids[OCI_LAYERS_MAX][IMAGE_DIGEST_MAX + 1]; /* sha256 of each uncompressed layer */
    size_t diff_id_count;
};

struct docker_image {
    char config[OCI_PATH_MAX];
    char layers[OCI_LAYERS_MAX][OCI_PATH_MAX];
    size_t layer_count;
};

/* This machine's architecture as images name it: amd64, arm64 … */
const char *oci_architecture(void);
/* The manifest (or nested index) in an index for `tag` (NULL: any) and `architecture`. E_NOT_FOUND
   lists what there is; E_INVALID when several fit. */
err oci_choose(struct str index, const char *tag, const char *architecture,
               struct oci_descriptor *out);
/* On failure *out holds nothing of use, in these three. */
err oci_read_manifest(struct str text, struct oci_manifest *out);
err oci_read_config(struct str text, struct oci_config *out);
/* From the manifest.json of docker save; `tag` as NAME:TAG or TAG, or NULL. */
err docker_choose(struct str text, const char *tag, struct docker_image *out);

#endif
