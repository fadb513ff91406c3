/* sources: src/base/str.c src/base/arena.c src/base/mem.c src/base/err.c src/base/buf.c */
/* sources: src/base/clock.c src/base/json.c */
/* The JSON door (R13): whatever it lets in is written back as one line of UTF-8 that reads as the
   same value, and is no deeper than allowed. */
#include "base/json.h"
#include "base/arena.h"

#include <stdlib.h>

static void must(bool ok)
{
    if (!ok)
        abort();
}

static int depth_of(const json_t *j)
{
    int deepest = 0;
    const char *key;
    json_t *v;
    size_t i;
    if (json_is_object(j)) {
        json_object_foreach((json_t *)j, key, v)
        {
            int d = depth_of(v);
            deepest = d > deepest ? d : deepest;
        }
    } else if (json_is_array(j)) {
        json_array_foreach(j, i, v)
        {
            int d = depth_of(v);
            deepest = d > deepest ? d : deepest;
        }
    } else {
        return 0;
    }
    return deepest + 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct str text = {(const char *)data, n};
    AUTO_JSON j = NULL;
    if (json_read(text, &j))
        return 0;
    must(str_is_utf8(text)); /* the document was, so all of its strings are */
    must(depth_of(j) <= JSON_DEPTH_MAX);
    AUTO_ARENA a = arena_new();
    struct str line = json_write_arena(j, a);
    char *theirs = json_dumps(j, JSON_COMPACT | JSON_ENCODE_ANY);
    must(theirs != NULL && str_is(line, theirs));
    free(theirs);
    must(str_is_utf8(line));
    must(line.n == 0 || memchr(line.p, '\n', line.n) == NULL);
    AUTO_JSON again = NULL;
    must(json_read(line, &again) == 0);
    struct str second = json_write_arena(again, a);
    must(str_eq(line, second));
    return 0;
}
