#include "hands/frames.h"

#include "base/fd.h"

#define HEADER_BYTES 5
#define READ_STEP (1u << 20) /* memory follows what really arrives, not what a length promises */

static uint32_t le32(const void *p)
{
    const unsigned char *b = p;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static err check_header(uint32_t length, unsigned char type)
{
    if (length < 1 || length > FRAME_MAX)
        return fail(E_INVALID, "a frame of %u bytes: 1 to %u are allowed", length, FRAME_MAX);
    if (type < FRAME_HELLO || type >= FRAME_TYPE_END)
        return fail(E_INVALID, "frame type %u is unknown", type);
    return 0;
}

err frame_check_payload(struct str bytes, uint32_t max)
{
    if (bytes.n >= 4 && le32(bytes.p) > max + 1)
        return fail(E_INVALID, "a frame of %u bytes: at most %u are allowed here", le32(bytes.p),
                    max + 1);
    return 0;
}

static void write_header(unsigned char header[HEADER_BYTES], enum frame_type type, size_t payload)
{
    uint32_t length = (uint32_t)payload + 1;
    for (int i = 0; i < 4; i++)
        header[i] = (unsigned char)(length >> 8 * i & 0xff);
    header[4] = (unsigned char)type;
}

void frame_add(struct buf *out, enum frame_type type, struct str payload)
{
    unsigned char header[HEADER_BYTES];
    write_header(header, type, payload.n);
    buf_add(out, header, sizeof header);
    buf_add_str(out, payload);
}

err frame_write(int fd, enum frame_type type, struct str payload)
{
    if (payload.n >= FRAME_MAX)
        return fail(E_TOO_LARGE, "a frame of %zu bytes: at most %u fit", payload.n, FRAME_MAX - 1);
    if (payload.n > FRAME_CHUNK) {
        unsigned char header[HEADER_BYTES];
        write_header(header, type, payload.n);
        TRY(fd_write_full(fd, header, sizeof header));
        return fd_write_full(fd, payload.p, payload.n);
    }
    AUTO_BUF whole = {0}; /* one write, so that small frames make one packet */
    frame_add(&whole, type, payload);
    return fd_write_full(fd, whole.p, whole.n);
}

err frame_read(int fd, enum frame_type *out_type, struct buf *out)
{
    unsigned char header[HEADER_BYTES];
    TRY(fd_read_full(fd, header, sizeof header));
    uint32_t length = le32(header);
    TRY(check_header(length, header[4]));
    buf_clear(out);
    for (size_t left = length - 1; left > 0;) {
        size_t step = left < READ_STEP ? left : READ_STEP;
        buf_reserve(out, step);
        TRY(fd_read_full(fd, out->p + out->n, step));
        out->n += step;
        out->p[out->n] = 0;
        left -= step;
    }
    *out_type = header[4];
    return 0;
}

bool frame_parse(struct str bytes, struct frame *out, size_t *out_used, err *out_err)
{
    *out_used = 0;
    *out_err = 0;
    if (bytes.n < HEADER_BYTES)
        return false;
    uint32_t length = le32(bytes.p);
    unsigned char type = (unsigned char)bytes.p[4];
    *out_err = check_header(length, type);
    if (*out_err || bytes.n - 4 < length)
        return false;
    *out = (struct frame){.type = type, .payload = {bytes.p + HEADER_BYTES, length - 1}};
    *out_used = 4 + (size_t)length;
    return true;
}
