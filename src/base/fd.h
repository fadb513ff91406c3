/* File descriptors: closing, whole reads and writes, passing over unix sockets. All functions
   restart on EINTR; every descriptor made here is close-on-exec. */
#ifndef BASE_FD_H
#define BASE_FD_H

#include "base/err.h"
#include "base/str.h"

#include <sys/types.h>

#define SOCKET_PATH_MAX 108 /* of a unix socket, with its NUL (sockaddr_un.sun_path) */

static inline int fd_take(int *fd) /* gives ownership away */
{
    int v = *fd;
    *fd = -1;
    return v;
}

void fd_close(int *fd); /* closes if >= 0, sets -1; keeps errno */
#define AUTO_FD __attribute__((cleanup(fd_close))) int

/* E_CLOSED at end of file before n bytes, else E_IO. */
err fd_read_full(int fd, void *p, size_t n);
err fd_write_full(int fd, const void *p, size_t n); /* no SIGPIPE on sockets */

struct buf;
/* Appends the whole of a file, at most max bytes (E_TOO_LARGE beyond). */
err fd_read_file(const char *path, size_t max, struct buf *out);
/* Writes beside the target, fsyncs, renames and fsyncs the folder: whole or not at all. */
err fd_write_file_atomic(const char *path, struct str content, mode_t mode);

#define FD_PASS_MAX 12
/* One message with up to FD_PASS_MAX descriptors over SOCK_SEQPACKET or SOCK_STREAM. The caller
   keeps its copies. */
err fd_send(int sock, const void *p, size_t n, const int *fds, size_t fd_count);
/* *out_n gets the length of the message (E_CLOSED at end); fds not sent become -1. Descriptors
   received are the caller's. A message longer than cap is E_INVALID. */
err fd_recv(int sock, void *p, size_t cap, size_t *out_n, int fds[FD_PASS_MAX]);

#endif
