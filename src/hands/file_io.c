#include "hands/file_io.h"

#include "base/fd.h"
#include "hands/calls.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#define STEP_BYTES 65536

int file_open(const char *path, off_t *out_size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return -1;
    struct stat st;
    *out_size = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0 ? st.st_size : -1;
    return fd;
}

/* False when the call was cancelled meanwhile. */
static bool wait_for(int fd, short events, const struct tool_run *run)
{
    struct pollfd fds[2] = {{.fd = fd, .events = events},
                            {.fd = call_cancel_fd(run->call), .events = POLLIN}};
    while (poll(fds, 2, -1) < 0 && errno == EINTR)
        ;
    return !fds[1].revents;
}

enum file_read file_read_some(int fd, const struct tool_run *run, off_t *left, void *p, size_t n,
                              size_t *out_n)
{
    if (*left >= 0 && (off_t)n > *left)
        n = (size_t)*left;
    while (n > 0) {
        if (call_cancelled(run->call, NULL))
            return FILE_READ_CANCELLED;
        ssize_t r = read(fd, p, n);
        if (r > 0) {
            *out_n = (size_t)r;
            *left -= *left >= 0 ? r : 0;
            return FILE_READ_DATA;
        }
        if (r == 0)
            break;
        if (errno != EAGAIN && errno != EINTR)
            return FILE_READ_ERROR;
        if (errno == EAGAIN && !wait_for(fd, POLLIN, run))
            return FILE_READ_CANCELLED;
    }
    return FILE_READ_END;
}

bool file_read_whole(const char *path, const struct tool_run *run, size_t max, struct buf *out,
                     struct tool_result *result)
{
    off_t left;
    AUTO_FD fd = file_open(path, &left);
    if (fd < 0) {
        tool_errno(result, errno, "open", path);
        return false;
    }
    for (;;) {
        size_t n = 0;
        buf_reserve(out, STEP_BYTES);
        switch (file_read_some(fd, run, &left, out->p + out->n, STEP_BYTES, &n)) {
        case FILE_READ_DATA:
            out->n += n;
            out->p[out->n] = 0;
            break;
        case FILE_READ_END:
            return true;
        case FILE_READ_CANCELLED:
            tool_aborted(run, result);
            return false;
        case FILE_READ_ERROR:
            tool_errno(result, errno, "read", NULL);
            return false;
        }
        if (out->n > max) {
            tool_errno(result, EFBIG, "read", path);
            return false;
        }
    }
}

bool file_write_whole(const char *path, const struct tool_run *run, struct str content,
                      struct tool_result *result)
{
    AUTO_FD fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
    if (fd < 0) {
        tool_errno(result, errno, "open", path);
        return false;
    }
    for (size_t at = 0; at < content.n;) {
        ssize_t n = write(fd, content.p + at, content.n - at);
        if (n >= 0) {
            at += (size_t)n;
        } else if (errno == EAGAIN) {
            if (!wait_for(fd, POLLOUT, run) && tool_aborted(run, result))
                return false;
        } else if (errno != EINTR) {
            tool_errno(result, errno, "write", NULL);
            return false;
        }
    }
    return true;
}
