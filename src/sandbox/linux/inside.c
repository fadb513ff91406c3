#include "sandbox/linux/inside.h"

#include "base/fd.h"
#include "sandbox/linux/userns.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define BACKLOG 128

static err listen_here(int init_pidfd, uint16_t port, int *out_fd)
{
    /* A plain user's rights over the network begin in the sandbox's user namespace. */
    int which = CLONE_NEWNET | (userns_is_privileged() ? 0 : CLONE_NEWUSER);
    if (setns(init_pidfd, which) < 0)
        return fail_errno("enter the sandbox's network");
    AUTO_FD s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (s < 0 || bind(s, (const struct sockaddr *)&address, sizeof address) < 0 ||
        listen(s, BACKLOG) < 0)
        return fail_errno("listen in the sandbox");
    *out_fd = fd_take(&s);
    return 0;
}

/* The answer is the error slot, with the socket when all went well. */
static _Noreturn void be_inside(int init_pidfd, uint16_t port, int answer)
{
    struct err_slot slot = {0};
    AUTO_FD s = -1;
    if (listen_here(init_pidfd, port, &s))
        err_save(&slot);
    fd_send(answer, &slot, sizeof slot, &s, s >= 0 ? 1 : 0);
    _exit(0);
}

err inside_listen(int init_pidfd, uint16_t port, int *out_fd)
{
    int pair[2], fds[FD_PASS_MAX], status;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return fail_errno("make a socket pair");
    AUTO_FD ours = pair[0], theirs = pair[1];
    pid_t pid = fork();
    if (pid < 0)
        return fail_errno("fork");
    if (pid == 0)
        be_inside(init_pidfd, port, theirs);
    fd_close(&theirs);
    struct err_slot slot;
    size_t n = 0;
    err e = fd_recv(ours, &slot, sizeof slot, &n, fds);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (e || n != sizeof slot)
        return fail(E_INTERNAL, "the process that listens in the sandbox died");
    if (slot.e)
        return err_restore(&slot);
    *out_fd = fds[0];
    return 0;
}
