#include "hands/copy_names.h"

#include <errno.h>
#include <stdlib.h>

static int compare(const void *a, const void *b, void *bytes)
{
    const char *base = bytes;
    return strcmp(base + *(const uint32_t *)a, base + *(const uint32_t *)b);
}

static bool is_self_or_parent(const char *name)
{
    return name[0] == '.' && (name[1] == 0 || (name[1] == '.' && name[2] == 0));
}

int copy_names_read(struct copy_names *names, DIR *folder)
{
    for (;;) {
        errno = 0;
        const struct dirent *e = readdir(folder);
        if (e == NULL)
            break;
        if (is_self_or_parent(e->d_name))
            continue;
        size_t n = strlen(e->d_name) + 1;
        names->cut = names->bytes.n + n > COPY_NAMES_BYTES_MAX;
        if (names->cut)
            break;
        uint32_t offset = (uint32_t)names->bytes.n;
        buf_add(&names->order, &offset, sizeof offset);
        buf_add(&names->bytes, e->d_name, n);
        names->n++;
    }
    int rc = errno;
    if (names->n > 1)
        qsort_r(names->order.p, names->n, sizeof(uint32_t), compare, names->bytes.p);
    return names->cut ? 0 : rc;
}

void copy_names_done(struct copy_names *names)
{
    buf_done(&names->bytes);
    buf_done(&names->order);
    *names = (struct copy_names){0};
}

const char *copy_names_current(const struct copy_names *names)
{
    if (names->at >= names->n)
        return NULL;
    uint32_t offset;
    memcpy(&offset, names->order.p + names->at * sizeof offset, sizeof offset);
    return names->bytes.p + offset;
}
