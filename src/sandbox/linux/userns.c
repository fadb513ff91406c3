#include "sandbox/linux/userns.h"

#include "base/fd.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <sys/syscall.h>
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
