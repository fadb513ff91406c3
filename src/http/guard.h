/* The request guard: refuses what a parser in front of us might read differently (request
   smuggling). The library checks lengths and chunks in its strict mode; this walks the header
   fields once: names are tokens, values hold no control characters, exactly one Host, at most one
   of Content-Length and Transfer-Encoding, the latter exactly `chunked`, no second copy of a field
   that decides something. Pure, any thread. */
#ifndef HTTP_GUARD_H
#define HTTP_GUARD_H

#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>

#define GUARD_FIELDS_MAX 64
#define GUARD_BYTES_MAX 8192

struct http_field;

/* E_INVALID (code bad_request_headers) saying what is wrong. */
err guard_check(const struct http_field *fields, size_t count);

#endif
