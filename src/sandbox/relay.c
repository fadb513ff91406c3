#include "sandbox/relay.h"

#include "base/buf.h"
#include "base/json.h"
#include "hands/frames.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#define QUEUE_MAX (256u << 10) /* waiting for one side before the other has to wait */
#define READ_BYTES (16u << 10)
#define OPENING_BYTES_MAX 4096 /* of a frame that holds JSON */
#define SIZE_LIMIT 1000        /* rows and columns */
#define TERM_MAX 64
#define FAREWELL_MS 10000 /* for a client that is slow to take the end */

struct side {
    int fd;
    struct buf from, to;
};

struct relay {
    const struct relay_options *options;
    struct side client, hands;
    bool opened, ended;
    int64_t quiet_since; /* monotonic */
};

static int64_t now_ms(const struct relay *r)
{
    return clock_monotonic_ms(r->options->clock);
}

static void queue_json(struct side *to, enum frame_type type, json_t *take_object)
{
    AUTO_JSON o = take_object;
    AUTO_BUF text = {0};
    json_write(o, &text);
    frame_add(&to->to, type, buf_str(&text));
}

/* Tells the client why it ends. */
static void queue_error(struct relay *r, const char *code, struct str message)
{
    json_t *o = json_pack("{s:s}", "code", code);
    message.n = message.n < 400 ? message.n : 400;
    json_set_str(o, "message", message);
    queue_json(&r->client, FRAME_ERROR, o);
    r->ended = true;
}

/* ---- what the client says ---- */

static int dimension(const json_t *size, const char *name, int otherwise)
{
    int64_t n = json_get_int(size, name, otherwise);
    return n < 1 ? 1 : n > SIZE_LIMIT ? SIZE_LIMIT : (int)n;
}

static json_t *window(const json_t *size)
{
    return json_pack("{s:i, s:i}", "rows", dimension(size, "rows", 24), "cols",
                     dimension(size, "cols", 80));
}

static bool is_term(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (!((s.p[i] >= 'a' && s.p[i] <= 'z') || (s.p[i] >= 'A' && s.p[i] <= 'Z') ||
              (s.p[i] >= '0' && s.p[i] <= '9') || strchr("-+._", s.p[i])))
            return false;
    return s.n > 0 && s.n <= TERM_MAX;
}

static err open_shell(struct relay *r, const json_t *request)
{
    struct str term = json_get_str(json_object_get(request, "env"), "TERM");
    json_t *o = json_pack("{s:[s,s,s], s:s, s:o}", "argv", "/bin/sh", "-c", SANDBOX_SHELL, "cwd",
                          SANDBOX_WORKDIR, "pty", window(json_object_get(request, "pty")));
    if (term.p && is_term(term))
        json_object_set_new(o, "env", json_pack("{s:o}", "TERM", json_str(term)));
    queue_json(&r->hands, FRAME_EXEC, o);
    r->opened = true;
    return 0;
}

static err misbehaved(const char *who)
{
    return fail(E_INVALID, "%s sent a frame that does not belong into a terminal", who);
}

static err read_object(struct str payload, json_t **out)
{
    TRY(json_read(payload, out));
    return json_is_object(*out) ? 0 : fail(E_INVALID, "a frame holds no JSON object");
}

static err take_from_client(struct relay *r, const struct frame *f)
{
    AUTO_JSON o = NULL;
    if (f->type == FRAME_STDIN && r->opened) {
        frame_add(&r->hands.to, FRAME_STDIN, f->payload);
        return 0;
    }
    if (f->payload.n > OPENING_BYTES_MAX || f->type != (r->opened ? FRAME_RESIZE : FRAME_EXEC))
        return misbehaved("the client");
    TRY(read_object(f->payload, &o));
    if (!r->opened)
        return open_shell(r, o);
    queue_json(&r->hands, FRAME_RESIZE, window(o));
    return 0;
}

/* ---- what the sandbox says ---- */

static err take_exit(struct relay *r, const json_t *o)
{
    int64_t code = json_get_int(o, "code", -1), number = json_get_int(o, "signal", 0);
    if (number > 0 && number < NSIG)
        queue_json(&r->client, FRAME_EXIT, json_pack("{s:i}", "signal", (int)number));
    else if (code >= 0 && code <= 255)
        queue_json(&r->client, FRAME_EXIT, json_pack("{s:i}", "code", (int)code));
    else
        return misbehaved("the sandbox");
    r->ended = true;
    return 0;
}

static err take_from_hands(struct relay *r, const struct frame *f)
{
    AUTO_JSON o = NULL;
    if (f->type == FRAME_STDOUT) {
        frame_add(&r->client.to, FRAME_STDOUT, f->payload);
        return 0;
    }
    if (f->payload.n > OPENING_BYTES_MAX || (f->type != FRAME_EXIT && f->type != FRAME_ERROR))
        return misbehaved("the sandbox");
    TRY(read_object(f->payload, &o));
    if (f->type == FRAME_EXIT)
        return take_exit(r, o);
    queue_error(r, "internal", json_get_str(o, "message"));
    return 0;
}

/* ---- both ---- */

static err take_frames(struct relay *r, struct side *from,
                       err (*take)(struct relay *r, const struct frame *f))
{
    struct str bytes = buf_str(&from->from);
    err e = 0;
    while (!e && !r->ended) {
        struct frame f;
        size_t used;
        TRY(frame_check_payload(bytes, FRAME_CHUNK));
        if (!frame_parse(bytes, &f, &used, &e))
            break;
        e = take(r, &f);
        bytes = (struct str){bytes.p + used, bytes.n - used};
    }
    buf_drop(&from->from, from->from.n - bytes.n);
    return e;
}

/* *out_left: it will say no more. */
static void hear(struct relay *r, struct side *s, bool *out_left)
{
    buf_reserve(&s->from, READ_BYTES);
    ssize_t n = recv(s->fd, s->from.p + s->from.n, READ_BYTES, MSG_DONTWAIT);
    *out_left = n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
    if (n <= 0)
        return;
    s->from.n += (size_t)n;
    r->quiet_since = now_ms(r);
}

static bool say(struct side *s)
{
    ssize_t n = send(s->fd, s->to.p, s->to.n, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0)
        buf_drop(&s->to, (size_t)n);
    return n >= 0 || errno == EAGAIN || errno == EINTR;
}

static err hear_client(struct relay *r)
{
    bool left;
    hear(r, &r->client, &left);
    return left ? fail(E_CLOSED, "the client left") : take_frames(r, &r->client, take_from_client);
}

static err hear_hands(struct relay *r)
{
    bool left;
    hear(r, &r->hands, &left);
    TRY(take_frames(r, &r->hands, take_from_hands));
    return left && !r->ended ? fail(E_CLOSED, "the sandbox ended") : 0;
}

static int64_t time_left(const struct relay *r)
{
    int64_t limit = r->opened ? r->options->idle_ms : r->options->opening_ms;
    return r->quiet_since + limit - now_ms(r);
}

static short wanted(const struct side *s, bool hear_it)
{
    return (short)((hear_it ? POLLIN : 0) | (s->to.n > 0 ? POLLOUT : 0));
}

static err turn(struct relay *r)
{
    struct pollfd p[2] = {
        {.fd = r->client.fd, .events = wanted(&r->client, r->hands.to.n < QUEUE_MAX)},
        {.fd = r->hands.fd, .events = wanted(&r->hands, r->client.to.n < QUEUE_MAX)},
    };
    int64_t left = time_left(r);
    if (left <= 0)
        return fail(E_TIMEOUT, "nothing went over the terminal for too long");
    if (poll(p, 2, left > INT32_MAX ? INT32_MAX : (int)left) < 0)
        return errno == EINTR ? 0 : fail_errno("poll");
    if (p[0].revents & POLLOUT && !say(&r->client))
        return fail(E_CLOSED, "the client left");
    if (p[1].revents & POLLOUT && !say(&r->hands))
        buf_clear(&r->hands.to); /* what it said last is still to be heard */
    if (p[1].revents & (POLLIN | POLLHUP | POLLERR))
        TRY(hear_hands(r));
    if (!r->ended && p[0].revents & (POLLIN | POLLHUP | POLLERR))
        TRY(hear_client(r));
    return 0;
}

static const char *code_of(err e)
{
    return e == E_TIMEOUT ? "idle" : e == E_CLOSED ? "sandbox_ended" : "bad_frame";
}

/* What is left for the client. */
static bool say_all(struct side *s, int64_t ms, const struct relay *r)
{
    for (int64_t until = now_ms(r) + ms, left; s->to.n > 0;) {
        struct pollfd p = {.fd = s->fd, .events = POLLOUT};
        left = until - now_ms(r);
        if (left <= 0 || (poll(&p, 1, (int)left) < 0 && errno != EINTR) || !say(s))
            return false;
    }
    return true;
}

/* Closing while the client still sends could lose what it has not read yet. */
static void wait_for_leave(struct relay *r)
{
    bool gone = false;
    for (int64_t until = now_ms(r) + r->options->linger_ms, left; !gone;) {
        struct pollfd p = {.fd = r->client.fd, .events = POLLIN};
        left = until - now_ms(r);
        if (left <= 0 || (poll(&p, 1, (int)left) < 0 && errno != EINTR))
            return;
        buf_clear(&r->client.from);
        hear(r, &r->client, &gone);
    }
}

static void farewell(struct relay *r)
{
    if (!say_all(&r->client, FAREWELL_MS, r))
        return;
    shutdown(r->client.fd, SHUT_WR);
    wait_for_leave(r);
}

err relay_run(int client, struct str early, int hands, const struct relay_options *options)
{
    struct relay r = {.options = options, .client = {.fd = client}, .hands = {.fd = hands}};
    r.quiet_since = now_ms(&r);
    buf_add_str(&r.client.from, early);
    err e = take_frames(&r, &r.client, take_from_client);
    while (!e && !r.ended)
        e = turn(&r);
    struct err_slot why = {0};
    if (e) {
        err_save(&why);
        queue_error(&r, code_of(e), str_of(why.text));
    }
    farewell(&r);
    buf_done(&r.client.from);
    buf_done(&r.client.to);
    buf_done(&r.hands.from);
    buf_done(&r.hands.to);
    return e ? err_restore(&why) : 0;
}
