/* R13a: from the raw request target to a route row. The path is split at '/' first and decoded
   segment by segment afterwards, so an escaped slash never makes a new segment; %2F, %00, bad
   escapes and what is not UTF-8 are refused. Pure, any thread. */
#ifndef HTTP_ROUTE_H
#define HTTP_ROUTE_H

#include "http/http.h"

#define ROUTE_SEGMENTS_MAX 16

struct route_path {
    size_t count;
    struct str segments[ROUTE_SEGMENTS_MAX]; /* decoded, in the arena */
};

/* Splits "/a/b?c" into decoded segments and the raw query (p NULL when there is no '?'). E_INVALID
   (code bad_target); E_NOT_FOUND for more segments than any route has. */
err route_split(struct arena *a, struct str target, struct route_path *out, struct str *out_query);

struct route_match {
    const struct route *route; /* NULL: the path is unknown or does not have this method */
    unsigned methods;          /* bit per enum http_method that the path has; 0 = unknown path */
    struct str params[HTTP_PARAMS_MAX];
};
void route_find(const struct route *const *tables, const struct route_path *path,
                enum http_method method, struct route_match *out);

/* 0 for a method no route can have. HEAD is GET. */
enum http_method route_method(const char *name);
/* "GET, HEAD, OPTIONS, POST" for the Allow header. */
const char *route_allow(struct arena *a, unsigned methods);

/* Decodes %XX (and '+' to a blank when plus_is_blank); E_INVALID for bad escapes, NUL or what is
   not UTF-8 afterwards. */
err route_decode(struct arena *a, struct str raw, bool plus_is_blank, struct str *out);

#endif
