/* sources: src/cli/text.c src/base/buf.c src/base/mem.c src/base/str.c src/base/err.c */
/* Whatever an agent says: what reaches the terminal is UTF-8 without control characters but LF and
   TAB, and a line is no wider than asked for. The first byte is the width. */
#include "cli/text.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void must_be_harmless(struct str s, bool one_line)
{
    must(str_is_utf8(s));
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        must(c >= 0x20 || (!one_line && (c == '\n' || c == '\t')));
        must(c != 0x7f);
        must(!(c == 0xc2 && (unsigned char)s.p[i + 1] < 0xa0));
        must(!(c == 0xe2 && memcmp(s.p + i, "\xe2\x80\xae", 3) == 0));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 1)
        return 0;
    struct str text = {(const char *)data + 1, n - 1};
    AUTO_BUF safe = {0};
    AUTO_BUF line = {0};
    text_add_safe(&safe, text);
    must_be_harmless(buf_str(&safe), false);
    text_add_line(&line, text, data[0]);
    must_be_harmless(buf_str(&line), true);
    must(data[0] == 0 || text_columns(buf_str(&line)) <= data[0]);
    return 0;
}
