#include "cli/terminal.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include "hands/frames.h"

err terminal_catch_signals(int *out_fd)
{
    static const int caught[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof caught / sizeof *caught; i++)
        sigaddset(&set, caught[i]);
    signal(SIGPIPE, SIG_IGN);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return fail_errno("block signals");
    int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0)
        return fail_errno("make a signalfd");
    *out_fd = fd;
    return 0;
}

int terminal_talk(const struct invocation *call, int signals, terminal_run run, void *arg)
{
    struct termios before, raw;
    if (tcgetattr(STDIN_FILENO, &before) < 0) {
        fail_errno("ask the terminal for its mode");
        command_fail(call);
        return EXEC_STATUS_FAILED;
    }
    raw = before;
    cfmakeraw(&raw);
    char *argv[] = {"/bin/sh", "-c", SANDBOX_SHELL};
    struct exec_request request = {
        .argv = argv,
        .argc = 3,
        .term = getenv("TERM"),
        .in = STDIN_FILENO,
        .out = STDOUT_FILENO,
        .err_fd = STDERR_FILENO,
        .signals = signals,
        .terminal = true,
    };
    struct exec_ended ended = {0};
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    err e = run(arg, &request, &ended);
    tcsetattr(STDIN_FILENO, TCSANOW, &before); /* signals wait until here and after */
    if (!e)
        return exec_status(&ended);
    command_fail(call);
    return exec_status_of_err(e);
}
