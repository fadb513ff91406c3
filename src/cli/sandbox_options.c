#include "cli/sandbox_options.h"

#include <math.h>
#include <stdlib.h>

#include "base/str.h"
#include "sandbox/ledger.h"

err sandbox_memory_option(const struct invocation *call, uint64_t *out)
{
    const char *text = option_value(call, "sandbox-memory");
    if (text == NULL) {
        *out = ledger_default_capacity();
        return 0;
    }
    if (!str_to_u64(str_of(text), out) || *out == 0 || *out > UINT32_MAX)
        return fail(E_INVALID, "--sandbox-memory %.40s: give a number of MiB, 1 or more", text);
    return 0;
}

static err whole_number(const struct invocation *call, const char *name, uint32_t *out)
{
    uint64_t n = 0;
    const char *text = option_value(call, name);
    if (text && (!str_to_u64(str_of(text), &n) || n == 0 || n > UINT32_MAX))
        return fail(E_INVALID, "--%s %.40s: give a whole number, 1 or more", name, text);
    *out = (uint32_t)n;
    return 0;
}

static err cpus(const struct invocation *call, uint32_t *out)
{
    const char *text = option_value(call, "cpus");
    char *end = NULL;
    double n = text ? strtod(text, &end) : 0;
    if (text && (*end != 0 || end == text || !isfinite(n) || n < 0.01 || n > 1024))
        return fail(E_INVALID, "--cpus %.40s: give a number from 0.01 to 1024", text);
    *out = (uint32_t)(n * 1000 + 0.5);
    return 0;
}

err sandbox_limit_options(const struct invocation *call, struct sandbox_spec *spec)
{
    TRY(whole_number(call, "memory", &spec->memory_mib));
    TRY(whole_number(call, "pids", &spec->pids));
    TRY(whole_number(call, "disk", &spec->disk_mib));
    return cpus(call, &spec->cpu_milli);
}
