#include "cli/places.h"

#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* The folder of the program itself. */
static err program_folder(char out[PATH_MAX])
{
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n < 0)
        return fail_errno("read /proc/self/exe");
    path[n] = 0;
    snprintf(out, PATH_MAX, "%s", dirname(path));
    return 0;
}

/* The first of base/tries[i] that has `witness` in it. */
static err find(const char *base, const char *const *tries, const char *witness, char out[PATH_MAX])
{
    for (; *tries; tries++) {
        char folder[PATH_MAX], path[PATH_MAX];
        if (snprintf(folder, sizeof folder, "%s/%s", base, *tries) >= (int)sizeof folder ||
            snprintf(path, sizeof path, "%s/%s", folder, witness) >= (int)sizeof path)
            continue;
        if (access(path, R_OK) == 0 && realpath(folder, out))
            return 0;
    }
    return fail(E_NOT_FOUND, "no %s was found beside the program (%s)", witness, base);
}

err places_find(const char *runtime, const char *harness, struct places *out)
{
    /* As built: build/pi-managed, build/<sanitizer>/pi-managed. As installed: bin/ and
     * lib/pi-managed/. */
    static const char *const here[] = {".", NULL};
    static const char *const runtimes[] = {"runtime", "../runtime", "../lib/pi-managed/runtime",
                                           NULL};
    static const char *const harnesses[] = {"../harness", "../../harness",
                                            "../lib/pi-managed/harness", NULL};
    char base[PATH_MAX];
    struct places found;
    TRY(program_folder(base));
    if (find(runtime ? runtime : base, runtime ? here : runtimes, "node/bin/node", found.runtime))
        return fail(E_NOT_FOUND,
                    "the runtime folder with Node and Pi is missing (%s). Run: make setup, "
                    "or name it with --runtime",
                    err_text());
    if (find(harness ? harness : base, harness ? here : harnesses, "host.mjs", found.harness))
        return fail(E_NOT_FOUND,
                    "the folder of the Pi host is missing (%s). Name it with --harness",
                    err_text());
    *out = found;
    return 0;
}
