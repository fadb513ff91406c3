/* Removing a folder that hostile programs filled: any depth, any names, any modes, links never
   followed, nothing outside it touched. Nobody else may be writing to it. */
#ifndef BASE_TREE_H
#define BASE_TREE_H

#include "base/err.h"

/* OK when `path` does not exist. Stays on the file system of `path`'s entries as they are: nothing
   may be mounted below it. */
err tree_remove(const char *path);
/* The same for the entry `name` (one part, no slash) of the folder `dir`, whatever it is. */
err tree_remove_at(int dir, const char *name);

#endif
