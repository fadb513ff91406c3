#include "broker/frames.h"

#include "base/fd.h"
#include "broker/protocol.h"

static void put_length(char *p, size_t n)
{
    for (size_t i = 0; i < FRAME_HEADER_BYTES; i++)
        p[i] = (char)(n >> (8 * i) & 0xff);
}

static err get_length(const char *p, size_t *out)
{
    size_t n = 0;
    for (size_t i = 0; i < FRAME_HEADER_BYTES; i++)
        n |= (size_t)(unsigned char)p[i] << (8 * i);
    if (n == 0 || n > BROKER_FRAME_MAX)
        return fail(E_INVALID, "broker protocol: a frame of %zu bytes (1 to %u are allowed)", n,
                    BROKER_FRAME_MAX);
    *out = n;
    return 0;
}

static err read_object(struct str text, json_t **out)
{
    json_t *message;
    TRY(json_read(text, &message));
    if (json_get_c(message, "op") == NULL) {
        json_decref(message);
        return fail(E_INVALID, "broker protocol: a message without \"op\"");
    }
    *out = message;
    return 0;
}

err broker_frame_encode(const json_t *message, struct buf *out)
{
    size_t start = out->n;
    buf_add(out, "\0\0\0\0", FRAME_HEADER_BYTES);
    json_write(message, out);
    size_t n = out->n - start - FRAME_HEADER_BYTES;
    if (n > BROKER_FRAME_MAX) {
        out->n = start;
        return fail(E_TOO_LARGE, "broker protocol: a message of %zu bytes (at most %u)", n,
                    BROKER_FRAME_MAX);
    }
    put_length(out->p + start, n);
    return 0;
}

err broker_frame_parse(struct str bytes, size_t *out_used, json_t **out)
{
    *out_used = 0;
    *out = NULL;
    if (bytes.n < FRAME_HEADER_BYTES)
        return 0;
    size_t n = 0;
    TRY(get_length(bytes.p, &n));
    if (bytes.n - FRAME_HEADER_BYTES < n)
        return 0;
    TRY(read_object((struct str){bytes.p + FRAME_HEADER_BYTES, n}, out));
    *out_used = FRAME_HEADER_BYTES + n;
    return 0;
}

err broker_frame_read(int fd, struct buf *scratch, json_t **out)
{
    char header[FRAME_HEADER_BYTES];
    size_t n = 0;
    TRY(fd_read_full(fd, header, sizeof header));
    TRY(get_length(header, &n));
    buf_clear(scratch);
    buf_reserve(scratch, n);
    TRY(fd_read_full(fd, scratch->p, n));
    return read_object((struct str){scratch->p, n}, out);
}

err broker_frame_write(int fd, const json_t *message)
{
    AUTO_BUF frame = {0};
    TRY(broker_frame_encode(message, &frame));
    return fd_write_full(fd, frame.p, frame.n);
}
