#include "sandbox/linux/userns.h"

#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

bool userns_is_privileged(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2] = {0};
    if (geteuid() != 0 || syscall(SYS_capget, &header, data) < 0)
        return false;
    const uint32_t need = 1u << CAP_SYS_ADMIN | 1u << CAP_SETUID | 1u << CAP_SETGID |
                          1u << CAP_CHOWN | 1u << CAP_DAC_OVERRIDE;
    return (data[0].effective & need) == need;
}

bool userns_has_range(void)
{
    return false;
}

bool userns_counts_processes(void)
{
    struct utsname name;
    unsigned major = 0, minor = 0;
    return !userns_is_privileged() && !userns_has_range() && uname(&name) == 0 &&
           sscanf(name.release, "%u.%u", &major, &minor) == 2 &&
           (major > 5 || (major == 5 && minor >= 14));
}

static err write_proc(pid_t pid, const char *name, const char *text)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    AUTO_FD fd = open(path, O_WRONLY | O_CLOEXEC);
    /* One write: the kernel takes a map whole or not at all. */
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        return fail_errno("write the sandbox's %s", name);
    return 0;
}

err userns_map_range(pid_t pid, uint32_t base)
{
    if (base == 0 || base > UINT32_MAX - USERNS_IDS)
        return fail(E_INTERNAL, "id range %u… cannot be given to a sandbox", base);
    char map[64];
    snprintf(map, sizeof map, "0 %u %u", base, USERNS_IDS);
    TRY(write_proc(pid, "uid_map", map));
    return write_proc(pid, "gid_map", map);
}

err userns_map_self(pid_t pid)
{
    char map[64];
    TRY(write_proc(pid, "setgroups",
                   "deny")); /* the kernel's condition for a plain user's gid map */
    snprintf(map, sizeof map, "0 %u 1", (unsigned)geteuid());
    TRY(write_proc(pid, "uid_map", map));
    snprintf(map, sizeof map, "0 %u 1", (unsigned)getegid());
    return write_proc(pid, "gid_map", map);
}

struct answer {
    struct err_slot slot;
    uint64_t value;
};

/* Waits until it has its ids. */
_Noreturn static void answer_inside(int channel, err (*fn)(void *arg, uint64_t *out), void *arg)
{
    struct answer a = {0};
    char go;
    err e = fd_read_full(channel, &go, 1);
    /* Raw: the library's own would also wait for threads that only our maker has. */
    if (!e && (syscall(SYS_setresgid, 0, 0, 0) < 0 || syscall(SYS_setresuid, 0, 0, 0) < 0))
        e = fail_errno("become root over the sandbox's files");
    if (!e)
        e = fn(arg, &a.value);
    if (e)
        err_save(&a.slot);
    _exit(fd_write_full(channel, &a, sizeof a) == 0 ? 0 : 1);
}

static err hear_answer(int channel, pid_t pid, uint64_t *out)
{
    struct answer a;
    TRY(userns_map_self(pid));
    TRY(fd_write_full(channel, "g", 1));
    TRY(fd_read_full(channel, &a, sizeof a));
    if (a.slot.e)
        return err_restore(&a.slot);
    *out = a.value;
    return 0;
}

err userns_call(err (*fn)(void *arg, uint64_t *out), void *arg, uint64_t *out)
{
    int pair[2];
    if (userns_is_privileged())
        return fn(arg, out);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return fail_errno("make a socket pair");
    AUTO_FD ours = pair[0], theirs = pair[1];
    pid_t pid = (pid_t)syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (pid < 0)
        return fail_errno("create a user namespace");
    if (pid == 0) {
        close(ours);
        answer_inside(theirs, fn, arg);
    }
    fd_close(&theirs);
    err e = hear_answer(ours, pid, out);
    if (e)
        kill(pid, SIGKILL);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    return e;
}

err userns_open(pid_t pid, int *out_fd)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/ns/user", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return fail_errno("open the sandbox's user namespace");
    *out_fd = fd;
    return 0;
}
