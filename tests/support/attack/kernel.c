/* What the kernel would have to allow: mounts, namespaces, processes outside, its files, devices,
   privilege, rarely used calls, control groups. */
#include "attack.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/io_uring.h>
#include <linux/keyctl.h>
#include <linux/perf_event.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/timex.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- mounts and namespaces ---- */

static const char *mount_tmpfs(void)
{
    if (mount("attack", "/mnt", "tmpfs", 0, NULL) < 0)
        return strerror(errno);
    return outcome(umount("/mnt") == 0);
}

static const char *mount_new_api(void)
{
    return outcome(syscall(SYS_fsopen, "tmpfs", 0) >= 0);
}

/* A copy of a mount could be made writable. */
static const char *mount_clone(void)
{
    int tree = (int)syscall(SYS_open_tree, AT_FDCWD, "/proc/sys", 1 /* OPEN_TREE_CLONE */);
    return outcome(tree >= 0);
}

static const char *unshare_user(void)
{
    return outcome(unshare(CLONE_NEWUSER) == 0);
}

static const char *unshare_mount(void)
{
    return outcome(unshare(CLONE_NEWNS) == 0);
}

static const char *clone_user(void)
{
    long pid = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0)
        _exit(0);
    return outcome(pid > 0);
}

/* Its flags lie in memory, where a filter of system calls cannot look. */
static const char *clone3_user(void)
{
    struct clone_args args = {.flags = CLONE_NEWUSER, .exit_signal = SIGCHLD};
    long pid = syscall(SYS_clone3, &args, sizeof args);
    if (pid == 0)
        _exit(0);
    return outcome(pid > 0);
}

/* unshare(CLONE_NEWNS) by the other system call tables of the processor. */
static const char *other_table(bool x32)
{
#if defined(__x86_64__)
    long r = x32 ? syscall(0x40000000 | SYS_unshare, CLONE_NEWNS) : 310;
    if (!x32) {
        __asm__ volatile("int $0x80"
                         : "+a"(r)
                         : "b"((long)CLONE_NEWNS)
                         : "memory", "r8", "r9", "r10", "r11");
        errno = (int)-r;
    }
    return outcome(r == 0);
#else
    (void)x32;
    return strerror(ENOSYS);
#endif
}

static const char *table_of_32_bits(void)
{
    return other_table(false);
}

static const char *table_of_x32(void)
{
    return other_table(true);
}

static const char *enter_namespace(void)
{
    int fd = open(path_of("pid", "ns/net"), O_RDONLY);
    return outcome(fd >= 0 && setns(fd, 0) == 0);
}

/* chroot is allowed: with a folder kept open, `..` leads out of it, but never further than /. */
static const char *chroot_and_climb(void)
{
    int out = open("/", O_RDONLY | O_DIRECTORY);
    if (mkdir("/tmp/attack.root", 0700) < 0 || chroot("/tmp/attack.root") < 0 || fchdir(out) < 0)
        return strerror(errno);
    for (int i = 0; i < 64; i++)
        if (chdir("..") < 0)
            return strerror(errno);
    if (chroot(".") < 0)
        return strerror(errno);
    rmdir("/tmp/attack.root");
    return outcome(access(value_of("file"), R_OK) == 0);
}

/* ---- processes outside ---- */

const char *seize(const char *key)
{
    return outcome(ptrace(PTRACE_SEIZE, number_of(key), 0, 0) == 0);
}

static const char *ptrace_outside(void)
{
    return seize("pid");
}

static const char *signal_outside(void)
{
    return outcome(kill(number_of("pid"), 0) == 0);
}

static const char *memory_outside(void)
{
    return outcome(open(path_of("pid", "mem"), O_RDWR) >= 0);
}

static const char *score_outside(void)
{
    char text[32];
    int fd = open(path_of("pid", "oom_score_adj"), O_RDWR);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text);
    return outcome(n > 0 && pwrite(fd, text, (size_t)n, 0) == n);
}

/* ---- the kernel's files ---- */

/* What is written is what was there; what [brackets] choose among choices. */
static const char *write_back(const char *path)
{
    char text[256];
    int fd = open(path, O_RDWR);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n <= 0)
        return strerror(errno);
    text[n] = 0;
    char *from = strchr(text, '['), *to = from ? strchr(from, ']') : NULL;
    const char *what = to ? from + 1 : text;
    size_t length = to ? (size_t)(to - from - 1) : (size_t)n;
    return outcome(pwrite(fd, what, length, 0) == (ssize_t)length);
}

static const char *write_proc_sys(void)
{
    return write_back("/proc/sys/vm/swappiness");
}

static const char *write_core_pattern(void)
{
    return write_back("/proc/sys/kernel/core_pattern");
}

static const char *write_sys(void)
{
    return write_back("/sys/kernel/mm/transparent_hugepage/enabled");
}

static const char *open_sysrq(void)
{
    struct stat st;
    int fd = open("/proc/sysrq-trigger", O_WRONLY); /* nothing is written */
    return outcome(fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode));
}

static const char *read_kernel_log(void)
{
    return outcome(syscall(SYS_syslog, 10 /* its size */, NULL, 0) >= 0);
}

/* ---- devices ---- */

static const char *open_device(mode_t kind, dev_t device)
{
    char path[64], sector[512];
    snprintf(path, sizeof path, "/tmp/attack.device.%d", (int)getpid());
    if (mknod(path, kind | 0600, device) < 0)
        return strerror(errno);
    int fd = open(path, O_RDONLY);
    const char *why = outcome(fd >= 0 && read(fd, sector, sizeof sector) == sizeof sector);
    unlink(path);
    return why;
}

static const char *device_disk(void)
{
    unsigned at[2] = {0, 0};
    sscanf(value_of("disk"), "%u:%u", &at[0], &at[1]);
    return open_device(S_IFBLK, makedev(at[0], at[1]));
}

static const char *device_zero(void)
{
    return open_device(S_IFCHR, makedev(1, 5));
}

static const char *push_to_terminal(void)
{
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) < 0 || unlockpt(master) < 0 || setsid() < 0)
        return strerror(errno);
    int terminal = open(ptsname(master), O_RDWR); /* becomes the controlling one */
    return outcome(terminal >= 0 && ioctl(terminal, TIOCSTI, "x") == 0);
}

/* ---- privilege ---- */

static bool copy_self(const char *path)
{
    char block[65536];
    int from = open(self, O_RDONLY), to = open(path, O_WRONLY | O_CREAT | O_EXCL, 0700);
    ssize_t n;
    while (from >= 0 && to >= 0 && (n = read(from, block, sizeof block)) > 0)
        if (write(to, block, (size_t)n) != n)
            return false;
    bool copied = from >= 0 && to >= 0 && fchmod(to, 04755) == 0;
    close(from);
    close(to);
    return copied;
}

static void run_as_somebody(const char *path)
{
    gid_t gid = (gid_t)number_of("uid");
    if (setgid(gid) < 0 || setuid((uid_t)gid) < 0)
        _exit(3);
    execl(path, path, "euid", (char *)NULL);
    _exit(4);
}

static const char *setuid_program(void)
{
    char path[64];
    int status = -1;
    snprintf(path, sizeof path, "/tmp/attack.setuid.%d", (int)getpid());
    if (!copy_self(path))
        return strerror(errno);
    pid_t pid = fork();
    if (pid == 0)
        run_as_somebody(path);
    waitpid(pid, &status, 0);
    unlink(path);
    return status == 0 ? NULL : "no privilege came of it";
}

static const char *raise_limit(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NICE, &limit);
    limit.rlim_max += limit.rlim_max < RLIM_INFINITY;
    return outcome(setrlimit(RLIMIT_NICE, &limit) == 0);
}

/* By nothing. */
static const char *set_clock(void)
{
    struct timex step = {.modes = ADJ_SETOFFSET};
    return outcome(adjtimex(&step) >= 0);
}

static const char *real_time_priority(void)
{
    return outcome(setpriority(PRIO_PROCESS, 0, -5) == 0);
}

/* ---- the kernel's darker corners ---- */

static const char *key_add(void)
{
    return outcome(syscall(SYS_add_key, "user", "attack", "x", 1, KEY_SPEC_PROCESS_KEYRING) >= 0);
}

static const char *key_session(void)
{
    return outcome(syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_PROCESS_KEYRING, 1) >= 0);
}

static const char *fault_handler(void)
{
    return outcome(syscall(SYS_userfaultfd, 0) >= 0);
}

static const char *ring(void)
{
    struct io_uring_params params = {0};
    return outcome(syscall(SYS_io_uring_setup, 1, &params) >= 0);
}

static const char *bpf_map(void)
{
    union bpf_attr attr = {
        .map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1};
    return outcome(syscall(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof attr) >= 0);
}

static const char *perf_event(void)
{
    struct perf_event_attr attr = {.type = PERF_TYPE_SOFTWARE, .size = sizeof attr};
    return outcome(syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0) >= 0);
}

static const char *watch_files(void)
{
    return outcome(syscall(SYS_fanotify_init, 0, O_RDONLY) >= 0);
}

/* Permission is checked first: another complaint means that it was there. */
static const char *load_module(void)
{
    return outcome(syscall(SYS_finit_module, -1, "", 0) >= 0 || errno == EBADF);
}

static const char *restart_machine(void)
{
    return outcome(syscall(SYS_reboot, 0, 0, 0, NULL) >= 0 || errno == EINVAL); /* no magic */
}

/* ---- control groups ---- */

static const char *in_cgroups(const char *(*attempt)(const char *group))
{
    const char *why = "there is no control group in sight";
    static const char *const roots[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/pids",
                                        "/sys/fs/cgroup/unified"};
    for (size_t i = 0; i < sizeof roots / sizeof *roots; i++)
        if (access(roots[i], F_OK) == 0 && !(why = attempt(roots[i])))
            return NULL;
    return why;
}

static const char *mount_cgroup_version(const char *type, const char *options)
{
    if (mount("attack", "/mnt", type, 0, options) < 0)
        return strerror(errno);
    return outcome(umount("/mnt") == 0);
}

static const char *cgroup_mount(void)
{
    const char *why = mount_cgroup_version("cgroup2", NULL);
    return why ? mount_cgroup_version("cgroup", "pids") : NULL;
}

static const char *make_group(const char *root)
{
    char path[128];
    snprintf(path, sizeof path, "%s/attack.%d", root, (int)getpid());
    if (mkdir(path, 0700) < 0)
        return strerror(errno);
    return outcome(access(path, F_OK) == 0 && rmdir(path) == 0 && strstr(path, "/sys/fs/cgroup/"));
}

static const char *cgroup_make(void)
{
    return in_cgroups(make_group);
}

static const char *open_agent(const char *root)
{
    char path[128];
    snprintf(path, sizeof path, "%s/release_agent", root);
    return outcome(open(path, O_WRONLY) >= 0); /* nothing is written */
}

static const char *cgroup_release_agent(void)
{
    return in_cgroups(open_agent);
}

const struct attempt kernel_attempts[] = {
    {.name = "mount", .run = mount_tmpfs},
    {.name = "mount_new_api", .run = mount_new_api},
    {.name = "mount_clone", .run = mount_clone},
    {.name = "unshare_user", .run = unshare_user},
    {.name = "unshare_mount", .run = unshare_mount},
    {.name = "clone_user", .run = clone_user},
    {.name = "clone3_user", .run = clone3_user},
    {.name = "table_of_32_bits", .run = table_of_32_bits},
    {.name = "table_of_x32", .run = table_of_x32},
    {.name = "enter_namespace", .run = enter_namespace},
    {.name = "chroot_and_climb", .run = chroot_and_climb},
    {.name = "ptrace", .run = ptrace_outside},
    {.name = "signal", .run = signal_outside},
    {.name = "process_memory", .run = memory_outside},
    {.name = "process_score", .run = score_outside},
    {.name = "proc_sys", .run = write_proc_sys},
    {.name = "core_pattern", .run = write_core_pattern},
    {.name = "sys", .run = write_sys},
    {.name = "sysrq", .run = open_sysrq},
    {.name = "kernel_log", .run = read_kernel_log},
    {.name = "device_disk", .run = device_disk},
    {.name = "device_zero", .run = device_zero},
    {.name = "tiocsti", .run = push_to_terminal},
    {.name = "setuid_program", .run = setuid_program},
    {.name = "raise_limit", .run = raise_limit},
    {.name = "set_clock", .run = set_clock},
    {.name = "priority", .run = real_time_priority},
    {.name = "key_add", .run = key_add},
    {.name = "key_session", .run = key_session},
    {.name = "userfaultfd", .run = fault_handler},
    {.name = "io_uring", .run = ring},
    {.name = "bpf", .run = bpf_map},
    {.name = "perf_event", .run = perf_event},
    {.name = "watch_files", .run = watch_files},
    {.name = "load_module", .run = load_module},
    {.name = "restart_machine", .run = restart_machine},
    {.name = "cgroup_mount", .run = cgroup_mount},
    {.name = "cgroup_make", .run = cgroup_make},
    {.name = "cgroup_release_agent", .run = cgroup_release_agent},
    {.name = NULL},
};
