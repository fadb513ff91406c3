#include "sandbox/hands.h"

#include "base/fd.h"
#include "hands/frames.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#define SEND_TIMEOUT_MS 30000  /* a sandbox that reads nothing for this long is taken for dead */
#define SHORT_TIMEOUT_MS 10000 /* for CANCEL and ACK, which pi-hands answers at once */

static void set_timeout(int fd, int option, int64_t ms)
{
    struct timeval t = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
    setsockopt(fd, SOL_SOCKET, option, &t, sizeof t);
}

err hands_connect(const char *path, int *out_fd)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof a.sun_path)
        return fail(E_INVALID, "the socket path %s is longer than %zu bytes", path,
                    sizeof a.sun_path - 1);
    memcpy(a.sun_path, path, strlen(path) + 1);
    AUTO_FD fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return fail_errno("socket");
    set_timeout(fd, SO_SNDTIMEO, SEND_TIMEOUT_MS); /* connect waits too when the queue is full */
    if (connect(fd, (struct sockaddr *)&a, sizeof a) < 0)
        return fail(E_UNAVAILABLE, "the sandbox does not answer at %s: %s", path, strerror(errno));
    *out_fd = fd_take(&fd);
    return 0;
}

/* Reads a frame; a passed SO_RCVTIMEO becomes E_TIMEOUT. */
static err read_frame(int fd, enum frame_type *out_type, struct buf *out)
{
    errno = 0;
    err e = frame_read(fd, out_type, out);
    if (e == E_IO && errno == EAGAIN)
        return fail(E_TIMEOUT, "the sandbox did not answer in time");
    return e;
}

/* The error that an ERROR frame stands for. */
static err remote_error(struct str payload)
{
    AUTO_JSON o = NULL;
    TRY(json_read(payload, &o));
    struct str code = json_get_str(o, "code"), message = json_get_str(o, "message");
    if (str_is(code, "unknown_call"))
        return fail(E_NOT_FOUND, "the sandbox does not know this call");
    if (str_is(code, "busy"))
        return fail(E_UNAVAILABLE, "the sandbox is busy: %.*s", STR_ARG(message));
    return fail(str_is(code, "bad_frame") ? E_INVALID : E_INTERNAL, "the sandbox refused: %.*s",
                STR_ARG(message));
}

static err unexpected(enum frame_type type)
{
    return fail(E_INVALID, "the sandbox answered with an unexpected frame (type %d)", (int)type);
}

/* One question, one answer of the type `wanted`. */
static err ask(const char *path, enum frame_type question, struct str payload,
               enum frame_type wanted, int64_t timeout_ms)
{
    AUTO_FD fd = -1;
    TRY(hands_connect(path, &fd));
    set_timeout(fd, SO_RCVTIMEO, timeout_ms);
    TRY(frame_write(fd, question, payload));
    AUTO_BUF answer = {0};
    enum frame_type type;
    TRY(read_frame(fd, &type, &answer));
    if (type == FRAME_ERROR)
        return remote_error(buf_str(&answer));
    return type == wanted ? 0 : unexpected(type);
}

err hands_hello(const char *path, int64_t timeout_ms)
{
    return ask(path, FRAME_HELLO, STR("{}"), FRAME_HELLO, timeout_ms);
}

static void add_member(struct buf *out, const char *name, struct str value)
{
    AUTO_JSON text = json_str(value);
    buf_printf(out, "\"%s\":", name);
    json_write(text, out);
}

static void write_call(const struct hands_call *call, struct buf *out)
{
    buf_add_char(out, '{');
    add_member(out, "key", str_of(call->key));
    buf_add_char(out, ',');
    add_member(out, "tool", str_of(call->tool));
    buf_add_c(out, ",\"input\":");
    buf_add_str(out, call->input);
    if (call->cwd) {
        buf_add_char(out, ',');
        add_member(out, "cwd", str_of(call->cwd));
    }
    buf_printf(out, ",\"limits\":{\"timeoutMs\":%lld}}", (long long)call->timeout_ms);
}

static err give_update(const struct hands_call *call, struct str payload)
{
    if (payload.n < 8)
        return fail(E_INVALID, "the sandbox sent a short output frame");
    uint64_t offset = 0;
    for (int i = 0; i < 8; i++)
        offset |= (uint64_t)(unsigned char)payload.p[i] << 8 * i;
    if (call->on_update)
        call->on_update(call->arg, offset, (struct str){payload.p + 8, payload.n - 8});
    return 0;
}

/* Reads output until the result. */
static err follow(int fd, const struct hands_call *call, struct buf *out_result)
{
    AUTO_BUF payload = {0};
    for (;;) {
        enum frame_type type;
        TRY(read_frame(fd, &type, &payload));
        switch (type) {
        case FRAME_UPDATE:
            TRY(give_update(call, buf_str(&payload)));
            break;
        case FRAME_RESULT:
            buf_clear(out_result);
            buf_add_str(out_result, buf_str(&payload));
            return 0;
        case FRAME_ERROR:
            return remote_error(buf_str(&payload));
        default:
            return unexpected(type);
        }
    }
}

static err converse(const char *path, enum frame_type opening, struct str payload,
                    const struct hands_call *call, struct buf *out_result)
{
    AUTO_FD fd = -1;
    TRY(hands_connect(path, &fd));
    TRY(frame_write(fd, opening, payload));
    return follow(fd, call, out_result);
}

err hands_call(const char *path, const struct hands_call *call, struct buf *out_result)
{
    AUTO_BUF request = {0};
    write_call(call, &request);
    return converse(path, FRAME_CALL, buf_str(&request), call, out_result);
}

static void write_key(const char *key, struct buf *out)
{
    buf_add_char(out, '{');
    add_member(out, "key", str_of(key));
}

err hands_attach(const char *path, const struct hands_call *call, struct buf *out_result)
{
    AUTO_BUF request = {0};
    write_key(call->key, &request);
    buf_add_c(&request, ",\"offset\":0}");
    return converse(path, FRAME_ATTACH, buf_str(&request), call, out_result);
}

err hands_cancel(const char *path, const char *key, uint32_t grace_ms)
{
    AUTO_BUF request = {0};
    write_key(key, &request);
    buf_printf(&request, ",\"graceMs\":%u}", grace_ms);
    return ask(path, FRAME_CANCEL, buf_str(&request), FRAME_OK, SHORT_TIMEOUT_MS);
}

err hands_ack(const char *path, const char *key)
{
    AUTO_BUF request = {0};
    write_key(key, &request);
    buf_add_char(&request, '}');
    return ask(path, FRAME_ACK, buf_str(&request), FRAME_OK, SHORT_TIMEOUT_MS);
}
