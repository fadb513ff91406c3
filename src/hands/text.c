#include "hands/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <utf8proc.h>

#define REPLACEMENT "\xef\xbf\xbd"
#define INSPECT_MAX 128
#define MAX_SAFE_INTEGER 9007199254740991u /* what Pi's tools pass for "no limit" */

/* Length of the sequence a lead byte starts, and the range its second byte must be in; 0 for no
 * lead byte. */
static size_t sequence_length(unsigned char lead, unsigned char *low, unsigned char *high)
{
    *low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    *high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (lead < 0x80)
        return 1;
    if (lead >= 0xc2 && lead <= 0xdf)
        return 2;
    if (lead >= 0xe0 && lead <= 0xef)
        return 3;
    if (lead >= 0xf0 && lead <= 0xf4)
        return 4;
    return 0;
}

/* How many bytes at p (n > 0 of them) belong together; *complete says whether they are a code
   point, and when they are not, *cut whether only the end of the input is missing. */
static size_t sequence_at(const unsigned char *p, size_t n, bool *complete, bool *cut)
{
    unsigned char low, high;
    size_t want = sequence_length(p[0], &low, &high);
    *complete = *cut = false;
    size_t have = 1;
    while (have < want && have < n && p[have] >= low && p[have] <= high) {
        low = 0x80;
        high = 0xbf;
        have++;
    }
    *complete = have == want;
    *cut = !*complete && want > 0 && have == n;
    return have;
}

static size_t decode_some(const unsigned char *p, size_t n, bool last, struct buf *out)
{
    size_t at = 0;
    while (at < n) {
        size_t ascii = at;
        while (ascii < n && p[ascii] < 0x80)
            ascii++;
        buf_add(out, p + at, ascii - at);
        at = ascii;
        if (at == n)
            break;
        bool complete, cut;
        size_t used = sequence_at(p + at, n - at, &complete, &cut);
        if (complete)
            buf_add(out, p + at, used);
        else if (cut && !last)
            break;
        else
            buf_add_c(out, REPLACEMENT);
        at += used;
    }
    return at;
}

void text_decode(struct text_decoder *d, struct str bytes, struct buf *out)
{
    size_t at = 0;
    while (d->held_n > 0 && at < bytes.n) {
        d->held[d->held_n++] = (unsigned char)bytes.p[at++];
        size_t used = decode_some(d->held, d->held_n, false, out);
        if (used == d->held_n) {
            d->held_n = 0;
        } else if (used > 0) { /* the new byte starts a sequence of its own */
            d->held[0] = d->held[d->held_n - 1];
            d->held_n = 1;
        }
    }
    const unsigned char *p = (const unsigned char *)bytes.p;
    size_t used = at < bytes.n ? decode_some(p + at, bytes.n - at, false, out) : 0;
    at += used;
    for (; at < bytes.n; at++)
        d->held[d->held_n++] = p[at];
}

void text_decode_end(struct text_decoder *d, struct buf *out)
{
    decode_some(d->held, d->held_n, true, out);
    d->held_n = 0;
}

void text_decode_all(struct str bytes, struct buf *out)
{
    decode_some((const unsigned char *)bytes.p, bytes.n, true, out);
}

/* toFixed(1) rounds halves up, where printf rounds them to even: 50.25 is 50.3. */
static const char *with_unit(uint64_t bytes, uint64_t unit, const char *name,
                             char out[TEXT_SIZE_MAX])
{
    uint64_t tenths = (bytes * 10 + unit / 2) / unit;
    snprintf(out, TEXT_SIZE_MAX, "%llu.%llu%s", (unsigned long long)(tenths / 10),
             (unsigned long long)(tenths % 10), name);
    return out;
}

const char *text_size(uint64_t bytes, char out[TEXT_SIZE_MAX])
{
    if (bytes >= 1024 * 1024)
        return with_unit(bytes, (uint64_t)1024 * 1024, "MB", out);
    if (bytes >= 1024)
        return with_unit(bytes, 1024, "KB", out);
    snprintf(out, TEXT_SIZE_MAX, "%dB", (int)bytes);
    return out;
}

const char *text_number(double value, char out[TEXT_NUMBER_MAX])
{
    if (value == trunc(value) && fabs(value) < 1e21) {
        snprintf(out, TEXT_NUMBER_MAX, "%.0f", value == 0 ? 0.0 : value);
        return out;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(out, TEXT_NUMBER_MAX, "%.*g", digits, value);
        if (strtod(out, NULL) == value)
            break;
    }
    return out;
}

/* JavaScript's white space and line terminators. */
static bool is_blank(utf8proc_int32_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r') || c == 0xa0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f ||
           c == 0x205f || c == 0x3000 || c == 0xfeff;
}

struct str text_trim_end(struct str s)
{
    while (s.n > 0) {
        size_t at = s.n - 1;
        while (at > 0 && s.n - at < 4 && ((unsigned char)s.p[at] & 0xc0) == 0x80)
            at--;
        utf8proc_int32_t c;
        if (utf8proc_iterate((const utf8proc_uint8_t *)s.p + at, (utf8proc_ssize_t)(s.n - at), &c) <
                1 ||
            !is_blank(c))
            break;
        s.n = at;
    }
    return s;
}

struct str text_trim(struct str s)
{
    s = text_trim_end(s);
    utf8proc_int32_t c;
    while (s.n > 0) {
        utf8proc_ssize_t n =
            utf8proc_iterate((const utf8proc_uint8_t *)s.p, (utf8proc_ssize_t)s.n, &c);
        if (n < 1 || !is_blank(c))
            break;
        s = (struct str){s.p + n, s.n - (size_t)n};
    }
    return s;
}

void text_lower(struct str s, struct buf *out)
{
    for (size_t at = 0; at < s.n;) {
        utf8proc_int32_t c;
        utf8proc_uint8_t bytes[4];
        utf8proc_ssize_t n =
            utf8proc_iterate((const utf8proc_uint8_t *)s.p + at, (utf8proc_ssize_t)(s.n - at), &c);
        if (n < 1) {
            buf_add_char(out, s.p[at++]);
            continue;
        }
        buf_add(out, bytes, (size_t)utf8proc_encode_char(utf8proc_tolower(c), bytes));
        at += (size_t)n;
    }
}

static char inspect_quote(struct str s)
{
    if (!s.n || !memchr(s.p, '\'', s.n))
        return '\'';
    if (!memchr(s.p, '"', s.n))
        return '"';
    return memchr(s.p, '`', s.n) ? '\'' : '`';
}

void text_inspect(struct str s, struct buf *out)
{
    AUTO_BUF text = {0};
    char quote = inspect_quote(s);
    buf_add_char(&text, quote);
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        const char *short_form = c == '\n'   ? "\\n"
                                 : c == '\t' ? "\\t"
                                 : c == '\r' ? "\\r"
                                 : c == '\b' ? "\\b"
                                 : c == '\f' ? "\\f"
                                 : c == '\v' ? "\\v"
                                 : c == '\\' ? "\\\\"
                                             : NULL;
        if (short_form)
            buf_add_c(&text, short_form);
        else if (c < 0x20 || c == 0x7f)
            buf_printf(&text, "\\x%02X", c);
        else if (c == (unsigned char)quote)
            buf_printf(&text, "\\%c", c);
        else
            buf_add_char(&text, (char)c);
    }
    buf_add_char(&text, quote);
    bool longer = text.n > INSPECT_MAX;
    buf_add(out, text.p, longer ? str_utf8_floor(buf_str(&text), INSPECT_MAX) : text.n);
    if (longer)
        buf_add_c(out, "...");
}

/* Lines as Pi counts them: a trailing LF starts no line. */
static uint64_t count_lines(struct str text)
{
    uint64_t n = 0;
    for (const char *p = text.p, *end = text.p + text.n; p < end; n++) {
        const char *lf = memchr(p, '\n', (size_t)(end - p));
        p = lf ? lf + 1 : end;
    }
    return n;
}

static struct text_truncation whole(struct str text)
{
    struct text_truncation t = {
        .content = text, .total_lines = count_lines(text), .max_lines = TEXT_MAX_LINES};
    t.total_bytes = t.output_bytes = text.n;
    t.output_lines = t.total_lines;
    return t;
}

static struct text_truncation truncate_head(struct str text, uint64_t max_lines)
{
    struct text_truncation t = whole(text);
    t.max_lines = max_lines;
    if (t.total_lines <= max_lines && text.n <= TEXT_MAX_BYTES)
        return t;
    t.truncated = true;
    t.by = TEXT_CUT_LINES;
    const char *lf = memchr(text.p, '\n', text.n);
    if ((lf ? (size_t)(lf - text.p) : text.n) > TEXT_MAX_BYTES) {
        t.by = TEXT_CUT_BYTES;
        t.first_line_exceeds = true;
        t.content = (struct str){text.p, 0};
        t.output_lines = t.output_bytes = 0;
        return t;
    }
    size_t end = 0; /* of the last whole line that fits, without its LF */
    uint64_t lines = 0;
    for (size_t at = 0; lines < t.total_lines && lines < max_lines; lines++) {
        lf = memchr(text.p + at, '\n', text.n - at);
        size_t stop = lf ? (size_t)(lf - text.p) : text.n;
        if (stop > TEXT_MAX_BYTES) {
            t.by = TEXT_CUT_BYTES;
            break;
        }
        end = stop;
        at = stop + 1;
    }
    t.content = (struct str){text.p, end};
    t.output_lines = lines;
    t.output_bytes = end;
    return t;
}

struct text_truncation text_truncate_head(struct str text)
{
    return truncate_head(text, TEXT_MAX_LINES);
}

struct text_truncation text_truncate_head_bytes(struct str text)
{
    return truncate_head(text, MAX_SAFE_INTEGER);
}

/* The last max bytes, from a code point on. */
static struct str tail_bytes(struct str s, size_t max)
{
    size_t start = s.n - max;
    while (start < s.n && ((unsigned char)s.p[start] & 0xc0) == 0x80)
        start++;
    return (struct str){s.p + start, s.n - start};
}

static size_t line_start(struct str text, size_t end)
{
    const char *lf = end ? memrchr(text.p, '\n', end) : NULL;
    return lf ? (size_t)(lf - text.p) + 1 : 0;
}

struct text_truncation text_truncate_tail(struct str text)
{
    struct text_truncation t = whole(text);
    if (t.total_lines <= TEXT_MAX_LINES && text.n <= TEXT_MAX_BYTES)
        return t;
    t.truncated = true;
    t.by = TEXT_CUT_LINES;
    size_t stop = text.p[text.n - 1] == '\n' ? text.n - 1 : text.n; /* end of the content */
    size_t start = stop, end = stop;
    uint64_t lines = 0;
    for (; lines < t.total_lines && lines < TEXT_MAX_LINES; lines++) {
        size_t from = line_start(text, end);
        if (stop - from > TEXT_MAX_BYTES) {
            t.by = TEXT_CUT_BYTES;
            break;
        }
        start = from;
        end = from ? from - 1 : 0;
    }
    t.content = (struct str){text.p + start, stop - start};
    t.output_lines = lines;
    if (lines == 0) { /* even the last line is too long: show its end */
        size_t from = line_start(text, stop);
        t.content = tail_bytes((struct str){text.p + from, stop - from}, TEXT_MAX_BYTES);
        t.output_lines = 1;
        t.last_line_partial = true;
    }
    t.output_bytes = t.content.n;
    return t;
}

json_t *text_truncation_json(const struct text_truncation *t)
{
    json_t *o = json_object();
    json_set_str(o, "content", t->content);
    json_object_set_new(o, "truncated", json_boolean(t->truncated));
    json_object_set_new(o, "truncatedBy",
                        t->by == TEXT_CUT_NONE    ? json_null()
                        : t->by == TEXT_CUT_LINES ? json_string("lines")
                                                  : json_string("bytes"));
    json_object_set_new(o, "totalLines", json_integer((json_int_t)t->total_lines));
    json_object_set_new(o, "totalBytes", json_integer((json_int_t)t->total_bytes));
    json_object_set_new(o, "outputLines", json_integer((json_int_t)t->output_lines));
    json_object_set_new(o, "outputBytes", json_integer((json_int_t)t->output_bytes));
    json_object_set_new(o, "lastLinePartial", json_boolean(t->last_line_partial));
    json_object_set_new(o, "firstLineExceedsLimit", json_boolean(t->first_line_exceeds));
    json_object_set_new(o, "maxLines", json_integer((json_int_t)t->max_lines));
    json_object_set_new(o, "maxBytes", json_integer(TEXT_MAX_BYTES));
    return o;
}
