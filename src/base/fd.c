#include "base/fd.h"

#include "base/buf.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

void fd_close(int *fd)
{
    int saved = errno;
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    errno = saved;
}

err fd_read_full(int fd, void *p, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t r = read(fd, (char *)p + at, n - at);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return errno == ECONNRESET ? fail(E_CLOSED, "the peer reset the connection")
                                       : fail_errno("read");
        if (r == 0)
            return fail(E_CLOSED, "the peer closed the connection");
        at += (size_t)r;
    }
    return 0;
}

static ssize_t write_some(int fd, const char *p, size_t n)
{
    ssize_t r = send(fd, p, n, MSG_NOSIGNAL);
    return r < 0 && errno == ENOTSOCK ? write(fd, p, n) : r;
}

err fd_write_full(int fd, const void *p, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t r = write_some(fd, (const char *)p + at, n - at);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return errno == EPIPE || errno == ECONNRESET ? fail(E_CLOSED, "the peer is gone")
                                                         : fail_errno("write");
        at += (size_t)r;
    }
    return 0;
}

err fd_read_file(const char *path, size_t max, struct buf *out)
{
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? fail(E_NOT_FOUND, "%s does not exist", path)
                               : fail_errno("open %s", path);
    for (size_t total = 0;;) {
        buf_reserve(out, 8192);
        ssize_t r = read(fd, out->p + out->n, 8192);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return fail_errno("read %s", path);
        if (r == 0)
            return 0;
        out->n += (size_t)r;
        out->p[out->n] = 0;
        total += (size_t)r;
        if (total > max)
            return fail(E_TOO_LARGE, "%s is larger than %zu bytes", path, max);
    }
}

static err sync_folder_of(const char *path)
{
    char copy[PATH_MAX];
    snprintf(copy, sizeof copy, "%s", path);
    AUTO_FD dir = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0 || fsync(dir) < 0)
        return fail_errno("sync the folder of %s", path);
    return 0;
}

err fd_write_file_atomic(const char *path, struct str content, mode_t mode)
{
    char temp[PATH_MAX];
    if (snprintf(temp, sizeof temp, "%s.new-%d", path, (int)getpid()) >= (int)sizeof temp)
        return fail(E_INVALID, "the path %s is too long", path);
    AUTO_FD fd = open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0)
        return fail_errno("create %s", temp);
    err e = fd_write_full(fd, content.p, content.n);
    if (!e && (fchmod(fd, mode) < 0 || fsync(fd) < 0))
        e = fail_errno("write %s", temp);
    if (!e && rename(temp, path) < 0)
        e = fail_errno("rename %s", temp);
    if (e) {
        unlink(temp);
        return e;
    }
    return sync_folder_of(path);
}

err fd_send(int sock, const void *p, size_t n, const int *fds, size_t fd_count)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * FD_PASS_MAX)];
    } control = {0};
    struct iovec io = {.iov_base = (void *)p, .iov_len = n};
    struct msghdr m = {.msg_iov = &io, .msg_iovlen = 1};
    if (fd_count > 0) {
        m.msg_control = control.bytes;
        m.msg_controllen = CMSG_SPACE(sizeof(int) * fd_count);
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * fd_count);
        memcpy(CMSG_DATA(c), fds, sizeof(int) * fd_count);
    }
    ssize_t r;
    do
        r = sendmsg(sock, &m, MSG_NOSIGNAL);
    while (r < 0 && errno == EINTR);
    if (r < 0)
        return errno == EPIPE || errno == ECONNRESET ? fail(E_CLOSED, "the peer is gone")
                                                     : fail_errno("sendmsg");
    return (size_t)r == n ? 0 : fail(E_IO, "sendmsg sent %zd of %zu bytes", r, n);
}

static void take_fds(struct msghdr *m, int fds[FD_PASS_MAX])
{
    for (size_t i = 0; i < FD_PASS_MAX; i++)
        fds[i] = -1;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(fds, CMSG_DATA(c), sizeof(int) * (n < FD_PASS_MAX ? n : FD_PASS_MAX));
    }
}

err fd_recv(int sock, void *p, size_t cap, size_t *out_n, int fds[FD_PASS_MAX])
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int) * FD_PASS_MAX)];
    } control;
    struct iovec io = {.iov_base = p, .iov_len = cap};
    struct msghdr m = {.msg_iov = &io,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control.bytes};
    ssize_t r;
    do
        r = recvmsg(sock, &m, MSG_CMSG_CLOEXEC);
    while (r < 0 && errno == EINTR);
    if (r < 0)
        return errno == ECONNRESET ? fail(E_CLOSED, "the peer reset the connection")
                                   : fail_errno("recvmsg");
    take_fds(&m, fds);
    if (r == 0)
        return fail(E_CLOSED, "the peer closed the connection");
    if (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
        for (size_t i = 0; i < FD_PASS_MAX; i++)
            fd_close(&fds[i]);
        return fail(E_INVALID, "a message longer than %zu bytes", cap);
    }
    *out_n = (size_t)r;
    return 0;
}
