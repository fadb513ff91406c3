/* R15: identifiers, a prefix and 26 characters of Crockford base32: 48 bits of milliseconds, then
   80 random bits. Ids made later sort later (to the millisecond). Any thread. */
#ifndef BASE_ID_H
#define BASE_ID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

#define ID_MAX 48 /* bytes for any id with its NUL */

/* Prefix without the underscore, e.g. "sess". `out` has ID_MAX bytes; returns out. */
const char *id_new(const char *prefix, int64_t wall_ms, char *out);
/* The same with given low bits (LOG.md: event ids derive theirs from the log line). */
const char *id_make(const char *prefix, int64_t wall_ms, const uint8_t low[10], char *out);
/* True if `s` is prefix + '_' + 26 Crockford characters in upper case, first at most '7'. */
bool id_valid(struct str s, const char *prefix);
/* When a valid id was made. */
int64_t id_time_ms(struct str id);

void rand_bytes(void *p, size_t n);

#endif
