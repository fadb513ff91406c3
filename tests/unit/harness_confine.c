/* Tests src/harness/{confine,filter}.c from beneath JavaScript: the same attempts, made by system
   calls in a child, all succeed without the walls and all fail with them.
   (tests/e2e/confine.test.mjs does it through the launcher and Node.) */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#undef fail /* ours is a function */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "harness/confine.h"

#define NODE_FD 700

static struct {
    char dir[64], code[96], file[96], gateway[96], foreign[96];
    struct sockaddr_in tcp;
    struct sockaddr_un abstract;
    socklen_t abstract_len;
    pid_t sibling;
} world;

/* An attempt: 0 when it worked, else an errno. */

static int attempt_write(void)
{
    int fd = open(world.file, O_WRONLY | O_CREAT, 0600);
    return fd >= 0 && write(fd, "x", 1) == 1 ? 0 : errno;
}

static int attempt_truncate(void)
{
    return truncate(world.file, 0) == 0 ? 0 : errno;
}

static int attempt_mkdir(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s/folder", world.dir);
    return mkdir(path, 0700) == 0 ? 0 : errno;
}

static int attempt_fork(void)
{
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0)
        _exit(0);
    return pid > 0 && waitpid(pid, NULL, 0) == pid ? 0 : errno;
}

static int attempt_memfd(void)
{
    return syscall(SYS_memfd_create, "x", 0) >= 0 ? 0 : errno;
}

static int attempt_tcp(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    return connect(fd, (struct sockaddr *)&world.tcp, sizeof world.tcp) == 0 ? 0 : errno;
}

static int attempt_udp(void)
{
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    return sendto(fd, "x", 1, 0, (struct sockaddr *)&world.tcp, sizeof world.tcp) == 1 ? 0 : errno;
}

static int attempt_netlink(void)
{
    return socket(AF_NETLINK, SOCK_RAW, 0) >= 0 ? 0 : errno;
}

static int connect_unix(const struct sockaddr_un *to, socklen_t n)
{
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    return connect(fd, (const struct sockaddr *)to, n) == 0 ? 0 : errno;
}

static int attempt_abstract(void)
{
    return connect_unix(&world.abstract, world.abstract_len);
}

static int attempt_foreign(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    strcpy(a.sun_path, world.foreign);
    return connect_unix(&a, sizeof a);
}

static int attempt_listen(void)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX}; /* the kernel picks an abstract name */
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    return bind(fd, (struct sockaddr *)&a, sizeof(sa_family_t)) == 0 && listen(fd, 1) == 0 ? 0
                                                                                           : errno;
}

static int attempt_signal(void)
{
    return kill(world.sibling, SIGCONT) == 0 ? 0 : errno;
}

static int attempt_trace(void)
{
    if (ptrace(PTRACE_ATTACH, world.sibling, NULL, NULL) < 0)
        return errno;
    waitpid(world.sibling, NULL, __WALL);
    return ptrace(PTRACE_DETACH, world.sibling, NULL, NULL) == 0 ? 0 : errno;
}

static int attempt_passwd(void)
{
    return open("/etc/passwd", O_RDONLY) >= 0 ? 0 : errno;
}

static int attempt_proc(void)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/environ", (int)world.sibling);
    return open(path, O_RDONLY) >= 0 ? 0 : errno;
}

static int attempt_raise_limit(void)
{
    struct rlimit limit = {4096, 4096};
    return setrlimit(RLIMIT_FSIZE, &limit) == 0 ? 0 : errno;
}

static int attempt_node_again(void)
{
    return fcntl(STDIN_FILENO, F_DUPFD, NODE_FD) >= 0 ? 0 : errno;
}

static int attempt_exec(void)
{
    int fd = open("/bin/true", O_PATH);
    if (fd < 0)
        fd = open(CONFINE_NODE, O_PATH);
    char *argv[] = {"true", "--version", NULL};
    syscall(SYS_execveat, fd, "", argv, NULL, AT_EMPTY_PATH); /* does not return if it works */
    return errno;
}

/* `anywhere`: refused even without namespaces, by the filter and the limits alone. */
static const struct {
    const char *name;
    int (*attempt)(void);
    bool anywhere;
} attempts[] = {
    {"write", attempt_write, true},
    {"truncate", attempt_truncate, true},
    {"mkdir", attempt_mkdir, true},
    {"fork", attempt_fork, true},
    {"memfd", attempt_memfd, true},
    {"tcp", attempt_tcp, true},
    {"udp", attempt_udp, true},
    {"netlink", attempt_netlink, true},
    {"abstract socket", attempt_abstract, false},
    {"foreign socket", attempt_foreign, false},
    {"listen", attempt_listen, true},
    {"signal", attempt_signal, true},
    {"trace", attempt_trace, true},
    {"passwd", attempt_passwd, false},
    {"proc", attempt_proc, false},
    {"raise a limit", attempt_raise_limit, true},
    {"the descriptor that may be executed", attempt_node_again, true},
    {"exec", attempt_exec, true}, /* the last: it ends the child if it works */
};
#define ATTEMPTS (sizeof attempts / sizeof *attempts)
#define EXEC (ATTEMPTS - 1)

enum walls {
    NO_WALLS,
    FILTER_ONLY,
    NO_NAMESPACES, /* the filter and Landlock */
    ALL_WALLS
};

static err build_walls(enum walls walls, unsigned uid, unsigned gid)
{
    struct confine_tree tree = {.node = "/bin/true",
                                .runtime_dir = world.dir,
                                .harness_dir = world.code,
                                .gateway = world.gateway};
    bool proc;
    int version;
    if (walls == ALL_WALLS) {
        TRY(confine_map_ids(uid, gid));
        TRY(confine_mounts(&tree, &proc));
    }
    if (walls == NO_WALLS)
        return 0;
    TRY(confine_limits(NODE_FD));
    TRY(confine_privileges());
    if (walls == NO_NAMESPACES)
        TRY(confine_files(&tree, &version));
    return confine_syscalls(NODE_FD);
}

static _Noreturn void attack(int report, enum walls walls, unsigned uid, unsigned gid)
{
    int results[ATTEMPTS];
    if (build_walls(walls, uid, gid)) {
        dprintf(2, "%s\n", err_text());
        _exit(2);
    }
    for (size_t i = 0; i < EXEC; i++)
        results[i] = attempts[i].attempt();
    results[EXEC] = 0; /* stands if the exec below works */
    if (write(report, results, sizeof results) != sizeof results)
        _exit(3);
    int error = attempt_exec();
    if (write(report, &error, sizeof error) != sizeof error)
        _exit(3);
    _exit(0);
}

static void run(enum walls walls, int results[ATTEMPTS])
{
    int pipes[2], flags = SIGCHLD;
    unsigned uid = geteuid(), gid = getegid();
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    unlink(world.file);
    if (walls == ALL_WALLS)
        flags |= CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC;
    pid_t pid = (pid_t)syscall(SYS_clone, flags, NULL, NULL, NULL, NULL);
    if (pid == 0)
        attack(pipes[1], walls, uid, gid);
    assert_true(pid > 0);
    close(pipes[1]);
    assert_int_equal(read(pipes[0], results, sizeof(int) * ATTEMPTS), sizeof(int) * ATTEMPTS);
    if (read(pipes[0], &results[EXEC], sizeof(int)) != sizeof(int))
        results[EXEC] = 0;
    close(pipes[0]);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* Some containers and some settings of Ubuntu forbid user namespaces to everyone but root. */
static bool can_make_namespaces(void)
{
    unsigned uid = geteuid(), gid = getegid();
    pid_t pid = (pid_t)syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0)
        _exit(confine_map_ids(uid, gid) ? 1 : 0);
    int status = 1;
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}

static void every_attempt_works_without_walls(void **state)
{
    (void)state;
    int results[ATTEMPTS];
    run(NO_WALLS, results);
    for (size_t i = 0; i < ATTEMPTS; i++) {
        if (results[i] != 0)
            print_error("%s: %s\n", attempts[i].name, strerror(results[i]));
        assert_int_equal(results[i], 0);
    }
}

static void every_attempt_fails_with_all_walls(void **state)
{
    (void)state;
    int results[ATTEMPTS];
    if (!can_make_namespaces())
        skip();
    run(ALL_WALLS, results);
    for (size_t i = 0; i < ATTEMPTS; i++) {
        if (results[i] == 0)
            print_error("it worked: %s\n", attempts[i].name);
        assert_int_not_equal(results[i], 0);
    }
    assert_int_not_equal(access(world.file, F_OK), 0);
}

static void the_filter_alone_stops_what_it_can(void **state)
{
    (void)state;
    int results[ATTEMPTS];
    run(FILTER_ONLY, results);
    for (size_t i = 0; i < ATTEMPTS; i++) {
        if (!attempts[i].anywhere)
            continue; /* may work: what the launcher reports as missing */
        if (results[i] == 0)
            print_error("it worked: %s\n", attempts[i].name);
        assert_int_not_equal(results[i], 0);
    }
}

static void landlock_closes_files_and_abstract_sockets_too(void **state)
{
    (void)state;
    int results[ATTEMPTS];
    int version = (int)syscall(SYS_landlock_create_ruleset, NULL, 0, 1);
    if (version <= 0)
        skip();
    run(NO_NAMESPACES, results);
    for (size_t i = 0; i < ATTEMPTS; i++) {
        if (attempts[i].attempt == attempt_foreign)
            continue; /* what the launcher reports as missing */
        if (attempts[i].attempt == attempt_abstract && version < 6)
            continue;
        if (results[i] == 0)
            print_error("it worked: %s\n", attempts[i].name);
        assert_int_not_equal(results[i], 0);
    }
}

static int listen_unix(const struct sockaddr_un *a, socklen_t n)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)a, n), 0);
    return listen(fd, 8);
}

static void listen_path(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    strcpy(a.sun_path, path);
    assert_int_equal(listen_unix(&a, sizeof a), 0);
}

static int start_world(void **state)
{
    (void)state;
    strcpy(world.dir, "/tmp/confine-XXXXXX");
    assert_non_null(mkdtemp(world.dir));
    snprintf(world.file, sizeof world.file, "%s/file", world.dir);
    snprintf(world.gateway, sizeof world.gateway, "%s/gateway", world.dir);
    snprintf(world.foreign, sizeof world.foreign, "%s/foreign", world.dir);
    snprintf(world.code, sizeof world.code, "%s/code", world.dir);
    char pi[96], undici[96];
    snprintf(pi, sizeof pi, "%s/pi", world.dir);
    snprintf(undici, sizeof undici, "%s/undici", world.dir);
    assert_int_equal(mkdir(pi, 0700) | mkdir(undici, 0700) | mkdir(world.code, 0700), 0);
    listen_path(world.gateway);
    listen_path(world.foreign);
    world.abstract.sun_family = AF_UNIX;
    int n = snprintf(world.abstract.sun_path + 1, 64, "confine-%d", (int)getpid());
    world.abstract_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    assert_int_equal(listen_unix(&world.abstract, world.abstract_len), 0);
    world.tcp =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t size = sizeof world.tcp;
    assert_int_equal(bind(fd, (struct sockaddr *)&world.tcp, size) | listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&world.tcp, &size), 0);
    world.sibling = fork();
    if (world.sibling == 0) {
        execl("/bin/sleep", "sleep", "600", (char *)NULL);
        _exit(1);
    }
    return 0;
}

static int end_world(void **state)
{
    (void)state;
    char command[128];
    kill(world.sibling, SIGKILL);
    waitpid(world.sibling, NULL, 0);
    snprintf(command, sizeof command, "rm -rf %s", world.dir);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_attempt_works_without_walls),
        cmocka_unit_test(every_attempt_fails_with_all_walls),
        cmocka_unit_test(the_filter_alone_stops_what_it_can),
        cmocka_unit_test(landlock_closes_files_and_abstract_sockets_too),
    };
    return cmocka_run_group_tests(tests, start_world, end_world);
}
