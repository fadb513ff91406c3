/* From a child of the parent to a confined Node. */
#include "harness/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/log.h"
#include "harness/confine.h"

#define NODE_FD_WANTED 4000 /* descriptors a host may use: sessions, each with a request or two */
#define STDERR_LINES_MAX 20 /* a dying Node says enough in its first lines */
#define STDERR_LINE_MAX 400

#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC 4
#endif

/* The namespaces to try, best first; 0 is the last resort and is reported. */
enum {
    WITHOUT_USER = CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS,
    WITH_USER = WITHOUT_USER | CLONE_NEWUSER,
};

struct launching {
    const struct host_launch *l;
    char node[PATH_MAX];
    int node_fd;
    int stderr_pipe[2];
    int failure_pipe[2];       /* closed unwritten by a successful exec */
    char reason[ERR_TEXT_MAX]; /* why better namespaces were not to be had */
};

static err open_node(struct launching *it)
{
    int n = snprintf(it->node, sizeof it->node, "%s/node/bin/node", it->l->runtime_dir);
    if (n >= (int)sizeof it->node)
        return fail(E_INVALID, "%s: the path is too long", it->l->runtime_dir);
    AUTO_FD fd = open(it->node, O_PATH | O_CLOEXEC);
    if (fd < 0 || access(it->node, X_OK) < 0)
        return fail(E_UNAVAILABLE, "Node is missing: %s: %s; run make setup", it->node,
                    strerror(errno));
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    int wanted = limit.rlim_max > NODE_FD_WANTED ? NODE_FD_WANTED : (int)limit.rlim_max - 1;
    it->node_fd = fcntl(fd, F_DUPFD_CLOEXEC, wanted);
    return it->node_fd < 0 ? fail_errno("keeping %s open", it->node) : 0;
}

/* What is open when only Landlock of that version and the filter stand. */
static const char *without_namespaces(int landlock)
{
    if (landlock == 0)
        return "it can read what its user can, and reach that user's and abstract unix sockets";
    if (landlock < 6)
        return "it can reach abstract unix sockets, and others that its user may open";
    return "it can reach unix sockets that its user may open";
}

/* {"namespaces":[…],"landlock":n,"filter":true,"missing":[…]}: what holds and what does not, for
 * hello. */
static char *confinement_text(const struct launching *it, int namespaces, bool proc, int landlock)
{
    static const struct {
        int flag;
        const char *name;
    } names[] = {{CLONE_NEWUSER, "user"}, {CLONE_NEWNS, "mount"}, {CLONE_NEWPID, "pid"},
                 {CLONE_NEWNET, "net"},   {CLONE_NEWIPC, "ipc"},  {CLONE_NEWUTS, "uts"}};
    json_t *have = json_array(), *missing = json_array();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (namespaces & names[i].flag)
            json_array_append_new(have, json_string(names[i].name));
    }
    if (!namespaces)
        json_array_append_new(missing,
                              json_sprintf("%s: %s", without_namespaces(landlock), it->reason));
    AUTO_JSON all = json_pack("{s:o, s:i, s:b, s:b, s:o}", "namespaces", have, "landlock", landlock,
                              "filter", 1, "proc", proc, "missing", missing);
    struct buf text = {0};
    json_write(all, &text);
    return text.p;
}

static void execute_node(const struct launching *it, const char *confinement, bool own_view)
{
    const struct host_launch *l = it->l;
    const char *runtime = own_view ? CONFINE_RUNTIME : l->runtime_dir;
    const char *harness = own_view ? CONFINE_HARNESS : l->harness_dir;
    const char *gateway = own_view ? CONFINE_GATEWAY : l->gateway;
    char read_runtime[PATH_MAX + 32], read_harness[PATH_MAX + 32], script[PATH_MAX + 32];
    snprintf(read_runtime, sizeof read_runtime, "--allow-fs-read=%s/*", runtime);
    snprintf(read_harness, sizeof read_harness, "--allow-fs-read=%s/*", harness);
    snprintf(script, sizeof script, "%s/%s", harness, l->script);
    const char *argv[] = {
        own_view ? CONFINE_NODE : it->node,
        "--permission",
        read_runtime,
        read_harness,
        "--no-warnings",
        "--max-semi-space-size=8",
        "--max-old-space-size=2048",
        script,
        runtime,
        gateway,
        confinement,
        NULL,
    };
    static const char *const environment[] = {
        "HOME=/nonexistent", "OPENSSL_CONF=/dev/null",  "PATH=/nonexistent", "TZ=UTC",
        "PI_OFFLINE=1",      "PI_SKIP_VERSION_CHECK=1", "PI_TELEMETRY=0",    NULL,
    };
    syscall(SYS_execveat, it->node_fd, "", argv, environment, AT_EMPTY_PATH);
}

static err take_descriptors(const struct launching *it)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(null, STDOUT_FILENO) < 0 ||
        dup2(it->stderr_pipe[1], STDERR_FILENO) < 0)
        return fail_errno("arranging descriptors");
    if (syscall(SYS_close_range, HOST_FD + 1, ~0U, CLOSE_RANGE_CLOEXEC) < 0)
        return fail_errno("closing descriptors");
    return fcntl(HOST_FD, F_SETFD, 0) < 0 ? fail_errno("descriptor %d", HOST_FD) : 0;
}

static err become_host(const struct launching *it, int namespaces, unsigned uid, unsigned gid)
{
    const struct host_launch *l = it->l;
    struct confine_tree tree = {.node = it->node,
                                .runtime_dir = l->runtime_dir,
                                .harness_dir = l->harness_dir,
                                .gateway = l->gateway};
    bool proc = false;
    int landlock = 0;
    TRY(take_descriptors(it));
    if (namespaces & CLONE_NEWUSER)
        TRY(confine_map_ids(uid, gid));
    if (namespaces)
        TRY(confine_mounts(&tree, &proc));
    else if (chdir("/") < 0)
        return fail_errno("chdir");
    TRY(confine_limits(it->node_fd));
    TRY(confine_privileges());
    if (namespaces)
        tree = (struct confine_tree){.node = CONFINE_NODE,
                                     .runtime_dir = CONFINE_RUNTIME,
                                     .harness_dir = CONFINE_HARNESS,
                                     .gateway = CONFINE_GATEWAY};
    TRY(confine_files(&tree, &landlock));
    char *confinement = confinement_text(it, namespaces, proc, landlock);
    TRY(confine_syscalls(it->node_fd));
    execute_node(it, confinement, namespaces != 0);
    return fail_errno("executing %s", it->node);
}

static _Noreturn void run_child(const struct launching *it, int namespaces, unsigned uid,
                                unsigned gid)
{
    become_host(it, namespaces, uid, gid);
    (void)!write(it->failure_pipe[1], err_text(), strlen(err_text()));
    _exit(125);
}

/* True when Node was executed; else the reason is in *it. */
static bool try_start(struct launching *it, int namespaces, pid_t *out_pid)
{
    unsigned uid = geteuid(), gid = getegid();
    if (pipe2(it->failure_pipe, O_CLOEXEC) < 0) {
        snprintf(it->reason, sizeof it->reason, "pipe: %s", strerror(errno));
        return false;
    }
    pid_t pid = (pid_t)syscall(SYS_clone, namespaces | SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0)
        run_child(it, namespaces, uid, gid);
    int clone_errno = errno;
    fd_close(&it->failure_pipe[1]);
    ssize_t n = 0;
    if (pid < 0)
        snprintf(it->reason, sizeof it->reason, "new namespaces: %s",
                 clone_errno == ENOSPC ? "the limit in /proc/sys/user is reached or 0"
                                       : strerror(clone_errno));
    else
        n = read(it->failure_pipe[0], it->reason, sizeof it->reason - 1);
    fd_close(&it->failure_pipe[0]);
    if (n > 0) {
        it->reason[n] = 0;
        waitpid(pid, NULL, 0);
    }
    *out_pid = pid;
    return pid > 0 && n == 0;
}

static err start_node(struct launching *it, pid_t *out_pid)
{
    if (geteuid() == 0 && try_start(it, WITHOUT_USER, out_pid))
        return 0;
    if (try_start(it, WITH_USER, out_pid) || try_start(it, 0, out_pid))
        return 0;
    return fail(E_UNAVAILABLE, "Node could not be started: %s", it->reason);
}

/* What Node writes to stderr becomes log lines, so that it cannot write lines that look like ours.
 */
static void relay_stderr(int fd)
{
    FILE *from = fdopen(fd, "r");
    char line[STDERR_LINE_MAX];
    for (int lines = 0; from && fgets(line, sizeof line, from);) {
        line[strcspn(line, "\n")] = 0;
        if (line[0] && lines++ < STDERR_LINES_MAX)
            log_warn("host: %s", line);
    }
    if (from)
        fclose(from);
}

err host_launch(const struct host_launch *l, int *out_status)
{
    struct launching it = {.l = l, .node_fd = -1};
    pid_t pid = -1;
    signal(SIGXFSZ, SIG_IGN);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || pipe2(it.stderr_pipe, O_CLOEXEC) < 0)
        return fail_errno("preparing to start Node");
    TRY(open_node(&it));
    TRY(start_node(&it, &pid));
    fd_close(&it.node_fd);
    fd_close(&it.stderr_pipe[1]);
    close(HOST_FD); /* only Node holds it: control sees at once when Node is gone */
    relay_stderr(it.stderr_pipe[0]);
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    *out_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return 0;
}

/* Control waits for a hello; this takes its place (protocol.h). */
static void tell_control(const char *text)
{
    AUTO_JSON message = json_pack("{s:s, s:s}", "t", "failed", "error", text);
    AUTO_BUF line = {0};
    json_write(message, &line);
    buf_add_char(&line, '\n');
    fd_write_full(HOST_FD, line.p, line.n);
}

static const char *option(int argc, char **argv, const char *name)
{
    for (int i = 1; i + 1 < argc; i++) {
        if (strcmp(argv[i], name) == 0)
            return argv[i + 1];
    }
    return NULL;
}

int host_launcher_main(int argc, char **argv)
{
    struct host_launch l = {.runtime_dir = option(argc, argv, "--runtime"),
                            .harness_dir = option(argc, argv, "--harness"),
                            .gateway = option(argc, argv, "--gateway"),
                            .script = "host.mjs"};
    if (!l.runtime_dir || !l.harness_dir || !l.gateway) {
        log_error("the host role needs --runtime, --harness and --gateway");
        return 2;
    }
    int status = 1;
    if (host_launch(&l, &status)) {
        log_error("no host: %s", err_text());
        tell_control(err_text());
    }
    return status;
}
