#include "parent/ranges.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <sys/file.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/mem.h"

#define UID_FIRST 1000000u
#define UID_COUNT 65536u
#define UID_RANGES 60000u /* the last one ends below 2^32 */

static void path_of(char out[PATH_MAX], const char *data_dir, const char *id)
{
    snprintf(out, PATH_MAX, "%s/sandboxes/%s/uid-base", data_dir, id);
}

err range_read(const char *data_dir, const char *id, uint32_t *out)
{
    char path[PATH_MAX];
    uint64_t value;
    AUTO_BUF text = {0};
    path_of(path, data_dir, id);
    TRY(fd_read_file(path, 16, &text));
    if (!str_to_u64(buf_str(&text), &value) || value < UID_FIRST ||
        value >= UID_FIRST + (uint64_t)UID_RANGES * UID_COUNT ||
        value % UID_COUNT != UID_FIRST % UID_COUNT)
        return fail(E_INVALID, "%s does not hold the first id of a range", path);
    *out = (uint32_t)value;
    return 0;
}

static void mark_used(DIR *dir, const char *data_dir, unsigned char *used)
{
    for (struct dirent *d; (d = readdir(dir));) {
        uint32_t base;
        if (d->d_name[0] != '.' && range_read(data_dir, d->d_name, &base) == 0)
            used[(base - UID_FIRST) / UID_COUNT] = 1;
    }
}

static uint32_t first_free(DIR *dir, const char *data_dir)
{
    unsigned char *used = mem_alloc(UID_RANGES);
    uint32_t n = 0;
    mark_used(dir, data_dir, used);
    while (n < UID_RANGES && used[n])
        n++;
    mem_free(used);
    return n;
}

static err choose_locked(DIR *dir, const char *data_dir, const char *id, uint32_t *out)
{
    uint32_t n = first_free(dir, data_dir);
    if (n == UID_RANGES)
        return fail(E_QUOTA, "all %u ranges of user ids are in use", UID_RANGES);
    char path[PATH_MAX], text[16];
    uint32_t base = UID_FIRST + n * UID_COUNT;
    path_of(path, data_dir, id);
    int length = snprintf(text, sizeof text, "%u", base);
    TRY(fd_write_file_atomic(path, (struct str){text, (size_t)length}, 0600));
    *out = base;
    return 0;
}

err range_choose(const char *data_dir, const char *id, uint32_t *out)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/sandboxes", data_dir);
    DIR *dir = opendir(path);
    if (dir == NULL)
        return fail_errno("open %s", path);
    /* Commands may choose at the same time; closing the folder unlocks it. */
    err e = flock(dirfd(dir), LOCK_EX) < 0 ? fail_errno("lock %s", path)
                                           : choose_locked(dir, data_dir, id, out);
    closedir(dir);
    return e;
}
