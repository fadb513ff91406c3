/* pi-managed shell: a terminal in the sandbox of a session, through the service. */
#include <stdlib.h>
#include <unistd.h>

#include "base/fd.h"
#include "cli/resource.h"
#include "cli/terminal.h"
#include "cli/tunnel.h"

static const struct option options[] = {REMOTE_OPTIONS, {0}};

static err run_over(void *arg, const struct exec_request *request, struct exec_ended *out)
{
    return exec_run_over(tunnel_fd(arg), request, out);
}

static err talk(struct remote *r)
{
    AUTO_FD signals = -1;
    AUTO_BUF path = {0};
    struct tunnel *t = NULL;
    if (!isatty(STDIN_FILENO))
        return fail(E_INVALID, "standard input is no terminal: a shell needs one");
    TRY(resource_path(r, "/shell", &path));
    TRY(tunnel_open(r->http, path.p, "pi-shell", &t));
    err e = terminal_catch_signals(&signals);
    if (!e)
        r->status = terminal_talk(r->call, signals, run_over, t);
    tunnel_close(t);
    return e;
}

static int run(const struct invocation *call)
{
    return remote_run(call, talk);
}

const struct command shell_command = {
    .name = "shell",
    .arguments = "SESSION",
    .summary = "Opens a terminal in a session's sandbox.",
    .details = "It runs beside the agent, in the same files; a stopped sandbox is started for it.\n"
               "The exit status is that of the shell; 1 if there is none, 125 if it broke off.",
    .options = options,
    .run = run,
    .resource = &session_resource,
};
