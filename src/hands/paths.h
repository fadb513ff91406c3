/* Paths as Pi's tools understand them, and the lock that makes writers of one file take turns. Any
 * thread. */
#ifndef HANDS_PATHS_H
#define HANDS_PATHS_H

#include "base/buf.h"
#include "base/str.h"

#include <stdbool.h>
#include <sys/types.h>

/* Absolute and lexically clean (`..` by name, as Node does): unicode blanks become spaces, a
   leading @ goes, ~ is HOME, file:// is decoded, the rest is relative to cwd. */
void path_resolve(struct str path, const char *cwd, struct buf *out);
/* The last step of it alone: `..` and `.` by name, relative to an absolute base. */
void path_clean(struct str path, const char *base, struct buf *out);
/* path_resolve, then the variants of the name that macOS makes (Pi's read), if only such a file
 * exists. */
void path_resolve_read(struct str path, const char *cwd, struct buf *out);
/* mkdir -p. 0 or an errno. */
int path_make_folders(const char *path);

/* One writer of a file at a time, whatever name it is called by (links are followed). The reference
   is for path_unlock. 0 or an errno when the path cannot be looked at. */
struct path_lock;
int path_lock(const char *path, struct path_lock **out);
void path_unlock(struct path_lock **lock);
#define AUTO_PATH_LOCK __attribute__((cleanup(path_unlock))) struct path_lock *

#endif
