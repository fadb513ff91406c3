#include "sandbox/linux/userns.h"

#include "base/buf.h"
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#define SUB_IDS_FILE_MAX (1u << 20)
#define SUB_IDS_LEAST 1000 /* fewer do not reach the users that packages bring */

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

/* ---- subordinate ids ---- */

#define NEWUIDMAP "/usr/bin/newuidmap"
#define NEWGIDMAP "/usr/bin/newgidmap"

/* Ids that an administrator gave this user, beside his own. */
struct sub_ids {
    uint32_t first, count; /* count 0: none */
};

/* Lines "user:first:count", user by name or number. */
static struct sub_ids find_sub_ids(const char *path, const char *name)
{
    char number[16];
    AUTO_BUF text = {0};
    struct sub_ids none = {0};
    snprintf(number, sizeof number, "%u", (unsigned)geteuid());
    if (fd_read_file(path, SUB_IDS_FILE_MAX, &text))
        return none;
    struct str rest = buf_str(&text), line, user, first, count;
    while (str_split(&rest, '\n', &line)) {
        uint64_t f, n;
        if (!str_split(&line, ':', &user) || !str_split(&line, ':', &first) ||
            !str_split(&line, ':', &count) || !(str_is(user, name) || str_is(user, number)) ||
            !str_to_u64(first, &f) || !str_to_u64(count, &n) || f == 0 || n < SUB_IDS_LEAST ||
            f > UINT32_MAX || f + n > UINT32_MAX)
            continue;
        return (struct sub_ids){(uint32_t)f, n < USERNS_IDS ? (uint32_t)n : USERNS_IDS - 1};
    }
    return none;
}

/* Both or none; looked for once. The tools themselves check again, and may refuse. */
static bool find_ranges(struct sub_ids *uids, struct sub_ids *gids)
{
    const struct passwd *user = getpwuid(geteuid());
    if (!user || access(NEWUIDMAP, X_OK) < 0 || access(NEWGIDMAP, X_OK) < 0)
        return false;
    *uids = find_sub_ids("/etc/subuid", user->pw_name);
    *gids = find_sub_ids("/etc/subgid", user->pw_name);
    return uids->count > 0 && gids->count > 0;
}

static err run_map_tool(const char *tool, pid_t pid, uint32_t own, struct sub_ids ids)
{
    char texts[4][16];
    const uint32_t numbers[4] = {(uint32_t)pid, own, ids.first, ids.count};
    for (size_t i = 0; i < 4; i++)
        snprintf(texts[i], sizeof texts[i], "%u", numbers[i]);
    char *argv[] = {
        (char *)(uintptr_t)tool, texts[0], "0", texts[1], "1", "1", texts[2], texts[3], NULL};
    char *none[] = {NULL};
    pid_t child;
    int status = 0, failed = posix_spawn(&child, tool, NULL, NULL, argv, none);
    if (failed)
        return fail(E_UNAVAILABLE, "run %s: %s", tool, strerror(failed));
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR)
            return fail_errno("wait for %s", tool);
    }
    return status == 0 ? 0 : fail(E_UNAVAILABLE, "%s refused (wait status %d)", tool, status);
}

static struct {
    bool looked, found;
    struct sub_ids uids, gids;
} range; /* of this process's user; one thread */

/* Subordinate ids, as far as the files in /etc tell. */
static bool has_range(void)
{
    if (!range.looked)
        range.found = geteuid() != 0 && find_ranges(&range.uids, &range.gids);
    range.looked = true;
    return range.found;
}

/* As it will be done for a sandbox. */
static err map_trial(void *arg, uint64_t *out)
{
    (void)arg;
    AUTO_BUF map = {0};
    *out = 0;
    TRY(fd_read_file("/proc/self/uid_map", 4096, &map));
    for (size_t i = 0; i < map.n; i++)
        *out += map.p[i] == '\n';
    return 0;
}

bool userns_range_works(void)
{
    uint64_t lines = 0;
    return has_range() && userns_call(map_trial, NULL, &lines) == 0 && lines == 2;
}

bool userns_counts_processes(void)
{
    struct utsname name;
    unsigned major = 0, minor = 0;
    return !userns_is_privileged() && !has_range() && uname(&name) == 0 &&
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

static err map_both(pid_t pid, uint32_t uid, uint32_t gid, uint32_t outside, uint32_t count)
{
    char map[64];
    if (outside == 0 || outside > UINT32_MAX - count)
        return fail(E_INTERNAL, "id range %u… cannot be given to a sandbox", outside);
    snprintf(map, sizeof map, "%u %u %u", uid, outside, count);
    TRY(write_proc(pid, "uid_map", map));
    snprintf(map, sizeof map, "%u %u %u", gid, outside, count);
    return write_proc(pid, "gid_map", map);
}

err userns_map_range(pid_t pid, uint32_t base)
{
    return map_both(pid, 0, 0, base, USERNS_IDS);
}

err userns_map_self(pid_t pid)
{
    char map[64];
    /* Where the tool refuses, whatever the files say, there is still the one id. */
    if (has_range() && run_map_tool(NEWUIDMAP, pid, geteuid(), range.uids) == 0)
        return run_map_tool(NEWGIDMAP, pid, getegid(), range.gids);
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

err userns_make(uint32_t uid, uint32_t gid, uint32_t outside, uint32_t count, int *out_fd)
{
    int ends[2];
    char none;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return fail_errno("make a pipe");
    AUTO_FD wait = ends[0], hold = ends[1];
    pid_t pid = (pid_t)syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (pid < 0)
        return fail_errno("create a user namespace");
    if (pid == 0) { /* until we have it, or are gone */
        close(hold);
        _exit(read(wait, &none, 1) == 0 ? 0 : 1);
    }
    AUTO_FD ns = -1;
    err e = map_both(pid, uid, gid, outside, count);
    if (!e)
        e = userns_open(pid, &ns);
    fd_close(&hold);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    TRY(e);
    *out_fd = fd_take(&ns);
    return 0;
}
