/* Images made for environments (§6.2, R32), by a maker:
   - `packages` are installed into the image in a sandbox of its own, whose only way out is a
     listening socket that the broker serves; what that wrote becomes a layer of a derived image
     baked:<key>. The key is made from the image's digest and the canonical list, so equal wishes
     share one image, and it is built again when the image changes.
   - dir:, tar: and oci: paths beneath those an admin allowed are imported as local:<key>; the key
     is made from the path, size and time of change.
   Nothing falls back: without the image there is no sandbox. One thread. */
#ifndef SANDBOX_BAKE_H
#define SANDBOX_BAKE_H

#include "base/err.h"
#include "sandbox/provider.h"

#define BAKE_TIMEOUT_MS 1500000 /* 25 min, of each kind of packages, and of an import */
#define BAKE_PROXY_PORT 3128    /* in the sandbox, on 127.0.0.1 */

struct bake_request {
    const struct sandbox_provider *provider;
    struct sandbox_spec spec; /* of the sandbox it is built in; image: what it starts from */
    struct sandbox_place place;
    const char *packages;     /* canonical (packages.h); "" for none */
    const char *allow_images; /* see image_path_allowed */
    /* Hands the listening socket to whoever serves it as a proxy; `lifeline` hangs up when the
       sandbox ends. Borrowed both. */
    err (*open_way_out)(void *arg, int listen_fd, int lifeline);
    void *arg;
};

/* Makes the image unless the store has it; out_image is its name there. E_UNPROCESSABLE (code
   packages_failed) with the package manager's words when it fails. */
err sandbox_bake(const struct bake_request *r, char out_image[SANDBOX_IMAGE_MAX]);

/* The line of a package manager's output that says what went wrong, fit for a message (exported for
   tests). */
void bake_reason(const char *output, char *out, size_t cap);

#endif
