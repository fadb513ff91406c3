/* A plain process inside a sandbox (EXEC of hands/frames.h), driven from this process's own
   descriptors: what a person's terminal or a pipe sends goes in, what the process writes comes out,
   signals are passed on. One call runs one process and blocks until it ended and everything it
   wrote was written. Any thread; SIGPIPE must be ignored by the process. */
#ifndef SANDBOX_EXEC_H
#define SANDBOX_EXEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define EXEC_STATUS_FAILED 125 /* we failed, not the command */
#define EXEC_STATUS_NOT_RUN 126
#define EXEC_STATUS_NOT_FOUND 127

struct exec_request {
    char *const *argv; /* argc words of UTF-8; argv[0] is looked up in the sandbox's PATH */
    size_t argc;
    const char *cwd;      /* NULL: the working directory of the tools */
    const char *term;     /* with `terminal`: TERM of the process, or NULL */
    int in, out, err_fd;  /* borrowed; `in` may be -1: no input */
    int signals;          /* a signalfd, or -1: two are passed on, the third ends the command */
    bool terminal;        /* run it on a terminal of its own, as large as the one of `in`. Signals
                             other than SIGWINCH then end the conversation: what runs there gets HUP */
    struct buf *keep_out; /* instead of `out` and `err_fd`, unless NULL */
    struct buf *keep_errs;
    size_t keep_max;    /* bytes each; the rest is dropped and told in `cut` */
    int64_t timeout_ms; /* then it is killed; 0 = never */
};

struct exec_ended {
    int code;   /* of exit, when signal is 0 */
    int signal; /* that ended it */
    bool cut;
};

/* E_NOT_FOUND: there is no such program in the sandbox; E_FORBIDDEN: it cannot be run; E_CLOSED:
   the sandbox ended under it; E_UNAVAILABLE: it does not answer at `socket`. When nobody reads our
   output any more the process is ended, and *out has SIGPIPE. */
err exec_run(const char *socket, const struct exec_request *request, struct exec_ended *out);
/* The same over a connection that is there (borrowed), be it to pi-hands or to a relay of it. */
err exec_run_over(int fd, const struct exec_request *request, struct exec_ended *out);
/* 0 to 255, as a shell would report it. */
int exec_status(const struct exec_ended *ended);
/* The same for an error of exec_run. */
int exec_status_of_err(err e);

#endif
