#include "images/unpack.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "base/tree.h"
#include "images/name.h"

#define UNPACK_MAGIC 0x756e7061u
#define ID_LAST 65535 /* the last id a sandbox has */
#define WHITEOUT ".wh."
#define WHITEOUT_OPAQUE ".wh..wh..opq"
#define WHITEOUT_RESERVED ".wh..wh."

const struct image_limits image_limits_default = {
    .entries = 2000000,
    .bytes = UINT64_C(64) << 30,
    .path_bytes = PATH_MAX - 1,
};

struct unpack {
    unsigned magic;
    int root, times; /* borrowed */
    struct image_limits limits;
    struct image_counts counts;
    bool keep_owners;
    int folder;                 /* the one opened last, or -1; most entries follow in one folder */
    char folder_path[PATH_MAX]; /* its clean path */
};

/* How a folder's time waits in the file of times; the path follows. */
struct noted_time {
    struct timespec mtime;
    uint32_t path_bytes;
};

err unpack_clean_path(const char *raw, uint32_t path_bytes, char out[PATH_MAX])
{
    if (raw[0] == '/')
        return fail(E_INVALID, "it has an absolute name");
    if (raw[0] == 0)
        return fail(E_INVALID, "it has no name");
    size_t n = 0;
    struct str rest = str_of(raw), part;
    if (rest.n > path_bytes || rest.n >= PATH_MAX)
        return fail(E_TOO_LARGE, "its name has more than %u bytes", path_bytes);
    while (str_split(&rest, '/', &part)) {
        if (part.n == 0 || str_is(part, "."))
            continue;
        if (str_is(part, ".."))
            return fail(E_INVALID, "its name leads out of the image");
        if (part.n > NAME_MAX)
            return fail(E_TOO_LARGE, "a part of its name has more than %d bytes", NAME_MAX);
        if (n > 0)
            out[n++] = '/';
        memcpy(out + n, part.p, part.n);
        n += part.n;
    }
    out[n] = 0;
    return 0;
}

struct unpack *unpack_new(int root, int times, const struct image_limits *limits)
{
    struct unpack *u = mem_alloc(sizeof *u);
    u->magic = UNPACK_MAGIC;
    u->root = root;
    u->times = times;
    u->limits = *limits;
    u->keep_owners = geteuid() == 0;
    u->folder = -1;
    return u;
}

void unpack_free(struct unpack *u)
{
    if (u == NULL)
        return;
    CHECK(u, UNPACK_MAGIC);
    fd_close(&u->folder);
    u->magic = 0;
    mem_free(u);
}

void unpack_counts(const struct unpack *u, struct image_counts *out)
{
    CHECK(u, UNPACK_MAGIC);
    *out = u->counts;
}

static err count_entry(struct unpack *u)
{
    if (u->counts.entries >= u->limits.entries)
        return fail(E_TOO_LARGE, "the image has more than %llu entries (--max-entries)",
                    (unsigned long long)u->limits.entries);
    u->counts.entries++;
    return 0;
}

static err too_many_bytes(const struct unpack *u)
{
    return fail(E_TOO_LARGE, "the image has more than %llu bytes (--max-mib)",
                (unsigned long long)u->limits.bytes);
}

/* ---- folders ---- */

/* Resolved with `root` as /: links and .. in them cannot lead out of it. */
static int open_beneath(int root, const char *path, uint64_t flags)
{
    struct open_how how = {
        .flags = flags | O_CLOEXEC,
        .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
    };
    return (int)syscall(SYS_openat2, root, path[0] ? path : ".", &how, sizeof how);
}

static void forget_folder(struct unpack *u)
{
    fd_close(&u->folder);
}

static err cannot_open(const char *path)
{
    char shown[IMAGE_SHOWN_MAX];
    image_shown(path, shown);
    if (errno == ENOTDIR)
        return fail(E_INVALID, "%s is not a folder in this image", shown);
    if (errno == ELOOP)
        return fail(E_INVALID, "%s is a link that leads in circles", shown);
    if (errno == ENOSYS || errno == EPERM)
        return fail(E_UNAVAILABLE,
                    "this kernel or container does not allow openat2 (Linux 5.6), without which "
                    "images are not unpacked");
    return fail_errno("open the folder %s", shown);
}

static err make_folder(struct unpack *u, int parent, const char *name)
{
    TRY(count_entry(u));
    if (mkdirat(parent, name, 0755) < 0) {
        if (errno == EEXIST) /* and yet it did not open */
            return fail(E_INVALID, "%.100s is a link that leads nowhere", name);
        return fail_errno("make a folder");
    }
    /* Not what the umask says. */
    return fchmodat(parent, name, 0755, 0) < 0 ? fail_errno("set the mode of a folder") : 0;
}

/* Archives may leave out the folders above an entry. Changes `path` and puts it back. */
static err make_folders(struct unpack *u, char *path, int *out)
{
    AUTO_FD at = open_beneath(u->root, "", O_PATH | O_DIRECTORY);
    if (at < 0)
        return cannot_open("/");
    for (char *name = path, *end; name; name = end ? end + 1 : NULL) {
        end = strchr(name, '/');
        if (end)
            *end = 0;
        int next = open_beneath(u->root, path, O_PATH | O_DIRECTORY);
        err e = 0;
        if (next < 0 && errno == ENOENT) {
            e = make_folder(u, at, name);
            next = e ? -1 : open_beneath(u->root, path, O_PATH | O_DIRECTORY);
        }
        if (!e && next < 0)
            e = cannot_open(path);
        if (end)
            *end = '/';
        TRY(e);
        fd_close(&at);
        at = next;
    }
    *out = fd_take(&at);
    return 0;
}

/* The folder of the clean path, which is cut at the last slash; *out_folder is borrowed until the
   next call. With `make` it is made where it is missing, else it is -1 then. */
static err open_parent(struct unpack *u, char *path, bool make, int *out_folder,
                       const char **out_name)
{
    char *slash = strrchr(path, '/');
    char *folder = slash ? path : "";
    *out_name = slash ? slash + 1 : path;
    if (slash)
        *slash = 0;
    if (u->folder >= 0 && strcmp(u->folder_path, folder) == 0) {
        *out_folder = u->folder;
        return 0;
    }
    forget_folder(u);
    AUTO_FD fd = open_beneath(u->root, folder, O_PATH | O_DIRECTORY);
    if (fd < 0 && !(errno == ENOENT || (!make && errno == ENOTDIR)))
        return cannot_open(folder);
    if (fd < 0 && make)
        TRY(make_folders(u, folder, &fd));
    if (fd >= 0)
        snprintf(u->folder_path, sizeof u->folder_path, "%s", folder);
    *out_folder = u->folder = fd_take(&fd);
    return 0;
}

static err note_time(struct unpack *u, const char *path, struct timespec mtime)
{
    struct noted_time note = {.mtime = mtime, .path_bytes = (uint32_t)strlen(path)};
    char bytes[sizeof note + PATH_MAX];
    memcpy(bytes, &note, sizeof note);
    memcpy(bytes + sizeof note, path, note.path_bytes);
    return fd_write_full(u->times, bytes, sizeof note + note.path_bytes);
}

/* ---- entries ---- */

static err check_owner(const struct unpack *u, const struct unpack_entry *e)
{
    if (!u->keep_owners || (e->uid >= 0 && e->uid <= ID_LAST && e->gid >= 0 && e->gid <= ID_LAST))
        return 0;
    return fail(E_INVALID, "its owner %lld:%lld is beyond %d, the last id in a sandbox",
                (long long)e->uid, (long long)e->gid, ID_LAST);
}

/* Makes room for an entry; a folder that is to be one again stays. */
static err clear_place(struct unpack *u, int folder, const char *name, bool for_folder,
                       bool *out_kept)
{
    struct stat st;
    *out_kept = false;
    if (fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : fail_errno("look at what was there before");
    if (S_ISDIR(st.st_mode) && for_folder) {
        *out_kept = true;
        return 0;
    }
    TRY(tree_remove_at(folder, name));
    /* The folder opened last may have been in there, or behind that link; the caller holds its
       own. */
    if (S_ISDIR(st.st_mode) || S_ISLNK(st.st_mode))
        u->folder_path[0] = '/'; /* matches no clean path */
    return 0;
}

/* Not for symbolic links. */
static err set_attributes(const struct unpack *u, int folder, const char *name,
                          const struct unpack_entry *e)
{
    mode_t mode = e->mode & 07777;
    if (S_ISDIR(e->mode) && !u->keep_owners)
        mode |= 0700;
    if (u->keep_owners &&
        fchownat(folder, name, (uid_t)e->uid, (gid_t)e->gid, AT_SYMLINK_NOFOLLOW) < 0)
        return fail_errno("set its owner");
    return fchmodat(folder, name, mode, 0) < 0 ? fail_errno("set its mode") : 0;
}

static err set_time(int folder, const char *name, const struct unpack_entry *e)
{
    const struct timespec times[2] = {e->mtime, e->mtime};
    return utimensat(folder, name, times, AT_SYMLINK_NOFOLLOW) < 0 ? fail_errno("set its time") : 0;
}

static err place_folder(struct unpack *u, int folder, const char *name, const char *path,
                        const struct unpack_entry *e)
{
    bool kept;
    TRY(clear_place(u, folder, name, true, &kept));
    if (!kept && mkdirat(folder, name, 0700) < 0)
        return fail_errno("make it");
    TRY(set_attributes(u, folder, name, e));
    return note_time(u, path, e->mtime);
}

static err place_link(struct unpack *u, int folder, const char *name, const struct unpack_entry *e)
{
    if (e->target == NULL || e->target[0] == 0)
        return fail(E_INVALID, "it is a link to nothing");
    if (symlinkat(e->target, folder, name) < 0)
        return fail_errno("make the link");
    if (u->keep_owners &&
        fchownat(folder, name, (uid_t)e->uid, (gid_t)e->gid, AT_SYMLINK_NOFOLLOW) < 0)
        return fail_errno("set its owner");
    return set_time(folder, name, e);
}

static err place_fifo(struct unpack *u, int folder, const char *name, const struct unpack_entry *e)
{
    if (mkfifoat(folder, name, 0600) < 0)
        return fail_errno("make the fifo");
    TRY(set_attributes(u, folder, name, e));
    return set_time(folder, name, e);
}

static err place_file(struct unpack *u, int folder, const char *name, const struct unpack_entry *e,
                      int *out_fd)
{
    if (e->size < 0 || (uint64_t)e->size > u->limits.bytes)
        return too_many_bytes(u);
    int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return fail_errno("create it");
    *out_fd = fd;
    return 0;
}

/* One more name for what an earlier entry or layer has. */
static err place_hard_link(struct unpack *u, int folder, const char *name,
                           const struct unpack_entry *e)
{
    char target[PATH_MAX];
    struct stat there, here;
    err bad = unpack_clean_path(e->target ? e->target : "", u->limits.path_bytes, target);
    if (bad)
        return fail(bad, "the target of the hard link is refused, %s", err_text());
    AUTO_FD own = dup(folder); /* open_parent closes what it opened last */
    int from;
    const char *from_name;
    bool kept;
    if (own < 0)
        return fail_errno("keep a folder open");
    TRY(open_parent(u, target, false, &from, &from_name));
    if (from < 0 || fstatat(from, from_name, &there, AT_SYMLINK_NOFOLLOW) < 0 ||
        S_ISDIR(there.st_mode))
        return fail(E_INVALID, "it is a hard link to something that is no file in this image");
    if (fstatat(own, name, &here, AT_SYMLINK_NOFOLLOW) == 0 && here.st_dev == there.st_dev &&
        here.st_ino == there.st_ino)
        return 0;
    TRY(clear_place(u, own, name, false, &kept));
    return linkat(from, from_name, own, name, 0) < 0 ? fail_errno("make the hard link") : 0;
}

static err place_entry(struct unpack *u, int folder, const char *name, const char *path,
                       const struct unpack_entry *e, int *out_fd)
{
    bool ignored;
    if (S_ISDIR(e->mode))
        return place_folder(u, folder, name, path, e);
    TRY(clear_place(u, folder, name, false, &ignored));
    switch (e->mode & S_IFMT) {
    case S_IFREG:
        return place_file(u, folder, name, e, out_fd);
    case S_IFLNK:
        return place_link(u, folder, name, e);
    case S_IFIFO:
        return place_fifo(u, folder, name, e);
    default:
        u->counts.skipped++;
        return 0;
    }
}

/* The top of the image: it exists. */
static err place_top(struct unpack *u, const struct unpack_entry *e)
{
    if (!S_ISDIR(e->mode) || e->hard_link)
        return fail(E_INVALID, "the top of the image must be a folder");
    const mode_t mode = (e->mode & 07777) | 0700;
    if (u->keep_owners && fchown(u->root, (uid_t)e->uid, (gid_t)e->gid) < 0)
        return fail_errno("set the owner of the image's top");
    if (fchmod(u->root, mode) < 0)
        return fail_errno("set the mode of the image's top");
    return note_time(u, "", e->mtime);
}

err unpack_entry(struct unpack *u, const struct unpack_entry *e, int *out_fd)
{
    CHECK(u, UNPACK_MAGIC);
    char path[PATH_MAX], whole[PATH_MAX];
    int folder;
    const char *name;
    *out_fd = -1;
    TRY(count_entry(u));
    TRY(check_owner(u, e));
    TRY(unpack_clean_path(e->path, u->limits.path_bytes, path));
    if (path[0] == 0)
        return place_top(u, e);
    memcpy(whole, path, sizeof whole);
    TRY(open_parent(u, path, true, &folder, &name));
    return e->hard_link ? place_hard_link(u, folder, name, e)
                        : place_entry(u, folder, name, whole, e, out_fd);
}

err unpack_write(struct unpack *u, int fd, const void *p, size_t n, int64_t offset)
{
    CHECK(u, UNPACK_MAGIC);
    if (n > u->limits.bytes - u->counts.bytes || offset < 0 ||
        (uint64_t)offset > u->limits.bytes - n)
        return too_many_bytes(u);
    u->counts.bytes += n;
    const char *at = p;
    while (n > 0) {
        ssize_t done = pwrite(fd, at, n, offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return fail_errno("write it");
        at += done;
        n -= (size_t)done;
        offset += done;
    }
    return 0;
}

err unpack_end_file(struct unpack *u, const struct unpack_entry *e, int *fd)
{
    CHECK(u, UNPACK_MAGIC);
    AUTO_FD own = fd_take(fd);
    const struct timespec times[2] = {e->mtime, e->mtime};
    struct stat st;
    if (fstat(own, &st) < 0)
        return fail_errno("look at it");
    /* A sparse file may end in a hole. */
    if (st.st_size < e->size && ftruncate(own, e->size) < 0)
        return fail_errno("set its size");
    /* In this order: a change of owner takes the set-uid bit away. */
    if (u->keep_owners && fchown(own, (uid_t)e->uid, (gid_t)e->gid) < 0)
        return fail_errno("set its owner");
    if (fchmod(own, e->mode & 07777) < 0)
        return fail_errno("set its mode");
    return futimens(own, times) < 0 ? fail_errno("set its time") : 0;
}

/* ---- whiteouts ---- */

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool unpack_is_whiteout(const char *path)
{
    return strncmp(last_part(path), WHITEOUT, strlen(WHITEOUT)) == 0;
}

static err empty_folder(int folder, const char *name)
{
    AUTO_FD fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (d == NULL)
        return fail_errno("read the folder that a layer empties");
    fd_take(&fd);
    err e = 0;
    for (const struct dirent *entry; !e && (entry = readdir(d));) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            e = tree_remove_at(dirfd(d), entry->d_name);
    }
    closedir(d);
    return e;
}

static err carry_out(int folder, const char *name)
{
    if (strcmp(name, WHITEOUT_OPAQUE) == 0)
        return empty_folder(folder, ".");
    if (strncmp(name, WHITEOUT_RESERVED, strlen(WHITEOUT_RESERVED)) == 0)
        return 0; /* notes that aufs made for itself */
    const char *hidden = name + strlen(WHITEOUT);
    if (hidden[0] == 0 || strcmp(hidden, ".") == 0 || strcmp(hidden, "..") == 0)
        return fail(E_INVALID, "it hides no name");
    return tree_remove_at(folder, hidden);
}

err unpack_whiteout(struct unpack *u, const char *path, bool *out_was)
{
    CHECK(u, UNPACK_MAGIC);
    char clean[PATH_MAX] = "";
    TRY(unpack_clean_path(path, u->limits.path_bytes, clean));
    if (!unpack_is_whiteout(clean)) {
        *out_was = false;
        return 0;
    }
    int folder;
    const char *name;
    TRY(open_parent(u, clean, false, &folder, &name));
    if (folder >= 0) {
        TRY(carry_out(folder, name));
        forget_folder(u);
    }
    *out_was = true;
    return 0;
}

/* ---- the end ---- */

/* What became a link or vanished in a later layer has no folder's time any more. */
static err set_noted_time(struct unpack *u, const char *path, struct timespec mtime)
{
    struct open_how how = {
        .flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS,
    };
    const struct timespec times[2] = {mtime, mtime};
    AUTO_FD fd = (int)syscall(SYS_openat2, u->root, path[0] ? path : ".", &how, sizeof how);
    if (fd >= 0 && futimens(fd, times) < 0)
        return fail_errno("set the time of a folder");
    return 0;
}

err unpack_finish(struct unpack *u)
{
    CHECK(u, UNPACK_MAGIC);
    forget_folder(u);
    AUTO_FD copy = dup(u->times);
    if (copy < 0 || lseek(copy, 0, SEEK_SET) < 0)
        return fail_errno("read the noted times");
    FILE *notes = fdopen(copy, "r");
    if (notes == NULL)
        return fail_errno("read the noted times");
    fd_take(&copy);
    err e = 0;
    struct noted_time note = {0};
    char path[PATH_MAX];
    while (!e && fread(&note, sizeof note, 1, notes) == 1) {
        if (note.path_bytes >= sizeof path ||
            (note.path_bytes && fread(path, note.path_bytes, 1, notes) != 1))
            e = fail(E_IO, "the noted times cannot be read back");
        path[e ? 0 : note.path_bytes] = 0;
        if (!e)
            e = set_noted_time(u, path, note.mtime);
    }
    fclose(notes);
    return e;
}
