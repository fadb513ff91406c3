#include "sandbox/linux/boot.h"

#include "base/fd.h"
#include "images/meta.h"
#include "sandbox/hands_blob.h"
#include "sandbox/linux/baseline.h"
#include "sandbox/linux/confine.h"
#include "sandbox/linux/init.h"
#include "sandbox/linux/userns.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif

#define BOOT_WAIT_MS 20000 /* mounts on a loaded machine; a healthy one needs 10 */
#define HANDS_LISTEN_FD 3
#define HANDS_IMAGE_FD 4
#define TOOLS 't'
#define GO 'g'
/* Mounts that ride along with it: of the root, of the image, then those of the environment. */
enum {
    GO_ROOT,
    GO_IMAGE,
    GO_MOUNTS,
    GO_FDS = GO_MOUNTS + MOUNTS_MAX
};
_Static_assert(GO_FDS <= FD_PASS_MAX, "they fit into one message");
/* Born into the first; makes the second while the maker does its part. */
#define FIRST_NAMESPACES (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID)
#define OWN_NAMESPACES (CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS)

static int hands_memfd = -1; /* made once, inherited by makers, shared by all sandboxes */

static err make_hands_memfd(int *out_fd)
{
    AUTO_FD fd = memfd_create("pi-hands", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_EXEC);
    if (fd < 0 && errno == EINVAL) /* before Linux 6.3 */
        fd = memfd_create("pi-hands", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return fail_errno("make a memory file for pi-hands");
    TRY(fd_write_full(fd, hands_blob_start, hands_blob_size()));
    if (fchmod(fd, 0555) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return fail_errno("seal the memory file of pi-hands");
    *out_fd = fd_take(&fd);
    return 0;
}

err boot_warm_up(void)
{
    TRY(confine_prepare());
    return hands_memfd >= 0 ? 0 : make_hands_memfd(&hands_memfd);
}

/* ---- in the init ---- */

/* Message 1: the agent socket, then the `tasks` files of control groups to join. */
static err take_tools(struct boot *b)
{
    char tools;
    size_t n;
    int fds[FD_PASS_MAX];
    TRY(fd_recv(b->channel, &tools, sizeof tools, &n, fds));
    if (n != 1 || tools != TOOLS || fds[0] < 0)
        return fail(E_INTERNAL, "the maker said something unexpected");
    b->listen_fd = fds[0];
    for (size_t i = 1; i < FD_PASS_MAX && fds[i] >= 0; i++)
        TRY(cgroup_join(fds[i]));
    return 0;
}

/* Message 2: from a privileged maker with mounts. */
static err wait_for_go(int channel, int fds[FD_PASS_MAX])
{
    char go;
    size_t n;
    TRY(fd_recv(channel, &go, sizeof go, &n, fds));
    return n == 1 && go == GO ? 0 : fail(E_INTERNAL, "the maker said something unexpected");
}

/* Nothing of the service's own process settings may show or work inside. */
static err reset_process(void)
{
    for (int s = 1; s < NSIG; s++)
        signal(s, SIG_DFL); /* fails for KILL, STOP and libc's own: they are never ignored */
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    umask(022);
    if (setsid() < 0)
        return fail_errno("start a session");
    return 0;
}

/* Raw system calls: the library's own would also wait for threads that the maker had and this copy
 * has not. */
static err become_root_inside(bool privileged)
{
    /* In a plain user's namespace with one id only the kernel forbids it. */
    if (syscall(SYS_setgroups, 0, NULL) < 0 && (privileged || errno != EPERM))
        return fail_errno("drop the groups");
    if (syscall(SYS_setresgid, 0, 0, 0) < 0 || syscall(SYS_setresuid, 0, 0, 0) < 0)
        return fail_errno("become the sandbox's root");
    return 0;
}

/* R31: the network namespace is new and holds only lo; nothing leads out of it. */
static err raise_loopback(void)
{
    AUTO_FD s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    if (s < 0 || ioctl(s, SIOCSIFFLAGS, &lo) < 0)
        return fail_errno("raise the loopback interface");
    return 0;
}

static err null_stdio(void)
{
    int fd = open("/dev/null", O_RDWR);
    for (int i = 0; fd >= 0 && i < 3; i++) {
        if (dup2(fd, i) < 0)
            return fail_errno("redirect descriptor %d", i);
    }
    if (fd > 2)
        close(fd);
    return fd < 0 ? fail_errno("open /dev/null") : 0;
}

static err move_up(int *fd)
{
    int high = fcntl(*fd, F_DUPFD_CLOEXEC, 16);
    if (high < 0)
        return fail_errno("move a descriptor");
    *fd = high;
    return 0;
}

/* What programs find that their image says nothing of; the first ones whatever it says. */
static const char *const environment[] = {
    "HOME=/root",
    "USER=root",
    "LOGNAME=root",
    "SHELL=/bin/bash",
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG=C.UTF-8",
};
#define ENV_OWN (sizeof environment / sizeof *environment)
#define ENV_FIXED 4 /* of environment */
#define ENV_MAX (ENV_OWN + IMAGE_ENV_MAX)

static bool same_variable(const char *a, const char *b)
{
    size_t n = strcspn(a, "=");
    return n == strcspn(b, "=") && memcmp(a, b, n) == 0;
}

static void make_environment(const char *const *image, char *out[ENV_MAX + 1])
{
    size_t n = 0;
    for (size_t i = 0; i < ENV_OWN; i++)
        out[n++] = (char *)environment[i];
    for (; image && *image && n < ENV_MAX; image++) {
        size_t at = 0;
        while (at < n && !same_variable(out[at], *image))
            at++;
        if (at >= ENV_FIXED)
            out[at] = (char *)*image;
        n += at == n;
    }
    out[n] = NULL;
}

/* A fresh program image: no memory, argument, environment or descriptor of the service survives. */
static err become_hands(struct boot *b)
{
    TRY(move_up(&b->listen_fd));
    TRY(move_up(&b->image_fd));
    if (dup2(b->listen_fd, HANDS_LISTEN_FD) < 0 || dup2(b->image_fd, HANDS_IMAGE_FD) < 0 ||
        syscall(SYS_close_range, HANDS_IMAGE_FD + 1, ~0u, CLOSE_RANGE_CLOEXEC) < 0)
        return fail_errno("arrange the descriptors");
    char *argv[] = {"pi-hands", "3", "--image", "4", NULL};
    char *envp[ENV_MAX + 1];
    make_environment(b->env, envp);
    fexecve(hands_memfd, argv, envp);
    return fail_errno("run pi-hands");
}

/* Counted per user: pi-hands and what it starts as the sandbox's root. Where that are not all
   inside (root's sandboxes have other users) control groups hold the rest, and this keeps room for
   pi-hands from all who stay root. Before Linux 5.14 it would count the user's processes outside
   too. */
static err limit_processes(const struct boot *b)
{
    const struct rlimit limit = {b->pids, b->pids};
    if (b->pids == 0 || (!b->privileged && !b->counts_processes))
        return 0;
    return setrlimit(RLIMIT_NPROC, &limit) < 0 ? fail_errno("limit the processes") : 0;
}

/* Needs nothing of the maker. */
static err prepare_alone(void)
{
    TRY(reset_process());
    if (unshare(OWN_NAMESPACES) < 0)
        return fail_errno("create the network, ipc and uts namespaces");
    TRY(raise_loopback());
    return sethostname("sandbox", 7) < 0 ? fail_errno("set the host name") : 0;
}

/* What a privileged maker does outside. */
static err build_mounts(struct boot *b, int userns_fd, int fds[FD_PASS_MAX])
{
    TRY(root_build(&b->root, userns_fd, &fds[GO_ROOT]));
    TRY(baseline_open(&b->root, userns_fd, &fds[GO_IMAGE]));
    return mounts_open(&b->mounts, fds + GO_MOUNTS);
}

static err enter(struct boot *b)
{
    int fds[FD_PASS_MAX];
    TRY(prepare_alone());
    if (!b->trial)
        TRY(take_tools(b));
    TRY(wait_for_go(b->channel, fds));
    /* Only now: our control groups become the root of what we see. */
    if (unshare(CLONE_NEWCGROUP) < 0)
        return fail_errno("create the cgroup namespace");
    if (!b->privileged)
        TRY(build_mounts(b, -1, fds));
    b->image_fd = fds[GO_IMAGE];
    TRY(become_root_inside(b->privileged));
    TRY(limit_processes(b));
    TRY(root_enter(&b->root, fds[GO_ROOT]));
    TRY(mounts_attach(&b->mounts, fds + GO_MOUNTS));
    TRY(null_stdio());
    TRY(confine_capabilities());
    return confine_system_calls();
}

/* Returns only an error; a trial ends here. */
static err live(struct boot *b)
{
    TRY(move_up(&b->channel));
    TRY(move_up(&hands_memfd));
    TRY(enter(b));
    if (b->trial)
        _exit(0);
    return become_hands(b);
}

static _Noreturn void init_main(struct boot *b)
{
    live(b);
    fd_send(b->channel, err_text(), strlen(err_text()), NULL, 0);
    _exit(1);
}

/* ---- in the maker ---- */

/* Returns twice, as fork. *out_placed: born into the v2 group. */
static pid_t clone_init(struct boot *b, bool *out_placed)
{
    struct clone_args args = {.flags = FIRST_NAMESPACES | CLONE_PIDFD | CLONE_INTO_CGROUP,
                              .pidfd = (uint64_t)(uintptr_t)&b->pidfd,
                              .exit_signal = SIGCHLD,
                              .cgroup = (uint64_t)b->door.v2};
    if (b->door.v2 >= 0) {
        pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof args);
        *out_placed = pid >= 0;
        if (pid >= 0)
            return pid;
    }
    return (pid_t)syscall(SYS_clone, FIRST_NAMESPACES | CLONE_PIDFD | SIGCHLD, 0, &b->pidfd, 0, 0);
}

/* For the maker and so for the init. 1, not 0: the kernel then also keeps crashes from the host's
   core handler, which is root's. A plain user who inherited 0 stays there. */
static err forbid_core_dumps(void)
{
    const struct rlimit one = {1, 1}, none = {0, 0};
    if (setrlimit(RLIMIT_CORE, &one) < 0 && setrlimit(RLIMIT_CORE, &none) < 0)
        return fail_errno("forbid core dumps");
    return 0;
}

err boot_clone(struct boot *b)
{
    TRY(boot_warm_up());
    TRY(forbid_core_dumps());
    b->counts_processes = userns_counts_processes();
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return fail_errno("make a socket pair");
    b->pidfd = -1;
    bool placed = false;
    pid_t pid = clone_init(b, &placed);
    if (pid == 0) {
        close(pair[0]);
        b->channel = pair[1];
        init_main(b);
    }
    int failed = errno;
    close(pair[1]);
    b->channel = pair[0];
    b->pid = pid > 0 ? pid : 0;
    errno = failed;
    if (pid < 0)
        return fail_errno("create the namespaces");
    return placed ? 0 : cgroup_move(&b->door, pid);
}

/* A sandbox is the first to go when the machine runs out of memory, whatever protects the service.
 */
static void expose_to_oom(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/oom_score_adj", (int)pid);
    AUTO_FD fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd >= 0 && write(fd, "200", 3) < 0)
        return; /* only a preference */
}

static err map_and_build(struct boot *b, int fds[FD_PASS_MAX])
{
    if (!b->privileged)
        return userns_map_self(b->pid);
    TRY(userns_map_range(b->pid, b->uid_base));
    AUTO_FD ns = -1;
    TRY(userns_open(b->pid, &ns));
    if (unshare(CLONE_NEWNS) < 0)
        return fail_errno("unshare the mount namespace");
    err e = build_mounts(b, ns, fds);
    if (chdir("/") < 0 && !e)
        e = fail_errno("enter /");
    return e;
}

static err hear_outcome(struct boot *b)
{
    struct pollfd p = {.fd = b->channel, .events = POLLIN};
    int n;
    do
        n = poll(&p, 1, BOOT_WAIT_MS);
    while (n < 0 && errno == EINTR);
    if (n <= 0)
        return fail(E_TIMEOUT, "the sandbox did not finish booting within %d s",
                    BOOT_WAIT_MS / 1000);
    char text[ERR_TEXT_MAX];
    ssize_t got = recv(b->channel, text, sizeof text - 1, 0);
    if (got > 0)
        return fail(E_UNAVAILABLE, "the sandbox could not boot: %.*s", (int)got, text);
    return 0;
}

/* A closed channel is no error yet: the init failed already, and said why. */
static err tell(struct boot *b, char what, const int *fds, size_t n)
{
    err e = fd_send(b->channel, &what, sizeof what, fds, n);
    return e == E_CLOSED ? 0 : e;
}

static err send_tools(struct boot *b)
{
    int fds[1 + STATE_CGROUPS_MAX] = {b->listen_fd};
    size_t n = 1 + cgroup_door_fds(&b->door, fds + 1);
    return n > FD_PASS_MAX ? fail(E_INTERNAL, "too many control groups") : tell(b, TOOLS, fds, n);
}

err boot_go(struct boot *b)
{
    int fds[FD_PASS_MAX];
    for (size_t i = 0; i < FD_PASS_MAX; i++)
        fds[i] = -1;
    expose_to_oom(b->pid);
    if (!b->trial)
        TRY(send_tools(b));
    err e = map_and_build(b, fds);
    if (!e)
        e = tell(b, GO, fds, fds[GO_ROOT] >= 0 ? GO_MOUNTS + b->mounts.count : 0);
    for (size_t i = 0; i < FD_PASS_MAX; i++)
        fd_close(&fds[i]);
    TRY(e);
    TRY(hear_outcome(b));
    if (b->trial)
        return 0;
    /* End of file without a word: exec, or a death no program can report. */
    if (init_wait_end(b->pidfd, 0))
        return fail(E_UNAVAILABLE, "the sandbox's init died while booting");
    return 0;
}

void boot_release(struct boot *b)
{
    fd_close(&b->pidfd);
    fd_close(&b->channel);
}

void boot_abandon(struct boot *b)
{
    if (b->pid > 0) {
        pidfd_send_signal(b->pidfd, SIGKILL, NULL, 0);
        while (waitpid(b->pid, NULL, __WALL) < 0 && errno == EINTR)
            continue;
        b->pid = 0;
    }
    boot_release(b);
}
