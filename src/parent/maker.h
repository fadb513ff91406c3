/* The one-shot process that does one sandbox verb for the parent and ends. It keeps the parent's
   privilege, so it reads nothing but the validated request on descriptor 3. */
#ifndef PARENT_MAKER_H
#define PARENT_MAKER_H

#include <limits.h>

#include "parent/request.h"

/* Parent → maker, one message. The maker answers with one struct parent_message: status, text,
   status_of, volume_bytes or image; before it may come a PARENT_NOTE_EGRESS. */
struct maker_request {
    uint32_t verb; /* PARENT_SANDBOX_* but LIST, PARENT_MOUNT_CHECK, PARENT_VOLUME_*,
                      PARENT_IMAGE_PREPARE */
    char provider[32];
    struct sandbox_spec spec;
    uint32_t grace_ms;
    uid_t socket_owner;
    uint32_t uid_base;
    char dir[PATH_MAX], socket[SOCKET_PATH_MAX], runtime[PATH_MAX], images[PATH_MAX],
        sandboxes[PATH_MAX];
    char volumes[PATH_MAX], allow_mount[PARENT_TEXT_MAX * 4];
    uint64_t memory_mib; /* for all sandboxes; 0: not counted */
    char packages[PACKAGES_TEXT_MAX], allow_images[PARENT_TEXT_MAX * 4]; /* IMAGE_PREPARE */
    bool allow_unenforced;
    char from[ID_MAX], from_dir[PATH_MAX]; /* FORK */
    uint32_t from_uid_base;
};

int maker_main(void);

#endif
