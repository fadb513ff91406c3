/* sources: src/hands/text.c src/hands/edit_match.c src/base/arena.c src/base/buf.c src/base/clock.c src/base/err.c src/base/json.c src/base/json_scan.c src/base/mem.c src/base/str.c */
/* Any bytes as tool output and as a file to edit: decoding does not depend on how they are cut,
   everything stays UTF-8, and replacing in the text before line ends were made alike equals
   replacing after. */
#include "hands/edit_match.h"
#include "hands/text.h"

#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void decode_in_steps(struct str bytes, size_t step, struct buf *out)
{
    struct text_decoder d = {0};
    for (size_t at = 0; at < bytes.n; at += step) {
        size_t some = bytes.n - at < step ? bytes.n - at : step;
        text_decode(&d, (struct str){bytes.p + at, some}, out);
    }
    text_decode_end(&d, out);
}

static void check_truncation(struct str text)
{
    struct text_truncation head = text_truncate_head(text), tail = text_truncate_tail(text);
    assert(str_is_utf8(head.content) && str_is_utf8(tail.content));
    assert(head.content.n <= TEXT_MAX_BYTES && tail.content.n <= TEXT_MAX_BYTES);
    assert(head.truncated == tail.truncated);
}

static void check_edit(struct str text, struct str old_text, struct str new_text)
{
    AUTO_ARENA a = arena_new();
    struct str lf = edit_to_lf(text, a), why;
    assert(str_is_utf8(edit_normalize(lf, a)));
    struct edit edit = {old_text, new_text};
    struct edit_outcome outcome;
    if (edit_apply(lf, &edit, 1, STR("file"), a, &outcome, &why) != 0)
        return;
    struct str original = edit_apply_to_original(text, &outcome, a);
    assert(str_is_utf8(original) && str_is_utf8(outcome.text));
    assert(str_eq(edit_to_lf(original, a), outcome.text));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct str bytes = {(const char *)data, n};
    AUTO_BUF whole = {0}, stepwise = {0}, shown = {0};
    text_decode_all(bytes, &whole);
    assert(str_is_utf8(buf_str(&whole)));
    decode_in_steps(bytes, n > 0 ? data[0] % 5 + 1u : 1, &stepwise);
    assert(str_eq(buf_str(&whole), buf_str(&stepwise)));
    check_truncation(buf_str(&whole));
    text_inspect(buf_str(&whole), &shown);
    struct str rest = buf_str(&whole), old_text, new_text;
    if (str_split(&rest, '\1', &old_text) && str_split(&rest, '\1', &new_text))
        check_edit(rest, old_text, new_text);
    return 0;
}
