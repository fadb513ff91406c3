#include "sandbox/linux/disk.h"

#include "base/fd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/loop.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MKFS "/sbin/mkfs.ext4"
#define LOOP_TRIES 64 /* another maker may take the device we were told is free */
#define LOCK_TRIES 1000
#define LOCK_WAIT_MS 10

/* ---- making ---- */

/* Whatever it says goes to `said`. */
static err run_mkfs(const char *image, int said)
{
    /* The file reads as zeros: nothing needs to be written or discarded, and nothing later either.
       All of the space is for the sandbox's root. */
    char *argv[] = {MKFS, "-q", "-F", "-b", "4096", "-m", "0", "-E", "lazy_itable_init=1,nodiscard",
                    "--", NULL, NULL};
    argv[10] = (char *)image;
    char *none[] = {NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, said, 1);
    posix_spawn_file_actions_adddup2(&actions, said, 2);
    pid_t pid;
    int status = 0, failed = posix_spawn(&pid, MKFS, &actions, NULL, argv, none);
    posix_spawn_file_actions_destroy(&actions);
    if (failed)
        return fail(E_UNAVAILABLE, "run " MKFS ": %s; install e2fsprogs", strerror(failed));
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            return fail_errno("wait for " MKFS);
    }
    if (status == 0)
        return 0;
    char text[160] = {0};
    if (pread(said, text, sizeof text - 1, 0) > 0)
        text[strcspn(text, "\n")] = 0;
    return fail(E_IO, "make a file system in %s: %s (wait status %d)", image, text, status);
}

static err make_image(const char *image, uint32_t mib)
{
    AUTO_FD fd = open(image, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)mib << 20) < 0)
        return fail_errno("make %s", image);
    AUTO_FD said = memfd_create("mkfs", MFD_CLOEXEC);
    if (said < 0)
        return fail_errno("make a memory file");
    TRY(run_mkfs(image, said));
    /* It is about to be renamed to what counts as whole. */
    return fsync(fd) < 0 ? fail_errno("write %s", image) : 0;
}

err disk_make(const char *image, uint32_t mib)
{
    char temp[PATH_MAX];
    if (access(image, F_OK) == 0)
        return 0;
    if (snprintf(temp, sizeof temp, "%s.new", image) >= (int)sizeof temp)
        return fail(E_INVALID, "the path %s is too long", image);
    TRY(make_image(temp, mib));
    return rename(temp, image) < 0 ? fail_errno("name %s", image) : 0;
}

/* ---- loop devices ---- */

/* An open loop device with the file behind it; it goes when the last one closes or unmounts it. */
static err attach_loop(int file, char out_path[32], int *out_loop)
{
    AUTO_FD control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    if (control < 0)
        return fail_errno("open /dev/loop-control");
    for (int i = 0; i < LOOP_TRIES; i++) {
        int n = ioctl(control, LOOP_CTL_GET_FREE);
        if (n < 0)
            return fail_errno("ask for a free loop device");
        snprintf(out_path, 32, "/dev/loop%d", n);
        AUTO_FD loop = open(out_path, O_RDWR | O_CLOEXEC);
        if (loop < 0)
            return fail_errno("open %s", out_path);
        const struct loop_config config = {.fd = (uint32_t)file,
                                           .info = {.lo_flags = LO_FLAGS_AUTOCLEAR}};
        if (ioctl(loop, LOOP_CONFIGURE, &config) == 0) {
            *out_loop = fd_take(&loop);
            return 0;
        }
        if (errno != EBUSY)
            return fail_errno("set up %s", out_path);
    }
    return fail(E_UNAVAILABLE, "all loop devices are taken the moment they are free");
}

/* The loop device shares this open file, and so keeps its lock for as long as it has it. */
static err open_image(const char *image, int *out_fd)
{
    AUTO_FD fd = open(image, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return fail_errno("open %s", image);
    for (int i = 0; flock(fd, LOCK_EX | LOCK_NB) < 0; i++) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return fail_errno("lock %s", image);
        if (i == LOCK_TRIES)
            return fail(E_TIMEOUT, "%s is still mounted by a sandbox that ended", image);
        poll(NULL, 0, LOCK_WAIT_MS); /* nothing tells when the kernel has let go of it */
    }
    *out_fd = fd_take(&fd);
    return 0;
}

/* ---- mounting ---- */

static err set_option(int fs, const char *key, const char *value)
{
    if (fsconfig(fs, value ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG, key, value, 0) < 0)
        return fail_errno("ext4 option %s", key);
    return 0;
}

static err mount_device(const char *device, unsigned attrs, int *out_mount)
{
    AUTO_FD fs = fsopen("ext4", FSOPEN_CLOEXEC);
    if (fs < 0)
        return fail_errno("open the file system ext4");
    TRY(set_option(fs, "source", device));
    TRY(set_option(fs, "discard", NULL)); /* what is deleted inside is free outside */
    TRY(set_option(fs, "noinit_itable", NULL));
    TRY(set_option(fs, "errors", "remount-ro"));
    if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return fail_errno("mount the sandbox's disk %s", device);
    int m = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID | attrs);
    if (m < 0)
        return fail_errno("mount the sandbox's disk %s", device);
    *out_mount = m;
    return 0;
}

err disk_mount(const char *image, int *out_mount)
{
    AUTO_FD file = -1, loop = -1;
    char device[32];
    TRY(open_image(image, &file));
    TRY(attach_loop(file, device, &loop));
    return mount_device(device, 0, out_mount);
}

static bool has_behind(const char *device, const struct stat *file)
{
    struct loop_info64 info;
    AUTO_FD loop = open(device, O_RDONLY | O_CLOEXEC);
    return loop >= 0 && ioctl(loop, LOOP_GET_STATUS64, &info) == 0 &&
           info.lo_inode == file->st_ino && info.lo_device == file->st_dev;
}

err disk_mount_beside(const char *image, int *out_mount)
{
    struct stat file;
    if (stat(image, &file) < 0)
        return fail_errno("open %s", image);
    DIR *all = opendir("/sys/block");
    err e = E_NOT_FOUND;
    for (const struct dirent *d; e == E_NOT_FOUND && all && (d = readdir(all));) {
        char device[32];
        if (strncmp(d->d_name, "loop", 4) == 0 &&
            snprintf(device, sizeof device, "/dev/%s", d->d_name) < (int)sizeof device &&
            has_behind(device, &file))
            e = mount_device(device, MOUNT_ATTR_RDONLY, out_mount);
    }
    if (all)
        closedir(all);
    return e == E_NOT_FOUND ? fail(e, "no loop device has %s", image) : e;
}

/* ---- can it be done ---- */

err disk_probe(void)
{
    char device[32];
    AUTO_FD fs = fsopen("ext4", FSOPEN_CLOEXEC), file = memfd_create("disk", MFD_CLOEXEC);
    AUTO_FD loop = -1;
    if (access(MKFS, X_OK) < 0)
        return fail(E_UNAVAILABLE, "there is no " MKFS ": install e2fsprogs");
    if (fs < 0)
        return fail(E_UNAVAILABLE, "the kernel has no ext4: modprobe ext4");
    if (file < 0 || ftruncate(file, 1 << 20) < 0)
        return fail_errno("make a memory file");
    err e = attach_loop(file, device, &loop);
    return e ? fail(E_UNAVAILABLE, "%s; modprobe loop, in a container: --privileged", err_text())
             : 0;
}
