#include "sandbox/linux/init.h"

#include "base/buf.h"
#include "base/fd.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/pidfd.h>
#include <time.h>
#include <unistd.h>

#define KILL_WAIT_MS 10000 /* a killed process may still be writing to a slow disk */

#define STAT_FLAGS 9 /* proc(5) */
#define STAT_START_TICKS 22
#define FLAG_EXITING 0x4 /* PF_EXITING of linux/sched.h */

static err read_boot_id(char out[STATE_BOOT_ID_MAX])
{
    AUTO_BUF text = {0};
    TRY(fd_read_file("/proc/sys/kernel/random/boot_id", 256, &text));
    size_t n = text.n < STATE_BOOT_ID_MAX ? text.n : STATE_BOOT_ID_MAX - 1;
    memcpy(out, text.p, n);
    out[n] = 0;
    out[strcspn(out, "\n")] = 0;
    return 0;
}

/* A number of /proc/<pid>/stat; fields are counted behind the command name, which may hold
   anything. */
static err read_stat(pid_t pid, int wanted, uint64_t *out)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    AUTO_BUF text = {0};
    TRY(fd_read_file(path, 4096, &text));
    const char *p = strrchr(text.p, ')');
    for (int field = 2; p && field < wanted; field++)
        p = strchr(p + 1, ' ');
    if (!p)
        return fail(E_INTERNAL, "%s is not as expected", path);
    *out = strtoull(p + 1, NULL, 10);
    return 0;
}

/* Signals that its first thread (SigPnd) or the whole process (ShdPnd) has yet to take. */
static uint64_t read_pending(pid_t pid)
{
    static const char *const lines[] = {"\nSigPnd:", "\nShdPnd:"};
    char path[64];
    uint64_t pending = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    AUTO_BUF text = {0};
    if (fd_read_file(path, 16384, &text))
        return 0;
    for (size_t i = 0; i < 2; i++) {
        const char *p = strstr(text.p, lines[i]);
        pending |= p ? strtoull(p + strlen(lines[i]), NULL, 16) : 0;
    }
    return pending;
}

bool init_is_dying(const struct state_init *id)
{
    /* A process that is killed keeps the signal pending until it is gone; one that ends by itself
       gives it to its threads. */
    const uint64_t killed = 1ull << (SIGKILL - 1);
    uint64_t flags = 0;
    if (read_stat(id->pid, STAT_FLAGS, &flags))
        return false;
    return (flags & FLAG_EXITING) || (read_pending(id->pid) & killed);
}

err init_identify(pid_t pid, struct state_init *out)
{
    struct state_init id = {.pid = pid};
    TRY(read_stat(pid, STAT_START_TICKS, &id.start_ticks));
    TRY(read_boot_id(id.boot_id));
    *out = id;
    return 0;
}

int init_open(const struct state_init *id)
{
    if (id->pid < 2)
        return -1;
    /* The pidfd first: what is compared afterwards is then the process we hold. */
    AUTO_FD fd = pidfd_open(id->pid, 0);
    struct state_init now;
    if (fd < 0 || init_identify(id->pid, &now))
        return -1;
    if (now.start_ticks != id->start_ticks || strcmp(now.boot_id, id->boot_id) != 0)
        return -1;
    return init_wait_end(fd, 0) ? -1 : fd_take(&fd);
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

bool init_wait_end(int pidfd, int timeout_ms)
{
    int64_t end = now_ms() + timeout_ms;
    for (;;) {
        struct pollfd p = {.fd = pidfd, .events = POLLIN};
        int64_t left = end - now_ms();
        int n = poll(&p, 1, left > 0 ? (int)left : 0);
        if (n > 0)
            return true;
        if (n == 0 || errno != EINTR)
            return false;
    }
}

err init_end(int pidfd, uint32_t grace_ms)
{
    int grace = grace_ms > INT32_MAX ? INT32_MAX : (int)grace_ms;
    /* ESRCH means it ended by itself: the wait sees that at once. */
    if (grace > 0 && pidfd_send_signal(pidfd, SIGTERM, NULL, 0) == 0 && init_wait_end(pidfd, grace))
        return 0;
    if (pidfd_send_signal(pidfd, SIGKILL, NULL, 0) < 0 && errno != ESRCH)
        return fail_errno("kill the sandbox's init");
    if (!init_wait_end(pidfd, KILL_WAIT_MS))
        return fail(E_TIMEOUT, "the sandbox's init did not die within %d s of SIGKILL",
                    KILL_WAIT_MS / 1000);
    return 0;
}
