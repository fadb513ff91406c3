#include "hands/conn.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/json.h"
#include "hands/calls.h"
#include "hands/copy_out.h"
#include "hands/exec.h"
#include "hands/frames.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define GRACE_DEFAULT_MS 1000 /* R22 */
#define GRACE_MAX_MS 60000

static char boot_id[33];
static int64_t started_ms;

void conn_init(void)
{
    unsigned char random[16] = {0};
    ssize_t r = getrandom(random, sizeof random, 0);
    (void)r; /* 16 bytes never come short */
    for (size_t i = 0; i < sizeof random; i++)
        snprintf(boot_id + 2 * i, 3, "%02x", random[i]);
    started_ms = clock_monotonic_ms(clock_real());
}

static err send_json(int fd, enum frame_type type, json_t *take_object)
{
    AUTO_JSON o = take_object;
    AUTO_BUF text = {0};
    json_write(o, &text);
    return frame_write(fd, type, buf_str(&text));
}

static err send_error(int fd, const char *code, const char *message)
{
    json_t *o = json_object();
    json_object_set_new(o, "code", json_string(code));
    json_set_str(o, "message", str_of(message));
    return send_json(fd, FRAME_ERROR, o);
}

static err send_ok(int fd)
{
    return frame_write(fd, FRAME_OK, STR("{}"));
}

static err serve_hello(int fd, json_t *take_request)
{
    json_decref(take_request);
    json_t *o = json_object();
    json_object_set_new(o, "version", json_integer(HANDS_VERSION));
    json_object_set_new(o, "pid", json_integer(getpid()));
    json_object_set_new(o, "bootId", json_string(boot_id));
    json_object_set_new(o, "uptimeMs", json_integer(clock_monotonic_ms(clock_real()) - started_ms));
    return send_json(fd, FRAME_HELLO, o);
}

static err serve_ping(int fd, json_t *take_request)
{
    json_decref(take_request);
    return frame_write(fd, FRAME_PONG, STR("{}"));
}

static err serve_set_clock(int fd, json_t *take_request)
{
    AUTO_JSON request = take_request;
    int64_t wall_ms = json_get_int(request, "wallMs", -1);
    if (wall_ms < 0)
        return send_error(fd, "bad_frame", "SET_CLOCK needs wallMs, milliseconds since 1970");
    struct timespec t = {.tv_sec = wall_ms / 1000, .tv_nsec = wall_ms % 1000 * 1000000};
    if (clock_settime(CLOCK_REALTIME, &t) == 0)
        return send_ok(fd);
    if (errno != EPERM)
        return send_error(fd, "internal", strerror(errno));
    json_t *o = json_object(); /* a shared kernel keeps the time itself */
    json_object_set_new(o, "note", json_string("the clock is the host's and was left alone"));
    return send_json(fd, FRAME_OK, o);
}

static json_t *json_take(json_t **j)
{
    json_t *taken = *j;
    *j = NULL;
    return taken;
}

static bool key_of(json_t *request, struct str *out_key)
{
    *out_key = json_get_str(request, "key");
    return out_key->n > 0 && out_key->n <= CALL_KEY_MAX;
}

static uint64_t offset_of(const json_t *request)
{
    int64_t offset = json_get_int(request, "offset", 0);
    return offset > 0 ? (uint64_t)offset : 0;
}

static err serve_call(int fd, json_t *take_request)
{
    AUTO_JSON request = take_request;
    uint64_t offset = offset_of(request);
    struct str key;
    if (!key_of(request, &key) || json_get_c(request, "tool") == NULL ||
        !json_is_object(json_object_get(request, "input")))
        return send_error(fd, "bad_frame", "CALL needs key, tool and an input object");
    struct call *call;
    if (call_start(key, json_take(&request), &call) != 0)
        return send_error(fd, "busy", err_text());
    err e = call_follow(call, offset, fd);
    call_unref(call);
    return e;
}

static err serve_attach(int fd, json_t *take_request)
{
    AUTO_JSON request = take_request;
    struct str key;
    struct call *call = key_of(request, &key) ? call_find(key) : NULL;
    if (call == NULL)
        return send_error(fd, "unknown_call", "no call has this key here");
    err e = call_follow(call, offset_of(request), fd);
    call_unref(call);
    return e;
}

static err serve_cancel(int fd, json_t *take_request)
{
    AUTO_JSON request = take_request;
    struct str key;
    int64_t grace = json_get_int(request, "graceMs", GRACE_DEFAULT_MS);
    grace = grace < 0 ? 0 : grace > GRACE_MAX_MS ? GRACE_MAX_MS : grace;
    if (!key_of(request, &key) || call_cancel(key, (uint32_t)grace) != 0)
        return send_error(fd, "unknown_call", "no call has this key here");
    return send_ok(fd);
}

static err serve_ack(int fd, json_t *take_request)
{
    AUTO_JSON request = take_request;
    struct str key;
    if (!key_of(request, &key))
        return send_error(fd, "bad_frame", "ACK needs a key");
    call_forget(key);
    return send_ok(fd);
}

static err serve_exec(int fd, json_t *take_request)
{
    AUTO_JSON request = take_request;
    const char *code = "internal", *message = NULL;
    err e = exec_serve(fd, request, &code, &message);
    return message ? send_error(fd, code, message) : e;
}

static err serve_copy_out(int fd, json_t *take_request)
{
    AUTO_JSON request = take_request;
    const char *code = "internal", *message = NULL;
    err e = copy_out_serve(fd, request, &code, &message);
    return message ? send_error(fd, code, message) : e;
}

static const struct {
    enum frame_type type;
    err (*serve)(int fd, json_t *take_request);
} openings[] = {
    {FRAME_HELLO, serve_hello}, {FRAME_PING, serve_ping},     {FRAME_SET_CLOCK, serve_set_clock},
    {FRAME_CALL, serve_call},   {FRAME_ATTACH, serve_attach}, {FRAME_CANCEL, serve_cancel},
    {FRAME_ACK, serve_ack},     {FRAME_EXEC, serve_exec},     {FRAME_COPY_OUT, serve_copy_out},
};

static err serve(int fd, enum frame_type type, json_t *take_request)
{
    for (size_t i = 0; i < sizeof openings / sizeof *openings; i++)
        if (openings[i].type == type)
            return openings[i].serve(fd, take_request);
    json_decref(take_request);
    return send_error(fd, "bad_frame", "this frame opens no conversation");
}

/* The opening frame. The payload's memory does not last as long as the conversation. */
static err read_opening(int fd, enum frame_type *out_type, json_t **out_request)
{
    AUTO_BUF payload = {0};
    TRY(frame_read(fd, out_type, &payload));
    TRY(json_read(payload.n ? buf_str(&payload) : STR("{}"), out_request));
    if (json_is_object(*out_request))
        return 0;
    json_decref(*out_request);
    return fail(E_INVALID, "the payload is not a JSON object");
}

void conn_serve(int take_fd)
{
    AUTO_FD fd = take_fd;
    enum frame_type type;
    json_t *request;
    err e = read_opening(fd, &type, &request);
    if (e == E_INVALID)
        send_error(fd, "bad_frame", err_text());
    if (e == 0)
        serve(fd, type, request); /* an error here means that the peer left */
}

void conn_refuse(int take_fd)
{
    AUTO_FD fd = take_fd;
    send_error(fd, "busy", "no thread is left in this sandbox");
}
