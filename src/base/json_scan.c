/* One grammar for checking, slicing and making values: `out` NULL only checks. */
#include "base/json_scan.h"

#include "base/buf.h"
#include "base/json.h"

#include <stdlib.h>

#define DEPTH_MAX 128 /* as deep as it recurses; json.h goes deeper */
#define DIGITS_MAX 18 /* fit 64 bits whatever they are */
#define NUMBER_MAX 40 /* bytes of a number */

struct scan {
    const char *p, *end;
    bool unique;
    unsigned depth_max;
};

static bool value(struct scan *s, unsigned depth, json_t **out);

static void blanks(struct scan *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\n' || *s->p == '\r'))
        s->p++;
}

static bool take(struct scan *s, char c)
{
    if (s->p == s->end || *s->p != c)
        return false;
    s->p++;
    return true;
}

/* ---- strings ---- */

#define ONES 0x0101010101010101ull
#define HIGHS 0x8080808080808080ull

/* Eight bytes at once: is a quote, a backslash or a control character among them? */
static bool any_special(const char *p)
{
    uint64_t x;
    memcpy(&x, p, sizeof x);
    uint64_t quote = x ^ ONES * '"', backslash = x ^ ONES * '\\';
    return (((quote - ONES) & ~quote) | ((backslash - ONES) & ~backslash) |
            ((x - ONES * 0x20) & ~x)) &
           HIGHS;
}

/* To the next byte that does not stand for itself. */
static void skip_plain(struct scan *s)
{
    while (s->end - s->p >= 8 && !any_special(s->p))
        s->p += 8;
    while (s->p < s->end && (unsigned char)*s->p >= 0x20 && *s->p != '"' && *s->p != '\\')
        s->p++;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Four hexadecimal digits; -1 if they are not. */
static int32_t hex4(struct scan *s)
{
    int32_t v = 0;
    if (s->end - s->p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(*s->p++);
        if (digit < 0)
            return -1;
        v = v * 16 + digit;
    }
    return v;
}

/* Behind \u: a code point, of a pair of surrogates if need be; -1 if it is none. */
static int32_t code_point(struct scan *s)
{
    int32_t high = hex4(s);
    if (high < 0xd800 || high > 0xdfff)
        return high;
    if (high > 0xdbff || !take(s, '\\') || !take(s, 'u'))
        return -1;
    int32_t low = hex4(s);
    return low < 0xdc00 || low > 0xdfff ? -1 : 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
}

static void add_code_point(struct buf *out, uint32_t c)
{
    char bytes[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char first[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n; i-- > 1; c >>= 6)
        bytes[i] = (char)(0x80 | (c & 0x3f));
    bytes[0] = (char)(first[n] | c);
    buf_add(out, bytes, n);
}

/* Behind a backslash. */
static bool escape(struct scan *s, struct buf *out)
{
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    if (s->p == s->end)
        return false;
    char c = *s->p++;
    if (c == 'u') {
        int32_t code = code_point(s);
        if (code >= 0 && out)
            add_code_point(out, (uint32_t)code);
        return code >= 0;
    }
    const char *at = c ? strchr(letters, c) : NULL;
    if (at && out)
        buf_add_char(out, meant[at - letters]);
    return at != NULL;
}

/* The rest of a string in which escapes are; what stood before `run` is in *out. */
static bool escaped_rest(struct scan *s, struct buf *out)
{
    for (;;) {
        const char *run = s->p;
        skip_plain(s);
        if (out)
            buf_add(out, run, (size_t)(s->p - run));
        if (take(s, '"'))
            return true;
        if (!take(s, '\\') || !escape(s, out))
            return false;
    }
}

/* Behind the opening quote. */
static bool string(struct scan *s, json_t **out)
{
    const char *start = s->p;
    skip_plain(s);
    if (take(s, '"')) {
        if (out)
            *out = json_stringn_nocheck(start, (size_t)(s->p - 1 - start));
        return true;
    }
    s->p = start;
    AUTO_BUF text = {0};
    if (!escaped_rest(s, out ? &text : NULL))
        return false;
    if (out)
        *out = json_stringn_nocheck(text.n ? text.p : "", text.n);
    return true;
}

/* ---- numbers and words ---- */

static size_t digits(struct scan *s)
{
    const char *start = s->p;
    while (s->p < s->end && *s->p >= '0' && *s->p <= '9')
        s->p++;
    return (size_t)(s->p - start);
}

/* .5, e10, or nothing; *out_real says whether there was any of it. */
static bool fraction(struct scan *s, bool *out_real)
{
    *out_real = false;
    if (take(s, '.')) {
        *out_real = true;
        if (digits(s) == 0)
            return false;
    }
    if (s->p < s->end && (*s->p | 0x20) == 'e') {
        *out_real = true;
        s->p++;
        if (!take(s, '-'))
            take(s, '+');
        size_t n = digits(s);
        return n == 1 || n == 2; /* never out of range, together with the digits before it */
    }
    return true;
}

static json_t *number_value(const char *start, size_t n, bool real)
{
    char text[NUMBER_MAX + 1], *end;
    memcpy(text, start, n);
    text[n] = 0;
    json_t *j = real ? json_real(strtod(text, &end)) : json_integer(strtoll(text, &end, 10));
    if (*end == 0)
        return j;
    json_decref(j); /* a locale with another decimal point */
    return NULL;
}

static bool number(struct scan *s, json_t **out)
{
    const char *start = s->p;
    take(s, '-');
    const char *first = s->p;
    size_t n = digits(s);
    bool real;
    if (n == 0 || n > DIGITS_MAX || (n > 1 && *first == '0') || !fraction(s, &real))
        return false;
    size_t length = (size_t)(s->p - start);
    if (length > NUMBER_MAX)
        return false;
    return out == NULL || (*out = number_value(start, length, real)) != NULL;
}

/* The three words are values that live for ever: no reference to them is counted. */
static bool word(struct scan *s, const char *text, json_t *meaning, json_t **out)
{
    size_t n = strlen(text);
    if ((size_t)(s->end - s->p) < n || memcmp(s->p, text, n) != 0)
        return false;
    s->p += n;
    if (out)
        *out = meaning;
    return true;
}

/* ---- objects and arrays ---- */

/* "name": with the blanks around it. */
static bool member_name(struct scan *s, struct str *out)
{
    blanks(s);
    if (!take(s, '"'))
        return false;
    out->p = s->p;
    skip_plain(s);
    out->n = (size_t)(s->p - out->p);
    if (!take(s, '"'))
        return false;
    blanks(s);
    return take(s, ':');
}

/* After a member or an item: a comma (*out_more) or the end. */
static bool comma_or_end(struct scan *s, char end, bool *out_more)
{
    blanks(s);
    *out_more = take(s, ',');
    return *out_more || take(s, end);
}

static bool member(struct scan *s, unsigned depth, json_t *object)
{
    struct str name;
    json_t *v = NULL;
    if (!member_name(s, &name))
        return false;
    if (object && s->unique && json_object_getn(object, name.p, name.n))
        return false;
    if (!value(s, depth, object ? &v : NULL))
        return false;
    return object == NULL || json_object_setn_new_nocheck(object, name.p, name.n, v) == 0;
}

static bool members(struct scan *s, unsigned depth, json_t *object)
{
    blanks(s);
    if (take(s, '}'))
        return true;
    for (bool more = true; more;)
        if (!member(s, depth, object) || !comma_or_end(s, '}', &more))
            return false;
    return true;
}

static bool items(struct scan *s, unsigned depth, json_t *array)
{
    blanks(s);
    if (take(s, ']'))
        return true;
    for (bool more = true; more;) {
        json_t *v = NULL;
        if (!value(s, depth, array ? &v : NULL))
            return false;
        if (array)
            json_array_append_new(array, v);
        if (!comma_or_end(s, ']', &more))
            return false;
    }
    return true;
}

typedef bool (*content_fn)(struct scan *s, unsigned depth, json_t *container);

static bool container(struct scan *s, unsigned depth, content_fn content, json_t *take_empty,
                      json_t **out)
{
    if (depth < s->depth_max && content(s, depth + 1, take_empty)) {
        if (out)
            *out = take_empty;
        return true;
    }
    json_decref(take_empty);
    return false;
}

static bool value(struct scan *s, unsigned depth, json_t **out)
{
    blanks(s);
    if (s->p == s->end)
        return false;
    if (take(s, '"'))
        return string(s, out);
    if (take(s, '{'))
        return container(s, depth, members, out ? json_object() : NULL, out);
    if (take(s, '['))
        return container(s, depth, items, out ? json_array() : NULL, out);
    if (*s->p == 't')
        return word(s, "true", json_true(), out);
    if (*s->p == 'f')
        return word(s, "false", json_false(), out);
    if (*s->p == 'n')
        return word(s, "null", json_null(), out);
    return number(s, out);
}

/* ---- what others use ---- */

static struct scan scan_of(struct str text)
{
    return (struct scan){.p = text.p, .end = text.p + text.n, .depth_max = DEPTH_MAX};
}

static bool is_over(struct scan *s)
{
    blanks(s);
    return s->p == s->end;
}

/* A value, as it stands. */
static bool slice(struct scan *s, struct str *out)
{
    blanks(s);
    const char *start = s->p;
    if (!value(s, 1, NULL))
        return false;
    *out = (struct str){start, (size_t)(s->p - start)};
    return true;
}

bool json_scan_members(struct str object, const char *const *names, size_t n,
                       struct str *out_values)
{
    struct scan s = scan_of(object);
    for (size_t i = 0; i < n; i++)
        out_values[i] = (struct str){0};
    blanks(&s);
    if (!take(&s, '{'))
        return false;
    blanks(&s);
    if (take(&s, '}'))
        return is_over(&s);
    for (bool more = true; more;) {
        struct str name, found;
        if (!member_name(&s, &name) || !slice(&s, &found) || !comma_or_end(&s, '}', &more))
            return false;
        for (size_t i = 0; i < n; i++)
            if (str_is(name, names[i]))
                out_values[i] = found;
    }
    return is_over(&s);
}

bool json_scan_items(struct str array, json_scan_fn fn, void *arg)
{
    struct scan s = scan_of(array);
    blanks(&s);
    if (!take(&s, '['))
        return false;
    blanks(&s);
    if (take(&s, ']'))
        return is_over(&s);
    for (bool more = true; more;) {
        struct str found;
        if (!slice(&s, &found) || !comma_or_end(&s, ']', &more))
            return false;
        if (!fn(arg, found))
            return true;
    }
    return is_over(&s);
}

bool json_scan_text(struct str text, struct str *out)
{
    *out = (struct str){0};
    if (text.n < 2 || text.p[0] != '"')
        return true;
    *out = (struct str){text.p + 1, text.n - 2};
    return memchr(out->p, '\\', out->n) == NULL;
}

json_t *json_scan_read(struct str text, bool unique)
{
    struct scan s = scan_of(text);
    s.unique = unique;
    if (unique)
        s.depth_max = JSON_DEPTH_MAX;
    json_t *j = NULL;
    if (text.n == 0 || !str_is_utf8(text) || !value(&s, 0, &j))
        return NULL;
    if (is_over(&s))
        return j;
    json_decref(j);
    return NULL;
}
