#include "base/tree.h"

#include "base/fd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

/* Deeper folders are moved up to the top first, so that neither the stack nor the descriptors run
 * out. */
#define DEPTH_MAX 64

struct removal {
    int top;
    unsigned moved; /* for names of folders moved up */
};

static err empty_folder(struct removal *r, int dir, int depth);

/* Opens a folder without following a link; a plain user's own folder may forbid its owner to read
 * it. */
static int open_folder(int parent, const char *name)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(parent, name, flags);
    if (fd < 0 && errno == EACCES && fchmodat(parent, name, 0700, 0) == 0)
        fd = openat(parent, name, flags);
    return fd;
}

static err move_up(struct removal *r, int parent, const char *name)
{
    char to[32];
    snprintf(to, sizeof to, ".moved-%u", r->moved++);
    if (renameat(parent, name, r->top, to) < 0)
        return fail_errno("move up a deep folder");
    return 0;
}

static err remove_entry(struct removal *r, int parent, const char *name, int depth)
{
    if (unlinkat(parent, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return fail_errno("remove a file");
    if (depth >= DEPTH_MAX)
        return move_up(r, parent, name);
    AUTO_FD dir = open_folder(parent, name);
    if (dir < 0)
        return fail_errno("open a folder to be removed");
    TRY(empty_folder(r, dir, depth + 1));
    return unlinkat(parent, name, AT_REMOVEDIR) < 0 ? fail_errno("remove a folder") : 0;
}

static err empty_folder(struct removal *r, int dir, int depth)
{
    struct stat st;
    if (fstat(dir, &st) == 0 && (st.st_mode & 0700) != 0700)
        fchmod(dir, 0700);
    /* Opened anew: a duplicate would go on where the last reading of this folder ended. */
    AUTO_FD again = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = again < 0 ? NULL : fdopendir(again);
    if (!d)
        return fail_errno("read a folder to be removed");
    fd_take(&again);
    err e = 0;
    for (const struct dirent *entry; !e && (entry = readdir(d));) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            e = remove_entry(r, dir, entry->d_name, depth);
    }
    closedir(d);
    return e;
}

static err remove_folder(int parent, const char *path)
{
    struct removal r = {.top = open_folder(parent, path)};
    if (r.top < 0)
        return errno == ENOENT ? 0 : fail_errno("open %s to remove it", path);
    AUTO_FD top = r.top;
    for (;;) {
        unsigned before = r.moved;
        err e = empty_folder(&r, top, 0);
        if (e)
            return fail(e, "%s: %s", path, err_text());
        if (unlinkat(parent, path, AT_REMOVEDIR) == 0)
            return 0;
        /* Folders moved up while their new parent was being read may have been missed. */
        if (errno != ENOTEMPTY || r.moved == before)
            return fail_errno("remove %s", path);
    }
}

err tree_remove(const char *path)
{
    return remove_folder(AT_FDCWD, path);
}

err tree_remove_at(int dir, const char *name)
{
    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
        return 0;
    return errno == EISDIR || errno == EPERM ? remove_folder(dir, name)
                                             : fail_errno("remove %s", name);
}
