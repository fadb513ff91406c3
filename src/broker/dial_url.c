#include "broker/dial_url.h"

#include "base/arena.h"
#include "base/mem.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <idn2.h>
#include <stdio.h>
#include <strings.h>

#define URL_MAX 8192
#define HOST_MAX DIAL_HOST_MAX
#define COUNT(array) (sizeof(array) / sizeof *(array))

static err refuse(struct str url, const char *why)
{
    size_t n = str_is_utf8(url) ? str_utf8_floor(url, url.n < 120 ? url.n : 120) : 0;
    return fail_as(E_INVALID, "invalid_url", "the address \"%.*s\" is not accepted: %s", (int)n,
                   url.p, why);
}

static err check_bytes(struct str url)
{
    if (url.n > URL_MAX)
        return refuse(url, "it is too long");
    for (size_t i = 0; i < url.n; i++) {
        unsigned char c = (unsigned char)url.p[i];
        if (c <= ' ' || c == 0x7f)
            return refuse(url, "it holds a blank or a control character");
        if (c == '\\')
            return refuse(url, "it holds a backslash");
    }
    return str_is_utf8(url) ? 0 : refuse(url, "it is not UTF-8");
}

static err take_scheme(struct str url, struct str *rest, struct dial_url *out)
{
    static const struct {
        const char *text, *scheme;
        int port;
    } schemes[] = {{"https://", "https", 443}, {"http://", "http", 80}};
    for (size_t i = 0; i < COUNT(schemes); i++) {
        size_t n = strlen(schemes[i].text);
        if (url.n < n || strncasecmp(url.p, schemes[i].text, n) != 0)
            continue;
        out->scheme = schemes[i].scheme;
        out->port = schemes[i].port;
        *rest = (struct str){url.p + n, url.n - n};
        return 0;
    }
    return refuse(url, "it must begin with https:// or http://");
}

static bool parse_port(struct str text, int *out)
{
    uint64_t n;
    if (text.n == 0 || text.n > 5 || !str_to_u64(text, &n) || n == 0 || n > 65535)
        return false;
    *out = (int)n;
    return true;
}

/* Splits host[:port]; brackets around an IPv6 literal go away and are reported. */
static bool split_port(struct str authority, struct str *host, struct str *port, bool *bracketed)
{
    *port = (struct str){0};
    *bracketed = authority.n > 0 && authority.p[0] == '[';
    if (*bracketed) {
        const char *end = memchr(authority.p, ']', authority.n);
        if (end == NULL)
            return false;
        *host = (struct str){authority.p + 1, (size_t)(end - authority.p) - 1};
        struct str after = {end + 1, authority.n - host->n - 2};
        if (after.n && after.p[0] != ':')
            return false;
        if (after.n)
            *port = (struct str){after.p + 1, after.n - 1};
        return true;
    }
    const char *colon = memchr(authority.p ? authority.p : "", ':', authority.n);
    *host = authority;
    if (colon) {
        host->n = (size_t)(colon - authority.p);
        *port = (struct str){colon + 1, authority.n - host->n - 1};
    }
    return true;
}

static bool label_ok(struct str label)
{
    if (label.n == 0 || label.n > 63 || label.p[0] == '-' || label.p[label.n - 1] == '-')
        return false;
    for (size_t i = 0; i < label.n; i++)
        if (!isalnum((unsigned char)label.p[i]) && label.p[i] != '-' && label.p[i] != '_')
            return false;
    return true;
}

/* A last label that is a number is an IPv4 address to some parsers: only the plain dotted form
 * passes. */
static bool looks_numeric(struct str label)
{
    if (label.n > 1 && label.p[0] == '0' && (label.p[1] | 32) == 'x')
        return true;
    for (size_t i = 0; i < label.n; i++)
        if (!isdigit((unsigned char)label.p[i]))
            return false;
    return true;
}

static err check_name(struct str url, const char *host)
{
    struct in_addr v4;
    struct str rest = str_of(host), label = {0};
    if (rest.n == 0 || rest.n > HOST_MAX)
        return refuse(url, "it has no host, or one that is too long");
    while (str_split(&rest, '.', &label))
        if (!label_ok(label))
            return refuse(url, "its host is not a valid name");
    if (looks_numeric(label) && inet_pton(AF_INET, host, &v4) != 1)
        return refuse(url, "its host is a number; write an IPv4 address as four decimal parts");
    return 0;
}

static err check_literal6(struct str url, const char *host)
{
    struct in6_addr v6;
    if (inet_pton(AF_INET6, host, &v6) != 1)
        return refuse(url, "its host is not a valid IPv6 address");
    return 0;
}

static bool is_ascii(struct str s)
{
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] >= 0x80)
            return false;
    return true;
}

/* The host in lower case, a name beyond ASCII by IDNA: full-width digits and ideographic dots
   become plain ones here, and are judged as such. */
static err ascii_host(struct str url, struct str host, struct arena *a, char **out)
{
    char *lower = arena_alloc(a, host.n + 1), *name = NULL;
    memcpy(lower, host.p ? host.p : "", host.n);
    lower[host.n] = 0;
    if (!is_ascii(host)) {
        const int flags = IDN2_NFC_INPUT | IDN2_NONTRANSITIONAL;
        if (idn2_lookup_u8((const uint8_t *)lower, (uint8_t **)&name, flags) != IDN2_OK)
            return refuse(url, "its host is not a valid international name");
        lower = arena_strdup(a, name);
        idn2_free(name);
    }
    for (char *p = lower; *p; p++)
        *p = (char)tolower((unsigned char)*p);
    *out = lower;
    return 0;
}

static err take_authority(struct str url, struct str authority, struct arena *a,
                          struct dial_url *out)
{
    struct str host, port;
    bool bracketed;
    if (authority.n && memchr(authority.p, '@', authority.n))
        return refuse(url, "it holds a user name or password");
    if (authority.n && memchr(authority.p, '%', authority.n))
        return refuse(url, "its host holds a percent sign");
    if (!split_port(authority, &host, &port, &bracketed))
        return refuse(url, "its host is not complete");
    if (port.p && !parse_port(port, &out->port))
        return refuse(url, "its port is not a number from 1 to 65535");
    char *lower = NULL;
    TRY(ascii_host(url, host, a, &lower));
    out->host = lower;
    return bracketed ? check_literal6(url, lower) : check_name(url, lower);
}

/* Path and query as they stand, without the fragment; beyond ASCII they are percent-encoded. */
static const char *encode_path(struct str path, struct arena *a)
{
    const char *fragment = path.n ? memchr(path.p, '#', path.n) : NULL;
    if (fragment)
        path.n = (size_t)(fragment - path.p);
    char *out = arena_alloc(a, size_add(size_mul(path.n, 3), 2)), *at = out;
    if (path.n == 0 || path.p[0] != '/')
        *at++ = '/';
    for (size_t i = 0; i < path.n; i++) {
        unsigned char c = (unsigned char)path.p[i];
        if (c < 0x80)
            *at++ = (char)c;
        else
            at += snprintf(at, 4, "%%%02X", c);
    }
    *at = 0;
    return out;
}

err dial_parse(struct str url, struct arena *a, struct dial_url *out)
{
    struct str rest = {0};
    struct dial_url u = {0};
    TRY(check_bytes(url));
    TRY(take_scheme(url, &rest, &u));
    size_t n = 0;
    while (n < rest.n && rest.p[n] != '/' && rest.p[n] != '?' && rest.p[n] != '#')
        n++;
    TRY(take_authority(url, (struct str){rest.p, n}, a, &u));
    u.path = encode_path((struct str){rest.p + n, rest.n - n}, a);
    *out = u;
    return 0;
}

const char *dial_text(const struct dial_url *u, struct arena *a)
{
    bool v6 = strchr(u->host, ':') != NULL;
    return arena_printf(a, v6 ? "%s://[%s]:%d%s" : "%s://%s:%d%s", u->scheme, u->host, u->port,
                        u->path);
}

bool dial_split_host(struct str text, struct str *out_host, int *out_port)
{
    struct str port;
    bool bracketed;
    *out_port = 0;
    return split_port(text, out_host, &port, &bracketed) && out_host->n > 0 &&
           out_host->n <= HOST_MAX && (port.p == NULL || parse_port(port, out_port));
}

bool dial_same_origin(const struct dial_url *a, const struct dial_url *b)
{
    return strcmp(a->scheme, b->scheme) == 0 && strcmp(a->host, b->host) == 0 && a->port == b->port;
}

/* Redirects */

static bool has_scheme(struct str s)
{
    size_t n = 0;
    while (n < s.n && (isalnum((unsigned char)s.p[n]) || strchr("+-.", s.p[n])))
        n++;
    return n > 0 && n < s.n && s.p[n] == ':' && isalpha((unsigned char)s.p[0]);
}

/* RFC 3986 §5.2.4 on a path in place; a query behind it stays. */
static void remove_dots(char *path)
{
    size_t end = strcspn(path, "?"), out = 0;
    for (size_t at = 0; at < end;) {
        size_t n = 1 + strcspn(path + at + 1, "/?"); /* with its leading slash */
        bool last = at + n >= end;
        if (n == 2 && path[at + 1] == '.') {
            if (last)
                path[out++] = '/';
        } else if (n == 3 && path[at + 1] == '.' && path[at + 2] == '.') {
            while (out > 0 && path[--out] != '/')
                ;
            if (last)
                path[out++] = '/';
        } else {
            memmove(path + out, path + at, n);
            out += n;
        }
        at += n;
    }
    memmove(path + out, path + end, strlen(path + end) + 1);
}

/* A Location without scheme and host, put behind those of `base`. */
static const char *join_path(const struct dial_url *base, struct str location, struct arena *a)
{
    size_t query = strcspn(base->path, "?"), keep = query;
    if (location.n == 0 || location.p[0] == '#')
        keep = strlen(base->path);
    else if (location.p[0] == '/')
        keep = 0;
    else if (location.p[0] != '?')
        while (keep > 0 && base->path[keep - 1] != '/')
            keep--;
    char *path = arena_printf(a, "%.*s%.*s", (int)keep, base->path, STR_ARG(location));
    remove_dots(path);
    struct dial_url joined = *base;
    joined.path = path;
    return dial_text(&joined, a);
}

err dial_join(const struct dial_url *base, struct str location, struct arena *a,
              struct dial_url *out)
{
    struct dial_url next;
    TRY(check_bytes(location));
    const char *text;
    if (has_scheme(location))
        text = arena_str(a, location).p;
    else if (str_starts(location, STR("//")))
        text = arena_printf(a, "%s:%.*s", base->scheme, STR_ARG(location));
    else
        text = join_path(base, location, a);
    TRY(dial_parse(str_of(text), a, &next));
    if (strcmp(base->scheme, "https") == 0 && strcmp(next.scheme, "https") != 0)
        return fail_as(E_FORBIDDEN, "address_not_allowed",
                       "a redirect from https to plain http (%s) is not followed", next.host);
    *out = next;
    return 0;
}
