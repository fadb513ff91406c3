#include "sandbox/linux/layer.h"

#include "base/buf.h"
#include "base/fd.h"
#include "base/walk.h"
#include "sandbox/linux/disk.h"
#include "sandbox/linux/userns.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define PIECE (256u << 10)
#define VALUE_MAX (64u << 10) /* of an extended attribute: the kernel's own limit */
/* Beside the layer, while it is copied: the first name of each file that has several. */
#define LINKS "links"

/* While one layer is copied. */
struct copying {
    uint32_t from_base, to_base;
    int to;    /* the folder at hand on the other side */
    int links; /* LINKS */
    struct buf value, names;
    char piece[PIECE];
};

/* ---- owners ---- */

static err shift_id(const struct copying *c, uint32_t id, uint32_t *out)
{
    if (c->from_base == c->to_base) {
        *out = id;
        return 0;
    }
    if (id < c->from_base || id - c->from_base >= USERNS_IDS)
        return fail(E_IO, "a file in the sandbox belongs to user %u, which is none of its own", id);
    *out = id - c->from_base + c->to_base;
    return 0;
}

/* An access control list: a version, then entries of tag, permissions and id. */
static err shift_acl(const struct copying *c, char *value, size_t n)
{
    enum {
        HEAD = 4,
        ENTRY = 8,
        TAG_USER = 2,
        TAG_GROUP = 8
    };
    for (size_t at = HEAD; at + ENTRY <= n; at += ENTRY) {
        uint16_t tag;
        uint32_t id;
        memcpy(&tag, value + at, sizeof tag);
        memcpy(&id, value + at + 4, sizeof id);
        if (tag != TAG_USER && tag != TAG_GROUP)
            continue;
        TRY(shift_id(c, id, &id));
        memcpy(value + at + 4, &id, sizeof id);
    }
    return 0;
}

/* ---- extended attributes ---- */

/* Notes of the overlay about this very disk; in a copy they would be wrong. */
static bool is_of_place(const char *name)
{
    const char *key = strstr(name, "overlay.");
    static const char *const bound[] = {"origin", "uuid", "nlink", "upper", "impure"};
    if (!key || (strncmp(name, "trusted.", 8) != 0 && strncmp(name, "user.", 5) != 0))
        return false;
    for (size_t i = 0; i < sizeof bound / sizeof *bound; i++) {
        if (strcmp(key + 8, bound[i]) == 0)
            return true;
    }
    return false;
}

static err copy_attribute(struct copying *c, int from, int to, const char *name)
{
    buf_clear(&c->value);
    buf_reserve(&c->value, VALUE_MAX);
    ssize_t n = fgetxattr(from, name, c->value.p, VALUE_MAX);
    if (n < 0)
        return errno == ENODATA ? 0 : fail_errno("read the attribute %s", name);
    if (strncmp(name, "system.posix_acl_", 17) == 0)
        TRY(shift_acl(c, c->value.p, (size_t)n));
    return fsetxattr(to, name, c->value.p, (size_t)n, 0) < 0
               ? fail_errno("set the attribute %s", name)
               : 0;
}

static err copy_attributes(struct copying *c, int from, int to)
{
    ssize_t n = flistxattr(from, NULL, 0);
    if (n == 0 || (n < 0 && errno == ENOTSUP))
        return 0;
    buf_clear(&c->names);
    buf_reserve(&c->names, VALUE_MAX);
    n = flistxattr(from, c->names.p, VALUE_MAX);
    if (n < 0)
        return fail_errno("list attributes");
    for (const char *name = c->names.p; name < c->names.p + n; name += strlen(name) + 1) {
        if (!is_of_place(name))
            TRY(copy_attribute(c, from, to, name));
    }
    return 0;
}

/* ---- owner, mode, times ---- */

static err give_owner(const struct copying *c, int dir, const char *name, const struct stat *st)
{
    uint32_t uid = 0, gid = 0;
    TRY(shift_id(c, st->st_uid, &uid));
    TRY(shift_id(c, st->st_gid, &gid));
    return fchownat(dir, name, uid, gid, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) < 0
               ? fail_errno("set an owner")
               : 0;
}

static err give_times(int dir, const char *name, const struct stat *st)
{
    const struct timespec times[2] = {st->st_atim, st->st_mtim};
    return utimensat(dir, name, times, AT_SYMLINK_NOFOLLOW) < 0 ? fail_errno("set times") : 0;
}

/* Of what is open on both sides. The mode after the owner, which takes set-id bits away; the times
   last. */
static err give_all(struct copying *c, int from, int to, const struct stat *st)
{
    const struct timespec times[2] = {st->st_atim, st->st_mtim};
    TRY(give_owner(c, to, "", st));
    if (fchmod(to, st->st_mode & 07777) < 0)
        return fail_errno("set a mode");
    TRY(copy_attributes(c, from, to));
    return futimens(to, times) < 0 ? fail_errno("set times") : 0;
}

/* ---- content ---- */

static err copy_bytes(struct copying *c, int from, int to, off_t at, off_t end)
{
    while (at < end) {
        size_t want = (size_t)(end - at) < PIECE ? (size_t)(end - at) : PIECE;
        ssize_t n = pread(from, c->piece, want, at);
        if (n < 0)
            return fail_errno("read a file");
        if (n == 0)
            return 0;
        for (ssize_t done = 0; done < n;) {
            ssize_t w = pwrite(to, c->piece + done, (size_t)(n - done), at + done);
            if (w < 0)
                return fail_errno("write a file");
            done += w;
        }
        at += n;
    }
    return 0;
}

/* Shares the blocks where the file system can; holes stay holes. */
static err copy_content(struct copying *c, int from, int to, off_t size)
{
    if (size == 0 || ioctl(to, FICLONE, from) == 0)
        return 0;
    for (off_t at = 0; at < size;) {
        off_t data = lseek(from, at, SEEK_DATA);
        if (data < 0 && errno == ENXIO)
            break;
        off_t hole = data < 0 ? -1 : lseek(from, data, SEEK_HOLE);
        if (data < 0 || hole < 0)
            return fail_errno("look for holes in a file");
        TRY(copy_bytes(c, from, to, data, hole));
        at = hole;
    }
    return ftruncate(to, size) < 0 ? fail_errno("set the size of a file") : 0;
}

/* ---- entries ---- */

static err copy_file(struct copying *c, int dir, const char *name, const struct stat *st)
{
    AUTO_FD from = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (from < 0)
        return fail_errno("open a file");
    AUTO_FD to = openat(c->to, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (to < 0)
        return fail_errno("make a file");
    TRY(copy_content(c, from, to, st->st_size));
    return give_all(c, from, to, st);
}

static err copy_link(struct copying *c, int dir, const char *name, const struct stat *st)
{
    char target[PATH_MAX];
    ssize_t n = readlinkat(dir, name, target, sizeof target - 1);
    if (n < 0)
        return fail_errno("read a link");
    target[n] = 0;
    if (symlinkat(target, c->to, name) < 0)
        return fail_errno("make a link");
    TRY(give_owner(c, c->to, name, st));
    return give_times(c->to, name, st);
}

/* Pipes, sockets, and the marks by which the overlay hides a file of the image (device 0:0). */
static err copy_special(struct copying *c, int dir, const char *name, const struct stat *st)
{
    (void)dir;
    bool device = S_ISCHR(st->st_mode) || S_ISBLK(st->st_mode);
    if (device && st->st_rdev != 0)
        return fail(E_IO, "there is a device in the sandbox, which cannot have made one");
    if (mknodat(c->to, name, (st->st_mode & S_IFMT) | 0600, 0) < 0)
        return fail_errno("make a special file");
    if (device) /* the mounter's own, not the sandbox's */
        return 0;
    TRY(give_owner(c, c->to, name, st));
    if (fchmodat(c->to, name, st->st_mode & 07777, 0) < 0)
        return fail_errno("set a mode");
    return give_times(c->to, name, st);
}

static err copy_new(struct copying *c, int dir, const char *name, const struct stat *st)
{
    return S_ISREG(st->st_mode)   ? copy_file(c, dir, name, st)
           : S_ISLNK(st->st_mode) ? copy_link(c, dir, name, st)
                                  : copy_special(c, dir, name, st);
}

/* The first name is also kept in LINKS, for those to come. */
static err copy_entry(void *arg, int dir, const char *name, const struct stat *st)
{
    struct copying *c = arg;
    char number[32];
    if (S_ISDIR(st->st_mode))
        return mkdirat(c->to, name, 0700) < 0 ? fail_errno("make a folder") : 0;
    if (st->st_nlink < 2)
        return copy_new(c, dir, name, st);
    snprintf(number, sizeof number, "%llu", (unsigned long long)st->st_ino);
    if (linkat(c->links, number, c->to, name, 0) == 0)
        return 0;
    if (errno != ENOENT && errno != EMLINK)
        return fail_errno("give a file another name");
    bool first = errno == ENOENT;
    TRY(copy_new(c, dir, name, st));
    return first && linkat(c->to, name, c->links, number, 0) < 0
               ? fail_errno("remember a file with several names")
               : 0;
}

static err go_to(struct copying *c, const char *name)
{
    int fd = openat(c->to, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return fail_errno("enter a folder of the copy");
    close(c->to);
    c->to = fd;
    return 0;
}

static err enter_folder(void *arg, int dir, const char *name)
{
    (void)dir;
    return go_to(arg, name);
}

static err leave_folder(void *arg, int dir, const struct stat *st)
{
    struct copying *c = arg;
    TRY(give_all(c, dir, c->to, st));
    return go_to(c, "..");
}

/* ---- the whole ---- */

static err forget_link(void *arg, int dir, const char *name, const struct stat *st)
{
    (void)arg, (void)st;
    return unlinkat(dir, name, 0) < 0 ? fail_errno("tidy up the copy") : 0;
}

static err copy_folder(struct copying *c, int from, int to)
{
    struct stat st;
    c->to = fcntl(to, F_DUPFD_CLOEXEC, 0);
    if (c->to < 0 || fstat(from, &st) < 0)
        return fail_errno("open the layer");
    err e = walk_folder(from, &(struct walk){copy_entry, enter_folder, leave_folder, c});
    if (!e)
        e = give_all(c, from, to, &st);
    fd_close(&c->to);
    return e;
}

static err open_below(int at, const char *name, bool make, int *out_fd)
{
    if (make && mkdirat(at, name, 0700) < 0)
        return fail_errno("make the folder %s", name);
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return fail_errno("open the folder %s", name);
    *out_fd = fd;
    return 0;
}

static err copy_named(struct copying *c, int from, int to, const char *name)
{
    AUTO_FD source = -1, target = -1;
    if (faccessat(from, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : fail_errno("look for %s", name);
    TRY(open_below(from, name, false, &source));
    TRY(open_below(to, name, true, &target));
    TRY(open_below(to, LINKS, true, &c->links));
    err e = copy_folder(c, source, target);
    if (!e)
        e = walk_folder(c->links, &(struct walk){.entry = forget_link});
    fd_close(&c->links);
    TRY(e);
    return unlinkat(to, LINKS, AT_REMOVEDIR) < 0 ? fail_errno("tidy up the copy") : 0;
}

/* The folder that holds the layer: on its disk, or on the host's. */
static err open_layer(const struct layer *l, bool make, int *out_fd)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", l->dir, l->on_disk ? LAYER_DISK : LAYER_FOLDER);
    if (l->on_disk) {
        AUTO_FD disk = -1;
        TRY(l->mounted ? disk_mount_beside(path, &disk) : disk_mount(path, &disk));
        return open_below(disk, ".", false, out_fd); /* what a mount gives us only names it */
    }
    if (make && mkdir(path, 0700) < 0)
        return fail_errno("make %s", path);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno != ENOENT)
        return fail_errno("open %s", path);
    *out_fd = fd; /* -1: it never ran, there are no files */
    return 0;
}

struct sides {
    const struct layer *from, *to;
    bool shift; /* each has ids of its own */
};

static err copy_sides(void *arg, uint64_t *out)
{
    const struct sides *s = arg;
    static struct copying c; /* large */
    AUTO_FD from = -1, to = -1;
    (void)out;
    c = (struct copying){.from_base = s->shift ? s->from->uid_base : 0,
                         .to_base = s->shift ? s->to->uid_base : 0,
                         .links = -1};
    TRY(open_layer(s->from, false, &from));
    if (from < 0)
        return 0;
    TRY(open_layer(s->to, true, &to));
    err e = copy_named(&c, from, to, "upper");
    if (!e)
        e = copy_named(&c, from, to, "plain");
    buf_done(&c.value);
    buf_done(&c.names);
    return !e && syncfs(to) < 0 ? fail_errno("write the copy to disk") : e;
}

err layer_copy(const struct layer *from, const struct layer *to)
{
    uint64_t none;
    return userns_call(copy_sides, &(struct sides){from, to, userns_is_privileged()}, &none);
}
