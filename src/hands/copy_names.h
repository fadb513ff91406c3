/* The names in a folder, sorted by their bytes: what COPY_OUT walks along. One thread. */
#ifndef HANDS_COPY_NAMES_H
#define HANDS_COPY_NAMES_H

#include "base/buf.h"

#include <dirent.h>

#define COPY_NAMES_BYTES_MAX ((size_t)64 << 20) /* of one folder */

struct copy_names {
    struct buf bytes; /* the names, each with its NUL */
    struct buf order; /* uint32_t offsets into bytes */
    size_t n, at;     /* at: the current one */
    bool cut;         /* the folder had more */
};

/* Without `.` and `..`. 0 or an errno. */
int copy_names_read(struct copy_names *names, DIR *folder);
void copy_names_done(struct copy_names *names);
const char *copy_names_current(const struct copy_names *names); /* NULL behind the last */

#endif
