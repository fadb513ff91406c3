/* control.db as one object. */
#include "session/backup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "base/fd.h"

#define KEY "system/control.db"
#define BLOCK_BYTES (256u << 10)

static err build_path(const char *dir, const char *name, char out[PATH_MAX])
{
    int n = snprintf(out, PATH_MAX, "%s/%s", dir, name);
    return n > 0 && n < PATH_MAX ? 0
                                 : fail(E_INVALID, "the path of the data directory is too long");
}

static err write_out(int fd, struct object_put *p)
{
    static char block[BLOCK_BYTES]; /* one call at a time */
    for (;;) {
        ssize_t n = read(fd, block, sizeof block);
        if (n < 0 && errno != EINTR)
            return fail_errno("read the copy of the database");
        if (n == 0)
            return 0;
        if (n > 0)
            TRY(objects_put_write(p, (struct str){block, (size_t)n}));
    }
}

static err store_file(struct objects *o, const char *path)
{
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    struct object_put *p;
    if (fd < 0)
        return fail_errno("open %s", path);
    TRY(objects_put_begin(o, KEY, &p));
    err e = write_out(fd, p);
    if (e) {
        objects_put_abort(p);
        return e;
    }
    return objects_put_end(p, NULL);
}

err backup_take(struct db *db, struct objects *o, const char *scratch_dir)
{
    char path[PATH_MAX];
    TRY(build_path(scratch_dir, "control.db.copy", path));
    if (unlink(path) < 0 && errno != ENOENT)
        return fail_errno("remove %s", path);
    err e = db_snapshot(db, path);
    if (!e)
        e = store_file(o, path);
    unlink(path);
    return e;
}

static bool copy_exists(struct objects *o)
{
    uint64_t size;
    return objects_size(o, KEY, &size) == 0;
}

static err read_in(struct object_get *g, int fd)
{
    static char block[BLOCK_BYTES];
    size_t n;
    do {
        TRY(objects_get_read(g, block, sizeof block, &n));
        TRY(fd_write_full(fd, block, n));
    } while (n > 0);
    return fsync(fd) < 0 ? fail_errno("sync the database") : 0;
}

static err fetch(struct objects *o, const char *path)
{
    struct object_get *g;
    AUTO_FD fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return fail_errno("create %s", path);
    TRY(objects_get(o, KEY, 0, OBJECT_TO_END, &g, NULL));
    err e = read_in(g, fd);
    objects_get_close(g);
    return e;
}

static err sync_folder(const char *path)
{
    AUTO_FD fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 || fsync(fd) < 0 ? fail_errno("sync %s", path) : 0;
}

err backup_restore(struct objects *o, const char *data_dir, bool *out)
{
    char path[PATH_MAX], part[PATH_MAX], mark[PATH_MAX];
    TRY(build_path(data_dir, "control.db", path));
    TRY(build_path(data_dir, "control.db.part", part));
    TRY(build_path(data_dir, "logs/" BACKUP_RESTORED_MARK, mark));
    *out = false;
    if (access(path, F_OK) == 0 || !copy_exists(o))
        return 0;
    TRY(fetch(o, part));
    static const char *const left[] = {"control.db-wal", "control.db-shm"};
    for (size_t i = 0; i < 2; i++) { /* of another database: they would be played into this one */
        char stale[PATH_MAX];
        TRY(build_path(data_dir, left[i], stale));
        if (unlink(stale) < 0 && errno != ENOENT)
            return fail_errno("remove %s", stale);
    }
    TRY(fd_write_file_atomic(mark, STR(""), 0600));
    if (rename(part, path) < 0)
        return fail_errno("put %s in place", path);
    TRY(sync_folder(data_dir));
    *out = true;
    return 0;
}
