/* The order of names in a listing: what JavaScript's localeCompare makes of two lower-cased names
   in Pi's locale (ICU root order). Exact for Latin, Greek, Cyrillic and Hebrew letters, marks,
   signs, kana and emoji; other scripts follow by code point. Pure functions, any thread. */
#ifndef HANDS_COLLATE_H
#define HANDS_COLLATE_H

#include "base/buf.h"
#include "base/str.h"

/* Appends the sort key of a name (valid UTF-8) as lower case: two names compare like their keys do
   byte by byte. */
void collate_key(struct str name, struct buf *out);
/* A shorter key sorts before a longer one that begins with it. */
int collate_compare(struct str a, struct str b);

#endif
