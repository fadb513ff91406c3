/* Writes the entries of an image beneath one folder, whatever they say: a hostile archive can name
   nothing outside it. Names with .. or a leading / are refused; links are kept as they are and are
   never followed out of the folder (openat2 with RESOLVE_IN_ROOT: a name that goes through a link
   of an earlier layer, lib/x where lib → usr/lib, ends where the running system would find it).
   Later entries replace earlier ones. Devices and sockets are skipped and counted: a sandbox brings
   its own /dev, its file systems are mounted nodev. Extended attributes are never set (overlayfs
   would obey some of them).

   As root owners are kept (0 to 65535, others are refused), as a plain user all is the user's own
   and folders keep u=rwx. One thread; nobody else writes to the folder meanwhile. */
#ifndef IMAGES_UNPACK_H
#define IMAGES_UNPACK_H

#include "base/err.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

struct image_limits {
    uint64_t entries;    /* in all layers together, also those that are replaced later */
    uint64_t bytes;      /* of file content, likewise */
    uint32_t path_bytes; /* of one name; at most PATH_MAX - 1 */
};

extern const struct image_limits image_limits_default;

struct image_counts {
    uint64_t entries, bytes;
    uint64_t skipped; /* devices and sockets */
};

struct unpack_entry {
    const char *path; /* as the source has it */
    mode_t mode;      /* type and permissions */
    int64_t uid, gid;
    struct timespec mtime;
    const char *target; /* of a symbolic or hard link */
    bool hard_link;     /* `target` names an entry from before; mode is not looked at */
    int64_t size;       /* of a regular file, announced */
};

struct unpack;

/* `root` is an empty folder of ours; `times` a descriptor of an empty file for what must wait until
   the end (both are borrowed). */
struct unpack *unpack_new(int root, int times, const struct image_limits *limits);
void unpack_free(struct unpack *u); /* NULL-safe */

/* For a regular file *out_fd is open for unpack_write, until unpack_end_file; else it is -1. */
err unpack_entry(struct unpack *u, const struct unpack_entry *e, int *out_fd);
err unpack_write(struct unpack *u, int fd, const void *p, size_t n, int64_t offset);
/* Sets size, owner, mode and time; closes. */
err unpack_end_file(struct unpack *u, const struct unpack_entry *e, int *fd);

/* The whiteouts of OCI layers: if `path` is one, it is carried out and *out_was says so.
   Call for all entries of a layer before any of them is unpacked: whiteouts hide what is beneath,
   never what came with them. */
err unpack_whiteout(struct unpack *u, const char *path, bool *out_was);
/* True for names that only whiteouts have: not to be unpacked from a layer. */
bool unpack_is_whiteout(const char *path);

/* Folders get their times. Once, at the end. */
err unpack_finish(struct unpack *u);
void unpack_counts(const struct unpack *u, struct image_counts *out);

/* "./a//b/" → "a/b", the top → "". E_INVALID names what is wrong (exported for tests and fuzzing).
 */
err unpack_clean_path(const char *raw, uint32_t path_bytes, char out[PATH_MAX]);

#endif
