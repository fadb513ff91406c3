#include "hands/child_lines.h"

#include "base/clock.h"
#include "base/fd.h"
#include "hands/calls.h"
#include "hands/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#define READ_BYTES 65536
#define LINE_MAX_BYTES ((size_t)64 << 20)
#define ERROR_TEXT_MAX ((size_t)64 << 10)

struct reader {
    const struct tool_run *run;
    struct child_lines *c;
    struct process process;
    int out, err_fd; /* -1 at their ends */
    struct buf line; /* the start of one that is not complete */
    int64_t timeout_at;
    bool ending;
};

static int64_t now_ms(void)
{
    return clock_monotonic_ms(clock_real());
}

static int start(struct reader *r)
{
    int out[2], errors[2];
    if (pipe2(out, O_CLOEXEC) != 0)
        return errno;
    if (pipe2(errors, O_CLOEXEC) != 0) {
        int rc = errno;
        close(out[0]);
        close(out[1]);
        return rc;
    }
    char **env = process_env_new(NULL);
    struct process_spec spec = {.argv = r->c->argv,
                                .cwd = r->c->cwd,
                                .env = env,
                                .in = -1,
                                .out = out[1],
                                .err_fd = errors[1]};
    int rc = process_spawn(&spec, &r->process);
    process_env_free(env);
    close(out[1]);
    close(errors[1]);
    r->out = out[0];
    r->err_fd = errors[0];
    if (rc != 0) {
        fd_close(&r->out);
        fd_close(&r->err_fd);
    }
    return rc;
}

static void stop(struct reader *r, enum child_end why)
{
    if (r->ending)
        return;
    r->ending = true;
    r->c->end = why;
    process_kill_group(r->process.pid, SIGKILL);
}

static void take_lines(struct reader *r, const char *p, size_t n)
{
    const char *end = p + n;
    while (!r->ending) {
        const char *lf = p < end ? memchr(p, '\n', (size_t)(end - p)) : NULL;
        if (lf == NULL)
            break;
        struct str line = {p, (size_t)(lf - p)};
        if (r->line.n > 0) {
            buf_add_str(&r->line, line);
            line = buf_str(&r->line);
        }
        if (!r->c->on_line(r->c->arg, line))
            stop(r, CHILD_STOPPED);
        buf_clear(&r->line);
        p = lf + 1;
    }
    if (r->ending)
        return;
    buf_add(&r->line, p, (size_t)(end - p));
    if (r->line.n > LINE_MAX_BYTES)
        stop(r, CHILD_LINE_TOO_LONG);
}

static void read_out(struct reader *r)
{
    char bytes[READ_BYTES];
    ssize_t n = read(r->out, bytes, sizeof bytes);
    if (n < 0 && errno == EINTR)
        return;
    if (n > 0) {
        take_lines(r, bytes, (size_t)n);
        return;
    }
    fd_close(&r->out);
    if (r->line.n > 0 && !r->ending)
        r->c->on_line(r->c->arg, buf_str(&r->line)); /* the last line had no LF */
}

static void read_errors(struct reader *r)
{
    char bytes[4096];
    ssize_t n = read(r->err_fd, bytes, sizeof bytes);
    if (n < 0 && errno == EINTR)
        return;
    if (n <= 0) {
        fd_close(&r->err_fd);
        return;
    }
    size_t room = ERROR_TEXT_MAX - r->c->error_text.n;
    buf_add(&r->c->error_text, bytes, (size_t)n < room ? (size_t)n : room);
}

static int wait_ms(const struct reader *r)
{
    if (r->ending || r->timeout_at == INT64_MAX)
        return -1;
    int64_t left = r->timeout_at - now_ms();
    return left <= 0 ? 0 : left > INT32_MAX ? INT32_MAX : (int)left;
}

static void follow(struct reader *r)
{
    while (r->out >= 0 || r->err_fd >= 0) {
        struct pollfd fds[3] = {
            {.fd = r->out, .events = POLLIN},
            {.fd = r->err_fd, .events = POLLIN},
            {.fd = r->ending ? -1 : call_cancel_fd(r->run->call), .events = POLLIN}};
        if (poll(fds, 3, wait_ms(r)) < 0)
            continue;
        if (fds[2].revents)
            stop(r, CHILD_CANCELLED);
        if (!r->ending && now_ms() >= r->timeout_at)
            stop(r, CHILD_TIMEOUT);
        if (fds[0].revents)
            read_out(r);
        if (fds[1].revents)
            read_errors(r);
    }
}

int child_lines_run(const struct tool_run *run, struct child_lines *c)
{
    struct reader r = {.run = run, .c = c, .out = -1, .err_fd = -1, .timeout_at = INT64_MAX};
    c->end = CHILD_EXITED;
    int rc = start(&r);
    if (rc != 0)
        return rc;
    if (run->timeout_ms > 0)
        r.timeout_at = now_ms() + run->timeout_ms;
    follow(&r);
    c->status = process_reap(&r.process);
    buf_done(&r.line);
    return 0;
}
