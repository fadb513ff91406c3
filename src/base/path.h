/* Absolute paths as text: whether one says what it says, and which lies beneath which. Nothing is
   looked up. Pure functions, any thread. */
#ifndef BASE_PATH_H
#define BASE_PATH_H

#include "base/str.h"

/* "/" or "/a/b": no NUL, no empty, `.` or `..` part, none longer than NAME_MAX, no slash at
   the end. */
bool path_is_clean(struct str path);
/* Both clean: `path` is `folder` or lies beneath it. */
bool path_is_within(struct str path, struct str folder);

#endif
