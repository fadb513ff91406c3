#include "cli/place.h"

#include "base/fd.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TEMPORARY ".pi-managed-pull.tmp"
#define BELOW (RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)

static int open_below(int folder, const char *path, uint64_t flags)
{
    struct open_how how = {.flags = flags | O_CLOEXEC, .resolve = BELOW};
    return (int)syscall(SYS_openat2, folder, path[0] ? path : ".", &how, sizeof how);
}

/* Splits into the folder and the name in it; `parent` has room for the path. */
static const char *split(const char *path, char parent[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    memcpy(parent, path, n);
    parent[n] = 0;
    return slash ? slash + 1 : path;
}

static err not_below(const char *path)
{
    if (errno == ELOOP || errno == ENOTDIR || errno == EXDEV)
        return fail(E_CONFLICT, "%.300s leads over a link or something that is no folder", path);
    return fail_errno("open %.300s", path);
}

/* Makes what is missing of the folders, one by one. */
static err open_parent(int top, const char *path, bool make, int *out)
{
    char part[PATH_MAX];
    for (const char *slash = strchr(path, '/'); slash && make; slash = strchr(slash + 1, '/')) {
        char parent[PATH_MAX];
        snprintf(part, sizeof part, "%.*s", (int)(slash - path), path);
        const char *name = split(part, parent);
        AUTO_FD at = open_below(top, parent, O_PATH | O_DIRECTORY);
        if (at < 0)
            return not_below(part);
        if (mkdirat(at, name, 0777) < 0 && errno != EEXIST)
            return fail_errno("make %.300s", part);
    }
    split(path, part);
    *out = open_below(top, part, O_PATH | O_DIRECTORY);
    return *out < 0 ? not_below(path) : 0;
}

err place_check(const struct place *p, const char *path, const struct unpack_entry *entry)
{
    char parent[PATH_MAX];
    struct stat st;
    const char *name = split(path, parent);
    AUTO_FD at = open_below(p->folder, parent, O_PATH | O_DIRECTORY);
    if (at < 0)
        return errno == ENOENT ? 0 : not_below(path);
    if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : fail_errno("look at %.300s", path);
    if (S_ISDIR(entry->mode) && S_ISDIR(st.st_mode))
        return 0;
    if (S_ISDIR(entry->mode) || S_ISDIR(st.st_mode))
        return fail(E_CONFLICT, "%.300s is there, and is %s folder", path,
                    S_ISDIR(st.st_mode) ? "a" : "no");
    return p->replace ? 0 : fail(E_CONFLICT, "%.300s is there already", path);
}

/* A link must lead to something below the folder, as far as words tell. */
static bool points_outside(const char *path, const char *target)
{
    int depth = 0;
    struct str rest = str_of(path), part;
    if (target[0] == '/' || target[0] == 0)
        return true;
    for (; str_split(&rest, '/', &part);)
        depth += rest.p != NULL; /* all but the link itself */
    for (rest = str_of(target); str_split(&rest, '/', &part);) {
        if (str_is(part, ".."))
            depth--;
        else if (part.n > 0 && !str_is(part, "."))
            depth++;
        if (depth < 0)
            return true;
    }
    return false;
}

static err give_name(int at, const char *path, const char *name, bool replace)
{
    if (renameat2(at, TEMPORARY, at, name, replace ? 0 : RENAME_NOREPLACE) == 0)
        return 0;
    int rc = errno;
    unlinkat(at, TEMPORARY, 0);
    errno = rc;
    return rc == EEXIST ? fail(E_CONFLICT, "%.300s is there already", path)
                        : fail_errno("name %.300s", path);
}

static err make_link(struct place *p, int at, const char *path, const char *name,
                     const struct unpack_entry *entry)
{
    unlinkat(at, TEMPORARY, 0); /* of one that was killed */
    if (symlinkat(entry->target, at, TEMPORARY) < 0)
        return fail_errno("make the link %.300s", path);
    TRY(give_name(at, path, name, p->replace));
    p->links++;
    return 0;
}

static err make_folder(int at, const char *path, const char *name)
{
    struct stat st;
    if (mkdirat(at, name, 0777) == 0)
        return 0;
    if (errno == EEXIST && fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
        return 0;
    return fail_errno("make the folder %.300s", path);
}

static err make_file(int at, const char *path, int *out_fd)
{
    unlinkat(at, TEMPORARY, 0);
    int fd = openat(at, TEMPORARY, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return fail_errno("write %.300s", path);
    *out_fd = fd;
    return 0;
}

err place_begin(struct place *p, const char *path, const struct unpack_entry *entry, int *out_fd,
                bool *out_left)
{
    char parent[PATH_MAX];
    const char *name = split(path, parent);
    AUTO_FD at = -1;
    *out_fd = -1;
    *out_left = S_ISLNK(entry->mode) && points_outside(path, entry->target);
    if (*out_left) {
        p->left_out++;
        return 0;
    }
    TRY(open_parent(p->folder, path, true, &at));
    if (S_ISDIR(entry->mode))
        return make_folder(at, path, name);
    if (S_ISLNK(entry->mode))
        return make_link(p, at, path, name, entry);
    return make_file(at, path, out_fd);
}

err place_end(struct place *p, const char *path, const struct unpack_entry *entry, int *take_fd)
{
    AUTO_FD fd = fd_take(take_fd);
    AUTO_FD at = -1;
    char parent[PATH_MAX];
    const char *name = split(path, parent);
    mode_t mask = umask(0);
    umask(mask);
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, entry->mtime};
    if (fchmod(fd, entry->mode & 0777 & ~mask) < 0 || futimens(fd, times) < 0)
        return fail_errno("set mode and time of %.300s", path);
    TRY(open_parent(p->folder, path, false, &at));
    TRY(give_name(at, path, name, p->replace));
    p->files++;
    return 0;
}
