/* bash: runs a command in a shell of its own session, output merged, cut and kept as Pi does (R33,
 * R34). */
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "hands/calls.h"
#include "hands/output.h"
#include "hands/process.h"
#include "hands/tools.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define QUIET_MS 100      /* R34: silence after the shell's exit that ends the wait for its pipes */
#define DRAIN_MAX_MS 2000 /* R34 */
#define TIMEOUT_GRACE_MS 2000 /* R34: between TERM and KILL */
#define GROUP_CHECK_MS 20
#define READ_BYTES 65536
#define TIMEOUT_MAX_MS 2147483647.0

enum phase {
    PHASE_RUNNING,
    PHASE_ENDING, /* TERM was sent; KILL follows at kill_at */
    PHASE_KILLED
};

enum stop {
    STOP_NONE,
    STOP_TIMEOUT,
    STOP_CANCELLED
};

struct shell {
    const struct tool_run *run;
    struct process process;
    int pipe; /* -1 at its end */
    struct output output;
    enum phase phase;
    enum stop stop;
    bool exited, reaped;
    int status;
    int64_t timeout_at, kill_at, drain_until, quiet_at; /* monotonic ms; INT64_MAX: not set */
};

static int64_t now_ms(void)
{
    return clock_monotonic_ms(clock_real());
}

static const char *shell_path(void)
{
    if (access("/bin/bash", X_OK) == 0)
        return "/bin/bash";
    return access("/usr/bin/bash", X_OK) == 0 ? "/usr/bin/bash" : "sh";
}

/* *out_ms is INT64_MAX for none; seconds as the error text shows them. */
static bool read_timeout(const struct tool_run *run, int64_t *out_ms, double *out_seconds,
                         struct tool_result *out)
{
    const json_t *given = json_object_get(run->input, "timeout");
    double ms =
        given && json_is_number(given) ? json_number_value(given) * 1000 : (double)run->timeout_ms;
    *out_ms = INT64_MAX;
    *out_seconds = ms / 1000;
    if (!json_is_number(given) && run->timeout_ms <= 0)
        return true;
    if (json_is_number(given))
        *out_seconds = json_number_value(given);
    if (!isfinite(ms) || ms <= 0) {
        tool_error(out, "Invalid timeout: must be a finite number of seconds");
        return false;
    }
    if (ms > TIMEOUT_MAX_MS) {
        tool_error(out, "Invalid timeout: maximum is 2147483.647 seconds");
        return false;
    }
    *out_ms = (int64_t)ceil(ms);
    return true;
}

static bool check_command(struct str command, struct tool_result *out)
{
    if (!str_has_nul(command))
        return true;
    AUTO_BUF text = {0};
    buf_add_c(&text, "The argument 'args[1]' must be a string without null bytes. Received ");
    text_inspect(command, &text);
    out->is_error = true;
    tool_text(out, buf_str(&text));
    return false;
}

static bool start(struct shell *s, const char *command, struct tool_result *out)
{
    if (access(s->run->cwd, F_OK) != 0) {
        tool_error(out, "Working directory does not exist: %s\nCannot execute bash commands.",
                   s->run->cwd);
        return false;
    }
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        tool_errno(out, errno, "pipe", NULL);
        return false;
    }
    const char *shell = shell_path();
    char *const argv[] = {(char *)shell, (char *)"-c", (char *)command, NULL};
    char **env = process_env_new(NULL);
    struct process_spec spec = {
        .argv = argv, .cwd = s->run->cwd, .env = env, .in = -1, .out = ends[1], .err_fd = ends[1]};
    int rc = process_spawn(&spec, &s->process);
    process_env_free(env);
    close(ends[1]);
    if (rc != 0) {
        close(ends[0]);
        if (rc == E2BIG)
            tool_error(out, "spawn E2BIG");
        else
            tool_error(out, "spawn %s %s", shell, tool_errno_name(rc));
        return false;
    }
    s->pipe = ends[0];
    fcntl(s->pipe, F_SETFL, O_NONBLOCK);
    return true;
}

static void read_output(struct shell *s)
{
    char bytes[READ_BYTES];
    ssize_t n = read(s->pipe, bytes, sizeof bytes);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        fd_close(&s->pipe);
        return;
    }
    struct str piece = {bytes, (size_t)n};
    output_add(&s->output, piece);
    call_output(s->run->call, piece);
    if (s->exited)
        s->quiet_at = now_ms() + QUIET_MS;
}

static void note_exit(struct shell *s)
{
    s->exited = true;
    s->quiet_at = now_ms() + QUIET_MS;
    s->drain_until = now_ms() + DRAIN_MAX_MS;
}

static void begin_stop(struct shell *s, enum stop why, uint32_t grace_ms)
{
    s->stop = why;
    s->phase = PHASE_ENDING;
    s->kill_at = now_ms() + grace_ms;
    process_kill_group(s->process.pid, SIGTERM);
}

static void reap(struct shell *s)
{
    if (!s->reaped)
        s->status = process_reap(&s->process);
    s->reaped = true;
}

/* True once TERM emptied the group, or KILL had to. */
static bool ended(struct shell *s, int64_t now)
{
    if (s->exited)
        reap(s); /* as a zombie it would count as alive below */
    if (s->exited && !process_group_alive(s->process.pid))
        return true;
    if (now < s->kill_at)
        return false;
    process_kill_group(s->process.pid, SIGKILL);
    return true;
}

/* Moves the phases along; true when there is nothing left to wait for. */
static bool advance(struct shell *s)
{
    int64_t now = now_ms();
    uint32_t grace_ms;
    if (s->phase == PHASE_RUNNING) {
        if (call_cancelled(s->run->call, &grace_ms))
            begin_stop(s, STOP_CANCELLED, grace_ms);
        else if (!s->exited && now >= s->timeout_at)
            begin_stop(s, STOP_TIMEOUT, TIMEOUT_GRACE_MS);
        else
            return s->exited && (s->pipe < 0 || now >= s->quiet_at || now >= s->drain_until);
    }
    if (s->phase == PHASE_ENDING && ended(s, now)) {
        s->phase = PHASE_KILLED;
        s->quiet_at = now + QUIET_MS;
        s->drain_until = now + DRAIN_MAX_MS;
    }
    return s->phase == PHASE_KILLED && s->exited &&
           (s->pipe < 0 || now >= s->quiet_at || now >= s->drain_until);
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Milliseconds until something is due though nothing happens; -1 if nothing is. */
static int next_wait(const struct shell *s)
{
    int64_t at = INT64_MAX;
    if (s->phase == PHASE_RUNNING && !s->exited)
        at = s->timeout_at;
    if (s->phase == PHASE_ENDING)
        at = least(s->kill_at, s->exited ? now_ms() + GROUP_CHECK_MS : INT64_MAX);
    if (s->exited && s->phase != PHASE_ENDING)
        at = least(s->quiet_at, s->drain_until);
    if (at == INT64_MAX)
        return -1;
    int64_t ms = at - now_ms();
    return ms < 0 ? 0 : (int)least(ms, 60000);
}

static void follow(struct shell *s)
{
    while (!advance(s)) {
        struct pollfd fds[3] = {
            {.fd = s->pipe, .events = POLLIN},
            {.fd = s->exited ? -1 : s->process.pidfd, .events = POLLIN},
            {.fd = s->phase == PHASE_RUNNING ? call_cancel_fd(s->run->call) : -1, .events = POLLIN},
        };
        if (poll(fds, 3, next_wait(s)) < 0)
            continue;
        if (fds[0].revents)
            read_output(s);
        if (fds[1].revents)
            note_exit(s);
    }
    reap(s);
    fd_close(&s->pipe);
    output_end(&s->output);
}

static void add_notice(struct shell *s, const struct text_truncation *t, struct buf *text)
{
    char a[TEXT_SIZE_MAX], b[TEXT_SIZE_MAX];
    unsigned long long first = t->total_lines - t->output_lines + 1, last = t->total_lines;
    if (t->last_line_partial)
        buf_printf(text, "\n\n[Showing last %s of line %llu (line is %s). Full output: ",
                   text_size(t->output_bytes, a), last, text_size(s->output.open_line_bytes, b));
    else if (t->by == TEXT_CUT_LINES)
        buf_printf(text, "\n\n[Showing lines %llu-%llu of %llu. Full output: ", first, last, last);
    else
        buf_printf(text, "\n\n[Showing lines %llu-%llu of %llu (%s limit). Full output: ", first,
                   last, last, text_size(TEXT_MAX_BYTES, a));
    output_where(&s->output, text);
    buf_add_char(text, ']');
}

static void add_status(struct buf *text, const char *status)
{
    if (text->n > 0)
        buf_add_c(text, "\n\n");
    buf_add_c(text, status);
}

static json_t *details(const struct shell *s, const struct text_truncation *t)
{
    if (!t->truncated)
        return NULL;
    json_t *o = json_object();
    json_object_set_new(o, "truncation", text_truncation_json(t));
    if (s->output.path)
        json_set_str(o, "fullOutputPath", str_of(s->output.path));
    return o;
}

static void report(struct shell *s, double timeout_seconds, struct tool_result *out)
{
    struct text_truncation t = output_snapshot(&s->output);
    AUTO_BUF text = {0};
    buf_add_str(&text, t.content);
    if (text.n == 0 && s->stop == STOP_NONE)
        buf_add_c(&text, "(no output)");
    if (t.truncated)
        add_notice(s, &t, &text);
    char status[96] = "", number[TEXT_NUMBER_MAX];
    int code = process_exit_code(s->status);
    if (s->stop == STOP_CANCELLED)
        snprintf(status, sizeof status, "Command aborted");
    else if (s->stop == STOP_TIMEOUT)
        snprintf(status, sizeof status, "Command timed out after %s seconds",
                 text_number(timeout_seconds, number));
    else if (code != 0)
        snprintf(status, sizeof status, "Command exited with code %d", code);
    if (status[0])
        add_status(&text, status);
    if (s->stop == STOP_NONE)
        out->details = details(s, &t); /* Pi throws for the other two, which leaves no details */
    out->is_error = status[0] != 0;
    out->interrupted = s->stop == STOP_CANCELLED;
    tool_text(out, buf_str(&text));
}

static void run(const struct tool_run *run, struct tool_result *out)
{
    struct str command;
    int64_t timeout_ms;
    double seconds;
    if (!tool_arg(run, "command", &command, out) || !read_timeout(run, &timeout_ms, &seconds, out))
        return;
    if (call_cancelled(run->call, NULL)) {
        out->interrupted = true;
        tool_error(out, "Command aborted");
        return;
    }
    if (!check_command(command, out))
        return;
    struct shell s = {.run = run,
                      .pipe = -1,
                      .drain_until = INT64_MAX,
                      .quiet_at = INT64_MAX,
                      .kill_at = INT64_MAX,
                      .timeout_at = INT64_MAX};
    output_init(&s.output);
    if (start(&s, command.p, out)) {
        if (timeout_ms != INT64_MAX)
            s.timeout_at = now_ms() + timeout_ms;
        follow(&s);
        report(&s, seconds, out);
    }
    output_done(&s.output);
}

const struct tool tool_bash = {.name = "bash", .run = run};
