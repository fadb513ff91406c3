/* Options about sandboxes that serve and the sandbox commands share. */
#ifndef CLI_SANDBOX_OPTIONS_H
#define CLI_SANDBOX_OPTIONS_H

#include <stdint.h>

#include "base/err.h"
#include "cli/command.h"

#define OPTION_SANDBOX_MEMORY                                                                      \
    {                                                                                              \
        "sandbox-memory", "MIB", NULL,                                                             \
            "what all running sandboxes may have together; default: 7/8 of the machine's memory"   \
    }

/* R51, in MiB. */
err sandbox_memory_option(const struct invocation *call, uint64_t *out);

#endif
