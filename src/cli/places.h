/* Where the parts of this installation lie: the runtime (Node, Pi, rg) and the host's JavaScript.
   Found beside the program unless --runtime and --harness name them. */
#ifndef CLI_PLACES_H
#define CLI_PLACES_H

#include <limits.h>

#include "base/err.h"

struct places {
    char runtime[PATH_MAX], harness[PATH_MAX]; /* real, absolute */
};

/* `runtime`, `harness`: as given, or NULL. E_NOT_FOUND names what is missing and how to get it. */
err places_find(const char *runtime, const char *harness, struct places *out);

#endif
