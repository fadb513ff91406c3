#include "cli/text.h"

#include <stdlib.h>
#include <unistd.h>
#include <utf8proc.h>

#define REPLACEMENT "\xef\xbf\xbd"

/* Bidirectional controls make code read otherwise than it runs. */
static bool steers(utf8proc_int32_t c)
{
    return (c < 0x20 && c != '\n' && c != '\t') || (c >= 0x7f && c < 0xa0) ||
           (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

/* The next code point; bytes that are none count as one that steers. */
static utf8proc_int32_t next(struct str *rest, struct str *out_bytes)
{
    utf8proc_int32_t c = -1;
    utf8proc_ssize_t n =
        utf8proc_iterate((const utf8proc_uint8_t *)rest->p, (utf8proc_ssize_t)rest->n, &c);
    size_t used = n > 0 ? (size_t)n : 1;
    *out_bytes = (struct str){rest->p, used};
    *rest = (struct str){rest->p + used, rest->n - used};
    return n > 0 ? c : 0;
}

void text_add_safe(struct buf *out, struct str s)
{
    struct str bytes;
    while (s.n) {
        if (steers(next(&s, &bytes)))
            buf_add_c(out, REPLACEMENT);
        else
            buf_add_str(out, bytes);
    }
}

static size_t columns_of(utf8proc_int32_t c)
{
    int n = utf8proc_charwidth(c);
    return n > 0 ? (size_t)n : 0;
}

size_t text_columns(struct str s)
{
    size_t n = 0;
    struct str bytes;
    while (s.n)
        n += columns_of(next(&s, &bytes));
    return n;
}

void text_add_line(struct buf *out, struct str s, size_t columns)
{
    AUTO_BUF line = {0};
    text_add_safe(&line, s);
    for (size_t i = 0; i < line.n; i++) {
        if (line.p[i] == '\n' || line.p[i] == '\t')
            line.p[i] = ' ';
    }
    struct str rest = buf_str(&line), bytes;
    if (columns == 0 || text_columns(rest) <= columns) {
        buf_add_str(out, rest);
        return;
    }
    for (size_t used = 0; rest.n;) {
        used += columns_of(next(&rest, &bytes));
        if (used >= columns)
            break;
        buf_add_str(out, bytes);
    }
    buf_add_c(out, "…");
}

void text_add_ms(struct buf *out, int64_t ms)
{
    if (ms < 1000)
        buf_printf(out, "%lld ms", (long long)ms);
    else if (ms < 60000)
        buf_printf(out, "%.1f s", (double)ms / 1000);
    else if (ms < 3600000)
        buf_printf(out, "%lld min %lld s", (long long)(ms / 60000), (long long)(ms / 1000 % 60));
    else
        buf_printf(out, "%lld h %lld min", (long long)(ms / 3600000), (long long)(ms / 60000 % 60));
}

void text_add_usd(struct buf *out, double usd)
{
    buf_printf(out, usd >= 1 || usd == 0 ? "$%.2f" : "$%.4f", usd);
}

void text_add_time(struct buf *out, struct str time)
{
    bool whole = time.n == sizeof "2026-11-30T12:00:00.000Z" - 1;
    text_add_line(out, whole ? (struct str){time.p, time.n - 5} : time, 0);
    buf_add_c(out, whole ? "Z" : "");
}

bool text_has_colours(FILE *f)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(fileno(f)) && !(no && no[0]) && !(term && strcmp(term, "dumb") == 0);
}

void text_paint(FILE *f, enum paint paint, const char *safe)
{
    static const char *const codes[] = {
        [PAINT_BOLD] = "1",   [PAINT_DIM] = "2",     [PAINT_RED] = "31",
        [PAINT_GREEN] = "32", [PAINT_YELLOW] = "33", [PAINT_CYAN] = "36",
    };
    if (text_has_colours(f))
        fprintf(f, "\x1b[%sm%s\x1b[0m", codes[paint], safe);
    else
        fputs(safe, f);
}
