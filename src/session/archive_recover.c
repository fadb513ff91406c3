/* Bringing sessions back from the object store. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "session/archive_inside.h"
#include "session/archive_row.h"
#include "session/backup.h"
#include "session/log.h"

#define BLOCK_BYTES (64u << 10)
#define ROW_BYTES_MAX (4u << 20)

struct recovery {
    struct archive *a;
    char tenant[ID_MAX], session[ID_MAX]; /* whose segments are being listed */
    int fd; /* of the log that is brought back; -1: none, it is here */
    int64_t at;
    size_t logs, rows;
    err failed;
};

/* "logs/<tenant>/<session>/<name>" or, in a row's key, name "<session>.json". */
static bool split_key(const char *key, size_t head, char tenant[ID_MAX], struct str *out_rest)
{
    struct str rest = str_of(key + head), part;
    if (!str_split(&rest, '/', &part) || !id_valid(part, "tenant"))
        return false;
    snprintf(tenant, ID_MAX, "%.*s", STR_ARG(part));
    *out_rest = rest;
    return true;
}

/* ---- logs ---- */

static const char *part_path(struct recovery *r, struct arena *arena)
{
    return arena_printf(arena, "%s/%s/%s.part", r->a->o.logs_dir, r->tenant, r->session);
}

/* What the segments made becomes the log, up to its last whole line. */
static err finish_log(struct recovery *r)
{
    AUTO_ARENA arena = arena_new();
    AUTO_FD fd = fd_take(&r->fd);
    off_t whole;
    if (fd < 0)
        return 0;
    TRY(log_whole_bytes(fd, &whole));
    const char *path = log_path(r->a->o.logs_dir, r->tenant, r->session, arena);
    if (ftruncate(fd, whole) < 0 || fsync(fd) < 0 || rename(part_path(r, arena), path) < 0)
        return fail_errno("put the log of %s in place", r->session);
    AUTO_FD folder = open(arena_printf(arena, "%s/%s", r->a->o.logs_dir, r->tenant),
                          O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0 || fsync(folder) < 0)
        return fail_errno("sync the folder of the log of %s", r->session);
    r->logs++;
    return 0;
}

/* The first segment of another session. */
static err begin_log(struct recovery *r, const char *tenant, struct str session)
{
    AUTO_ARENA arena = arena_new();
    TRY(finish_log(r));
    snprintf(r->tenant, sizeof r->tenant, "%s", tenant);
    snprintf(r->session, sizeof r->session, "%.*s", STR_ARG(session));
    r->at = 0;
    if (access(log_path(r->a->o.logs_dir, r->tenant, r->session, arena), F_OK) == 0)
        return 0;
    const char *folder = arena_printf(arena, "%s/%s", r->a->o.logs_dir, tenant);
    if (mkdir(folder, 0700) < 0 && errno != EEXIST)
        return fail_errno("make the folder %s", folder);
    r->fd = open(part_path(r, arena), O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    return r->fd < 0 ? fail_errno("create the log of %s", r->session) : 0;
}

static err add_segment(struct recovery *r, const char *key)
{
    char block[BLOCK_BYTES];
    struct object_get *g;
    size_t n = 1;
    TRY(objects_get(r->a->o.objects, key, 0, OBJECT_TO_END, &g, NULL));
    err e = 0;
    while (!e && n > 0) {
        e = objects_get_read(g, block, sizeof block, &n);
        if (!e)
            e = fd_write_full(r->fd, block, n);
        r->at += (int64_t)n;
    }
    objects_get_close(g);
    return e;
}

static bool see_segment(void *arg, const char *key, uint64_t size)
{
    (void)size;
    struct recovery *r = arg;
    char tenant[ID_MAX];
    struct str rest, session;
    if (!split_key(key, strlen(ARCHIVE_LOGS), tenant, &rest) || !str_split(&rest, '/', &session) ||
        rest.p == NULL || !id_valid(session, "sess"))
        return true; /* somebody else's */
    if (!str_is(session, r->session))
        r->failed = begin_log(r, tenant, session);
    if (r->failed || r->fd < 0)
        return r->failed == 0;
    if (archive_segment_offset(rest.p) == r->at)
        r->failed = add_segment(r, key);
    else
        log_warn("the copy of %s has a gap at byte %lld; what is behind it is lost", r->session,
                 (long long)r->at);
    return r->failed == 0;
}

static err recover_logs(struct recovery *r)
{
    TRY(objects_list(r->a->o.objects, ARCHIVE_LOGS, see_segment, r));
    err e = r->failed ? r->failed : finish_log(r);
    fd_close(&r->fd);
    return e;
}

/* ---- rows ---- */

static err write_row(struct db_conn *c, void *arg)
{
    AUTO_ARENA arena = arena_new();
    return archive_row_write(c, arena, arg);
}

static err recover_row(struct recovery *r, const char *key)
{
    AUTO_BUF text = {0};
    AUTO_JSON row = NULL;
    TRY(objects_read(r->a->o.objects, key, ROW_BYTES_MAX, &text));
    TRY(json_read(buf_str(&text), &row));
    TRY(db_write(r->a->o.db, write_row, row));
    r->rows++;
    return 0;
}

/* One row that cannot be read must not keep the others away. */
static bool see_row(void *arg, const char *key, uint64_t size)
{
    (void)size;
    struct recovery *r = arg;
    if (recover_row(r, key))
        log_error("%s is not brought back: %s", key, err_text());
    return true;
}

/* Logs that were coming when a process died. */
static void remove_parts(const char *folder)
{
    AUTO_ARENA arena = arena_new();
    DIR *d = opendir(folder);
    for (struct dirent *e; d && (e = readdir(d));) {
        const char *path = arena_printf(arena, "%s/%s", folder, e->d_name);
        if (id_valid(str_of(e->d_name), "tenant"))
            remove_parts(path);
        else if (str_ends(str_of(e->d_name), STR(".part")) && unlink(path) < 0)
            log_warn("%s stays: %s", path, strerror(errno));
    }
    if (d)
        closedir(d);
}

bool archive_lost_rows(const struct archive *a)
{
    AUTO_ARENA arena = arena_new();
    return access(arena_printf(arena, "%s/" BACKUP_RESTORED_MARK, a->o.logs_dir), F_OK) == 0;
}

err archive_recover(struct archive *a)
{
    CHECK(a, ARCHIVE_MAGIC);
    AUTO_ARENA arena = arena_new();
    struct recovery r = {.a = a, .fd = -1};
    const char *mark = arena_printf(arena, "%s/" BACKUP_RESTORED_MARK, a->o.logs_dir);
    remove_parts(a->o.logs_dir);
    TRY(recover_logs(&r));
    if (archive_lost_rows(a))
        TRY(objects_list(a->o.objects, ARCHIVE_ROWS, see_row, &r));
    if (r.logs || r.rows)
        log_warn("brought back from the object store: %zu logs, %zu sessions", r.logs, r.rows);
    if (unlink(mark) < 0 && errno != ENOENT)
        return fail_errno("remove %s", mark);
    return 0;
}
