/* One session's copy in the object store: log segments, then the row. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "session/archive_inside.h"
#include "session/archive_row.h"
#include "session/log.h"

#define BLOCK_BYTES (64u << 10)

int64_t archive_segment_offset(const char *name)
{
    unsigned long long v = 0;
    char end;
    if (strlen(name) != 16 || sscanf(name, "%16llx%c", &v, &end) != 1 || v > INT64_MAX)
        return -1;
    return (int64_t)v;
}

struct stored { /* what the store has of a log */
    size_t prefix_bytes;
    int64_t end;
    bool gap; /* a segment is missing: copied anew from the top */
};

static bool see_segment(void *arg, const char *key, uint64_t size)
{
    struct stored *s = arg;
    int64_t offset = archive_segment_offset(key + s->prefix_bytes);
    s->gap = s->gap || offset != s->end;
    s->end = offset + (int64_t)size;
    return true;
}

err archive_stored_bytes(struct archive *a, const char *tenant, const char *session, int64_t *out)
{
    char prefix[OBJECT_KEY_MAX];
    snprintf(prefix, sizeof prefix, ARCHIVE_LOGS "%s/%s/", tenant, session);
    struct stored s = {.prefix_bytes = strlen(prefix)};
    TRY(objects_list(a->o.objects, prefix, see_segment, &s));
    *out = s.gap ? 0 : s.end;
    return 0;
}

err archive_log_bytes(struct archive *a, const char *tenant, const char *session, int64_t *out)
{
    AUTO_ARENA arena = arena_new();
    AUTO_FD fd = open(log_path(a->o.logs_dir, tenant, session, arena), O_RDONLY | O_CLOEXEC);
    off_t bytes = 0;
    if (fd < 0 && errno != ENOENT)
        return fail_errno("open the log of %s", session);
    if (fd >= 0)
        TRY(log_whole_bytes(fd, &bytes));
    *out = bytes;
    return 0;
}

struct removal {
    struct objects *objects;
    size_t prefix_bytes;
    int64_t from; /* segments that begin before stay */
    err failed;
};

static bool remove_one(void *arg, const char *key, uint64_t size)
{
    (void)size;
    struct removal *r = arg;
    if (archive_segment_offset(key + r->prefix_bytes) >= r->from)
        r->failed = objects_delete(r->objects, key);
    return r->failed == 0;
}

static err remove_segments(struct archive *a, const char *prefix, int64_t from)
{
    struct removal r = {.objects = a->o.objects, .prefix_bytes = strlen(prefix), .from = from};
    TRY(objects_list(a->o.objects, prefix, remove_one, &r));
    return r.failed;
}

static err put_range(int fd, int64_t from, int64_t to, struct object_put *p)
{
    char block[BLOCK_BYTES];
    while (from < to) {
        size_t want = to - from < (int64_t)sizeof block ? (size_t)(to - from) : sizeof block;
        ssize_t n = pread(fd, block, want, from);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return fail_errno("read a log for its copy");
        TRY(objects_put_write(p, (struct str){block, (size_t)n}));
        from += n;
    }
    return 0;
}

static err put_segment(struct archive *a, int fd, const char *prefix, int64_t from, int64_t to)
{
    char key[OBJECT_KEY_MAX + 17];
    struct object_put *p;
    snprintf(key, sizeof key, "%s%016llx", prefix, (unsigned long long)from);
    TRY(objects_put_begin(a->o.objects, key, &p));
    err e = put_range(fd, from, to, p);
    if (e) {
        objects_put_abort(p);
        return e;
    }
    return objects_put_end(p, NULL);
}

/* From the segment on in which the store's copy ends. A log only grows; one that is shorter than
   its copy was brought back from elsewhere, and is the truth now: from the top. */
static err copy_log(struct archive *a, const struct waiting *w, int fd)
{
    char prefix[OBJECT_KEY_MAX];
    int64_t end;
    snprintf(prefix, sizeof prefix, ARCHIVE_LOGS "%s/%s/", w->tenant, w->session);
    TRY(archive_stored_bytes(a, w->tenant, w->session, &end));
    if (end == w->bytes)
        return 0;
    int64_t from = end < w->bytes ? end / ARCHIVE_SEGMENT_BYTES * ARCHIVE_SEGMENT_BYTES : 0;
    for (; from < w->bytes; from += ARCHIVE_SEGMENT_BYTES) {
        int64_t to = from + ARCHIVE_SEGMENT_BYTES;
        TRY(put_segment(a, fd, prefix, from, to < w->bytes ? to : w->bytes));
    }
    return end > w->bytes ? remove_segments(a, prefix, from) : 0;
}

struct row_read {
    const char *tenant, *session;
    json_t *row;
};

static err read_row(struct db_conn *c, void *arg)
{
    struct row_read *r = arg;
    return archive_row_read(c, r->tenant, r->session, &r->row);
}

static err put_row(struct archive *a, const struct waiting *w, const json_t *row)
{
    char key[OBJECT_KEY_MAX];
    AUTO_BUF text = {0};
    json_write(row, &text);
    snprintf(key, sizeof key, ARCHIVE_ROWS "%s/%s.json", w->tenant, w->session);
    return objects_put(a->o.objects, key, buf_str(&text));
}

/* The row last: who finds it finds its log. */
err archive_copy(struct archive *a, const struct waiting *w)
{
    AUTO_ARENA arena = arena_new();
    struct row_read r = {.tenant = w->tenant, .session = w->session};
    TRY(db_read(a->o.db, read_row, &r));
    AUTO_JSON row = r.row;
    AUTO_FD fd = open(log_path(a->o.logs_dir, w->tenant, w->session, arena), O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? fail(E_NOT_FOUND, "%s has no log: it was purged", w->session)
                               : fail_errno("open the log of %s", w->session);
    TRY(copy_log(a, w, fd));
    return put_row(a, w, row);
}

err archive_remove_copies(struct archive *a, const char *tenant, const char *session)
{
    char key[OBJECT_KEY_MAX];
    snprintf(key, sizeof key, ARCHIVE_ROWS "%s/%s.json", tenant, session);
    TRY(objects_delete(a->o.objects, key));
    snprintf(key, sizeof key, ARCHIVE_LOGS "%s/%s/", tenant, session);
    return remove_segments(a, key, 0);
}
