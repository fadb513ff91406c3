/* sources: src/base/line_diff.c src/base/buf.c src/base/err.c src/base/mem.c src/base/str.c */
/* Two texts, cut where the first byte says: their hunks, put to the first, give the second. */
#include "base/line_diff.h"

#include <assert.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static struct str next_line(struct str *rest)
{
    const char *lf = rest->n ? memchr(rest->p, '\n', rest->n) : NULL;
    struct str line = {rest->p, lf ? (size_t)(lf - rest->p) + 1 : rest->n};
    *rest = (struct str){rest->p + line.n, rest->n - line.n};
    return line;
}

static void copy_line(struct str *before, struct buf *after)
{
    assert(before->n > 0);
    buf_add_str(after, next_line(before));
}

/* "@@ -12,3 +…": the line it begins at, from 0. */
static size_t start_of(struct str head)
{
    char *end;
    size_t from = strtoul(head.p + 4, &end, 10);
    bool none = end[0] == ',' && end[1] == '0';
    return none ? from : from - 1;
}

static void apply(struct str before, struct str hunks, struct buf *after)
{
    for (size_t at = 0; hunks.n > 0;) {
        struct str line = next_line(&hunks);
        struct str body = {line.p + 1, line.n - 1};
        bool unended = str_starts(hunks, STR("\\ No newline"));
        if (unended) {
            next_line(&hunks);
            body.n--;
        }
        if (line.p[0] == '@') {
            for (size_t from = start_of(line); at < from; at++)
                copy_line(&before, after);
        } else if (line.p[0] == '+') {
            buf_add_str(after, body);
        } else {
            struct str old = next_line(&before);
            assert(str_eq(old, body));
            at++;
            if (line.p[0] == ' ')
                buf_add_str(after, old);
            else
                assert(line.p[0] == '-');
        }
    }
    buf_add_str(after, before);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 2)
        return 0;
    size_t cut = 1 + data[0] * (n - 1) / 255;
    struct str before = {(const char *)data + 1, cut - 1};
    struct str after = {(const char *)data + cut, n - cut};
    struct buf hunks = {0}, made = {0};
    line_diff(before, after, &hunks);
    apply(before, buf_str(&hunks), &made);
    assert(str_eq(buf_str(&made), after));
    assert(str_eq(before, after) == (hunks.n == 0));
    buf_done(&hunks);
    buf_done(&made);
    return 0;
}
