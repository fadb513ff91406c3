#include "http/route.h"

#include <string.h>

#define CODE "bad_target"

static const char *const method_names[] = {
    [GET] = "GET", [POST] = "POST", [PATCH] = "PATCH", [DELETE] = "DELETE", [PUT] = "PUT",
};

enum http_method route_method(const char *name)
{
    for (enum http_method m = GET; m <= PUT; m++)
        if (strcmp(name, method_names[m]) == 0)
            return m;
    return strcmp(name, "HEAD") == 0 ? GET : 0;
}

const char *route_allow(struct arena *a, unsigned methods)
{
    const char *list = "OPTIONS";
    for (enum http_method m = PUT; m >= GET; m--) {
        if (methods & 1u << m)
            list = arena_printf(a, "%s%s, %s", method_names[m], m == GET ? ", HEAD" : "", list);
    }
    return list;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

err route_decode(struct arena *a, struct str raw, bool plus_is_blank, struct str *out)
{
    char *text = arena_alloc(a, raw.n + 1);
    size_t n = 0;
    for (size_t i = 0; i < raw.n; i++) {
        char c = raw.p[i];
        if (c == '%') {
            int high = i + 2 < raw.n ? hex_value(raw.p[i + 1]) : -1;
            int low = high >= 0 ? hex_value(raw.p[i + 2]) : -1;
            if (low < 0)
                return fail_as(E_INVALID, CODE, "the request target holds a bad %% escape");
            c = (char)(high << 4 | low);
            i += 2;
        } else if (c == '+' && plus_is_blank) {
            c = ' ';
        }
        if (c == 0)
            return fail_as(E_INVALID, CODE, "the request target holds %%00");
        text[n++] = c;
    }
    if (!str_is_utf8((struct str){text, n}))
        return fail_as(E_INVALID, CODE, "the request target is not UTF-8");
    *out = (struct str){text, n};
    return 0;
}

static err decode_segment(struct arena *a, struct str raw, struct str *out)
{
    struct str decoded = {0};
    TRY(route_decode(a, raw, false, &decoded));
    if (decoded.n && memchr(decoded.p, '/', decoded.n))
        return fail_as(E_INVALID, CODE, "the request target holds %%2F");
    *out = decoded;
    return 0;
}

static err check_bytes(struct str target)
{
    if (target.n == 0 || target.p[0] != '/')
        return fail_as(E_INVALID, CODE, "the request target must start with a slash");
    for (size_t i = 0; i < target.n; i++) {
        unsigned char c = (unsigned char)target.p[i];
        if (c <= 0x20 || c >= 0x7f || c == '#')
            return fail_as(E_INVALID, CODE,
                           "the request target holds a character that must be escaped");
    }
    return 0;
}

err route_split(struct arena *a, struct str target, struct route_path *out, struct str *out_query)
{
    TRY(check_bytes(target));
    const char *mark = memchr(target.p, '?', target.n);
    size_t path_n = mark ? (size_t)(mark - target.p) : target.n;
    struct str rest = {target.p + 1, path_n - 1}, part;
    struct route_path path = {0};
    bool too_many = false;
    bool last = false;
    while (!last) {
        const char *slash = rest.n ? memchr(rest.p, '/', rest.n) : NULL;
        last = slash == NULL;
        part = (struct str){rest.p, last ? rest.n : (size_t)(slash - rest.p)};
        struct str decoded;
        TRY(decode_segment(a, part, &decoded));
        if (path.count < ROUTE_SEGMENTS_MAX)
            path.segments[path.count++] = decoded;
        else
            too_many = true;
        if (!last)
            rest = (struct str){slash + 1, rest.n - part.n - 1};
    }
    if (too_many)
        return fail(E_NOT_FOUND, "there is nothing at this path");
    *out = path;
    *out_query = mark ? (struct str){mark + 1, target.n - path_n - 1} : (struct str){0};
    return 0;
}

/* Compares a row's pattern with the path; fills params on a match. */
static bool matches(const char *pattern, const struct route_path *path,
                    struct str params[HTTP_PARAMS_MAX])
{
    size_t param = 0, i = 0;
    const char *p = pattern;
    while (*p == '/') {
        p++;
        if (i == path->count)
            return false;
        struct str segment = path->segments[i++];
        if (*p == ':') {
            if (segment.n == 0 || param == HTTP_PARAMS_MAX)
                return false;
            params[param++] = segment;
            p += strcspn(p, "/");
        } else if (strncmp(p, segment.n ? segment.p : "", segment.n) == 0) {
            p += segment.n;
        } else {
            return false;
        }
    }
    return *p == 0 && i == path->count;
}

static bool has_params(const char *pattern)
{
    return strchr(pattern, ':') != NULL;
}

void route_find(const struct route *const *tables, const struct route_path *path,
                enum http_method method, struct route_match *out)
{
    *out = (struct route_match){0};
    for (; *tables; tables++) {
        for (const struct route *row = *tables; row->path; row++) {
            struct str params[HTTP_PARAMS_MAX] = {0};
            if (!matches(row->path, path, params))
                continue;
            out->methods |= 1u << row->method;
            /* A literal row ("/v1/files/limits") wins over one with a parameter there. */
            if (row->method != method || (out->route && has_params(row->path)))
                continue;
            out->route = row;
            memcpy(out->params, params, sizeof params);
        }
    }
}
