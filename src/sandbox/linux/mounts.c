#include "sandbox/linux/mounts.h"

#include "base/fd.h"
#include "sandbox/linux/userns.h"
#include "sandbox/linux/volumes.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int open_resolved(int dir, const char *path, uint64_t resolve)
{
    struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = resolve};
    return (int)syscall(SYS_openat2, dir, path, &how, sizeof how);
}

/* ---- what is mounted ---- */

/* One text for all reasons: whoever asks learns nothing of folders that are not for him. */
static err not_allowed(const char *source)
{
    return fail_as(E_INVALID, MOUNT_NOT_ALLOWED,
                   "%.96s cannot be mounted: it must be a folder that is there and lies, links "
                   "followed, within one that the operator allows (serve --allow-mount)",
                   source);
}

/* What lies within the source is as writable as the source. */
static err check_writable(const struct sandbox_mount *m, struct str real,
                          const struct mount_allowed *entry, const char *allowed)
{
    struct mount_allowed fixed;
    if (m->read_only)
        return 0;
    if (entry->read_only)
        return fail_as(E_INVALID, MOUNT_NOT_ALLOWED,
                       "%s can be mounted read-only only: so the operator allows it", m->source);
    if (mount_allowed_fixed_within(real, allowed, &fixed))
        return fail_as(E_INVALID, MOUNT_NOT_ALLOWED,
                       "%s can be mounted read-only only: so the operator allows %.*s, which lies "
                       "within it",
                       m->source, STR_ARG(fixed.dir));
    return 0;
}

/* Tells nothing of what is outside of what is allowed; what it opens lies within. */
static err open_bind(const struct sandbox_mount *m, const char *allowed, int *out_fd)
{
    char real[PATH_MAX], folder[MOUNT_PATH_MAX];
    struct mount_allowed entry;
    if (!mount_allowed_find(str_of(m->source), allowed, &entry) || !realpath(m->source, real) ||
        !mount_allowed_find(str_of(real), allowed, &entry))
        return not_allowed(m->source);
    TRY(check_writable(m, str_of(real), &entry, allowed));
    snprintf(folder, sizeof folder, "%.*s", STR_ARG(entry.dir));
    AUTO_FD root = open_resolved(AT_FDCWD, folder, RESOLVE_NO_SYMLINKS);
    const char *rest = real + entry.dir.n;
    int fd = root < 0 ? -1
                      : open_resolved(root, *rest ? rest + 1 : ".",
                                      RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
    if (fd < 0)
        return not_allowed(m->source);
    *out_fd = fd;
    return 0;
}

static err open_source(const struct mounts_plan *plan, const struct sandbox_mount *m, int *out_fd)
{
    return m->type == MOUNT_BIND ? open_bind(m, plan->allow_mount ? plan->allow_mount : "", out_fd)
                                 : volumes_open(plan->volumes, plan->tenant, m->source, out_fd);
}

/* ---- whose files they are ---- */

static err not_mapped(const char *what)
{
    if (errno != EINVAL && errno != EPERM)
        return fail_errno("map the ids of %s", what);
    return fail_as(E_INVALID, MOUNTS_NOT_SUPPORTED,
                   "the file system of %s cannot show its files as a sandbox's own (idmapped "
                   "mounts: ext4, xfs or btrfs on Linux 5.12 and later, outside of containers "
                   "without that right): %s",
                   what, strerror(errno));
}

static err map_ids(int mount, uint32_t uid, uint32_t gid, uint32_t base, uint32_t count,
                   const char *what)
{
    AUTO_FD ns = -1;
    TRY(userns_make(uid, gid, base, count, &ns));
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)ns};
    return mount_setattr(mount, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0 ? not_mapped(what) : 0;
}

static err map_bind(const struct sandbox_mount *m, int mount, uint32_t base)
{
    struct stat st;
    if (fstat(mount, &st) < 0)
        return fail_errno("look at %s", m->source);
    if (st.st_uid != 0 && st.st_gid != 0)
        return map_ids(mount, st.st_uid, st.st_gid, base, 1, m->source);
    if (m->read_only)
        return 0;
    return fail_as(E_INVALID, MOUNT_NOT_ALLOWED,
                   "%s belongs to root or its group and can be mounted read-only only: what is "
                   "made in it would be root's on this machine. Give it to another user",
                   m->source);
}

static err map_owners(const struct mounts_plan *plan, const struct sandbox_mount *m, int mount)
{
    if (!plan->privileged)
        return 0;
    return m->type == MOUNT_BIND ? map_bind(m, mount, plan->uid_base)
                                 : map_ids(mount, VOLUME_UID_BASE, VOLUME_UID_BASE, plan->uid_base,
                                           USERNS_IDS, "the data directory");
}

/* ---- opening ---- */

static err clone_mount(int source, const struct sandbox_mount *m, int *out_fd)
{
    AUTO_FD tree = open_tree(source, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (tree < 0 && errno == EINVAL) /* for a plain user only */
        return fail_as(E_INVALID, MOUNTS_NOT_SUPPORTED,
                       "%s has other file systems mounted beneath it: only a service that runs as "
                       "root can leave them out",
                       m->source);
    if (tree < 0)
        return fail_errno("clone the mount of %s", m->source);
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
                                          (m->read_only ? MOUNT_ATTR_RDONLY : 0)};
    if (mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0)
        return fail_errno("restrict the mount of %s", m->source);
    *out_fd = fd_take(&tree);
    return 0;
}

static err open_one(const struct mounts_plan *plan, const struct sandbox_mount *m, int *out_fd)
{
    AUTO_FD source = -1, mount = -1;
    TRY(open_source(plan, m, &source));
    TRY(clone_mount(source, m, &mount));
    TRY(map_owners(plan, m, mount));
    *out_fd = fd_take(&mount);
    return 0;
}

err mounts_open(const struct mounts_plan *plan, int out_fds[MOUNTS_MAX])
{
    int fds[MOUNTS_MAX];
    for (uint32_t i = 0; i < plan->count; i++) {
        fds[i] = -1;
        err e = open_one(plan, &plan->list[i], &fds[i]);
        for (uint32_t k = 0; e && k < i; k++)
            fd_close(&fds[k]);
        TRY(e);
    }
    for (uint32_t i = 0; i < plan->count; i++)
        out_fds[i] = fds[i];
    return 0;
}

/* ---- in the sandbox ---- */

/* Of the root's own file system, so not /proc or another mount that a link leads to. */
static int open_folder_of_root(const char *path)
{
    return open_resolved(AT_FDCWD, path, RESOLVE_NO_XDEV | RESOLVE_NO_MAGICLINKS);
}

/* `last`: a mount on a link would be one somewhere else. */
static err make_folder(const char *path, bool last)
{
    struct stat st;
    bool is_link = lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
    AUTO_FD there = open_folder_of_root(path);
    if (there >= 0 && !(last && is_link))
        return 0;
    if (unlink(path) < 0 && errno != ENOENT)
        return fail_errno("make room for a mount at %s", path);
    return mkdir(path, 0755) < 0 ? fail_errno("make %s", path) : 0;
}

static err make_folders(const char *target)
{
    char path[MOUNT_PATH_MAX];
    for (size_t n = 1;; n++) {
        n += strcspn(target + n, "/");
        memcpy(path, target, n);
        path[n] = 0;
        TRY(make_folder(path, target[n] == 0));
        if (target[n] == 0)
            return 0;
    }
}

static err attach_one(const struct sandbox_mount *m, int mount)
{
    TRY(make_folders(m->target));
    AUTO_FD at = open_folder_of_root(m->target);
    if (at < 0)
        return fail_errno("open %s", m->target);
    if (move_mount(mount, "", at, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
        return fail_errno("mount %s", m->target);
    return 0;
}

err mounts_attach(const struct mounts_plan *plan, int fds[MOUNTS_MAX])
{
    for (uint32_t i = 0; i < plan->count; i++) {
        TRY(attach_one(&plan->list[i], fds[i]));
        fd_close(&fds[i]);
    }
    return 0;
}

/* ---- before ---- */

static err check_privileged(const struct mounts_plan *plan, const struct sandbox_mount *m,
                            int source)
{
    AUTO_FD mount = -1;
    TRY(clone_mount(source, m, &mount));
    return map_owners(plan, m, mount);
}

err mounts_check_here(const struct sandbox_mount *mount, const struct sandbox_place *place)
{
    const struct mounts_plan plan = {.allow_mount = place->allow_mount,
                                     .privileged = userns_is_privileged(),
                                     .uid_base = VOLUME_UID_BASE};
    AUTO_FD source = -1;
    if (mount->type == MOUNT_BIND) {
        TRY(open_source(&plan, mount, &source));
    } else {
        source = open(place->volumes, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (source < 0)
            return fail_errno("open the folder of volumes %s", place->volumes);
    }
    return plan.privileged ? check_privileged(&plan, mount, source) : 0;
}
