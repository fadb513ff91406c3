/* Which tools an agent's config gives to the model (§11.1, §22). */
#ifndef SESSION_TOOLSET_H
#define SESSION_TOOLSET_H

#include "base/json.h"

/* New array of the names enabled by `tools` (an agent's tools config, may be NULL): all by default,
   less those disabled or always_deny. */
json_t *toolset_names(const json_t *tools);

#endif
