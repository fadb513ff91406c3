#include "sandbox/exec.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "hands/frames.h"
#include "sandbox/hands.h"

#define QUEUE_MAX                                                                                  \
    (256u << 10) /* bytes waiting in one direction before the other side must wait                 \
                  */

/* The next one ends the conversation: a command may ignore signals, and they wait behind input that
   it does not read. */
#define SIGNALS_MAX 2

/* Where one of its two streams goes. */
struct sink {
    int fd;           /* borrowed */
    struct buf *keep; /* instead of fd */
    struct buf waiting;
};

struct conversation {
    const struct exec_request *request;
    int fd, in; /* in: -1 once it ended */
    struct sink out, errs;
    struct buf from_hands, to_hands;
    unsigned signals; /* passed on so far */
    bool ended;
    struct exec_ended result;
};

static void queue_json(struct conversation *c, enum frame_type type, json_t *take_object)
{
    AUTO_JSON o = take_object;
    AUTO_BUF text = {0};
    json_write(o, &text);
    frame_add(&c->to_hands, type, buf_str(&text));
}

/* NULL when `in` is no terminal: then pi-hands takes its own default. */
static json_t *window_of(int fd)
{
    struct winsize w;
    if (ioctl(fd, TIOCGWINSZ, &w) < 0 || w.ws_row == 0 || w.ws_col == 0)
        return NULL;
    return json_pack("{s:i, s:i}", "rows", (int)w.ws_row, "cols", (int)w.ws_col);
}

/* ---- opening ---- */

static err argv_json(const struct exec_request *r, json_t **out)
{
    AUTO_JSON words = json_array();
    for (size_t i = 0; i < r->argc; i++) {
        if (!str_is_utf8(str_of(r->argv[i])))
            return fail(E_INVALID, "word %zu of the command is not UTF-8", i + 1);
        json_array_append_new(words, json_str(str_of(r->argv[i])));
    }
    *out = json_incref(words);
    return 0;
}

static err queue_opening(struct conversation *c)
{
    const struct exec_request *r = c->request;
    json_t *argv = NULL;
    TRY(argv_json(r, &argv));
    json_t *o = json_pack("{s:o, s:s}", "argv", argv, "cwd", r->cwd ? r->cwd : SANDBOX_WORKDIR);
    if (r->timeout_ms > 0)
        json_object_set_new(o, "timeoutMs", json_integer(r->timeout_ms));
    if (r->terminal) {
        json_t *window = window_of(r->in);
        json_object_set_new(o, "pty", window ? window : json_object());
        if (r->term && str_is_utf8(str_of(r->term)))
            json_object_set_new(o, "env", json_pack("{s:s}", "TERM", r->term));
    }
    queue_json(c, FRAME_EXEC, o);
    return 0;
}

/* ---- what pi-hands says ---- */

static void take_output(struct conversation *c, struct sink *sink, struct str bytes)
{
    if (sink->keep == NULL) {
        buf_add_str(&sink->waiting, bytes);
        return;
    }
    size_t room = c->request->keep_max - sink->keep->n;
    c->result.cut |= bytes.n > room;
    buf_add(sink->keep, bytes.p, bytes.n < room ? bytes.n : room);
}

static err take_exit(struct conversation *c, struct str payload)
{
    AUTO_JSON o = NULL;
    TRY(json_read(payload, &o));
    int64_t code = json_get_int(o, "code", -1), number = json_get_int(o, "signal", 0);
    if (number <= 0 && (code < 0 || code > 255))
        return fail(E_INVALID, "the sandbox did not say how the command ended");
    c->result.code = number > 0 ? 0 : (int)code;
    c->result.signal = number > 0 && number < NSIG ? (int)number : 0;
    c->ended = true;
    return 0;
}

static err refusal(struct str payload)
{
    AUTO_JSON o = NULL;
    TRY(json_read(payload, &o));
    struct str code = json_get_str(o, "code"), message = json_get_str(o, "message");
    err e = str_is(code, "not_found")       ? E_NOT_FOUND
            : str_is(code, "cannot_run")    ? E_FORBIDDEN
            : str_is(code, "busy")          ? E_UNAVAILABLE
            : str_is(code, "sandbox_ended") ? E_CLOSED
            : str_is(code, "idle")          ? E_TIMEOUT
                                            : E_INTERNAL;
    return fail(e, "%.*s", STR_ARG(message));
}

static err take_frame(struct conversation *c, const struct frame *f)
{
    switch (f->type) {
    case FRAME_STDOUT:
        take_output(c, &c->out, f->payload);
        return 0;
    case FRAME_STDERR:
        take_output(c, &c->errs, f->payload);
        return 0;
    case FRAME_EXIT:
        return take_exit(c, f->payload);
    case FRAME_ERROR:
        return refusal(f->payload);
    default:
        return fail(E_INVALID, "the sandbox answered with an unexpected frame (type %d)",
                    (int)f->type);
    }
}

static err hear(struct conversation *c)
{
    buf_reserve(&c->from_hands, FRAME_CHUNK);
    ssize_t n = recv(c->fd, c->from_hands.p + c->from_hands.n, FRAME_CHUNK, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n <= 0)
        return fail(E_CLOSED, "the sandbox ended before the command did");
    c->from_hands.n += (size_t)n;
    struct frame f;
    size_t used;
    err e = 0;
    while (!e && !c->ended && frame_parse(buf_str(&c->from_hands), &f, &used, &e)) {
        e = take_frame(c, &f);
        buf_drop(&c->from_hands, used);
    }
    return e;
}

static void say(struct conversation *c)
{
    ssize_t n = send(c->fd, c->to_hands.p, c->to_hands.n, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0)
        buf_drop(&c->to_hands, (size_t)n);
    else if (errno != EAGAIN && errno != EINTR)
        buf_clear(&c->to_hands); /* hear() finds out why, and what it still said */
}

/* ---- our own side ---- */

static void end_with(struct conversation *c, int number)
{
    c->result.code = 0;
    c->result.signal = number;
    c->ended = true;
    buf_clear(&c->out.waiting);
    buf_clear(&c->errs.waiting);
}

static err take_input(struct conversation *c)
{
    char bytes[FRAME_CHUNK];
    ssize_t n = read(c->in, bytes, sizeof bytes);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n < 0 && errno != EIO && errno != EBADF) /* EIO: the terminal is gone */
        return fail_errno("read the input");
    frame_add(&c->to_hands, FRAME_STDIN, (struct str){bytes, n > 0 ? (size_t)n : 0});
    if (n <= 0)
        c->in = -1;
    return 0;
}

/* A pipe that polls as writable takes PIPE_BUF bytes without blocking; more might stop us here,
   deaf to signals. */
static err drain(struct conversation *c, struct sink *sink)
{
    size_t n = sink->waiting.n < PIPE_BUF ? sink->waiting.n : PIPE_BUF;
    ssize_t written = write(sink->fd, sink->waiting.p, n);
    if (written >= 0) {
        buf_drop(&sink->waiting, (size_t)written);
        return 0;
    }
    if (errno == EAGAIN || errno == EINTR)
        return 0;
    if (errno != EPIPE)
        return fail_errno("write the output");
    end_with(c, SIGPIPE);
    return 0;
}

static err take_signal(struct conversation *c)
{
    struct signalfd_siginfo info;
    if (read(c->request->signals, &info, sizeof info) != sizeof info)
        return errno == EAGAIN || errno == EINTR ? 0 : fail_errno("read a signal");
    int number = (int)info.ssi_signo;
    if (number == SIGWINCH) {
        json_t *window = c->request->terminal ? window_of(c->request->in) : NULL;
        if (window)
            queue_json(c, FRAME_RESIZE, window);
    } else if (c->ended || c->request->terminal || ++c->signals > SIGNALS_MAX) {
        end_with(c, number);
    } else {
        queue_json(c, FRAME_SIGNAL, json_pack("{s:i}", "signal", number));
    }
    return 0;
}

static bool room(const struct conversation *c)
{
    return c->out.waiting.n < QUEUE_MAX && c->errs.waiting.n < QUEUE_MAX;
}

enum {
    P_HANDS,
    P_IN,
    P_OUT,
    P_ERR,
    P_SIGNALS,
    P_COUNT
};

static err turn(struct conversation *c)
{
    short hands = (short)((room(c) ? POLLIN : 0) | (c->to_hands.n ? POLLOUT : 0));
    bool ask = !c->ended && c->to_hands.n < QUEUE_MAX;
    struct pollfd p[P_COUNT] = {
        [P_HANDS] = {.fd = c->ended || hands == 0 ? -1 : c->fd, .events = hands},
        [P_IN] = {.fd = ask ? c->in : -1, .events = POLLIN},
        [P_OUT] = {.fd = c->out.waiting.n ? c->out.fd : -1, .events = POLLOUT},
        [P_ERR] = {.fd = c->errs.waiting.n ? c->errs.fd : -1, .events = POLLOUT},
        [P_SIGNALS] = {.fd = c->request->signals, .events = POLLIN},
    };
    /* No timeout: a command may be silent for as long as it likes, and signals end the wait. */
    if (poll(p, P_COUNT, -1) < 0)
        return errno == EINTR ? 0 : fail_errno("poll");
    if (p[P_SIGNALS].revents)
        TRY(take_signal(c));
    if (p[P_OUT].revents && c->out.waiting.n)
        TRY(drain(c, &c->out));
    if (p[P_ERR].revents && c->errs.waiting.n)
        TRY(drain(c, &c->errs));
    if (p[P_HANDS].revents & POLLOUT)
        say(c);
    if (p[P_HANDS].revents & (POLLIN | POLLHUP | POLLERR) && !c->ended)
        TRY(hear(c));
    return p[P_IN].revents && !c->ended ? take_input(c) : 0;
}

static err converse(struct conversation *c)
{
    TRY(queue_opening(c));
    if (c->in < 0)
        frame_add(&c->to_hands, FRAME_STDIN, STR(""));
    while (!c->ended || c->out.waiting.n || c->errs.waiting.n)
        TRY(turn(c));
    return 0;
}

err exec_run(const char *socket, const struct exec_request *request, struct exec_ended *out)
{
    AUTO_FD fd = -1;
    TRY(hands_connect(socket, &fd));
    return exec_run_over(fd, request, out);
}

err exec_run_over(int fd, const struct exec_request *request, struct exec_ended *out)
{
    struct conversation c = {
        .request = request,
        .fd = fd,
        .in = request->in,
        .out = {.fd = request->out, .keep = request->keep_out},
        .errs = {.fd = request->err_fd, .keep = request->keep_errs},
    };
    err e = converse(&c);
    buf_done(&c.from_hands);
    buf_done(&c.to_hands);
    buf_done(&c.out.waiting);
    buf_done(&c.errs.waiting);
    if (!e)
        *out = c.result;
    return e;
}

int exec_status(const struct exec_ended *ended)
{
    return ended->signal ? 128 + ended->signal : ended->code;
}

int exec_status_of_err(err e)
{
    return e == E_NOT_FOUND   ? EXEC_STATUS_NOT_FOUND
           : e == E_FORBIDDEN ? EXEC_STATUS_NOT_RUN
                              : EXEC_STATUS_FAILED;
}
