/* The host's walls: namespaces' contents, privileges and limits. The system call filter is in
 * filter.c. */
#include "harness/confine.h"

#include <cap-ng.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/mount.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"

/* One thing to show: cloned from the old root before anything is covered, attached in the new one.
 */
struct shown {
    const char *from, *to; /* `to` without the leading slash */
    unsigned long long attributes;
    int tree; /* a detached copy, -1 if absent */
    bool optional;
    bool is_folder;
};

enum {
    DATA = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC,
    CODE = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
    DEVICE = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC,
};

static err write_text(const char *path, const char *text)
{
    AUTO_FD fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text))
        return fail_errno("writing %s", path);
    return 0;
}

err confine_map_ids(unsigned uid, unsigned gid)
{
    char text[64];
    TRY(write_text("/proc/self/setgroups", "deny"));
    snprintf(text, sizeof text, "%u %u 1", uid, uid);
    TRY(write_text("/proc/self/uid_map", text));
    snprintf(text, sizeof text, "%u %u 1", gid, gid);
    return write_text("/proc/self/gid_map", text);
}

static err clone_tree(struct shown *s)
{
    struct stat st;
    s->tree = -1;
    if (stat(s->from, &st) < 0)
        return s->optional ? 0 : fail_errno("%s", s->from);
    s->is_folder = S_ISDIR(st.st_mode);
    unsigned flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | (s->is_folder ? AT_RECURSIVE : 0);
    s->tree = (int)syscall(SYS_open_tree, AT_FDCWD, s->from, flags);
    if (s->tree < 0)
        return fail_errno("copying the mount of %s", s->from);
    struct mount_attr attr = {.attr_set = s->attributes};
    if (syscall(SYS_mount_setattr, s->tree, "", AT_EMPTY_PATH | (s->is_folder ? AT_RECURSIVE : 0),
                &attr, sizeof attr) < 0)
        return fail_errno("making %s read-only", s->from);
    return 0;
}

/* Beneath the working directory, which is the new root. */
static err attach(struct shown *s)
{
    if (s->tree < 0)
        return 0;
    if (s->is_folder ? mkdir(s->to, 0755) : mknod(s->to, S_IFREG | 0444, 0))
        return fail_errno("making a place for %s", s->from);
    if (syscall(SYS_move_mount, s->tree, "", AT_FDCWD, s->to, MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return fail_errno("showing %s", s->from);
    fd_close(&s->tree);
    return 0;
}

/* /lib is a folder on some systems and a link into /usr on others; the host gets it either way. */
static err show_library(const char *path)
{
    char target[PATH_MAX];
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (n < 0)
        return 0;
    target[n] = 0;
    if (symlink(target, path + 1) < 0)
        return fail_errno("linking %s", path);
    return 0;
}

static bool is_link(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
}

/* A small read-only file system of our own becomes the root; any folder serves to hang it up. */
static err enter_empty_root(void)
{
    static const char *const places[] = {"/tmp", "/run", "/var", "/mnt"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        if (mount("host", places[i], "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC,
                  "size=64k,nr_inodes=64,mode=0755") == 0)
            return chdir(places[i]) ? fail_errno("entering the new root") : 0;
    }
    return fail_errno("mounting an empty root");
}

static bool mount_proc(void)
{
    unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY;
    return mkdir("proc", 0555) == 0 && (mount("proc", "proc", "proc", flags, "subset=pid") == 0 ||
                                        mount("proc", "proc", "proc", flags, NULL) == 0);
}

static err leave_old_root(void)
{
    if (syscall(SYS_pivot_root, ".", ".") < 0)
        return fail_errno("pivot_root");
    if (umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
        return fail_errno("leaving the old root");
    if (mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC,
              NULL) < 0)
        return fail_errno("making the root read-only");
    return 0;
}

err confine_mounts(const struct confine_tree *tree, bool *out_proc)
{
    char pi[PATH_MAX], undici[PATH_MAX];
    if (snprintf(pi, sizeof pi, "%s/pi", tree->runtime_dir) >= (int)sizeof pi ||
        snprintf(undici, sizeof undici, "%s/undici", tree->runtime_dir) >= (int)sizeof undici)
        return fail(E_INVALID, "%s: the path is too long", tree->runtime_dir);
    struct shown list[] = {
        {.from = tree->node, .to = &CONFINE_NODE[1], .attributes = CODE},
        {.from = pi, .to = &CONFINE_RUNTIME "/pi"[1], .attributes = DATA},
        {.from = undici, .to = &CONFINE_RUNTIME "/undici"[1], .attributes = DATA},
        {.from = tree->harness_dir, .to = &CONFINE_HARNESS[1], .attributes = DATA},
        {.from = tree->gateway, .to = &CONFINE_GATEWAY[1], .attributes = DATA},
        {.from = "/usr/lib", .to = "usr/lib", .attributes = CODE},
        {.from = "/usr/lib64", .to = "usr/lib64", .attributes = CODE, .optional = true},
        {.from = "/lib", .to = "lib", .attributes = CODE, .optional = true},
        {.from = "/lib64", .to = "lib64", .attributes = CODE, .optional = true},
        {.from = "/dev/null", .to = "dev/null", .attributes = DEVICE},
        {.from = "/dev/urandom", .to = "dev/urandom", .attributes = DEVICE},
    };
    size_t n = sizeof list / sizeof *list;
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return fail_errno("making mounts private");
    for (size_t i = 0; i < n; i++) {
        if (!is_link(list[i].from))
            TRY(clone_tree(&list[i]));
        else
            list[i].tree = -1;
    }
    TRY(enter_empty_root());
    umask(0);
    if (mkdir("pi", 0755) || mkdir(&CONFINE_RUNTIME[1], 0755) || mkdir("usr", 0755) ||
        mkdir("dev", 0755))
        return fail_errno("making the new root");
    for (size_t i = 0; i < n; i++)
        TRY(attach(&list[i]));
    TRY(show_library("/lib"));
    TRY(show_library("/lib64"));
    TRY(show_library("/usr/lib64"));
    *out_proc = mount_proc();
    return leave_old_root();
}

err confine_privileges(void)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_DUMPABLE, 0) < 0)
        return fail_errno("prctl");
    capng_clear(CAPNG_SELECT_ALL);
    if (capng_apply(CAPNG_SELECT_CAPS) != 0)
        return fail_errno("dropping capabilities");
    return 0;
}

static err set_limit(int what, rlim_t value)
{
    struct rlimit limit = {value, value};
    return setrlimit((__rlimit_resource_t)what, &limit) < 0 ? fail_errno("setting a limit") : 0;
}

err confine_limits(int node_fd)
{
    TRY(set_limit(RLIMIT_CORE, 0));
    TRY(set_limit(RLIMIT_FSIZE, 0));
    TRY(set_limit(RLIMIT_MEMLOCK, 0));
    TRY(set_limit(RLIMIT_MSGQUEUE, 0));
    return set_limit(RLIMIT_NOFILE, (rlim_t)node_fd);
}
