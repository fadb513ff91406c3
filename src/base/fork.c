#include "base/fork.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static _Noreturn void be_child(err (*fn)(void *arg, void *result), void *arg, size_t n, int answer)
{
    struct err_slot slot = {0};
    void *result = mem_alloc(n + 1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (fn(arg, result))
        err_save(&slot);
    if (fd_write_full(answer, &slot, sizeof slot) == 0 && slot.e == 0)
        fd_write_full(answer, result, n);
    _exit(0);
}

/* True when there is an answer, or the end of one. */
static bool wait_for_answer(int fd, int64_t timeout_ms)
{
    int64_t end = clock_monotonic_ms(clock_real()) + timeout_ms;
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int64_t left = end - clock_monotonic_ms(clock_real());
        int n = poll(&p, 1, left > 0 ? (int)left : 0);
        if (n > 0)
            return true;
        if (n == 0 || errno != EINTR)
            return false;
    }
}

static err read_answer(int fd, void *result, size_t n)
{
    struct err_slot slot;
    TRY(fd_read_full(fd, &slot, sizeof slot));
    if (slot.e)
        return err_restore(&slot);
    return n > 0 ? fd_read_full(fd, result, n) : 0;
}

err fork_call(err (*fn)(void *arg, void *result), void *arg, void *result, size_t n,
              int64_t timeout_ms)
{
    int ends[2], status = 0;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return fail_errno("make a pipe");
    AUTO_FD from = ends[0], to = ends[1];
    pid_t pid = fork();
    if (pid < 0)
        return fail_errno("fork");
    if (pid == 0)
        be_child(fn, arg, n, to);
    fd_close(&to);
    bool in_time = wait_for_answer(from, timeout_ms);
    err e = in_time ? read_answer(from, result, n) : 0;
    kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    if (!in_time)
        return fail(E_TIMEOUT, "it took longer than %lld s", (long long)(timeout_ms / 1000));
    return e == E_CLOSED ? fail(E_INTERNAL, "the process that did it died (wait status %d)", status)
                         : e;
}
