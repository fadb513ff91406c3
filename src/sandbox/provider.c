#include "sandbox/provider.h"

#include "base/buf.h"
#include "sandbox/linux/linux.h"

#include <string.h>

/* Best first: `auto` takes the first usable one. */
const struct sandbox_provider *const sandbox_providers[] = {&sandbox_linux, NULL};

const struct sandbox_provider *sandbox_provider_named(const char *name)
{
    for (size_t i = 0; sandbox_providers[i]; i++) {
        if (strcmp(sandbox_providers[i]->name, name) == 0)
            return sandbox_providers[i];
    }
    return NULL;
}

void sandbox_providers_warm_up(void)
{
    for (size_t i = 0; sandbox_providers[i]; i++) {
        if (sandbox_providers[i]->warm_up)
            sandbox_providers[i]->warm_up();
    }
}

static err choose_named(const char *name, const struct sandbox_provider **out)
{
    const struct sandbox_provider *p = sandbox_provider_named(name);
    if (!p) {
        AUTO_BUF known = {0};
        for (size_t i = 0; sandbox_providers[i]; i++)
            buf_printf(&known, "%s%s", i ? ", " : "", sandbox_providers[i]->name);
        return fail(E_INVALID, "there is no sandbox provider \"%.40s\"; this build has: auto, %s",
                    name, known.p);
    }
    struct sandbox_caps caps = {0};
    p->probe(&caps);
    if (!caps.usable)
        return fail(E_UNAVAILABLE, "the sandbox provider %s cannot run here: %s", name,
                    caps.reason);
    *out = p;
    return 0;
}

static err choose_best(const struct sandbox_provider **out)
{
    AUTO_BUF reasons = {0};
    for (size_t i = 0; sandbox_providers[i]; i++) {
        struct sandbox_caps caps = {0};
        sandbox_providers[i]->probe(&caps);
        if (caps.usable) {
            *out = sandbox_providers[i];
            return 0;
        }
        buf_printf(&reasons, "%s%s: %s", i ? "; " : "", sandbox_providers[i]->name, caps.reason);
    }
    return fail(E_UNAVAILABLE, "no sandbox provider can run here. %s", reasons.p);
}

err sandbox_provider_choose(const char *wanted, const struct sandbox_provider **out)
{
    return strcmp(wanted, "auto") == 0 ? choose_best(out) : choose_named(wanted, out);
}
