#include "images/merge.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/tree.h"

#define DEPTH_MAX 128 /* two descriptors a level */
#define ID_COUNT 65536u

struct merge {
    const struct merge_request *r;
    bool root;
    struct image_counts counts;
};

/* One folder of a source and its counterpart. */
struct level {
    struct merge *m;
    int from, to;
    unsigned depth;
    const char *path; /* "" at the top: names the sandbox's own are told by */
};

typedef err (*entry_fn)(const struct level *l, const char *name, const struct stat *st);

/* ---- walking ---- */

static bool is_sandbox_own(const struct level *l, const char *name)
{
    static const char *const top[] = {".pi", "dev", "proc", "sys", "tmp", "workspace"};
    if (strcmp(l->path, "mnt") == 0)
        return strcmp(name, "session") == 0;
    for (size_t i = 0; l->path[0] == 0 && i < sizeof top / sizeof *top; i++) {
        if (strcmp(name, top[i]) == 0)
            return true;
    }
    return false;
}

static err count(struct merge *m, const struct stat *st)
{
    m->counts.entries++;
    if (m->counts.entries > m->r->limits.entries)
        return fail(E_TOO_LARGE, "the image would have more than %llu entries",
                    (unsigned long long)m->r->limits.entries);
    if (st && S_ISREG(st->st_mode))
        m->counts.bytes += (uint64_t)st->st_size;
    if (m->counts.bytes > m->r->limits.bytes)
        return fail(E_TOO_LARGE, "what was installed takes more than %llu MiB",
                    (unsigned long long)(m->r->limits.bytes >> 20));
    return 0;
}

static err visit(const struct level *l, DIR *d, entry_fn fn)
{
    for (struct dirent *e; (e = readdir(d));) {
        const char *name = e->d_name;
        struct stat st;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || is_sandbox_own(l, name))
            continue;
        if (fstatat(l->from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            return fail_errno("look at %.80s", name);
        TRY(fn(l, name, &st));
    }
    return 0;
}

static err walk(const struct level *l, entry_fn fn)
{
    if (l->depth > DEPTH_MAX)
        return fail(E_INVALID, "folders are nested deeper than %d", DEPTH_MAX);
    int again = openat(l->from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = again < 0 ? NULL : fdopendir(again);
    if (d == NULL) {
        fd_close(&again);
        return fail_errno("read a folder of the image");
    }
    err e = visit(l, d, fn);
    closedir(d);
    return e;
}

static err open_both(const struct level *l, const char *name, struct level *out)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    AUTO_FD from = openat(l->from, name, flags);
    AUTO_FD to = openat(l->to, name, flags);
    if (from < 0 || to < 0)
        return fail_errno("open the folder %.80s", name);
    *out = (struct level){.m = l->m, .depth = l->depth + 1};
    /* Only what may stand above a name of the sandbox's own has to be told apart. */
    out->path = l->path[0] == 0 && strcmp(name, "mnt") == 0 ? "mnt" : "-";
    out->from = fd_take(&from);
    out->to = fd_take(&to);
    return 0;
}

static void close_both(struct level *l)
{
    fd_close(&l->from);
    fd_close(&l->to);
}

/* ---- attributes ---- */

/* The owner inside; what was shifted before (another name of one file) stays. */
static err shifted(const struct merge *m, uid_t id, uid_t *out)
{
    if (!m->root || id < ID_COUNT) {
        *out = id;
        return 0;
    }
    if (id < m->r->uid_base || id - m->r->uid_base >= ID_COUNT)
        return fail(E_INVALID, "a file belongs to id %u, which is not the sandbox's", (unsigned)id);
    *out = id - m->r->uid_base;
    return 0;
}

static err give_back(const struct level *l, const char *name, const struct stat *st)
{
    uid_t uid = 0, gid = 0;
    if (!l->m->root)
        return 0;
    TRY(shifted(l->m, st->st_uid, &uid));
    TRY(shifted(l->m, st->st_gid, &gid));
    if (fchownat(l->to, name, uid, gid, AT_SYMLINK_NOFOLLOW) < 0)
        return fail_errno("set the owner of %.80s", name);
    /* A change of owner clears set-uid bits. */
    if (!S_ISLNK(st->st_mode) && fchmodat(l->to, name, st->st_mode & 07777, 0) < 0)
        return fail_errno("set the mode of %.80s", name);
    return 0;
}

/* Last of all: filling a folder changes its time. */
static err finish_folder(const struct level *l, const char *name, const struct stat *st)
{
    const struct timespec times[] = {st->st_atim, st->st_mtim};
    if (fchmodat(l->to, name, st->st_mode & 07777, 0) < 0)
        return fail_errno("set the mode of %.80s", name);
    TRY(give_back(l, name, st));
    return utimensat(l->to, name, times, AT_SYMLINK_NOFOLLOW) < 0
               ? fail_errno("set the time of %.80s", name)
               : 0;
}

/* ---- the image beneath ---- */

static err link_entry(const struct level *l, const char *name, const struct stat *st)
{
    TRY(count(l->m, NULL));
    if (!S_ISDIR(st->st_mode))
        return linkat(l->from, name, l->to, name, 0) < 0 ? fail_errno("link %.80s", name) : 0;
    if (mkdirat(l->to, name, 0700) < 0)
        return fail_errno("make the folder %.80s", name);
    struct level below;
    TRY(open_both(l, name, &below));
    err e = walk(&below, link_entry);
    close_both(&below);
    TRY(e);
    return finish_folder(l, name, st);
}

/* ---- what the sandbox wrote ---- */

/* Of an overlay as root mounts it, or as a plain user does. */
static bool has_attribute(const struct merge *m, int fd, const char *name)
{
    char path[64], key[64], value[8];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    snprintf(key, sizeof key, "%s.overlay.%s", m->root ? "trusted" : "user", name);
    ssize_t n = getxattr(path, key, value, sizeof value);
    return n > 0 || (n < 0 && errno == ERANGE);
}

/* We never mount with these; a layer that has them would be misread. */
static err check_plain(const struct merge *m, int fd, const char *name)
{
    static const char *const features[] = {"redirect", "metacopy"};
    for (size_t i = 0; i < 2; i++) {
        if (has_attribute(m, fd, features[i]))
            return fail(E_INTERNAL, "the overlay of %.80s uses the feature %s", name, features[i]);
    }
    return 0;
}

static err write_entry(const struct level *l, const char *name, const struct stat *st);

/* The folder as it is in the new image: kept, emptied or made. */
static err make_folder(const struct level *l, const char *name)
{
    AUTO_FD from = openat(l->from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat there;
    if (from < 0)
        return fail_errno("open the folder %.80s", name);
    TRY(check_plain(l->m, from, name));
    bool exists = fstatat(l->to, name, &there, AT_SYMLINK_NOFOLLOW) == 0;
    if (exists && S_ISDIR(there.st_mode) && !has_attribute(l->m, from, "opaque"))
        return 0;
    TRY(tree_remove_at(l->to, name));
    return mkdirat(l->to, name, 0700) < 0 ? fail_errno("make the folder %.80s", name) : 0;
}

static err write_folder(const struct level *l, const char *name, const struct stat *st)
{
    struct level below;
    if (!l->m->root &&
        fchmodat(l->from, name, 0700, 0) < 0) /* its owner may have locked himself out */
        return fail_errno("open the folder %.80s", name);
    TRY(make_folder(l, name));
    TRY(open_both(l, name, &below));
    err e = walk(&below, write_entry);
    close_both(&below);
    TRY(e);
    return finish_folder(l, name, st);
}

static err write_file(const struct level *l, const char *name, const struct stat *st)
{
    if (S_ISREG(st->st_mode)) {
        AUTO_FD fd = openat(l->from, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
            return fail_errno("open %.80s", name);
        TRY(check_plain(l->m, fd, name));
    }
    TRY(tree_remove_at(l->to, name));
    if (linkat(l->from, name, l->to, name, 0) < 0)
        return fail_errno("link %.80s", name);
    return give_back(l, name, st);
}

static err write_entry(const struct level *l, const char *name, const struct stat *st)
{
    if (S_ISCHR(st->st_mode) && st->st_rdev == makedev(0, 0)) /* a whiteout */
        return tree_remove_at(l->to, name);
    if (S_ISSOCK(st->st_mode) || S_ISCHR(st->st_mode) || S_ISBLK(st->st_mode)) {
        l->m->counts.skipped++;
        return tree_remove_at(l->to, name);
    }
    TRY(count(l->m, st));
    return S_ISDIR(st->st_mode) ? write_folder(l, name, st) : write_file(l, name, st);
}

/* ---- both ---- */

static err apply(struct merge *m, const char *path, entry_fn fn)
{
    AUTO_FD from = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (from < 0)
        return fail_errno("open %s", path);
    TRY(check_plain(m, from, "/"));
    return walk(&(struct level){.m = m, .from = from, .to = m->r->out, .path = ""}, fn);
}

err images_merge(const struct merge_request *r, struct image_counts *out_counts)
{
    struct merge m = {.r = r, .root = geteuid() == 0};
    TRY(apply(&m, r->base, link_entry));
    TRY(apply(&m, r->upper, write_entry));
    *out_counts = m.counts;
    return 0;
}
