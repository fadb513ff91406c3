/* Folders of an environment that are mounted into its sandboxes and outlive them (§6.2, R48):

   - a volume: {type "volume", name, target, readOnly}. One folder per tenant and name, made when a
     sandbox first needs it, shared by all sandboxes of the tenant that name it, also at the same
     time; it stays until it is removed (a row and an id `vol_…`: session/volumes.h).
   - a bind: {type "bind", source, target, readOnly}. A folder of this machine beneath one that the
     operator listed (serve --allow-mount); read-only unless the environment and the list both say
     otherwise.

   Here: what a mount may say, and what the list allows, as text. What is really there is looked at
   when a sandbox starts, by descriptor (sandbox/linux/mounts.h). Pure functions, any thread. */
#ifndef SANDBOX_MOUNTS_H
#define SANDBOX_MOUNTS_H

#include "base/err.h"
#include "base/json.h"

#include <stdbool.h>
#include <stdint.h>

#define MOUNTS_MAX 8       /* of one sandbox */
#define MOUNT_PATH_MAX 256 /* of a source or target, with its NUL */
#define MOUNT_NAME_MAX 64  /* of a volume, with its NUL */
#define MOUNT_VOLUME_ID "vol"
#define MOUNT_NOT_ALLOWED "mount_not_allowed" /* code words of E_INVALID */
#define MOUNTS_NOT_SUPPORTED "mounts_not_supported"

enum mount_type {
    MOUNT_VOLUME,
    MOUNT_BIND
};

/* Fixed: it crosses from control to the parent as it stands. */
struct sandbox_mount {
    uint32_t type; /* enum mount_type */
    bool read_only;
    char source[MOUNT_PATH_MAX]; /* of a bind: the folder; of a volume: its id (in an environment
                                    its name) */
    char target[MOUNT_PATH_MAX]; /* in the sandbox */
};

/* E_INVALID says what is wrong with it. */
err mount_check_name(struct str name);
err mount_check_source(struct str source);
/* Absolute and clean, and nothing that a sandbox needs itself or that would hide it: not the root,
   system folders, /tmp, /.pi, the working directory, home, /mnt/session, or a parent of one. */
err mount_check_target(struct str target);
/* E_INVALID unless neither lies within the other. */
err mount_check_apart(struct str target, struct str other);

/* `mounts` of an environment's definition; names as sources of volumes. E_INVALID for what is not
   such a list: it was checked when it was stored. *out_n ≤ MOUNTS_MAX. */
err mounts_read(const json_t *list, struct sandbox_mount out[MOUNTS_MAX], uint32_t *out_n);
/* Every field of what crosses to the parent: E_INVALID unless it is what control may send. */
err mounts_check(const struct sandbox_mount *mounts, uint32_t n);

/* One entry of --allow-mount: DIR or DIR:ro, several separated by commas. */
struct mount_allowed {
    struct str dir; /* clean, absolute */
    bool read_only; /* nothing beneath may be mounted writable */
};
/* False at the end of the list. An entry that is none has dir.n 0. */
bool mount_allowed_next(struct str *rest, struct mount_allowed *out);
/* The entry that `source` (clean) lies within. Of several the longest counts. */
bool mount_allowed_find(struct str source, const char *allowed, struct mount_allowed *out);
/* An entry that may be mounted read-only only and lies within `source`, which therefore may be,
   too. */
bool mount_allowed_fixed_within(struct str source, const char *allowed, struct mount_allowed *out);

#endif
