/* Strings that know their length and may hold NUL. A struct str borrows its bytes; who owns them is
   said where it is handed out (most often an arena). Pure functions, any thread. */
#ifndef BASE_STR_H
#define BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct str {
    const char *p;
    size_t n;
};

#define STR(literal) ((struct str){.p = "" literal, .n = sizeof(literal) - 1})
#define STR_ARG(s) (int)(s).n, (s).p /* for "%.*s" */

static inline struct str str_of(const char *c)
{
    return (struct str){.p = c, .n = c ? strlen(c) : 0};
}

static inline bool str_eq(struct str a, struct str b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

static inline bool str_is(struct str a, const char *b)
{
    return str_eq(a, str_of(b));
}

bool str_starts(struct str s, struct str prefix);
bool str_ends(struct str s, struct str suffix);
bool str_has_nul(struct str s);
/* Strict UTF-8 (no surrogates, no overlong forms, at most U+10FFFF). */
bool str_is_utf8(struct str s);
/* The largest n' <= n such that the first n' bytes of valid UTF-8 `s` end on a code point. */
size_t str_utf8_floor(struct str s, size_t n);
/* The number of characters (code points) of valid UTF-8. */
size_t str_characters(struct str s);
/* Whether valid UTF-8 has a control character: U+0000 to U+001F, U+007F to U+009F. */
bool str_has_control(struct str s);
/* Any bytes: whether they are 1 to `max` characters of UTF-8 and none of them controls. */
bool str_is_name(struct str s, size_t max);
/* Decimal, digits only, no sign, no blanks; false on overflow or anything else. */
bool str_to_u64(struct str s, uint64_t *out);
/* Splits at the first `sep`: returns the part before, leaves the rest in *rest; false at the end.
 */
bool str_split(struct str *rest, char sep, struct str *out_part);
/* FNV-1a, for tables in memory; whoever chooses the text can make it collide. */
uint32_t str_hash(struct str s);

#endif
