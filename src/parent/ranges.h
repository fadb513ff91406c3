/* Ranges of user ids, as root: each sandbox has 65536 of its own, so that what runs in one is a
   stranger to all others. DATA/sandboxes/<id>/uid-base says which. Any process that holds the lock
   of DATA, shared or not. */
#ifndef PARENT_RANGES_H
#define PARENT_RANGES_H

#include <stdint.h>

#include "base/err.h"

/* E_NOT_FOUND when none was chosen yet. */
err range_read(const char *data_dir, const char *id, uint32_t *out);
/* The first that no sandbox of `data_dir` has. The sandbox's folder exists. */
err range_choose(const char *data_dir, const char *id, uint32_t *out);

#endif
