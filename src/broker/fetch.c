#include "broker/fetch.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/fd.h"
#include "broker/upstream.h"

#include <string.h>

#define READ_BLOCK (16u << 10)

static err fetch_failed(void)
{
    struct err_slot why;
    err_save(&why);
    return fail_as(E_UNAVAILABLE, "fetch_failed", "%s", why.text);
}

/* 300 and 304 are answers; the others with a Location lead on. */
static const char *redirect_of(const struct upstream *u, int status)
{
    static const int redirects[] = {301, 302, 303, 307, 308};
    for (size_t i = 0; i < sizeof redirects / sizeof *redirects; i++)
        if (status == redirects[i])
            return upstream_header(u, "location");
    return NULL;
}

static err read_body(struct upstream *u, size_t max, struct fetch_result *out)
{
    char part[READ_BLOCK];
    for (size_t n;;) {
        TRY(upstream_read(u, part, sizeof part, &n));
        size_t room = max - out->body.n;
        buf_add(&out->body, part, n < room ? n : room);
        out->truncated = n > room;
        if (n == 0 || out->truncated)
            return 0;
    }
}

/* One hop on a connection of its own. *out_next is the Location of a redirect, or NULL. */
static err ask(const struct fetch_options *o, const struct dial_url *url, bool with_key,
               int64_t deadline_ms, struct arena *a, struct fetch_result *out,
               const char **out_next)
{
    AUTO_FD fd = -1;
    int64_t left_ms = deadline_ms - clock_monotonic_ms(clock_real());
    struct upstream_options options = {.url = *url,
                                       .get = true,
                                       .headers = o->headers,
                                       .header_count = o->header_count,
                                       .auth_header = o->auth_header,
                                       .auth_prefix = o->auth_prefix,
                                       .key = with_key ? o->key : NULL,
                                       .host_fd = -1,
                                       .wake_fd = o->wake_fd,
                                       .deadline_ms = deadline_ms,
                                       .ca_file = o->ca_file};
    TRY(dial_connect(o->guard, o->policy, url, left_ms > 0 ? left_ms : 0, o->wake_fd, &fd));
    struct upstream *u;
    TRY(upstream_open(&options, fd_take(&fd), &u));
    struct fetch_hop *hop = &out->hops[out->hop_count - 1];
    err e = upstream_head(u, &hop->status);
    const char *next = e || o->stay ? NULL : redirect_of(u, hop->status), *type = NULL;
    if (!e && next == NULL) {
        type = upstream_header(u, "content-type");
        e = read_body(u, o->body_max, out);
    }
    *out_next = next ? arena_strdup(a, next) : NULL;
    out->content_type = type ? arena_strdup(a, type) : NULL;
    upstream_close(u);
    return e == E_UNAVAILABLE ? fetch_failed() : e;
}

err fetch_get(const struct fetch_options *options, struct str url, struct arena *a,
              struct fetch_result *out)
{
    struct dial_url first, at;
    int64_t deadline_ms = clock_monotonic_ms(clock_real()) + options->timeout_ms;
    TRY(dial_parse(url, a, &first));
    at = first;
    for (;;) {
        const char *location;
        out->hops[out->hop_count++] = (struct fetch_hop){.url = dial_text(&at, a)};
        TRY(ask(options, &at, dial_same_origin(&first, &at), deadline_ms, a, out, &location));
        if (location == NULL)
            return 0;
        if (out->hop_count > DIAL_HOPS_MAX)
            return fail_as(E_FORBIDDEN, "too_many_redirects", "%s redirects more than %d times",
                           first.host, DIAL_HOPS_MAX);
        struct dial_url next;
        TRY(dial_join(&at, str_of(location), a, &next));
        at = next;
    }
}
