#include "cli/sandbox_options.h"

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
