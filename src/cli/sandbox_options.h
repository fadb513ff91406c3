/* Options about sandboxes that serve and the sandbox commands share. */
#ifndef CLI_SANDBOX_OPTIONS_H
#define CLI_SANDBOX_OPTIONS_H

#include <stdint.h>

#include "base/err.h"
#include "cli/command.h"
#include "sandbox/provider.h"

#define OPTION_SANDBOX_MEMORY                                                                      \
    {                                                                                              \
        "sandbox-memory", "MIB", NULL,                                                             \
            "what all running sandboxes may have together; default: 7/8 of the machine's memory"   \
    }

#define OPTION_ALLOW_UNENFORCED                                                                    \
    {                                                                                              \
        "allow-unenforced-limits", NULL, NULL,                                                     \
            "accept limits that nothing here can enforce; status and sessions say so"              \
    }

/* Of one sandbox. */
#define OPTIONS_SANDBOX_LIMITS                                                                     \
    {"memory", "MIB", NULL, "most memory it may use; default: 512"},                               \
        {"cpus", "N", NULL, "most processors it may use, 0.5 for half of one"},                    \
        {"pids", "N", NULL, "most processes and threads it may have; default: 256"},               \
    {                                                                                              \
        "disk", "MIB", NULL, "most disk space its files may take"                                  \
    }

/* Sets the four limits of the spec; what is not given becomes 0. */
err sandbox_limit_options(const struct invocation *call, struct sandbox_spec *spec);
/* R51, in MiB. */
err sandbox_memory_option(const struct invocation *call, uint64_t *out);

#endif
