/* Any bytes from a host: cut into messages or refused, never out of bounds. The first byte says in
   what steps they arrive. */
/* sources: src/harness/wire.c src/base/arena.c src/base/buf.c src/base/err.c src/base/json.c src/base/json_scan.c */
/* sources: src/base/mem.c src/base/str.c src/base/clock.c */
#include <string.h>

#include "harness/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct wire_reader r = {0};
    size_t step = n > 0 ? data[0] + 1u : 1;
    err e = 0;
    for (size_t at = 1; at < n && !e; at += step) {
        size_t some = n - at < step ? n - at : step;
        memcpy(wire_space(&r, some + 1), data + at, some);
        wire_added(&r, some);
        json_t *envelope;
        struct str line;
        while (wire_take(&r, &envelope, &line, &e))
            json_decref(envelope);
    }
    wire_done(&r);
    return 0;
}
