/* sources: src/base/str.c src/base/arena.c src/base/mem.c src/base/err.c src/base/buf.c */
/* sources: src/base/clock.c src/base/json.c src/base/json_scan.c */
/* The JSON door (R13): whatever it lets in is written back as one line of UTF-8 that reads as the
   same value, and is no deeper than allowed. What the quick reader makes of a text is what the
   library makes of it. */
#include "base/json.h"
#include "base/arena.h"
#include "base/json_scan.h"

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

static bool count_item(void *arg, struct str item)
{
    AUTO_JSON j = json_scan_read(item, false);
    must(j != NULL);
    ++*(size_t *)arg;
    return true;
}

static void check_slices(struct str text, const json_t *j)
{
    static const char *const names[] = {"a", "type"};
    struct str found[2];
    must(json_scan_members(text, names, 2, found) == json_is_object(j));
    for (size_t i = 0; i < 2 && json_is_object(j); i++) {
        AUTO_JSON one = found[i].p ? json_scan_read(found[i], false) : NULL;
        const json_t *same = json_object_get(j, names[i]);
        must(one ? json_equal(one, same) : same == NULL);
        struct str said;
        if (one && json_scan_text(found[i], &said))
            must(said.p ? str_eq(said, json_get_str(j, names[i])) : !json_is_string(one));
    }
    size_t count = 0;
    must(json_scan_items(text, count_item, &count) == json_is_array(j));
    must(count == json_array_size(j));
}

static void check_quick_reader(struct str text)
{
    AUTO_JSON quick = json_scan_read(text, false);
    if (quick == NULL)
        return;
    AUTO_JSON slow = json_loadb(text.p, text.n, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
    must(slow != NULL && json_equal(quick, slow));
    AUTO_BUF one = {0}, other = {0}; /* the order of members, too */
    json_write(quick, &one);
    json_write(slow, &other);
    must(str_eq(buf_str(&one), buf_str(&other)));
    check_slices(text, quick);
    AUTO_JSON unique = json_scan_read(text, true);
    AUTO_JSON strict =
        json_loadb(text.p, text.n, JSON_ALLOW_NUL | JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
    must((unique != NULL) == (strict != NULL));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct str text = {(const char *)data, n};
    check_quick_reader(text);
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
