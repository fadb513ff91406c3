#include "hands/process.h"

#include "base/fd.h"
#include "base/lock.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHILD_STACK (64u << 10)

/* Pids somebody will reap. Spawning happens under the mutex, so that the reaper never sees a child
   of ours before it is listed here. */
static struct {
    pthread_mutex_t mutex;
    pid_t *pids;
    size_t n, cap;
} owned = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void owned_add(pid_t pid)
{
    if (owned.n == owned.cap) {
        owned.cap = owned.cap ? owned.cap * 2 : 16;
        owned.pids = mem_realloc(owned.pids, size_mul(owned.cap, sizeof *owned.pids));
    }
    owned.pids[owned.n++] = pid;
}

static bool owned_has(pid_t pid)
{
    for (size_t i = 0; i < owned.n; i++)
        if (owned.pids[i] == pid)
            return true;
    return false;
}

static void owned_remove(pid_t pid)
{
    for (size_t i = 0; i < owned.n; i++)
        if (owned.pids[i] == pid) {
            owned.pids[i] = owned.pids[--owned.n];
            return;
        }
}

/* What the child needs while it shares our memory, until it runs the program. */
struct birth {
    const struct process_spec *spec;
    const char *path; /* PATH */
    struct rlimit processes;
    int error; /* why it could not, or 0 */
};

/* In a sandbox our own limit of processes is that of all inside. What we start may have a few less:
   however many there are, there is room for our threads and for a command that mends it. */
static struct rlimit limit_of_children(void)
{
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    getrlimit(RLIMIT_NPROC, &limit);
    if (getpid() == 1 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur >= 2 * PROCESS_RESERVE)
        limit.rlim_max = limit.rlim_cur -= PROCESS_RESERVE;
    return limit;
}

static int take_descriptor(const struct process_spec *spec, int from, int to)
{
    /* The first open by a session leader makes a terminal the controlling one. */
    int fd = spec->tty   ? open(spec->tty, O_RDWR)
             : from >= 0 ? from
                         : open("/dev/null", to == 0 ? O_RDONLY : O_WRONLY);
    if (fd < 0)
        return -1;
    return fd == to ? fcntl(fd, F_SETFD, 0) : dup2(fd, to);
}

static void reset_signals(void)
{
    static const char defaults[64]; /* the kernel's struct: SIG_DFL is 0 */
    for (int s = 1; s < NSIG; s++)  /* glibc's own too, which its sigaction leaves alone */
        syscall(SYS_rt_sigaction, s, defaults, NULL, 8);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* As execvp, but what is no program is not given to a shell. Returns an errno. */
static int run_program(const struct birth *b)
{
    char *const *argv = b->spec->argv;
    char path[PATH_MAX];
    int why = ENOENT;
    if (strchr(argv[0], '/')) {
        execve(argv[0], argv, b->spec->env);
        return errno;
    }
    for (const char *p = b->path; argv[0][0] && p; p = strchr(p, ':') ? strchr(p, ':') + 1 : NULL) {
        int n = (int)strcspn(p, ":");
        if (snprintf(path, sizeof path, "%.*s%s%s", n, p, n ? "/" : "", argv[0]) >=
            (int)sizeof path)
            continue;
        execve(path, argv, b->spec->env);
        if (errno != ENOENT && errno != ENOTDIR && errno != EACCES)
            return errno;
        if (errno == EACCES)
            why = EACCES;
    }
    return why;
}

/* In the child; the parent's thread waits. */
static int child_main(void *arg)
{
    struct birth *b = arg;
    const struct process_spec *spec = b->spec;
    const int fds[3] = {spec->in, spec->out, spec->err_fd};
    bool ready = setsid() >= 0;
    for (int i = 0; i < 3 && ready; i++)
        ready = take_descriptor(spec, fds[i], i) >= 0;
    if (ready && syscall(SYS_close_range, 3, ~0u, 0) == 0 &&
        chdir(spec->cwd ? spec->cwd : "/") == 0 && setrlimit(RLIMIT_NPROC, &b->processes) == 0) {
        reset_signals();
        b->error = run_program(b);
    } else {
        b->error = errno;
    }
    _exit(127);
}

/* Under the mutex: one child at a time stands on that stack. */
static int spawn(const struct process_spec *spec, pid_t *out_pid)
{
    static char stack[CHILD_STACK] __attribute__((aligned(64)));
    const char *path = getenv("PATH");
    struct birth b = {
        .spec = spec, .path = path ? path : "/bin:/usr/bin", .processes = limit_of_children()};
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before); /* no handler of ours runs in the child */
    pid_t pid = clone(child_main, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, &b);
    int rc = pid < 0 ? errno : b.error;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pid > 0 && rc != 0)
        waitpid(pid, NULL, 0);
    *out_pid = pid;
    return rc;
}

int process_spawn(const struct process_spec *spec, struct process *out)
{
    AUTO_LOCK(&owned.mutex);
    pid_t pid;
    int rc = spawn(spec, &pid);
    if (rc != 0)
        return rc;
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (pidfd < 0) {
        rc = errno;
        kill(-pid, SIGKILL);
        waitpid(pid, NULL, 0);
        return rc;
    }
    owned_add(pid);
    *out = (struct process){.pid = pid, .pidfd = pidfd};
    return 0;
}

int process_reap(struct process *p)
{
    struct pollfd exited = {.fd = p->pidfd, .events = POLLIN};
    while (poll(&exited, 1, -1) < 0 && errno == EINTR)
        ;
    int status = 0;
    pthread_mutex_lock(&owned.mutex);
    while (waitpid(p->pid, &status, 0) < 0 && errno == EINTR)
        ;
    owned_remove(p->pid);
    pthread_mutex_unlock(&owned.mutex);
    fd_close(&p->pidfd);
    process_reap_orphans(); /* those that queued behind it */
    return status;
}

bool process_group_alive(pid_t group)
{
    return kill(-group, 0) == 0 || errno == EPERM;
}

void process_kill_group(pid_t group, int signal)
{
    kill(-group, signal);
}

bool process_reap_orphans(void)
{
    AUTO_LOCK(&owned.mutex);
    for (;;) {
        siginfo_t info = {0};
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0)
            return errno != ECHILD;
        if (info.si_pid == 0 || owned_has(info.si_pid))
            return true; /* its owner comes soon, and calls this again */
        waitpid(info.si_pid, NULL, WNOHANG);
    }
}

void process_kill_all(void)
{
    AUTO_LOCK(&owned.mutex);
    for (size_t i = 0; i < owned.n; i++)
        kill(-owned.pids[i], SIGKILL);
}

int process_exit_code(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static size_t name_length(const char *entry)
{
    return strcspn(entry, "=");
}

/* Replaces the entry of the same name, or adds. The array has room. */
static void env_put(char **env, size_t *n, const char *entry)
{
    size_t name = name_length(entry);
    if (strncmp(entry, "PI_", 3) == 0 || name == 0 || entry[name] != '=')
        return;
    for (size_t i = 0; i < *n; i++)
        if (strncmp(env[i], entry, name + 1) == 0) {
            mem_free(env[i]);
            env[i] = mem_strdup(entry);
            return;
        }
    env[(*n)++] = mem_strdup(entry);
}

static size_t env_count(char *const *env)
{
    size_t n = 0;
    while (env && env[n])
        n++;
    return n;
}

char **process_env_new(char *const *extra)
{
    static const char *const defaults[] = {
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME=/root",
        "USER=root",
        "LOGNAME=root",
        "SHELL=/bin/bash",
        "LANG=C.UTF-8",
        "TERM=dumb",
    };
    size_t defaults_n = sizeof defaults / sizeof *defaults;
    size_t cap = defaults_n + env_count(environ) + env_count(extra) + 1;
    char **env = mem_alloc(size_mul(cap, sizeof *env));
    size_t n = 0;
    for (size_t i = 0; i < defaults_n; i++)
        env_put(env, &n, defaults[i]);
    for (size_t i = 0; environ && environ[i]; i++)
        env_put(env, &n, environ[i]);
    for (size_t i = 0; extra && extra[i]; i++)
        env_put(env, &n, extra[i]);
    return env;
}

void process_env_free(char **env)
{
    for (size_t i = 0; env && env[i]; i++)
        mem_free(env[i]);
    mem_free(env);
}

const char *process_home(void)
{
    const char *home = getenv("HOME");
    return home && home[0] == '/' ? home : "/root";
}
