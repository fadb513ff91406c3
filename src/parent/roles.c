#include "parent/roles.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "parent/request.h"

/* What a sanitizer build passes on. */
#if defined __SANITIZE_ADDRESS__
#define SANITIZED 1
#define PASSED_ON "ASAN_OPTIONS", CLOCK_AHEAD_VARIABLE,
#elif defined __SANITIZE_THREAD__
#define SANITIZED 1
#define PASSED_ON "TSAN_OPTIONS", CLOCK_AHEAD_VARIABLE,
#else
#define SANITIZED 0
#define PASSED_ON
#endif
static const char *const passed_on[] = {PASSED_ON NULL};

/* In the child after fork: says what failed and ends. The parent sees exit status 127. */
static _Noreturn void give_up(const char *role, const char *what)
{
    dprintf(2, "pi-managed: cannot start the role %s: %s: %s\n", role, what, strerror(errno));
    _exit(127);
}

static bool make_target(const char *from, const char *to)
{
    struct stat st;
    if (stat(from, &st) < 0)
        return false;
    if (S_ISDIR(st.st_mode))
        return mkdir(to, 0755) == 0;
    int fd = open(to, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
    return fd >= 0 && close(fd) == 0;
}

static bool bind_one(const struct role_bind *b)
{
    char to[256];
    snprintf(to, sizeof to, ROLE_ROOT "/%s", b->name);
    unsigned long flags = MS_BIND | MS_REMOUNT | MS_NOSUID | MS_NODEV;
    return make_target(b->from, to) && mount(b->from, to, NULL, MS_BIND, NULL) == 0 &&
           mount(NULL, to, NULL, flags | (b->writable ? 0 : MS_RDONLY), NULL) == 0;
}

/* Slave, not private: an unmount outside must reach this namespace too. */
static void enter_mounts(const struct role_start *start)
{
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
        give_up(start->name, "a mount namespace");
    if (mkdir(ROLE_ROOT, 0755) < 0 && errno != EEXIST)
        give_up(start->name, "mkdir " ROLE_ROOT);
    umask(022);
    if (mount("pi-managed", ROLE_ROOT, "tmpfs", MS_NOSUID | MS_NODEV, "size=64k,mode=0755") < 0)
        give_up(start->name, "mount on " ROLE_ROOT);
    for (size_t i = 0; i < start->bind_count; i++) {
        if (!bind_one(&start->binds[i]))
            give_up(start->name, start->binds[i].from);
    }
    if (mount(NULL, ROLE_ROOT, NULL, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV, "size=64k") < 0)
        give_up(start->name, "remount " ROLE_ROOT);
}

/* The bounding set first: it needs a capability that setresuid takes away. */
static void drop_to_uid(const struct role_start *start)
{
    for (int cap = 0; cap < 64; cap++) {
        if (prctl(PR_CAPBSET_READ, cap) == 1 && prctl(PR_CAPBSET_DROP, cap) < 0)
            give_up(start->name, "drop capabilities");
    }
    if (setgroups(0, NULL) < 0 || setresgid(start->uid, start->uid, start->uid) < 0 ||
        setresuid(start->uid, start->uid, start->uid) < 0)
        give_up(start->name, "change the uid");
}

static void separate(const struct role_start *start)
{
    enter_mounts(start);
    if (start->no_network && unshare(CLONE_NEWNET | CLONE_NEWIPC) < 0)
        give_up(start->name, "a network namespace");
    drop_to_uid(start);
}

/* Output of children goes to standard error: standard output carries the one line that says where
   the service listens. Own session: Ctrl-C is the parent's to handle. */
static void set_descriptors(const struct role_start *start)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || dup2(null, 0) < 0 || dup2(2, 1) < 0)
        give_up(start->name, "/dev/null");
    /* dup2 onto itself would leave close-on-exec set. */
    int rc = start->link == PARENT_FD ? fcntl(PARENT_FD, F_SETFD, 0) : dup2(start->link, PARENT_FD);
    if (rc < 0 || close_range(PARENT_FD + 1, ~0U, 0) < 0)
        give_up(start->name, "descriptors");
    setsid();
}

static void reset_signals(void)
{
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
}

static _Noreturn void exec_role(const struct role_start *start)
{
    const char *argv[ROLE_ARGS_MAX + 4] = {"pi-managed", "--role", start->name};
    size_t n = 3;
    for (size_t i = 0; start->args && start->args[i] && i < ROLE_ARGS_MAX; i++)
        argv[n++] = start->args[i];
    const char *envp[8] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                           "LANG=C.UTF-8"};
    char options[4][512];
    for (size_t i = 0, used = 0; passed_on[i]; i++) {
        if (getenv(passed_on[i]) == NULL)
            continue;
        snprintf(options[used], sizeof options[used], "%s=%s", passed_on[i], getenv(passed_on[i]));
        envp[2 + used] = options[used];
        used++;
    }
    execve("/proc/self/exe", (char *const *)argv, (char *const *)envp);
    give_up(start->name, "exec /proc/self/exe");
}

static _Noreturn void become(const struct role_start *start, pid_t parent)
{
    set_descriptors(start);
    if (start->separate)
        separate(start);
    if (chdir("/") < 0)
        give_up(start->name, "chdir /");
    umask(077);
    /* After setresuid, which clears it. */
    if (start->confined && prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        give_up(start->name, "PR_SET_PDEATHSIG");
    if (start->confined && getppid() != parent)
        _exit(0); /* it died before the line above */
    if (start->confined && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        give_up(start->name, "PR_SET_NO_NEW_PRIVS");
    reset_signals();
    exec_role(start);
}

err role_spawn(const struct role_start *start, pid_t *out_pid)
{
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid < 0)
        return fail_errno("fork for the role %s", start->name);
    if (pid == 0)
        become(start, parent);
    *out_pid = pid;
    return 0;
}

bool roles_can_separate(uid_t uid_base)
{
    if (geteuid() != 0)
        return false;
    pid_t pid = fork();
    if (pid < 0)
        return false;
    if (pid == 0) {
        bool ok = unshare(CLONE_NEWNS) == 0 &&
                  mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) == 0 &&
                  unshare(CLONE_NEWNET) == 0 && setgroups(0, NULL) == 0 &&
                  setresgid(uid_base, uid_base, uid_base) == 0 &&
                  setresuid(uid_base, uid_base, uid_base) == 0;
        _exit(ok ? 0 : 1);
    }
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void role_enter(const char *name)
{
    char comm[16];
    snprintf(comm, sizeof comm, "pm-%s", name);
    prctl(PR_SET_NAME, comm);
    /* 1, not 0: a core pattern that pipes to a program ignores 0, but not 1. */
    setrlimit(RLIMIT_CORE, &(struct rlimit){1, 1});
    /* host and maker write their own uid_map, which needs a dumpable process, and then see to this
       themselves; a sanitizer's leak checker attaches to its own process. */
    bool own_care = strcmp(name, "host") == 0 || strcmp(name, "maker") == 0;
    if (!SANITIZED && !own_care)
        prctl(PR_SET_DUMPABLE, 0);
}
