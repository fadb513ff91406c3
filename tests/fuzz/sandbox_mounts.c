/* sources: src/base/str.c src/base/arena.c src/base/mem.c src/base/err.c src/base/buf.c */
/* sources: src/base/clock.c src/base/id.c src/base/json.c src/base/json_scan.c */
/* sources: src/base/path.c src/sandbox/mounts.c */
/* The mounts of an environment, and the operator's list. The first line is the list, the second a
   source, the rest the mounts. What is accepted ends, is absolute and leads nowhere up; what the
   list allows lies within the entry that allows it. */
#include "base/path.h"
#include "sandbox/mounts.h"

#include <stdlib.h>

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void check_list(struct str list, struct str source)
{
    char text[1024];
    struct mount_allowed got;
    if (list.n >= sizeof text || !path_is_clean(source))
        return;
    memcpy(text, list.p, list.n);
    text[list.n] = 0;
    if (!mount_allowed_find(source, text, &got))
        return;
    must(path_is_clean(got.dir) && got.dir.n > 1 && path_is_within(source, got.dir));
    must(source.n == got.dir.n || source.p[got.dir.n] == '/');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct str rest = {(const char *)data, n}, list = {0}, source = {0};
    struct sandbox_mount mounts[MOUNTS_MAX];
    uint32_t count = 0;
    AUTO_JSON json = NULL;
    str_split(&rest, '\n', &list);
    str_split(&rest, '\n', &source);
    check_list(list, source);
    if (json_read(rest, &json) || mounts_read(json, mounts, &count))
        return 0;
    must(count <= MOUNTS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        must(memchr(mounts[i].source, 0, MOUNT_PATH_MAX) &&
             memchr(mounts[i].target, 0, MOUNT_PATH_MAX));
        must(path_is_clean(str_of(mounts[i].target)));
        must(mounts[i].type != MOUNT_BIND || path_is_clean(str_of(mounts[i].source)));
        must(mounts[i].type != MOUNT_VOLUME || !strchr(mounts[i].source, '/'));
    }
    return 0;
}
