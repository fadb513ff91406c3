/* sources: src/hands/frames.c src/base/buf.c src/base/err.c src/base/fd.c src/base/mem.c src/base/str.c */
/* Any bytes: frame_parse never reads beyond them, and takes them apart the same way however they
 * are cut. */
#include "hands/frames.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Frames parsed in `bytes` and the bytes they took. */
static size_t parse_all(struct str bytes, size_t *out_used, err *out_err)
{
    size_t frames = 0, used;
    struct frame f;
    *out_used = 0;
    while (frame_parse(bytes, &f, &used, out_err)) {
        assert(used == f.payload.n + 5 && f.payload.p == bytes.p + 5);
        assert(f.type >= FRAME_HELLO && f.type < FRAME_TYPE_END);
        bytes = (struct str){bytes.p + used, bytes.n - used};
        *out_used += used;
        frames++;
    }
    assert(used == 0 && (*out_err == 0 || *out_err == E_INVALID));
    return frames;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct str bytes = {(const char *)data, n};
    size_t used, used_again, cut = n > 0 ? data[n - 1] % n : 0;
    err e, e_cut;
    size_t frames = parse_all(bytes, &used, &e);
    struct str head = {bytes.p, cut};
    size_t first = parse_all(head, &used_again, &e_cut);
    assert(e_cut == 0 || e == e_cut);
    struct str rest = {bytes.p + used_again, bytes.n - used_again};
    size_t more = parse_all(rest, &used_again, &e_cut);
    assert(first + more == frames && e == e_cut);
    return 0;
}
