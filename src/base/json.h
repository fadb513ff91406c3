/* JSON by jansson, with our limits: UTF-8 only, no duplicate keys, NUL kept in strings, depth <= 64
   (R13). Reading: json_read(). Writing: json_write() (compact). Getters that never fail on absence.
   A json_t is reference counted; AUTO_JSON drops it at the end of the block. One thread at a time.
 */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include "base/buf.h"
#include "base/err.h"

#include <jansson.h>

struct arena;

#define JSON_DEPTH_MAX 64

static inline void json_cleanup(json_t **j)
{
    json_decref(*j);
}
#define AUTO_JSON __attribute__((cleanup(json_cleanup))) json_t *

/* E_INVALID (code invalid_json) with line and column. *out is the caller's. Any value may be at the
 * top. */
err json_read(struct str text, json_t **out);
/* The same for lines that our own processes wrote, which must not become unreadable by what a model
   said: nested to any depth the library bears; where it bears no less, whole numbers beyond 64 bits
   become reals and NUL becomes U+FFFD (in names of members it cannot be kept). */
err json_read_log(struct str line, json_t **out);
/* Compact, no escapes beyond what JSON demands, one line (so it can be a JSONL line or SSE data).
 */
void json_write(const json_t *j, struct buf *out);
struct str json_write_arena(const json_t *j, struct arena *a);

/* Member of an object; NULL or an empty default when absent or of another type. Borrowed. */
struct str json_get_str(const json_t *object, const char *key); /* p == NULL when absent */
const char *json_get_c(const json_t *object, const char *key);  /* NULL when absent */
int64_t json_get_int(const json_t *object, const char *key, int64_t otherwise);
double json_get_real(const json_t *object, const char *key, double otherwise);
bool json_get_bool(const json_t *object, const char *key, bool otherwise);
/* Sets a string member from bytes that are valid UTF-8 (invalid ones become U+FFFD). NUL is kept.
 */
void json_set_str(json_t *object, const char *key, struct str value);
json_t *json_str(struct str value); /* new reference, same treatment */
/* R16 time, or null when ms < 0. */
void json_set_time(json_t *object, const char *key, int64_t wall_ms);

/* An object written member by member, without a tree, for what is answered often: the bytes are
   those of json_write. The caller writes the braces; `key` needs no escapes. */
void json_text_key(struct buf *out, const char *key); /* the value is the caller's next */
void json_text_str(struct buf *out, const char *key, const char *utf8); /* NULL: null */
void json_text_int(struct buf *out, const char *key, int64_t value);
void json_text_real(struct buf *out, const char *key, double value); /* finite */
void json_text_bool(struct buf *out, const char *key, bool value);
void json_text_time(struct buf *out, const char *key, int64_t wall_ms); /* as json_set_time */
/* JSON that was written before, as it is; NULL: null. */
void json_text_raw(struct buf *out, const char *key, const char *json);

#endif
