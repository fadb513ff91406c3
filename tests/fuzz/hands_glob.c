/* Globs and ignore rules of the agent's files, and the sort keys of names: any bytes must end in an
   answer. The first line is the glob, the rest is what it is matched with. */
/* sources: src/hands/glob.c src/hands/collate.c src/hands/text.c src/base/buf.c src/base/str.c src/base/mem.c src/base/json.c src/base/json_scan.c src/base/err.c src/base/arena.c src/base/clock.c */
#include "hands/collate.h"
#include "hands/glob.h"

#include <assert.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool try_glob(struct str pattern, struct str text, struct glob_options options)
{
    AUTO_BUF why = {0};
    struct glob *g = glob_new(pattern, options, &why);
    assert((g == NULL) == (why.n > 0));
    bool matched = g && glob_matches(g, text);
    glob_free(g);
    return matched;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str s = {(const char *)data, size};
    const char *lf = size ? memchr(data, '\n', size) : NULL;
    struct str pattern = {s.p, lf ? (size_t)(lf - s.p) : s.n};
    struct str text = {s.p + pattern.n, s.n - pattern.n};
    bool exact = try_glob(pattern, text, (struct glob_options){0});
    bool folded = try_glob(pattern, text, (struct glob_options){.ignore_case = true});
    try_glob(pattern, text, (struct glob_options){.open_class_literal = true});
    /* Without a set turned round, ignoring case only adds matches. */
    bool has_set = pattern.n > 0 && memchr(pattern.p, '[', pattern.n);
    assert(!exact || folded || has_set);
    AUTO_BUF key = {0}, again = {0};
    collate_key(text, &key);
    collate_key(text, &again);
    assert(collate_compare(buf_str(&key), buf_str(&again)) == 0);
    return 0;
}
