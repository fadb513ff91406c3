#include "sandbox/linux/baseline.h"

#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mount.h>

err baseline_open(const struct root_plan *plan, int userns_fd, int *out_fd)
{
    const char *path = plan->image ? plan->image : plan->skeleton;
    AUTO_FD tree = open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (tree < 0)
        return fail_errno("clone the mount of %s", path);
    struct mount_attr walls = {.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID |
                                           MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC};
    if (mount_setattr(tree, "", AT_EMPTY_PATH, &walls, sizeof walls) < 0)
        return fail_errno("restrict the mount of %s", path);
    struct mount_attr ids = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)userns_fd};
    /* Where ids cannot be mapped no overlay can be either (root.c): then it shows nobody's files,
       which is enough to compare what everyone may read. */
    if (userns_fd >= 0 && mount_setattr(tree, "", AT_EMPTY_PATH, &ids, sizeof ids) < 0 &&
        errno != EINVAL)
        return fail_errno("map the ids of %s", path);
    *out_fd = fd_take(&tree);
    return 0;
}
