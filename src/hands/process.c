#include "hands/process.h"

#include "base/fd.h"
#include "base/lock.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

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

static void add_files(posix_spawn_file_actions_t *files, const struct process_spec *spec)
{
    const int fds[3] = {spec->in, spec->out, spec->err_fd};
    for (int i = 0; i < 3; i++) {
        if (spec->tty) {
            /* The first open by a session leader makes it the controlling terminal. */
            posix_spawn_file_actions_addopen(files, i, spec->tty, O_RDWR, 0);
        } else if (fds[i] >= 0) {
            posix_spawn_file_actions_adddup2(files, fds[i], i);
        } else {
            posix_spawn_file_actions_addopen(files, i, "/dev/null", i == 0 ? O_RDONLY : O_WRONLY,
                                             0);
        }
    }
    posix_spawn_file_actions_addclosefrom_np(files, 3);
    posix_spawn_file_actions_addchdir_np(files, spec->cwd ? spec->cwd : "/");
}

static int spawn(const struct process_spec *spec, pid_t *out_pid)
{
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    add_files(&files, spec);
    posix_spawnattr_t attr;
    posix_spawnattr_init(&attr);
    sigset_t none, all;
    sigemptyset(&none);
    memset(&all, 0xff, sizeof all); /* sigfillset leaves out glibc's own, which would be ignored */
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setflags(&attr,
                             POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    int rc = posix_spawnp(out_pid, spec->argv[0], &files, &attr, spec->argv, spec->env);
    posix_spawnattr_destroy(&attr);
    posix_spawn_file_actions_destroy(&files);
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
