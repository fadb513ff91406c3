#include "sandbox/copyout.h"

#include "base/fd.h"
#include "base/json.h"
#include "base/mem.h"
#include "sandbox/hands.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/time.h>

#define SILENCE_S 60 /* pi-hands says something each second; a loaded machine may be slow */
#define READ_BYTES ((size_t)256 << 10)

static uint64_t or_default(uint64_t n, uint64_t otherwise)
{
    return n ? n : otherwise;
}

static err send_request(int fd, const struct copyout_request *r)
{
    AUTO_JSON o = json_pack("{s:s, s:b, s:b, s:b, s:b, s:I, s:I}", "root", r->root, "contents",
                            (int)r->contents, "filesOnly", (int)r->files_only, "changes",
                            (int)r->changes, "before", (int)r->before, "entries",
                            (json_int_t)or_default(r->entries, COPYOUT_ENTRIES_DEFAULT), "bytes",
                            (json_int_t)or_default(r->bytes, COPYOUT_BYTES_DEFAULT));
    if (o == NULL || (r->only && !str_is_utf8(str_of(r->only))))
        return fail(E_INVALID, "a path to copy out must be UTF-8");
    if (r->only)
        json_object_set_new(o, "only", json_string(r->only));
    if (r->file_bytes)
        json_object_set_new(o, "fileBytes", json_integer((json_int_t)r->file_bytes));
    AUTO_BUF text = {0};
    json_write(o, &text);
    return frame_write(fd, FRAME_COPY_OUT, buf_str(&text));
}

/* *out_n: at least 1. */
static err hear(int fd, char *p, size_t *out_n)
{
    ssize_t n;
    do
        n = recv(fd, p, READ_BYTES, 0);
    while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return fail(E_TIMEOUT, "the sandbox stopped answering while files were copied out");
    if (n <= 0)
        return fail(E_CLOSED, "the sandbox ended while files were copied out");
    *out_n = (size_t)n;
    return 0;
}

/* A sandbox that died unnoticed may still be connected to. */
static err converse(int fd, const struct copyout_request *request, struct copyout_reader *r,
                    char *bytes, struct copyout_summary *out)
{
    bool ended = false, heard = false;
    err e = send_request(fd, request);
    while (!e && !ended) {
        size_t n = 0;
        e = hear(fd, bytes, &n);
        heard |= !e;
        if (!e)
            e = copyout_reader_feed(r, (struct str){bytes, n}, &ended, out);
    }
    return e == E_CLOSED && !heard ? fail(E_UNAVAILABLE, "the sandbox does not answer") : e;
}

err copyout_run(const char *socket, const struct copyout_request *request,
                const struct copyout_sink *sink, struct copyout_summary *out)
{
    AUTO_FD fd = -1;
    TRY(hands_connect(socket, &fd));
    const struct timeval silence = {.tv_sec = SILENCE_S};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof silence);
    struct copyout_reader *r = copyout_reader_new(request, sink);
    char *bytes = mem_alloc(READ_BYTES);
    struct copyout_summary summary = {0};
    err e = converse(fd, request, r, bytes, &summary);
    mem_free(bytes);
    copyout_reader_free(r);
    if (!e)
        *out = summary;
    return e;
}
