/* Puts files from a stranger's archive into a folder of the person: never outside of it, never
   through a link, whatever is there and whatever the archive says; and over nothing that is there
   unless told to. Set-id bits are dropped, owners are not kept. One thread. */
#ifndef CLI_PLACE_H
#define CLI_PLACE_H

#include "base/err.h"
#include "images/unpack.h"

#include <stdbool.h>

struct place {
    int folder; /* open; borrowed */
    bool replace;
    uint64_t files, links, left_out;
};

/* What is in the way of an entry: E_CONFLICT says what. `path` is clean (unpack_clean_path). */
err place_check(const struct place *p, const char *path, const struct unpack_entry *entry);
/* A folder is made or found; a link is made (one that points out of the folder is left out, and
 *out_left says so). For a file *out_fd is open under a name of its own. */
err place_begin(struct place *p, const char *path, const struct unpack_entry *entry, int *out_fd,
                bool *out_left);
/* Gives the file its mode, time and name. */
err place_end(struct place *p, const char *path, const struct unpack_entry *entry, int *take_fd);

#endif
