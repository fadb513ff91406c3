/* A wall around an import, for a process that does nothing else: what reads hostile archives may
   write in the store only, read the source only, and has no capability it does not need. As much of
   Landlock as the kernel has; without it the import goes on, as the rules of unpack.h do not rest
   on it. There is no way back out. */
#ifndef IMAGES_WALL_H
#define IMAGES_WALL_H

#include "base/err.h"

/* The store is made if it is missing. `source` as image_import takes it. */
err image_wall_enter(const char *images, const char *source);

#endif
