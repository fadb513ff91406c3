/* src/broker/jail.c: what the broker can no longer do, and what it still must. Each case runs in a
 * child. */
#include "broker/jail.h"

#include "base/err.h"

#include <arpa/inet.h>
#include <cap-ng.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#undef fail /* ours */

/* Runs `act` in a child, in the jail or outside, and gives what it returned. */
static int in_child(int (*act)(void), bool jailed)
{
    pid_t pid = fork();
    if (pid == 0) {
        if (jailed && jail_enter() != 0) {
            fprintf(stderr, "%s\n", err_text());
            _exit(99);
        }
        _exit(act());
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 98;
}

/* 0 when the call was let through by the filter (whatever came of it), 1 when it got EPERM. */

static int run_a_program(void)
{
    execl("/bin/true", "true", NULL);
    return errno == EPERM;
}

static int start_a_process(void)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    if (pid > 0)
        waitpid(pid, NULL, 0);
    return pid < 0 && errno == EPERM;
}

static int trace_a_process(void)
{
    return ptrace(PTRACE_TRACEME, 0, 0, 0) < 0 && errno == EPERM;
}

static int read_foreign_memory(void)
{
    char byte = 0, copy = 0;
    struct iovec from = {&byte, 1}, to = {&copy, 1};
    return process_vm_readv(getpid(), &to, 1, &from, 1, 0) < 0 && errno == EPERM;
}

static int new_user_namespace(void)
{
    return unshare(CLONE_NEWUSER) < 0 && errno == EPERM;
}

static int write_a_file(void)
{
    return mkdir("/tmp/pm-jail-test", 0700) < 0 ? errno == EPERM : rmdir("/tmp/pm-jail-test") != 0;
}

static int serve_a_socket(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return listen(fd, 1) < 0 && errno == EPERM;
}

static int signal_others(void)
{
    return kill(getpid(), 0) < 0 && errno == EPERM;
}

static void what_it_does_not_need_is_gone(void **state)
{
    (void)state;
    static int (*const acts[])(void) = {run_a_program,       start_a_process,    trace_a_process,
                                        read_foreign_memory, new_user_namespace, write_a_file,
                                        serve_a_socket,      signal_others};
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++)
        if (in_child(acts[i], true) != 1)
            assert_int_equal(i, -1); /* names the row */
    /* the same acts pass outside, so they test the jail */
    assert_int_equal(in_child(run_a_program, false), 0);
    assert_int_equal(in_child(start_a_process, false), 0);
    assert_int_equal(in_child(write_a_file, false), 0);
    assert_int_equal(in_child(serve_a_socket, false), 0);
    assert_int_equal(in_child(signal_others, false), 0);
}

/* A thread that was there before the jail waits at the gate, then tries to run a program. */

static int gate[2];

static void *run_behind_gate(void *result)
{
    char byte;
    *(int *)result = read(gate[0], &byte, 1) == 1 ? run_a_program() : 2;
    return NULL;
}

static int older_thread_runs_a_program(void)
{
    int result = 3;
    pthread_t thread;
    if (pipe(gate) < 0 || pthread_create(&thread, NULL, run_behind_gate, &result) != 0)
        return 4;
    if (jail_enter() != 0 || write(gate[1], "x", 1) != 1)
        return 5;
    pthread_join(thread, NULL);
    return result;
}

static int has_capabilities(void)
{
    capng_get_caps_process();
    return capng_have_capabilities(CAPNG_SELECT_CAPS) != CAPNG_NONE;
}

static int is_sealed(void)
{
    struct rlimit core;
    getrlimit(RLIMIT_CORE, &core);
    return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 && prctl(PR_GET_DUMPABLE) == 0 &&
           core.rlim_max == 0;
}

static void privileges_are_gone(void **state)
{
    (void)state;
    assert_int_equal(in_child(is_sealed, true), 1);
    assert_int_equal(in_child(has_capabilities, true), 0);
    assert_int_equal(in_child(older_thread_runs_a_program, false), 1);
}

static int dial_out(void)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *answers;
    if (getaddrinfo("localhost", "9", &hints, &answers) != 0)
        return 2;
    int fd = socket(answers->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return 3;
    int rc = connect(fd, answers->ai_addr, answers->ai_addrlen);
    freeaddrinfo(answers);
    return rc < 0 && errno != ECONNREFUSED ? 4 : 0;
}

static int read_certificates(void)
{
    int fd = open("/etc/hosts", O_RDONLY | O_CLOEXEC);
    return fd < 0;
}

static void it_still_dials(void **state)
{
    (void)state;
    assert_int_equal(in_child(dial_out, true), 0);
    assert_int_equal(in_child(read_certificates, true), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_it_does_not_need_is_gone),
        cmocka_unit_test(privileges_are_gone),
        cmocka_unit_test(it_still_dials),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
