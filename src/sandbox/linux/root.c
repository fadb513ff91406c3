#include "sandbox/linux/root.h"

#include "base/fd.h"
#include "base/tree.h"
#include "hands/frames.h"
#include "sandbox/linux/disk.h"
#include "sandbox/linux/image_host.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Debian: /usr/bin/editor → /etc/alternatives/editor → /usr/bin/vim. */
#define ALTERNATIVES "etc/alternatives"
#define SHM_MAX_MIB 64
#define NO_HARM (MS_NOSUID | MS_NODEV)
#define ATTR_SHARED_RO (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)

static err make_owned(const char *path, mode_t mode, uid_t owner)
{
    if (mkdir(path, mode) < 0)
        return errno == EEXIST ? 0 : fail_errno("make %s", path);
    if (chmod(path, mode) < 0) /* whatever the umask is: it becomes the mode of / inside */
        return fail_errno("set the mode of %s", path);
    if (owner != geteuid() && chown(path, owner, owner) < 0)
        return fail_errno("give %s to the sandbox", path);
    return 0;
}

static err make_folders(const struct root_plan *plan)
{
    char path[PATH_MAX];
    static const char *const owned[] = {"upper", "work"};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) {
        snprintf(path, sizeof path, "%s/%s", plan->fs_dir, owned[i]);
        TRY(make_owned(path, 0755, plan->owner));
    }
    static const char *const layers[] = {"lower", "tools"};
    for (size_t i = 0; i < (plan->image ? 2 : 1); i++) {
        snprintf(path, sizeof path, "%s/%s", plan->fs_dir, layers[i]);
        TRY(make_owned(path, 0755, geteuid()));
    }
    return 0;
}

err root_prepare(const struct root_plan *plan)
{
    /* 0700: what the sandbox writes (set-uid programs, say) is not for other users of this host. */
    if (mkdir(plan->fs_dir, 0700) < 0 && errno != EEXIST)
        return fail_errno("make %s", plan->fs_dir);
    return plan->disk ? 0 : make_folders(plan);
}

/* Over fs_dir, in this mount namespace alone. */
static err mount_disk(const struct root_plan *plan)
{
    AUTO_FD disk = -1;
    TRY(disk_mount(plan->disk, &disk));
    if (move_mount(disk, "", AT_FDCWD, plan->fs_dir, MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return fail_errno("mount the sandbox's disk on %s", plan->fs_dir);
    return make_folders(plan);
}

err root_clean(const char *dir)
{
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/fs/work", dir) >= (int)sizeof path)
        return fail(E_INVALID, "the sandbox folder %s has too long a name", dir);
    return tree_remove(path);
}

/* A layer at ./name, so that the overlay's options name no host path (they show in /proc/mounts).
 */
static err mount_layer(const char *path, const char *name, int userns_fd)
{
    AUTO_FD tree = open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (tree < 0)
        return fail_errno("clone the mount of %s", path);
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY};
    if (userns_fd >= 0) {
        attr.attr_set |= MOUNT_ATTR_IDMAP;
        attr.userns_fd = (uint64_t)userns_fd;
    }
    /* A plain user's clone keeps the flags its mount has; read-only is extra there, never required.
     */
    if (mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0)
        return fail_errno("map the ids of %s", path);
    if (move_mount(tree, "", AT_FDCWD, name, MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return fail_errno("mount the layer %s", name);
    return 0;
}

static err mount_layers(const struct root_plan *plan, int userns_fd)
{
    if (plan->image)
        TRY(mount_layer(plan->tools, "tools", userns_fd));
    return mount_layer(plan->image ? plan->image : plan->skeleton, "lower", userns_fd);
}

static err set_option(int fs, const char *key, const char *value)
{
    unsigned command = value ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG;
    if (fsconfig(fs, command, key, value, 0) < 0)
        return fail_errno("overlay option %s", key);
    return 0;
}

/* In plan->fs_dir. */
static err mount_overlay(const char *lower, bool privileged, int *out_mount)
{
    AUTO_FD fs = fsopen("overlay", FSOPEN_CLOEXEC);
    if (fs < 0)
        return fail_errno("open the overlay file system");
    TRY(set_option(fs, "source", "root"));
    TRY(set_option(fs, "lowerdir", lower));
    TRY(set_option(fs, "upperdir", "upper"));
    TRY(set_option(fs, "workdir", "work"));
    if (!privileged)
        TRY(set_option(fs, "userxattr", NULL));
    if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return fail_errno("make the overlay");
    int m = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID);
    if (m < 0)
        return fail_errno("mount the overlay");
    *out_mount = m;
    return 0;
}

static bool folder_is_empty(const char *path)
{
    DIR *d = opendir(path);
    if (!d)
        return false;
    int n = 0;
    while (n <= 2 && readdir(d))
        n++;
    closedir(d);
    return n <= 2; /* . and .. */
}

static void sync_folder(const char *path)
{
    AUTO_FD fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0)
        syncfs(fd);
}

/* Where no overlay works (a network disk, a container's own overlay): a full copy of the small
 * skeleton. */
static err mount_plain(const struct root_plan *plan, int *out_mount)
{
    if (access("plain", F_OK) < 0) {
        TRY(tree_remove("plain.new")); /* of a maker that died */
        if (mkdir("plain.new", 0755) < 0)
            return fail_errno("make the plain root");
        TRY(image_host_build("plain.new", plan->runtime, plan->owner));
        sync_folder("plain.new"); /* it outlives this boot, unlike a shared skeleton */
        if (rename("plain.new", "plain") < 0)
            return fail_errno("name the plain root");
    }
    AUTO_FD tree = open_tree(AT_FDCWD, "plain", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID};
    if (tree < 0 || mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof attr) < 0)
        return fail_errno("mount the plain root");
    *out_mount = fd_take(&tree);
    return 0;
}

err root_build(const struct root_plan *plan, int userns_fd, int *out_mount)
{
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return fail_errno("make the mounts private");
    if (plan->disk)
        TRY(mount_disk(plan));
    if (chdir(plan->fs_dir) < 0)
        return fail_errno("enter %s", plan->fs_dir);
    if (access("plain", F_OK) == 0)
        return mount_plain(plan, out_mount);
    err e = mount_layers(plan, userns_fd);
    if (!e)
        e = mount_overlay(plan->image ? "tools:lower" : "lower", userns_fd >= 0, out_mount);
    umount2("lower", MNT_DETACH); /* the overlay holds its own */
    if (plan->image) {
        umount2("tools", MNT_DETACH);
        return e; /* too big to be copied for each sandbox */
    }
    /* Files already in the upper layer must not vanish behind another root. */
    if (e && folder_is_empty("upper"))
        return mount_plain(plan, out_mount);
    return e;
}

/* From here on: in the init, the new root is /, the host is only reachable through `host`. */

static err bind_from_host(int host, const char *from, const char *to, unsigned flags,
                          uint64_t attrs)
{
    AUTO_FD tree = open_tree(host, from, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | flags);
    if (tree < 0)
        return fail_errno("clone /%s", from);
    struct mount_attr attr = {.attr_set = attrs};
    if (mount_setattr(tree, "", AT_EMPTY_PATH | flags, &attr, sizeof attr) < 0)
        return fail_errno("restrict /%s", from);
    if (move_mount(tree, "", AT_FDCWD, to, MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return fail_errno("mount %s", to);
    return 0;
}

/* The agent may have removed it before a stop, or left a file or a link to nowhere in its place. A
   link to a folder may stay: all of it is inside. */
static err ensure_folder(const char *path, mode_t mode)
{
    struct stat st;
    if (mkdir(path, mode) == 0 || (stat(path, &st) == 0 && S_ISDIR(st.st_mode)))
        return 0;
    if (unlink(path) < 0 || mkdir(path, mode) < 0)
        return fail_errno("make %s", path);
    return 0;
}

/* Host ownership stays unmapped there: the host's mode bits go on protecting what is not for
 * everyone. */
static err mount_programs(int host)
{
    TRY(bind_from_host(host, "usr", "/usr", AT_RECURSIVE, ATTR_SHARED_RO));
    for (size_t i = 0; image_host_merged[i]; i++) {
        const char *name = image_host_merged[i];
        char to[16];
        struct stat st;
        snprintf(to, sizeof to, "/%s", name);
        if (fstatat(host, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
            TRY(bind_from_host(host, name, to, AT_RECURSIVE, ATTR_SHARED_RO));
    }
    if (faccessat(host, ALTERNATIVES, F_OK, 0) < 0)
        return 0;
    TRY(ensure_folder("/etc", 0755));
    TRY(ensure_folder("/" ALTERNATIVES, 0755));
    return bind_from_host(host, ALTERNATIVES, "/" ALTERNATIVES, 0, ATTR_SHARED_RO);
}

static err mount_device(int host, const char *name)
{
    char from[32], to[32];
    snprintf(from, sizeof from, "dev/%s", name);
    snprintf(to, sizeof to, "/dev/%s", name);
    AUTO_FD fd = open(to, O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
    if (fd < 0)
        return fail_errno("create %s", to);
    return bind_from_host(host, from, to, 0, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
}

static err make_device_links(void)
{
    static const char *const links[][2] = {
        {"/proc/self/fd", "/dev/fd"},       {"/proc/self/fd/0", "/dev/stdin"},
        {"/proc/self/fd/1", "/dev/stdout"}, {"/proc/self/fd/2", "/dev/stderr"},
        {"pts/ptmx", "/dev/ptmx"},
    };
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        if (symlink(links[i][0], links[i][1]) < 0)
            return fail_errno("create %s", links[i][1]);
    }
    return 0;
}

/* Both count as memory. /tmp has half of it, so that with a quarter here another is left to work
   with when both are full. */
static uint32_t shm_mib(uint32_t tmp_mib)
{
    return tmp_mib / 2 < SHM_MAX_MIB ? tmp_mib / 2 : SHM_MAX_MIB;
}

static err mount_dev(int host, uint32_t tmp_mib)
{
    char options[64];
    snprintf(options, sizeof options, "mode=1777,size=%um", shm_mib(tmp_mib));
    if (mount("dev", "/dev", "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=755,size=64k") < 0)
        return fail_errno("mount /dev");
    static const char *const devices[] = {"null", "zero", "full", "random", "urandom", "tty"};
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        TRY(mount_device(host, devices[i]));
    TRY(make_device_links());
    if (mkdir("/dev/pts", 0755) < 0 || mkdir("/dev/shm", 01777) < 0)
        return fail_errno("make the folders of /dev");
    if (mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC,
              "newinstance,ptmxmode=0666,mode=620") < 0)
        return fail_errno("mount /dev/pts");
    if (mount("shm", "/dev/shm", "tmpfs", NO_HARM, options) < 0)
        return fail_errno("mount /dev/shm");
    return 0;
}

static err remount_read_only(const char *path)
{
    if (mount(path, path, NULL, MS_BIND | MS_REC, NULL) < 0)
        return errno == ENOENT ? 0 : fail_errno("bind %s", path);
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_RDONLY};
    if (mount_setattr(AT_FDCWD, path, AT_RECURSIVE, &attr, sizeof attr) < 0)
        return fail_errno("make %s read-only", path);
    return 0;
}

static err mask(const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return 0;
    int r = S_ISDIR(st.st_mode)
                ? mount("none", path, "tmpfs", MS_RDONLY | NO_HARM, "size=4k,nr_inodes=1")
                : mount("/dev/null", path, NULL, MS_BIND, NULL);
    return r < 0 ? fail_errno("mask %s", path) : 0;
}

/* What says too much of the host or could steer it, as other container runtimes mask it. */
static err mount_kernel(void)
{
    const unsigned long flags = NO_HARM | MS_NOEXEC;
    if (mount("proc", "/proc", "proc", flags, NULL) < 0)
        return fail_errno("mount a new /proc");
    if (mount("sysfs", "/sys", "sysfs", flags | MS_RDONLY, NULL) < 0)
        return fail_errno("mount /sys");
    static const char *const masked[] = {
        "/proc/acpi",     "/proc/asound",        "/proc/config.gz",     "/proc/kcore",
        "/proc/keys",     "/proc/latency_stats", "/proc/sched_debug",   "/proc/scsi",
        "/proc/kallsyms", "/proc/timer_list",    "/proc/sysrq-trigger", "/sys/firmware",
    };
    for (size_t i = 0; i < sizeof masked / sizeof *masked; i++)
        TRY(mask(masked[i]));
    static const char *const fixed[] = {"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys"};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        TRY(remount_read_only(fixed[i]));
    return 0;
}

static err mount_tmp(uint32_t mib)
{
    char options[64];
    snprintf(options, sizeof options, "mode=1777,size=%um", mib);
    if (mount("tmp", "/tmp", "tmpfs", NO_HARM, options) < 0)
        return fail_errno("mount /tmp");
    return 0;
}

static err make_work_folders(void)
{
    static const char *const paths[] = {"/root",        SANDBOX_WORKDIR, "/mnt",
                                        "/mnt/session", SANDBOX_OUTPUTS, SANDBOX_TOOL_OUTPUT};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        TRY(ensure_folder(paths[i], i == 0 ? 0700 : 0755));
    }
    return 0;
}

/* Stacks the new root on / and swaps them, so that no mount point outside is needed. Afterwards
   paths and links are resolved inside, whatever the agent left there; the old root stays on top,
   unreachable by path, until leave_host: a new /proc may be mounted only while an old one is in
   sight. */
static err swap_root(int mount_fd)
{
    if (move_mount(mount_fd, "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return fail_errno("attach the root");
    if (fchdir(mount_fd) < 0 || syscall(SYS_pivot_root, ".", ".") < 0)
        return fail_errno("change to the root");
    return 0;
}

static err leave_host(int host)
{
    if (fchdir(host) < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
        return fail_errno("leave the host's root");
    return 0;
}

err root_enter(const struct root_plan *plan, int mount_fd)
{
    AUTO_FD host = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (host < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return fail_errno("make the mounts private");
    TRY(swap_root(mount_fd));
    if (!plan->image)
        TRY(mount_programs(host));
    TRY(mount_dev(host, plan->tmp_mib));
    TRY(mount_kernel());
    TRY(mount_tmp(plan->tmp_mib));
    TRY(remount_read_only("/.pi"));
    TRY(leave_host(host));
    return make_work_folders();
}
