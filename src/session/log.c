/* The session log file: append-only JSONL with an explicit durable end. */
#include "session/log.h"

#include "base/buf.h"
#include "base/fd.h"
#include "base/mem.h"
#include "session/log_index.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG_MAGIC 0x106f11e5u

struct session_log {
    unsigned magic;
    char path[PATH_MAX], folder[PATH_MAX];
    int fd;        /* -1 until the file exists */
    off_t durable; /* bytes known to be on disk */
    bool broken;   /* a sync failed: no more writes */
    struct buf pending;
};

static err build_path(const char *dir, const char *tenant, const char *session, char *out,
                      size_t cap)
{
    int n = snprintf(out, cap, "%s/%s/%s.jsonl", dir, tenant, session);
    return n > 0 && (size_t)n < cap ? 0 : fail(E_INVALID, "the path of the log is too long");
}

const char *log_path(const char *dir, const char *tenant, const char *session, struct arena *a)
{
    return arena_printf(a, "%s/%s/%s.jsonl", dir, tenant, session);
}

err log_whole_bytes(int fd, off_t *out)
{
    off_t end = lseek(fd, 0, SEEK_END);
    if (end < 0)
        return fail_errno("seek in a log");
    char block[4096];
    for (off_t at = end; at > 0;) {
        size_t n = at < (off_t)sizeof block ? (size_t)at : sizeof block;
        at -= (off_t)n;
        if (pread(fd, block, n, at) != (ssize_t)n)
            return fail_errno("read a log");
        const char *lf = memrchr(block, '\n', n);
        if (lf) {
            *out = at + (lf - block) + 1;
            return 0;
        }
    }
    *out = 0;
    return 0;
}

/* A crash can leave half a line: everything after the last LF never counted (LOG.md). */
static err cut_torn_line(struct session_log *log)
{
    off_t keep, end = lseek(log->fd, 0, SEEK_END);
    TRY(log_whole_bytes(log->fd, &keep));
    if (keep < end && (ftruncate(log->fd, keep) < 0 || fdatasync(log->fd) < 0))
        return fail_errno("cut the torn last line of %s", log->path);
    log->durable = keep;
    return 0;
}

err log_open(const char *dir, const char *tenant, const char *session, struct session_log **out)
{
    struct session_log *log = mem_alloc(sizeof *log);
    log->magic = LOG_MAGIC;
    log->fd = -1;
    snprintf(log->folder, sizeof log->folder, "%s/%s", dir, tenant);
    err e = build_path(dir, tenant, session, log->path, sizeof log->path);
    if (!e) {
        log->fd = open(log->path, O_RDWR | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
        if (log->fd >= 0)
            e = cut_torn_line(log);
        else if (errno != ENOENT)
            e = fail_errno("open %s", log->path);
    }
    if (e) {
        log_close(log);
        return e;
    }
    *out = log;
    return 0;
}

void log_close(struct session_log *log)
{
    if (log == NULL)
        return;
    CHECK(log, LOG_MAGIC);
    fd_close(&log->fd);
    buf_done(&log->pending);
    log->magic = 0;
    mem_free(log);
}

int64_t log_durable_bytes(const struct session_log *log)
{
    CHECK(log, LOG_MAGIC);
    return log->durable;
}

bool log_is_empty(const struct session_log *log)
{
    CHECK(log, LOG_MAGIC);
    return log->durable == 0 && log->pending.n == 0;
}

void log_append(struct session_log *log, struct str line)
{
    CHECK(log, LOG_MAGIC);
    assert(memchr(line.p, '\n', line.n) == NULL);
    buf_add_str(&log->pending, line);
    buf_add_char(&log->pending, '\n');
}

static err create_file(struct session_log *log)
{
    if (mkdir(log->folder, 0700) < 0 && errno != EEXIST)
        return fail_errno("make the folder %s", log->folder);
    log->fd = open(log->path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (log->fd < 0)
        return fail_errno("create %s", log->path);
    AUTO_FD folder = open(log->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0 || fsync(folder) < 0) /* the name must survive too */
        return fail_errno("sync the folder %s", log->folder);
    return 0;
}

static err write_pending(struct session_log *log)
{
    if (log->fd < 0)
        TRY(create_file(log));
    TRY(fd_write_full(log->fd, log->pending.p, log->pending.n));
    return fdatasync(log->fd) < 0 ? fail_errno("sync %s", log->path) : 0;
}

err log_sync(struct session_log *log)
{
    CHECK(log, LOG_MAGIC);
    if (log->broken)
        return fail(E_IO, "the log %s failed before and takes no more lines", log->path);
    if (log->pending.n == 0)
        return 0;
    err e = write_pending(log);
    if (e) {
        log->broken = true;
        if (log->fd >= 0 && ftruncate(log->fd, log->durable) < 0)
            return fail_errno("cut %s back to its durable end", log->path);
        return e;
    }
    log->durable += (off_t)log->pending.n;
    buf_clear(&log->pending);
    if (log->pending.cap > 1u << 20) /* a session with one huge line need not keep the memory */
        buf_done(&log->pending);
    return 0;
}

static void free_line(char **p)
{
    free(*p);
}

static void close_file(FILE **f)
{
    if (*f)
        fclose(*f);
}

err log_read(const char *dir, const char *tenant, const char *session, log_line_fn fn, void *arg)
{
    return log_read_from(dir, tenant, session, 0, 0, fn, arg);
}

err log_read_from(const char *dir, const char *tenant, const char *session, int64_t offset,
                  int64_t number, log_line_fn fn, void *arg)
{
    char path[PATH_MAX];
    TRY(build_path(dir, tenant, session, path, sizeof path));
    __attribute__((cleanup(close_file))) FILE *f = fopen(path, "re");
    if (f == NULL)
        return errno == ENOENT ? 0 : fail_errno("open %s", path);
    if (offset > 0 && fseeko(f, offset, SEEK_SET) < 0)
        return fail_errno("seek in %s", path);
    __attribute__((cleanup(free_line))) char *line = NULL;
    size_t cap = 0;
    for (;; number++) {
        ssize_t n = getline(&line, &cap, f);
        if (n < 0)
            return ferror(f) ? fail_errno("read %s", path) : 0;
        if (line[n - 1] != '\n')
            return 0; /* being written right now: not durable */
        if (!fn(arg, number, (struct str){line, (size_t)n - 1}))
            return 0;
    }
}

err log_remove(const char *dir, const char *tenant, const char *session)
{
    char path[PATH_MAX];
    TRY(build_path(dir, tenant, session, path, sizeof path));
    log_index_remove(path);
    if (unlink(path) < 0 && errno != ENOENT)
        return fail_errno("remove %s", path);
    return 0;
}
