/* sources: src/base/path.c src/base/str.c src/base/mem.c src/base/err.c src/base/buf.c src/base/fd.c src/base/tree.c */
/* sources: src/images/name.c src/images/unpack.c src/images/stream.c */
/* runs: 400 */
/* Any bytes as the layer of an image: whatever they say, only the image's folder changes, limits
   hold, and what was made can be removed. The first byte chooses between a layer and a plain tar.
 */
#include "images/stream.h"

#include "base/fd.h"
#include "base/tree.h"
#include "images/unpack.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct image_limits limits = {.entries = 100, .bytes = 1 << 16, .path_bytes = 300};

static void must(bool ok)
{
    if (!ok)
        abort();
}

struct pass {
    struct unpack *u;
    bool layer, whiteouts;
};

static err take(void *arg, struct stream *s, const struct unpack_entry *e)
{
    const struct pass *p = arg;
    bool was;
    must(e->path != NULL);
    if (p->whiteouts)
        return unpack_whiteout(p->u, e->path, &was);
    return p->layer && unpack_is_whiteout(e->path) ? 0 : stream_unpack(s, p->u, e);
}

static char folder[64];

static void remove_folder(void)
{
    tree_remove(folder);
}

static void make_folder(void)
{
    if (folder[0])
        return;
    snprintf(folder, sizeof folder, "/tmp/pm-fuzz-tar-XXXXXX");
    must(mkdtemp(folder) != NULL);
    atexit(remove_folder);
}

static int count_in(const char *path)
{
    int n = 0;
    DIR *d = opendir(path);
    must(d != NULL);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static void read_once(struct pass *p, int fd)
{
    struct stream_sums sums;
    must(lseek(fd, 0, SEEK_SET) == 0);
    if (stream_read(fd, stream_max_bytes(&limits), take, p, &sums) == 0)
        must(strlen(sums.file) == 64 && strlen(sums.tar) == 64);
    else
        must(err_text()[0] != 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n == 0)
        return 0;
    char path[96];
    make_folder();
    snprintf(path, sizeof path, "%s/root", folder);
    must(mkdir(path, 0755) == 0);
    AUTO_FD root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTO_FD times = memfd_create("times", MFD_CLOEXEC), file = memfd_create("tar", MFD_CLOEXEC);
    must(root >= 0 && times >= 0 && file >= 0);
    must(fd_write_full(file, data + 1, n - 1) == 0);
    struct pass p = {.u = unpack_new(root, times, &limits), .layer = data[0] & 1};
    struct image_counts counts;
    p.whiteouts = p.layer;
    if (p.whiteouts)
        read_once(&p, file);
    p.whiteouts = false;
    read_once(&p, file);
    must(unpack_finish(p.u) == 0);
    unpack_counts(p.u, &counts);
    must(counts.entries <= limits.entries && counts.bytes <= limits.bytes);
    unpack_free(p.u);
    must(count_in(folder) == 3); /* . .. root */
    must(tree_remove(path) == 0);
    return 0;
}
