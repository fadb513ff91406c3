/* The request guard: refuses what a parser in front of us might read differently (request
   smuggling). The library checks lengths and chunks in its strict mode; this looks whether the head
   is nothing but its lines (guard_head, for libraries that do not) and walks the header fields
   once: names are tokens, values hold no control characters, exactly one Host, at most one of
   Content-Length and Transfer-Encoding, the latter exactly `chunked`, no second copy of a field
   that decides something. Pure, any thread. */
#ifndef HTTP_GUARD_H
#define HTTP_GUARD_H

#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>

#define GUARD_FIELDS_MAX 64
#define GUARD_BYTES_MAX 8192

/* The head of a request where it lies in memory, piece by piece in their order. A parser that ends
   texts at a NUL, takes a bare LF for a line end or joins folded lines leaves bytes that are in no
   piece, and those are what another parser may read. Zero at first. */
struct guard_head {
    const char *next; /* behind the last piece */
    bool gap;
};
/* "method target version" CR LF; of the target only its length counts. */
void guard_head_line(struct guard_head *h, struct str method, struct str target,
                     struct str version);
/* "name:value" CR LF */
void guard_head_field(struct guard_head *h, struct str name, struct str value);
/* Whether there was no gap, and one empty line is all that is left. */
bool guard_head_is_whole(const struct guard_head *h, const char *end);
err guard_head_refused(void);

struct http_field;

/* E_INVALID (code bad_request_headers) saying what is wrong. */
err guard_check(const struct http_field *fields, size_t count);

#endif
