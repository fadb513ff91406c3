#include "sandbox/linux/volumes.h"

#include "base/fd.h"
#include "base/tree.h"
#include "base/walk.h"
#include "sandbox/linux/userns.h"
#include "sandbox/state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define OPEN_FOLDER (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
/* What a volume that is being removed is called, so that no lock is held meanwhile. */
#define REMOVED "removed-"

/* E_NOT_FOUND when it is not there. */
static err open_tenant(const char *volumes, const char *tenant, bool make, int *out_fd)
{
    AUTO_FD all = open(volumes, OPEN_FOLDER);
    if (all < 0)
        return fail_errno("open the folder of volumes %s", volumes);
    if (make && mkdirat(all, tenant, 0700) < 0 && errno != EEXIST)
        return fail_errno("make the folder of the tenant's volumes");
    AUTO_FD fd = openat(all, tenant, OPEN_FOLDER);
    if (fd < 0)
        return errno == ENOENT ? fail(E_NOT_FOUND, "the tenant has no volumes")
                               : fail_errno("open the folder of the tenant's volumes");
    *out_fd = fd_take(&fd);
    return 0;
}

/* Until the descriptor is closed. Whoever holds it only renames and makes folders. */
static err lock_tenant(int fd)
{
    while (flock(fd, LOCK_EX) < 0) {
        if (errno != EINTR)
            return fail_errno("lock the folder of the tenant's volumes");
    }
    return 0;
}

/* Whatever its sandboxes made of its owner and mode since, they find it as they left it. As root:
   one that is still root's is one whose maker died before it could give it away. */
static err make_volume(int tenant, const char *volume)
{
    struct stat st;
    bool made = mkdirat(tenant, volume, 0755) == 0;
    if (!made && errno != EEXIST)
        return fail_errno("make the volume %s", volume);
    if (fstatat(tenant, volume, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode))
        return fail(E_IO, "the volume %s is not a folder", volume);
    bool roots = userns_is_privileged() && st.st_uid == 0;
    if (!made && !roots)
        return 0;
    AUTO_FD fd = openat(tenant, volume, OPEN_FOLDER);
    if (fd < 0 || fchmod(fd, 0755) < 0) /* whatever the umask is */
        return fail_errno("set the mode of the volume %s", volume);
    if (roots && fchown(fd, VOLUME_UID_BASE, VOLUME_UID_BASE) < 0)
        return fail_errno("give the volume %s to its sandboxes", volume);
    return 0;
}

err volumes_claim(const struct sandbox_spec *spec, const struct sandbox_place *place)
{
    AUTO_FD tenant = -1;
    struct sandbox_spec made;
    for (uint32_t i = 0; i < spec->mount_count; i++) {
        if (spec->mounts[i].type != MOUNT_VOLUME)
            continue;
        if (tenant < 0) {
            TRY(open_tenant(place->volumes, spec->tenant, true, &tenant));
            TRY(lock_tenant(tenant));
        }
        TRY(make_volume(tenant, spec->mounts[i].source));
    }
    TRY(state_read_spec(place->dir, &made));
    return state_mounts_equal(&made, spec) ? 0 : state_write_spec(place->dir, spec);
}

err volumes_open(const char *volumes, const char *tenant, const char *volume, int *out_fd)
{
    AUTO_FD folder = -1;
    TRY(open_tenant(volumes, tenant, false, &folder));
    int fd = openat(folder, volume, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return fail_errno("open the volume %s", volume);
    *out_fd = fd;
    return 0;
}

/* ---- measuring ---- */

static err measure(void *arg, uint64_t *out)
{
    return walk_measure(arg, out);
}

err volumes_measure(const char *tenant, const char *volume, const struct sandbox_place *place,
                    uint64_t *out_bytes)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s/%s", place->volumes, tenant, volume) >= (int)sizeof path)
        return fail(E_INVALID, "the path of the data directory is too long");
    return userns_call(measure, path, out_bytes);
}

/* ---- removing ---- */

static bool names_volume(const struct sandbox_spec *spec, const char *volume)
{
    for (uint32_t i = 0; i < spec->mount_count; i++) {
        if (spec->mounts[i].type == MOUNT_VOLUME && strcmp(spec->mounts[i].source, volume) == 0)
            return true;
    }
    return false;
}

/* Read anew each time: what the folders say is the truth, also of sandboxes whose session is gone.
 */
static err refuse_claimed(const char *sandboxes, const char *volume)
{
    DIR *d = opendir(sandboxes);
    err e = 0;
    if (!d)
        return fail_errno("open %s", sandboxes);
    for (struct dirent *entry; !e && (entry = readdir(d));) {
        char dir[PATH_MAX];
        struct sandbox_spec spec;
        if (entry->d_name[0] == '.' || entry->d_type == DT_REG ||
            snprintf(dir, sizeof dir, "%s/%s", sandboxes, entry->d_name) >= (int)sizeof dir)
            continue;
        err unread = state_read_spec(dir, &spec);
        if (unread && unread != E_NOT_FOUND)
            e = unread; /* it may be the one that has it */
        else if (!unread && names_volume(&spec, volume))
            e = fail(E_CONFLICT, "the sandbox %s was started with the volume", spec.id);
    }
    closedir(d);
    return e;
}

struct removal {
    int tenant;
    char name[sizeof REMOVED + ID_MAX];
};

static err remove_files(void *arg, uint64_t *out)
{
    const struct removal *r = arg;
    (void)out;
    return tree_remove_at(r->tenant, r->name);
}

static err set_aside(int tenant, const char *volume, const char *sandboxes, const char *name)
{
    TRY(lock_tenant(tenant));
    TRY(refuse_claimed(sandboxes, volume));
    if (renameat(tenant, volume, tenant, name) < 0 && errno != ENOENT)
        return fail_errno("set the volume %s aside", volume);
    return flock(tenant, LOCK_UN) < 0 ? fail_errno("unlock the tenant's volumes") : 0;
}

err volumes_remove(const char *tenant, const char *volume, const struct sandbox_place *place)
{
    AUTO_FD folder = -1;
    struct removal r;
    struct stat st;
    uint64_t none;
    err e = open_tenant(place->volumes, tenant, false, &folder);
    if (e)
        return e == E_NOT_FOUND ? 0 : e;
    snprintf(r.name, sizeof r.name, REMOVED "%s", volume);
    TRY(set_aside(folder, volume, place->sandboxes, r.name));
    if (fstatat(folder, r.name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : fail_errno("look at %s", r.name);
    r.tenant = folder;
    return userns_call(remove_files, &r, &none);
}
