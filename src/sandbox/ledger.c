#include "sandbox/ledger.h"

#include "base/buf.h"
#include "base/fd.h"
#include "base/id.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#define FILE_NAME ".memory"
#define FILE_MAX (4u << 20)

struct line {
    struct str id;
    uint64_t mib;
};

/* False for what is no line of ours. */
static bool parse_line(struct str text, struct line *out)
{
    struct str rest = text;
    return str_split(&rest, ' ', &out->id) && out->id.n > 0 && out->id.n < ID_MAX &&
           str_to_u64(rest, &out->mib) && out->mib <= UINT32_MAX;
}

static err open_locked(const struct ledger *l, int *out_fd)
{
    AUTO_FD fd = open(l->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return fail_errno("open %s", l->folder);
    while (flock(fd, LOCK_EX) < 0) { /* held for a file of a few lines */
        if (errno != EINTR)
            return fail_errno("lock %s", l->folder);
    }
    *out_fd = fd_take(&fd);
    return 0;
}

static err read_lines(const struct ledger *l, struct buf *out)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/" FILE_NAME, l->folder);
    err e = fd_read_file(path, FILE_MAX, out);
    return e == E_NOT_FOUND ? 0 : e;
}

/* Whole or not at all; no file when there is nothing. Not synced: after a power cut nothing runs.
 */
static err write_lines(int folder, const struct buf *text)
{
    if (text->n == 0)
        return unlinkat(folder, FILE_NAME, 0) < 0 && errno != ENOENT
                   ? fail_errno("forget the memory of sandboxes")
                   : 0;
    AUTO_FD fd = openat(folder, FILE_NAME ".new", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return fail_errno("write down the memory of sandboxes");
    TRY(fd_write_full(fd, text->p, text->n));
    return renameat(folder, FILE_NAME ".new", folder, FILE_NAME) < 0
               ? fail_errno("write down the memory of sandboxes")
               : 0;
}

static bool lives(const struct ledger *l, struct str id)
{
    char dir[PATH_MAX];
    snprintf(dir, sizeof dir, "%s/%.*s", l->folder, STR_ARG(id));
    return l->lives(dir);
}

/* Copies the lines but that of `without` (NULL: none); with `sweep`, but those of the dead too.
   Returns their sum. */
static uint64_t keep_lines(const struct ledger *l, struct str text, const char *without, bool sweep,
                           struct buf *out)
{
    uint64_t sum = 0;
    struct str row;
    struct line line;
    buf_clear(out);
    while (str_split(&text, '\n', &row)) {
        if (!parse_line(row, &line) || (without && str_is(line.id, without)) ||
            (sweep && !lives(l, line.id)))
            continue;
        sum += line.mib;
        buf_printf(out, "%.*s\n", STR_ARG(row));
    }
    return sum;
}

static err no_room(const struct ledger *l, uint64_t used, uint32_t mib)
{
    return fail_as(E_QUOTA, LEDGER_NO_ROOM,
                   "no memory is left for another sandbox: %llu of %llu MiB (--sandbox-memory) are "
                   "promised to those that run, this one needs %u. End some, or ask for less",
                   (unsigned long long)used, (unsigned long long)l->capacity_mib, mib);
}

/* `kept`: the lines of the others. */
static err find_room(const struct ledger *l, struct str text, const char *id, uint32_t mib,
                     struct buf *kept)
{
    uint64_t used = keep_lines(l, text, id, false, kept);
    if (used + mib > l->capacity_mib)
        used = keep_lines(l, text, id, true, kept);
    return used + mib > l->capacity_mib ? no_room(l, used, mib) : 0;
}

err ledger_reserve(const struct ledger *l, const char *id, uint32_t mib)
{
    if (l->capacity_mib == 0)
        return 0;
    AUTO_FD folder = -1;
    AUTO_BUF text = {0}, kept = {0};
    TRY(open_locked(l, &folder));
    TRY(read_lines(l, &text));
    TRY(find_room(l, buf_str(&text), id, mib, &kept));
    buf_printf(&kept, "%s %u\n", id, mib);
    return write_lines(folder, &kept);
}

err ledger_release(const struct ledger *l, const char *id)
{
    if (l->capacity_mib == 0)
        return 0;
    AUTO_FD folder = -1;
    AUTO_BUF text = {0}, kept = {0};
    TRY(open_locked(l, &folder));
    TRY(read_lines(l, &text));
    keep_lines(l, buf_str(&text), id, false, &kept);
    return kept.n == text.n ? 0 : write_lines(folder, &kept);
}

err ledger_check(const struct ledger *l, uint32_t mib)
{
    if (l->capacity_mib == 0)
        return 0;
    AUTO_FD folder = -1;
    AUTO_BUF text = {0}, kept = {0};
    TRY(open_locked(l, &folder));
    TRY(read_lines(l, &text));
    return find_room(l, buf_str(&text), NULL, mib, &kept);
}

static uint64_t number_in(const char *path)
{
    AUTO_BUF text = {0};
    return fd_read_file(path, 64, &text) ? UINT64_MAX : strtoull(text.p, NULL, 10);
}

uint64_t ledger_default_capacity(void)
{
    uint64_t bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    /* A container sees its own group as the top. "max" reads as 0. */
    static const char *const limits[] = {"/sys/fs/cgroup/memory.max",
                                         "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        uint64_t limit = number_in(limits[i]);
        if (limit > 0 && limit < bytes)
            bytes = limit;
    }
    return (bytes - bytes / 8) >> 20;
}
