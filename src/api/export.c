/* GET /v1/sessions/:id/export: the log itself, as it lies on disk up to its last whole line. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "api/routes.h"
#include "api/service.h"
#include "api/sessions.h"
#include "base/fd.h"
#include "base/mem.h"
#include "session/log.h"
#include "session/manager.h"

struct download {
    int fd;
    off_t at, end;
};

/* Loop thread. A local file, read in small pieces that are most often in the page cache. */
static ssize_t download_read(void *state, char *out, size_t cap)
{
    struct download *x = state;
    if (x->at >= x->end)
        return -1;
    size_t left = (size_t)(x->end - x->at);
    ssize_t n = pread(x->fd, out, left < cap ? left : cap, x->at);
    if (n <= 0)
        return -1;
    x->at += n;
    return n;
}

static void download_closed(void *state)
{
    struct download *x = state;
    fd_close(&x->fd);
    mem_free(x);
}

static err stream_file(struct ctx *ctx, int take_fd)
{
    AUTO_FD fd = take_fd;
    off_t end;
    TRY(log_whole_bytes(fd, &end));
    struct download *x = mem_alloc(sizeof *x);
    *x = (struct download){.fd = fd_take(&fd), .end = end};
    struct http_source source = {.read = download_read, .closed = download_closed, .state = x};
    struct http_stream *stream;
    err e = reply_stream(ctx, "application/jsonl", source, &stream);
    if (e)
        download_closed(x);
    return e;
}

static err export_get(struct ctx *ctx)
{
    struct session_row row;
    TRY(ctx_session(ctx, &row));
    const char *path =
        log_path(session_manager_logs_dir(ctx->service->sessions), ctx->tenant, row.id, ctx->arena);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) /* nothing was said yet */
        return reply_bytes(ctx, 200, "application/jsonl", STR(""));
    if (fd < 0)
        return fail_errno("opening the log of %s", row.id);
    return stream_file(ctx, fd);
}

ROUTES(export, {GET, "/v1/sessions/:id/export", export_get, .scope = SCOPE_READ}, )
