#include "http/guard.h"

#include "http/exchange.h"

#include <string.h>
#include <strings.h>

#define CODE "bad_request_headers"

/* Fields of which a second one would leave open which of them counts. */
static const char *const single_fields[] = {
    "Host",         "Content-Length",  "Transfer-Encoding", "Authorization",
    "Content-Type", "Idempotency-Key", "Last-Event-ID",     "X-Request-Id",
    "Expect",       "Origin",          "Upgrade",
};
#define SINGLE_COUNT (sizeof single_fields / sizeof single_fields[0])

static bool is_tchar(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != 0 && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

static bool name_is(struct str name, const char *other)
{
    return name.n == strlen(other) && strncasecmp(name.p, other, name.n) == 0;
}

static err check_name(struct str name)
{
    bool ok = name.n > 0;
    for (size_t i = 0; i < name.n && ok; i++)
        ok = is_tchar(name.p[i]);
    return ok ? 0 : fail_as(E_INVALID, CODE, "a header name holds a character that is not allowed");
}

static err check_value(struct str name, struct str value)
{
    for (size_t i = 0; i < value.n; i++) {
        unsigned char c = (unsigned char)value.p[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f)
            return fail_as(E_INVALID, CODE, "the header %.*s holds a control character",
                           STR_ARG(name));
    }
    return 0;
}

static err count_single(struct str name, unsigned counts[SINGLE_COUNT])
{
    for (size_t i = 0; i < SINGLE_COUNT; i++)
        if (name_is(name, single_fields[i]) && ++counts[i] > 1)
            return fail_as(E_INVALID, CODE, "the header %s is given more than once",
                           single_fields[i]);
    return 0;
}

static err check_framing(const unsigned counts[SINGLE_COUNT])
{
    if (counts[0] != 1)
        return fail_as(E_INVALID, CODE, "a request needs a Host header");
    if (counts[1] && counts[2])
        return fail_as(E_INVALID, CODE,
                       "Content-Length and Transfer-Encoding cannot be given together");
    return 0;
}

#define LINE_END 2 /* CR LF */

void guard_head_line(struct guard_head *h, struct str method, struct str target, struct str version)
{
    h->gap = version.p != method.p + method.n + 1 + target.n + 1; /* two blanks */
    h->next = version.p + version.n + LINE_END;
}

void guard_head_field(struct guard_head *h, struct str name, struct str value)
{
    h->gap |= name.p != h->next || value.p == NULL || value.p < name.p + name.n + 1; /* the colon */
    h->next = value.p ? value.p + value.n + LINE_END : name.p;
}

bool guard_head_is_whole(const struct guard_head *h, const char *end)
{
    return !h->gap && h->next + LINE_END == end;
}

err guard_head_refused(void)
{
    return fail_as(E_INVALID, CODE,
                   "the request's head holds a NUL, a folded line, or a line that does not end in "
                   "CR LF");
}

err guard_check(const struct http_field *fields, size_t count)
{
    unsigned counts[SINGLE_COUNT] = {0};
    size_t bytes = 0;
    if (count > GUARD_FIELDS_MAX)
        return fail_as(E_INVALID, CODE, "more than %d header fields", GUARD_FIELDS_MAX);
    for (size_t i = 0; i < count; i++) {
        struct str name = fields[i].name, value = fields[i].value;
        bytes += name.n + value.n;
        if (bytes > GUARD_BYTES_MAX)
            return fail_as(E_INVALID, CODE, "more than %d bytes of headers", GUARD_BYTES_MAX);
        TRY(check_name(name));
        TRY(check_value(name, value));
        TRY(count_single(name, counts));
        if (name_is(name, "Transfer-Encoding") &&
            !(value.n == 7 && strncasecmp(value.p, "chunked", 7) == 0))
            return fail_as(E_INVALID, CODE, "the only Transfer-Encoding taken is chunked");
    }
    return check_framing(counts);
}
