/* sources: src/sandbox/copyout_reader.c src/hands/frames.c src/base/arena.c src/base/buf.c src/base/err.c src/base/fd.c src/base/json.c src/base/json_scan.c src/base/mem.c src/base/str.c src/base/clock.c src/base/lock.c */
/* What pi-hands says of a folder, any bytes, cut anywhere: the sink hears only clean paths in
   order, content that was asked for, and no more of it than was told. */
#include "sandbox/copyout.h"

#include <assert.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define ENTRIES 50
#define BYTES 100000
#define FILE_BYTES 70000

struct heard {
    const struct copyout_request *request;
    bool open;
    uint64_t entries, bytes, left[2];
};

static void check_path(struct str path)
{
    assert(path.n > 0 && path.n <= COPYOUT_PATH_MAX && path.p[0] != '/');
    assert(memchr(path.p, 0, path.n) == NULL);
    for (size_t from = 0, at = 0; at <= path.n; at++) {
        if (at < path.n && path.p[at] != '/')
            continue;
        size_t part = at - from;
        assert(part > 0 && !(part == 1 && path.p[from] == '.') &&
               !(part == 2 && path.p[from] == '.' && path.p[from + 1] == '.'));
        from = at + 1;
    }
}

static err begin(void *arg, const struct copyout_entry *e)
{
    struct heard *h = arg;
    assert(!h->open && ++h->entries <= ENTRIES);
    check_path(e->path);
    const struct copyout_node *nodes[] = {&e->now, &e->before};
    for (int i = 0; i < 2; i++) {
        assert(nodes[i]->type < COPYOUT_TYPE_END && nodes[i]->mode <= 07777);
        assert((nodes[i]->type == COPYOUT_LINK) == (nodes[i]->target.n > 0));
        h->left[i] = nodes[i]->type == COPYOUT_FILE ? nodes[i]->size : 0;
    }
    assert(!h->request->files_only || e->now.type == COPYOUT_FILE);
    h->open = true;
    return 0;
}

static err content(void *arg, enum copyout_side side, struct str bytes)
{
    struct heard *h = arg;
    assert(h->open && h->request->contents && bytes.n > 0 && bytes.n <= h->left[side]);
    assert(side == COPYOUT_NOW || h->request->before);
    h->left[side] -= bytes.n;
    h->bytes += bytes.n;
    assert(h->bytes <= BYTES);
    return 0;
}

static err end(void *arg, enum copyout_trouble now, enum copyout_trouble before)
{
    struct heard *h = arg;
    assert(h->open && now < COPYOUT_TROUBLE_END && before < COPYOUT_TROUBLE_END);
    if (h->request->contents && now == COPYOUT_FINE && h->left[0] > 0)
        assert(h->left[0] > FILE_BYTES); /* told, but over the limit */
    h->open = false;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 2)
        return 0;
    struct copyout_request request = {.root = "/",
                                      .contents = data[0] & 1,
                                      .files_only = data[0] & 2,
                                      .changes = data[0] & 4,
                                      .before = data[0] & 8,
                                      .only = data[0] & 16 ? "a/b" : NULL,
                                      .entries = ENTRIES,
                                      .bytes = BYTES,
                                      .file_bytes = FILE_BYTES};
    struct heard heard = {.request = &request};
    struct copyout_sink sink = {.begin = begin, .content = content, .end = end, .arg = &heard};
    struct copyout_reader *reader = copyout_reader_new(&request, &sink);
    struct copyout_summary summary = {0};
    size_t step = (size_t)data[1] * 16 + 1;
    bool ended = false;
    err e = 0;
    for (size_t at = 2; at < n && !e && !ended; at += step) {
        size_t left = n - at;
        struct str piece = {(const char *)data + at, left < step ? left : step};
        e = copyout_reader_feed(reader, piece, &ended, &summary);
    }
    if (!e)
        assert(summary.entries == heard.entries && summary.bytes == heard.bytes);
    copyout_reader_free(reader);
    return 0;
}
