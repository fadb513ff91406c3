#include "hands/exec.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "hands/frames.h"
#include "hands/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define ARGS_MAX 4096
#define QUEUE_MAX                                                                                  \
    (256u << 10) /* bytes waiting in one direction before the other side has to wait */
#define QUIET_MS 100
#define DRAIN_MAX_MS 2000
#define GRACE_MS 2000

struct exec {
    int fd; /* the connection, or -1 once the peer is gone */
    struct process process;
    int in, out,
        err_fd; /* ours; -1 when closed. A terminal has in and out alone, each its own descriptor */
    bool pty, exited, reaped, timed_out, in_ends;
    int status;
    struct buf from_peer; /* bytes of frames not whole yet */
    struct buf to_child, to_peer;
    int64_t timeout_at, kill_at, quiet_at, drain_until;
};

static int64_t now_ms(void)
{
    return clock_monotonic_ms(clock_real());
}

/* A NULL-terminated array that borrows from the JSON; NULL when it is no array of 1 to ARGS_MAX
 * strings. */
static char **string_array(const json_t *array)
{
    size_t n = json_array_size(array);
    if (n == 0 || n > ARGS_MAX)
        return NULL;
    char **strings = mem_alloc(size_mul(n + 1, sizeof *strings));
    for (size_t i = 0; i < n; i++) {
        const json_t *s = json_array_get(array, i);
        if (!json_is_string(s) || strlen(json_string_value(s)) != json_string_length(s)) {
            mem_free(strings);
            return NULL;
        }
        strings[i] = (char *)json_string_value(s);
    }
    return strings;
}

static char **env_of(const json_t *object)
{
    size_t n = json_object_size(object), at = 0;
    char **extra = mem_alloc(size_mul(n + 1, sizeof *extra));
    const char *key;
    const json_t *value;
    json_object_foreach((json_t *)object, key, value)
    {
        if (!json_is_string(value))
            continue;
        AUTO_BUF entry = {0};
        buf_printf(&entry, "%s=%s", key, json_string_value(value));
        extra[at++] = mem_strdup(entry.p);
    }
    char **env = process_env_new(extra);
    process_env_free(extra);
    return env;
}

static int dup_cloexec(int fd)
{
    return fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

static void set_window(int fd, const json_t *size)
{
    struct winsize w = {.ws_row = (unsigned short)json_get_int(size, "rows", 24),
                        .ws_col = (unsigned short)json_get_int(size, "cols", 80)};
    ioctl(fd, TIOCSWINSZ, &w);
}

/* Opens a terminal: our side becomes x->in and x->out; the other side's path goes to out_path. */
static bool open_terminal(struct exec *x, const json_t *size, char *out_path, size_t path_n)
{
    AUTO_FD master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0 ||
        ptsname_r(master, out_path, path_n) != 0)
        return false;
    set_window(master, size);
    x->in = dup_cloexec(master);
    x->out = fd_take(&master);
    x->pty = true;
    return x->in >= 0;
}

struct child_ends {
    int in, out, err_fd;
};

static void close_ends(struct child_ends *ends)
{
    fd_close(&ends->in);
    fd_close(&ends->out);
    fd_close(&ends->err_fd);
}

static bool open_pipes(struct exec *x, struct child_ends *ends)
{
    int in[2], out[2], errs[2];
    if (pipe2(in, O_CLOEXEC) != 0)
        return false;
    ends->in = in[0];
    x->in = in[1];
    if (pipe2(out, O_CLOEXEC) != 0)
        return false;
    ends->out = out[1];
    x->out = out[0];
    if (pipe2(errs, O_CLOEXEC) != 0)
        return false;
    ends->err_fd = errs[1];
    x->err_fd = errs[0];
    return true;
}

static void close_all(struct exec *x)
{
    fd_close(&x->in);
    fd_close(&x->out);
    fd_close(&x->err_fd);
    buf_done(&x->from_peer);
    buf_done(&x->to_child);
    buf_done(&x->to_peer);
}

/* 0 or an errno. */
static int start(struct exec *x, const json_t *request, char *const *argv)
{
    char tty[64];
    const json_t *pty = json_object_get(request, "pty");
    __attribute__((cleanup(close_ends))) struct child_ends ends = {-1, -1, -1};
    bool opened =
        json_is_object(pty) ? open_terminal(x, pty, tty, sizeof tty) : open_pipes(x, &ends);
    if (!opened)
        return errno;
    char **env = env_of(json_object_get(request, "env"));
    struct process_spec spec = {.argv = argv,
                                .cwd = json_get_c(request, "cwd"),
                                .env = env,
                                .in = ends.in,
                                .out = ends.out,
                                .err_fd = ends.err_fd,
                                .tty = x->pty ? tty : NULL};
    int rc = process_spawn(&spec, &x->process);
    process_env_free(env);
    return rc;
}

static void nonblocking(int fd)
{
    if (fd >= 0)
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static void peer_left(struct exec *x)
{
    if (x->fd < 0)
        return;
    x->fd = -1;
    buf_clear(&x->to_peer);
    if (!x->exited && x->kill_at == INT64_MAX) {
        process_kill_group(x->process.pid, SIGHUP);
        x->kill_at = now_ms() + GRACE_MS;
    }
}

static void read_child(struct exec *x, int *fd, enum frame_type type)
{
    char bytes[FRAME_CHUNK];
    ssize_t n = read(*fd, bytes, sizeof bytes);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) { /* a terminal ends with EIO */
        fd_close(fd);
        return;
    }
    if (x->exited)
        x->quiet_at = now_ms() + QUIET_MS;
    if (x->fd >= 0)
        frame_add(&x->to_peer, type, (struct str){bytes, (size_t)n});
}

static void write_child(struct exec *x)
{
    ssize_t n = write(x->in, x->to_child.p, x->to_child.n);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n < 0) { /* nobody reads it any more */
        buf_clear(&x->to_child);
        fd_close(&x->in);
        return;
    }
    buf_drop(&x->to_child, (size_t)n);
}

static void write_peer(struct exec *x)
{
    ssize_t n = send(x->fd, x->to_peer.p, x->to_peer.n, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        peer_left(x);
    if (n > 0)
        buf_drop(&x->to_peer, (size_t)n);
}

static void take_stdin(struct exec *x, struct str bytes)
{
    if (bytes.n > 0)
        buf_add_str(&x->to_child, bytes);
    else if (x->pty)
        buf_add_char(&x->to_child, 4); /* end of file, as typed on a terminal */
    else
        x->in_ends = true;
}

static void take_signal(struct exec *x, const json_t *o)
{
    int64_t number = json_get_int(o, "signal", 0);
    if (number > 0 && number < NSIG && !x->reaped)
        process_kill_group(x->process.pid, (int)number);
}

static err take_frame(struct exec *x, const struct frame *f)
{
    if (f->type == FRAME_STDIN) {
        take_stdin(x, f->payload);
        return 0;
    }
    AUTO_JSON o = NULL;
    TRY(json_read(f->payload, &o));
    if (f->type == FRAME_SIGNAL)
        take_signal(x, o);
    else if (f->type == FRAME_RESIZE && x->pty && x->out >= 0)
        set_window(x->out, o);
    return 0;
}

static void read_peer(struct exec *x)
{
    buf_reserve(&x->from_peer, FRAME_CHUNK);
    ssize_t n = recv(x->fd, x->from_peer.p + x->from_peer.n, FRAME_CHUNK, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        peer_left(x);
        return;
    }
    x->from_peer.n += (size_t)n;
    struct frame f;
    size_t used;
    err e;
    while (frame_parse(buf_str(&x->from_peer), &f, &used, &e)) {
        e = take_frame(x, &f);
        buf_drop(&x->from_peer, used);
        if (e)
            break;
    }
    if (e)
        peer_left(x);
}

static void note_exit(struct exec *x)
{
    x->exited = true;
    x->quiet_at = now_ms() + QUIET_MS;
    x->drain_until = now_ms() + DRAIN_MAX_MS;
}

static void check_times(struct exec *x)
{
    int64_t now = now_ms();
    if (!x->exited && now >= x->timeout_at) {
        x->timeout_at = INT64_MAX;
        x->timed_out = true;
        process_kill_group(x->process.pid, SIGTERM);
        x->kill_at = now + GRACE_MS;
    }
    if (now >= x->kill_at) {
        x->kill_at = INT64_MAX;
        process_kill_group(x->process.pid, SIGKILL);
    }
}

static bool drained(const struct exec *x)
{
    if (!x->exited)
        return false;
    int64_t now = now_ms();
    bool quiet = now >= x->quiet_at && x->to_peer.n == 0;
    return (x->out < 0 && x->err_fd < 0) || quiet || now >= x->drain_until;
}

static int next_wait(const struct exec *x)
{
    int64_t at = x->exited ? (x->quiet_at < x->drain_until ? x->quiet_at : x->drain_until)
                           : (x->timeout_at < x->kill_at ? x->timeout_at : x->kill_at);
    if (at == INT64_MAX)
        return -1;
    int64_t ms = at - now_ms();
    if (x->exited && ms <= 0) /* quiet, but the peer has not taken everything yet */
        ms = x->drain_until - now_ms();
    return ms < 0 ? 0 : ms > 60000 ? 60000 : (int)ms;
}

static void follow(struct exec *x)
{
    while (!drained(x)) {
        bool room = x->to_peer.n < QUEUE_MAX;
        bool hear = x->to_child.n < QUEUE_MAX;
        short peer = (short)((hear ? POLLIN : 0) | (x->to_peer.n ? POLLOUT : 0) | POLLRDHUP);
        struct pollfd fds[5] = {
            {.fd = x->fd, .events = peer},
            {.fd = room ? x->out : -1, .events = POLLIN},
            {.fd = room ? x->err_fd : -1, .events = POLLIN},
            {.fd = x->to_child.n ? x->in : -1, .events = POLLOUT},
            {.fd = x->exited ? -1 : x->process.pidfd, .events = POLLIN},
        };
        if (poll(fds, 5, next_wait(x)) < 0)
            continue;
        if (fds[1].revents)
            read_child(x, &x->out, FRAME_STDOUT);
        if (fds[2].revents)
            read_child(x, &x->err_fd, FRAME_STDERR);
        if (fds[3].revents)
            write_child(x);
        if (fds[0].revents & POLLOUT)
            write_peer(x);
        if (x->fd >= 0 && fds[0].revents & POLLIN)
            read_peer(x);
        else if (x->fd >= 0 && fds[0].revents & (POLLHUP | POLLERR | POLLRDHUP))
            peer_left(x);
        if (fds[4].revents || (x->exited && !room)) /* a slow peer does not cost it the rest */
            note_exit(x);
        if (x->in >= 0 && x->in_ends && x->to_child.n == 0)
            fd_close(&x->in);
        if (x->in < 0)
            buf_clear(&x->to_child);
        check_times(x);
    }
}

static err finish(struct exec *x)
{
    if (x->fd < 0 || x->timed_out)
        process_kill_group(x->process.pid, SIGKILL); /* stragglers of the group */
    int status = process_reap(&x->process);
    if (x->fd < 0)
        return fail(E_CLOSED, "the peer is gone");
    AUTO_JSON o = json_object();
    if (WIFSIGNALED(status))
        json_object_set_new(o, "signal", json_integer(WTERMSIG(status)));
    else
        json_object_set_new(o, "code", json_integer(WEXITSTATUS(status)));
    if (x->timed_out)
        json_object_set_new(o, "timedOut", json_true());
    AUTO_BUF text = {0};
    json_write(o, &text);
    TRY(fd_write_full(x->fd, x->to_peer.p, x->to_peer.n));
    return frame_write(x->fd, FRAME_EXIT, buf_str(&text));
}

/* Of why nothing could be started: is there no such program, or did it not run? */
static const char *start_code(int rc)
{
    if (rc == ENOENT || rc == ENOTDIR)
        return "not_found";
    return rc == EACCES || rc == ENOEXEC || rc == EISDIR ? "cannot_run" : "internal";
}

err exec_serve(int fd, const json_t *request, const char **out_code, const char **out_message)
{
    char **argv = string_array(json_object_get(request, "argv"));
    if (argv == NULL) {
        *out_code = "bad_frame";
        *out_message = "EXEC needs argv, 1 to 4096 strings without NUL";
        return 0;
    }
    struct exec x = {.fd = fd,
                     .in = -1,
                     .out = -1,
                     .err_fd = -1,
                     .timeout_at = INT64_MAX,
                     .kill_at = INT64_MAX,
                     .quiet_at = INT64_MAX,
                     .drain_until = INT64_MAX};
    int rc = start(&x, request, argv);
    err e = 0;
    if (rc == 0) {
        nonblocking(x.in);
        nonblocking(x.out);
        nonblocking(x.err_fd);
        int64_t timeout_ms = json_get_int(request, "timeoutMs", 0);
        if (timeout_ms > 0)
            x.timeout_at = now_ms() + timeout_ms;
        follow(&x);
        e = finish(&x);
    } else {
        fail(E_IO, "cannot start %s: %s", argv[0], strerror(rc));
        *out_code = start_code(rc);
        *out_message = err_text();
    }
    close_all(&x);
    mem_free(argv);
    return e;
}
