#include "base/str.h"

bool str_starts(struct str s, struct str prefix)
{
    return s.n >= prefix.n && memcmp(s.p, prefix.p, prefix.n) == 0;
}

bool str_ends(struct str s, struct str suffix)
{
    return s.n >= suffix.n && memcmp(s.p + s.n - suffix.n, suffix.p, suffix.n) == 0;
}

bool str_has_nul(struct str s)
{
    return s.n > 0 && memchr(s.p, 0, s.n) != NULL;
}

/* Length of the well-formed sequence at p (Unicode table 3-7), or 0. */
static size_t utf8_sequence(const unsigned char *p, size_t left)
{
    unsigned char c = p[0];
    if (c < 0x80)
        return 1;
    size_t n = c >= 0xc2 && c <= 0xdf ? 2 : (c & 0xf0) == 0xe0 ? 3 : c >= 0xf0 && c <= 0xf4 ? 4 : 0;
    if (n == 0 || n > left)
        return 0;
    unsigned char lo = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
    unsigned char hi = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
    if (p[1] < lo || p[1] > hi)
        return 0;
    for (size_t i = 2; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    return n;
}

bool str_is_utf8(struct str s)
{
    const unsigned char *p = (const unsigned char *)s.p;
    for (size_t i = 0; i < s.n;) {
        uint64_t eight;
        if (s.n - i >= sizeof eight) { /* most text is plain ASCII */
            memcpy(&eight, p + i, sizeof eight);
            if ((eight & 0x8080808080808080ull) == 0) {
                i += sizeof eight;
                continue;
            }
        }
        size_t n = utf8_sequence(p + i, s.n - i);
        if (n == 0)
            return false;
        i += n;
    }
    return true;
}

size_t str_utf8_floor(struct str s, size_t n)
{
    if (n >= s.n)
        return s.n;
    while (n > 0 && ((unsigned char)s.p[n] & 0xc0) == 0x80)
        n--;
    return n;
}

size_t str_characters(struct str s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++)
        n += ((unsigned char)s.p[i] & 0xc0) != 0x80;
    return n;
}

bool str_has_control(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (c < 0x20 || c == 0x7f)
            return true;
        if (c == 0xc2 && i + 1 < s.n && (unsigned char)s.p[i + 1] < 0xa0) /* U+0080 to U+009F */
            return true;
    }
    return false;
}

bool str_is_name(struct str s, size_t max)
{
    return s.n > 0 && str_is_utf8(s) && !str_has_control(s) && str_characters(s) <= max;
}

bool str_to_u64(struct str s, uint64_t *out)
{
    uint64_t v = 0;
    if (s.n == 0 || s.n > 20)
        return false;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] < '0' || s.p[i] > '9')
            return false;
        if (__builtin_mul_overflow(v, 10u, &v) ||
            __builtin_add_overflow(v, (uint64_t)(s.p[i] - '0'), &v))
            return false;
    }
    *out = v;
    return true;
}

bool str_split(struct str *rest, char sep, struct str *out_part)
{
    if (rest->p == NULL)
        return false;
    const char *hit = memchr(rest->p, sep, rest->n);
    if (hit == NULL) {
        *out_part = *rest;
        *rest = (struct str){0};
        return true;
    }
    *out_part = (struct str){rest->p, (size_t)(hit - rest->p)};
    *rest = (struct str){hit + 1, rest->n - out_part->n - 1};
    return true;
}

uint32_t str_hash(struct str s)
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < s.n; i++)
        h = (h ^ (unsigned char)s.p[i]) * 16777619u;
    return h;
}
