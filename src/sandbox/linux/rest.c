#include "sandbox/linux/rest.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "sandbox/linux/cgroup.h"
#include "sandbox/linux/userns.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/pidfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOTE "rests"
#define STOP_WAIT_MS 20000 /* one in the middle of a slow disk operation stops after it */
#define STOP_LOOK_MS 5
#define MAYBE_WAIT_MS 1000 /* longer than a disk takes */

/* ---- by signals ---- */

/* fork() without what libraries do in its child: a thread that one of them (a sanitizer) starts
   there would keep it from entering a user namespace. The child only makes system calls. */
static pid_t fork_bare(void)
{
    return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

/* To every process of the sandbox but its init, at once: the kernel lets none fork past it. */
static err signal_inside(int pidfd, int sig)
{
    pid_t helper = fork_bare(), inside;
    int status = 0;
    if (helper < 0)
        return fail_errno("fork");
    if (helper == 0) {
        int spaces = CLONE_NEWPID | (userns_is_privileged() ? 0 : CLONE_NEWUSER);
        if (setns(pidfd, spaces) < 0)
            _exit(errno);
        inside = fork_bare(); /* this one is in the sandbox's pid namespace */
        if (inside == 0)
            _exit(kill(-1, sig) < 0 && errno != ESRCH ? errno : 0);
        while (inside > 0 && waitpid(inside, &status, 0) < 0 && errno == EINTR)
            continue;
        _exit(inside > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : EIO);
    }
    while (waitpid(helper, &status, 0) < 0 && errno == EINTR)
        continue;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    errno = WIFEXITED(status) ? WEXITSTATUS(status) : EIO;
    return fail_errno("reach the sandbox's processes");
}

struct process {
    pid_t pid, parent;
    char state; /* as the kernel writes it */
    bool inside;
};

static bool read_process(const char *name, struct process *out)
{
    char path[300], state;
    int parent;
    AUTO_BUF text = {0};
    snprintf(path, sizeof path, "/proc/%.20s/stat", name);
    if (fd_read_file(path, 4096, &text))
        return false;
    const char *after = strrchr(text.p, ')'); /* the name before it may hold anything */
    if (!after || sscanf(after + 1, " %c %d", &state, &parent) != 2)
        return false;
    *out = (struct process){.pid = (pid_t)strtol(name, NULL, 10), .parent = parent, .state = state};
    return true;
}

static size_t list_processes(struct process **out)
{
    DIR *proc = opendir("/proc");
    size_t n = 0;
    for (const struct dirent *e; proc && (e = readdir(proc));) {
        if (e->d_name[0] < '1' || e->d_name[0] > '9')
            continue;
        *out = mem_realloc(*out, size_mul(n + 1, sizeof **out));
        n += read_process(e->d_name, &(*out)[n]);
    }
    if (proc)
        closedir(proc);
    return n;
}

static bool is_inside(const struct process *all, size_t n, pid_t pid)
{
    for (size_t i = 0; i < n; i++) {
        if (all[i].pid == pid)
            return all[i].inside;
    }
    return false;
}

/* All descend from the init: who loses his parent becomes its child. */
static void mark_inside(struct process *all, size_t n, pid_t init)
{
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < n; i++) {
            if (!all[i].inside && (all[i].pid == init || is_inside(all, n, all[i].parent)))
                more = all[i].inside = true;
        }
    }
}

static bool has_stopped_child(const struct process *all, size_t n, pid_t pid)
{
    for (size_t i = 0; i < n; i++) {
        if (all[i].parent == pid && strchr("Tt", all[i].state))
            return true;
    }
    return false;
}

enum motion {
    AT_REST,
    MAYBE, /* only such as may wait, after vfork, for a stopped child; or for a disk */
    MOVING
};

static enum motion look(pid_t init)
{
    struct process *all = NULL;
    size_t n = list_processes(&all);
    enum motion m = AT_REST;
    mark_inside(all, n, init);
    for (size_t i = 0; i < n; i++) {
        if (!all[i].inside || strchr("TtZX", all[i].state))
            continue;
        bool maybe = all[i].state == 'D' && has_stopped_child(all, n, all[i].pid);
        m = maybe && m != MOVING ? MAYBE : MOVING;
    }
    mem_free(all);
    return m;
}

/* The kernel tells nobody but parents when a process has stopped, and not what one waits for. */
static err wait_stopped(pid_t init)
{
    int64_t now = clock_monotonic_ms(clock_real()), until = now + STOP_WAIT_MS, maybe_since = now;
    for (;;) {
        enum motion m = look(init);
        now = clock_monotonic_ms(clock_real());
        if (m == MOVING)
            maybe_since = now;
        if (m == AT_REST || now - maybe_since >= MAYBE_WAIT_MS)
            return 0;
        if (now >= until)
            return fail(E_TIMEOUT, "the sandbox's processes did not stop within %d s",
                        STOP_WAIT_MS / 1000);
        poll(NULL, 0, STOP_LOOK_MS);
    }
}

static err stop_all(const struct state_run *run, int pidfd)
{
    if (pidfd_send_signal(pidfd, SIGSTOP, NULL, 0) < 0) /* first: it starts no more */
        return fail_errno("stop the sandbox's init");
    TRY(signal_inside(pidfd, SIGSTOP));
    return wait_stopped(run->init.pid);
}

static void continue_all(int pidfd)
{
    signal_inside(pidfd, SIGCONT);
    pidfd_send_signal(pidfd, SIGCONT, NULL, 0);
}

/* ---- both ways ---- */

static void note_path(char out[PATH_MAX], const char *dir)
{
    snprintf(out, PATH_MAX, "%s/" NOTE, dir);
}

err rest_begin(const char *dir, const struct state_run *run, int pidfd)
{
    char path[PATH_MAX];
    bool frozen = false;
    note_path(path, dir);
    AUTO_FD note = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (note < 0)
        return fail_errno("make %s", path);
    err e = cgroup_freeze(run, &frozen);
    if (!e && !frozen)
        e = stop_all(run, pidfd);
    if (!e)
        return 0;
    struct err_slot why;
    err_save(&why);
    rest_end(dir, run, pidfd);
    return err_restore(&why);
}

void rest_end(const char *dir, const struct state_run *run, int pidfd)
{
    char path[PATH_MAX];
    note_path(path, dir);
    if (access(path, F_OK) < 0)
        return;
    cgroup_thaw(run);
    if (!cgroup_can_freeze(run))
        continue_all(pidfd);
    unlink(path);
}
