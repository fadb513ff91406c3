/* pi-hands: its listening socket speaks for the sandbox. */
#include "attack.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static const char *hands_ptrace(void)
{
    return seize("hands");
}

static const char *hands_memory(void)
{
    return outcome(open(path_of("hands", "mem"), O_RDWR) >= 0);
}

/* A program that runs is only safe for as long as it does. */
static const char *hands_program(void)
{
    return outcome(open(path_of("hands", "exe"), O_RDWR) >= 0 || errno == ETXTBSY);
}

static const char *hands_socket(void)
{
    int process = (int)syscall(SYS_pidfd_open, number_of("hands"), 0);
    return outcome(process >= 0 && syscall(SYS_pidfd_getfd, process, 3, 0) >= 0);
}

static const char *hands_foreign_memory(void)
{
    char byte;
    struct iovec here = {&byte, 1}, there = {0, 1}; /* EFAULT: allowed, though nothing is there */
    ssize_t n = syscall(SYS_process_vm_readv, number_of("hands"), &here, 1, &there, 1, 0);
    return outcome(n >= 0 || errno == EFAULT);
}

static const char *hands_inherited(void)
{
    for (int fd = 3; fd < 1024; fd++) {
        int listening = 0;
        socklen_t n = sizeof listening;
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &n) == 0 && listening)
            return NULL;
    }
    return "no listening socket was inherited";
}

static const char *hands_limits(void)
{
    struct rlimit limit;
    pid_t pid = number_of("hands");
    return outcome(prlimit(pid, RLIMIT_NPROC, NULL, &limit) == 0 &&
                   prlimit(pid, RLIMIT_NPROC, &limit, NULL) == 0);
}

const struct attempt hands_attempts[] = {
    {.name = "hands_ptrace", .run = hands_ptrace},
    {.name = "hands_memory", .run = hands_memory},
    {.name = "hands_program", .run = hands_program},
    {.name = "hands_socket", .run = hands_socket},
    {.name = "hands_foreign_memory", .run = hands_foreign_memory},
    {.name = "hands_inherited", .run = hands_inherited},
    {.name = "hands_limits", .run = hands_limits},
    {.name = NULL},
};
