#include "parent/data.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/id.h"

/* A socket's path holds DATA + "/sandboxes/" + an id + "/agent.sock". */
#define SHORT_MAX (SOCKET_PATH_MAX - 1 - 11 - 32 - 11)

static const struct {
    const char *name;
    bool control; /* owned by control, else by us */
    mode_t mode;
} folders[] = {
    {"logs", true, 0700},       {"objects", true, 0700}, {"images", false, 0755},
    {"sandboxes", false, 0711}, {"run", false, 0711},    {"keys", false, 0700},
    {"volumes", false, 0700},
};
static const char *const database_files[] = {"control.db", "control.db-wal", "control.db-shm"};

static err make_parents(const char *path)
{
    char copy[PATH_MAX];
    if (snprintf(copy, sizeof copy, "%s", path) >= (int)sizeof copy)
        return fail(E_INVALID, "the path %s is too long", path);
    for (char *at = copy + 1; *at; at++) {
        if (*at != '/')
            continue;
        *at = 0;
        if (mkdir(copy, 0755) < 0 && errno != EEXIST)
            return fail_errno("create %s", copy);
        *at = '/';
    }
    if (mkdir(copy, 0700) < 0 && errno != EEXIST)
        return fail_errno("create the folder %s", copy);
    return 0;
}

/* By descriptor and without following links: control can put names into DATA, and must not make us
   change the owner of a file elsewhere. */
static err own(int dir, const char *name, bool folder, uid_t uid, mode_t mode)
{
    AUTO_FD fd = openat(
        dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | (folder ? O_DIRECTORY : 0));
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return fail_errno("open %s in the data directory", name);
    if (!folder && (!S_ISREG(st.st_mode) || st.st_nlink != 1))
        return fail(E_INVALID, "%s in the data directory is not a plain file", name);
    if (st.st_uid != uid && fchown(fd, uid, uid) < 0)
        return fail_errno("give %s to uid %u", name, (unsigned)uid);
    if ((st.st_mode & 07777) != mode && fchmod(fd, mode) < 0)
        return fail_errno("set the mode of %s", name);
    return 0;
}

static err lock_data(int dir, const char *path, int kind, int *out_lock)
{
    AUTO_FD fd = openat(dir, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return fail_errno("create %s/lock", path);
    if (flock(fd, kind | LOCK_NB) < 0)
        return errno == EWOULDBLOCK
                   ? fail(E_CONFLICT,
                          "another pi-managed serves %s. Stop it first, or choose another "
                          "directory with --data",
                          path)
                   : fail_errno("lock %s", path);
    *out_lock = fd_take(&fd);
    return 0;
}

static err set_up_folders(int dir, uid_t control)
{
    uid_t self = geteuid();
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        if (mkdirat(dir, folders[i].name, 0700) < 0 && errno != EEXIST)
            return fail_errno("create %s in the data directory", folders[i].name);
        TRY(own(dir, folders[i].name, true, folders[i].control ? control : self, folders[i].mode));
    }
    for (size_t i = 0; i < sizeof database_files / sizeof *database_files; i++) {
        if (faccessat(dir, database_files[i], F_OK, AT_SYMLINK_NOFOLLOW) == 0)
            TRY(own(dir, database_files[i], false, control, 0600));
    }
    /* 1770 and not more: the sticky bit keeps control from renaming keys/ or sandboxes/. */
    if (control != self && (fchown(dir, self, control) < 0 || fchmod(dir, 01770) < 0))
        return fail_errno("set the owner of the data directory");
    if (control == self && fchmod(dir, 0700) < 0)
        return fail_errno("set the mode of the data directory");
    return 0;
}

static err open_locked(const char *path, uid_t control, int kind, struct data_dir *out)
{
    struct data_dir d = {.lock = -1};
    TRY(make_parents(path));
    if (realpath(path, d.path) == NULL)
        return fail_errno("resolve %s", path);
    AUTO_FD dir = open(d.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return fail_errno("open the data directory %s", d.path);
    AUTO_FD lock = -1;
    TRY(lock_data(dir, d.path, kind, &lock));
    TRY(set_up_folders(dir, control));
    d.fresh = faccessat(dir, "control.db", F_OK, AT_SYMLINK_NOFOLLOW) != 0;
    d.lock = fd_take(&lock);
    *out = d;
    return 0;
}

err data_open(const char *path, uid_t control, struct data_dir *out)
{
    return open_locked(path, control, LOCK_EX, out);
}

err data_open_shared(const char *path, uid_t control, struct data_dir *out)
{
    return open_locked(path, control, LOCK_SH, out);
}

static bool is_empty(int dir)
{
    AUTO_FD copy = fcntl(dir, F_DUPFD_CLOEXEC, 0);
    DIR *d = copy < 0 ? NULL : fdopendir(copy);
    size_t n = 0;
    if (d == NULL)
        return false;
    fd_take(&copy);
    while (readdir(d))
        n++;
    closedir(d);
    return n <= 2;
}

err data_open_objects(const char *path, uid_t control, char *out)
{
    struct stat st;
    TRY(make_parents(path));
    if (realpath(path, out) == NULL)
        return fail_errno("resolve %s", path);
    AUTO_FD dir = open(out, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0 || fstat(dir, &st) < 0)
        return fail_errno("open the folder for objects %s", out);
    if (st.st_uid != control && !is_empty(dir))
        return fail(E_INVALID,
                    "%s is used by somebody else (uid %u): give --objects a folder of its own", out,
                    (unsigned)st.st_uid);
    if (st.st_uid != control && fchown(dir, control, control) < 0)
        return fail_errno("give %s to uid %u", out, (unsigned)control);
    return fchmod(dir, 0700) < 0 ? fail_errno("set the mode of %s", out) : 0;
}

void data_close(struct data_dir *d)
{
    fd_close(&d->lock);
}

err data_key(const struct data_dir *d, const char *name, unsigned char *out, size_t n)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/keys/%s", d->path, name) >= (int)sizeof path)
        return fail(E_INVALID, "the path of the data directory is too long");
    AUTO_BUF bytes = {0};
    err e = fd_read_file(path, n, &bytes);
    if (e == E_NOT_FOUND) {
        rand_bytes(out, n);
        return fd_write_file_atomic(path, (struct str){(char *)out, n}, 0600);
    }
    TRY(e);
    if (bytes.n != n)
        return fail(E_INVALID, "%s has %zu bytes instead of %zu: restore it from a backup", path,
                    bytes.n, n);
    memcpy(out, bytes.p, n);
    sodium_memzero(bytes.p, bytes.n);
    return 0;
}

/* A folder that only we can write, for links. */
static err link_folder(char *out, size_t cap)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    if (geteuid() == 0)
        snprintf(out, cap, "/run/pi-managed");
    else if (runtime && runtime[0] == '/' && strlen(runtime) < 24)
        snprintf(out, cap, "%s/pm", runtime);
    else
        snprintf(out, cap, "/tmp/pi-managed-%u", (unsigned)geteuid());
    struct stat st;
    if (mkdir(out, geteuid() == 0 ? 0755 : 0700) < 0 && errno != EEXIST)
        return fail_errno("create %s", out);
    if (lstat(out, &st) < 0)
        return fail_errno("stat %s", out);
    if (!S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 022))
        return fail(E_FORBIDDEN, "%s belongs to somebody else or others can write it; remove it",
                    out);
    return 0;
}

err data_short_path(const struct data_dir *d, char *out, size_t cap)
{
    if (strlen(d->path) <= SHORT_MAX) {
        snprintf(out, cap, "%s", d->path);
        return 0;
    }
    char folder[64], name[96];
    TRY(link_folder(folder, sizeof folder));
    unsigned char hash[6];
    char hex[2 * sizeof hash + 1];
    crypto_generichash(hash, sizeof hash, (const unsigned char *)d->path, strlen(d->path), NULL, 0);
    sodium_bin2hex(hex, sizeof hex, hash, sizeof hash);
    snprintf(name, sizeof name, "%s/%s", folder, hex);
    char there[PATH_MAX];
    ssize_t n = readlink(name, there, sizeof there);
    bool linked = n >= 0 && str_is((struct str){there, (size_t)n}, d->path);
    if (!linked && unlink(name) < 0 && errno != ENOENT)
        return fail_errno("replace %s", name);
    if (!linked && symlink(d->path, name) < 0)
        return fail_errno("link %s", name);
    snprintf(out, cap, "%s", name);
    return 0;
}
