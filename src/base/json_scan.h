/* JSON text read where it lies: for long lines of which little is wanted, and for making values of
   the usual kind of text quickly. Everything is checked. What is valid but rare (escapes in names
   of members, numbers beyond 18 digits, deep nesting) counts as "not plain" like what is invalid:
   the caller then asks json.h, which knows. Slices point into the text. Any thread. */
#ifndef BASE_JSON_SCAN_H
#define BASE_JSON_SCAN_H

#include "base/str.h"

#include <jansson.h>

/* The values of the members `names` of an object, as they stand (a string with its quotes); p NULL
   when absent. Of a name that comes twice the last one. False when the text is no plain object.
   It must be UTF-8 (str_is_utf8); a slice of such a text is. */
bool json_scan_members(struct str object, const char *const *names, size_t n,
                       struct str *out_values);
/* Calls fn for each item of an array; fn returns false to stop. False when the text is no plain
   array up to there. UTF-8, too. */
typedef bool (*json_scan_fn)(void *arg, struct str item);
bool json_scan_items(struct str array, json_scan_fn fn, void *arg);
/* What a string says when no escape is in it; p NULL when the value is no string. False when there
   are escapes. */
bool json_scan_text(struct str value, struct str *out);
/* The value that json_read_log makes of it; with `unique` the one of json_read, which refuses
   members of the same name and what is nested deeper than JSON_DEPTH_MAX. NULL when the text is not
   plain. UTF-8 is checked. */
json_t *json_scan_read(struct str text, bool unique);

#endif
