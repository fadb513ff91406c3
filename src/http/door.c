/* What every request passes before its handler: the guard, routing, authentication's outcome,
   scope, query, paging, media type, body limit and the form of the idempotency key. Decisions only;
   the library is http.c's. The order is the order of the status codes a client sees: 400 for a
   request that is not HTTP as we take it, 404, 405, 401, 403, then 400, 415, 413. */
#include "base/mem.h"
#include "http/bucket.h"
#include "http/exchange.h"
#include "http/guard.h"
#include "http/route.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MAX_WAIT_S 3600

static const struct http_field *find_field(const struct http_exchange *x, const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < x->field_count; i++)
        if (x->fields[i].name.n == n && strncasecmp(x->fields[i].name.p, name, n) == 0)
            return &x->fields[i];
    return NULL;
}

struct str ctx_header(const struct ctx *ctx, const char *name)
{
    const struct http_field *f = find_field(ctx->exchange, name);
    return f ? f->value : (struct str){0};
}

struct str ctx_query(const struct ctx *ctx, const char *name)
{
    for (size_t i = 0; i < ctx->query_count; i++)
        if (str_is(ctx->queries[i].name, name))
            return ctx->queries[i].value;
    return (struct str){0};
}

static bool is_safe_id(struct str s)
{
    if (s.n == 0 || s.n >= HTTP_REQUEST_ID_MAX)
        return false;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '-' || c == '_' || c == '.'))
            return false;
    }
    return true;
}

void door_request_id(struct http_exchange *x)
{
    struct str own = ctx_header(&x->ctx, "X-Request-Id");
    if (is_safe_id(own) && !x->head_unclear) {
        memcpy(x->ctx.request_id, own.p, own.n);
        x->ctx.request_id[own.n] = 0;
    }
}

static err read_framing(struct http_exchange *x)
{
    const struct http_field *length = find_field(x, "Content-Length");
    const struct http_field *expect = find_field(x, "Expect");
    x->chunked = find_field(x, "Transfer-Encoding") != NULL;
    if (length && !str_to_u64(length->value, &x->body_length))
        return fail_as(E_INVALID, "bad_request_headers", "Content-Length is not a number");
    x->has_body = x->chunked || x->body_length > 0;
    if (expect == NULL)
        return 0;
    if (expect->value.n != 12 || strncasecmp(expect->value.p, "100-continue", 12) != 0)
        return fail_as(E_INVALID, "bad_request_headers", "the only Expect taken is 100-continue");
    x->expects_continue = true;
    return 0;
}

/* The decoded path, for logs, idempotency and cursors: one spelling for each resource. */
static struct str join_path(struct arena *a, const struct route_path *path)
{
    size_t n = 0;
    for (size_t i = 0; i < path->count; i++)
        n += path->segments[i].n + 1;
    char *text = arena_alloc(a, n + 1), *at = text;
    for (size_t i = 0; i < path->count; i++) {
        *at++ = '/';
        if (path->segments[i].n)
            memcpy(at, path->segments[i].p, path->segments[i].n);
        at += path->segments[i].n;
    }
    return (struct str){text, n};
}

static err find_route(struct http_exchange *x, const struct route_path *path)
{
    struct ctx *ctx = &x->ctx;
    ctx->method = route_method(x->method_name);
    struct route_match match;
    route_find(x->options->tables, path, ctx->method, &match);
    if (match.methods == 0)
        return fail(E_NOT_FOUND, "there is nothing at this path");
    if (match.route) {
        ctx->route = match.route;
        memcpy(ctx->params, match.params, sizeof match.params);
        return 0;
    }
    reply_header(ctx, "Allow", route_allow(ctx->arena, match.methods));
    if (strcmp(x->method_name, "OPTIONS") == 0)
        return reply_empty(ctx, 204);
    return fail(E_METHOD, "this path does not take %.16s", x->method_name);
}

/* The token of "Authorization: Bearer …"; p NULL when there is no such header. */
static err read_token(struct http_exchange *x)
{
    struct str value = ctx_header(&x->ctx, "Authorization");
    if (value.p == NULL)
        return fail(E_UNAUTHORIZED, "an API key is needed: Authorization: Bearer pmk_…");
    if (value.n < 7 || strncasecmp(value.p, "Bearer ", 7) != 0)
        return fail(E_UNAUTHORIZED, "the Authorization scheme must be Bearer");
    struct str token = {value.p + 7, value.n - 7};
    while (token.n && token.p[0] == ' ')
        token = (struct str){token.p + 1, token.n - 1};
    if (token.n == 0)
        return fail(E_UNAUTHORIZED, "the Authorization header holds no API key");
    x->token = token;
    return 0;
}

err door_open(struct http_exchange *x)
{
    x->close_after = true; /* until this is passed, where the body ends is anyone's guess */
    if (x->head_unclear)
        return guard_head_refused();
    TRY(guard_check(x->fields, x->field_count));
    TRY(read_framing(x));
    x->close_after = false;
    struct route_path path;
    TRY(route_split(x->ctx.arena, x->ctx.target, &path, &x->raw_query));
    x->path = join_path(x->ctx.arena, &path);
    TRY(find_route(x, &path));
    if (x->reply.set || x->ctx.route->scope == SCOPE_NONE)
        return 0;
    return read_token(x);
}

uint64_t ctx_body_length(const struct ctx *ctx)
{
    return ctx->exchange->body_length;
}

uint64_t door_body_max(const struct http_exchange *x)
{
    const struct route *row = x->ctx.route;
    return row->upload ? x->options->upload_max : row->body_max;
}

static err check_media_type(struct http_exchange *x)
{
    const struct upload *upload = x->ctx.route->upload;
    const char *want = upload ? upload->media_type : "application/json";
    struct str type = ctx_header(&x->ctx, "Content-Type");
    size_t n = 0;
    while (n < type.n && type.p[n] != ';' && type.p[n] != ' ')
        n++;
    if (n != strlen(want) || strncasecmp(type.p, want, n) != 0)
        return fail(E_MEDIA_TYPE, "the body must be sent as Content-Type: %s", want);
    if (upload)
        return 0;
    struct str charset = {type.p + n, type.n - n};
    for (size_t i = 0; i + 8 <= charset.n; i++) {
        if (strncasecmp(charset.p + i, "charset=", 8) != 0)
            continue;
        struct str value = {charset.p + i + 8, charset.n - i - 8};
        if (value.n && value.p[0] == '"')
            value = (struct str){value.p + 1, value.n - 1};
        if (value.n < 5 || strncasecmp(value.p, "utf-8", 5) != 0)
            return fail(E_MEDIA_TYPE, "JSON is taken as UTF-8 only");
    }
    return 0;
}

static err check_body(struct http_exchange *x)
{
    uint64_t most = door_body_max(x);
    if (!x->has_body)
        return 0;
    if (most == 0)
        return fail(E_INVALID, "this endpoint takes no body");
    struct str encoding = ctx_header(&x->ctx, "Content-Encoding");
    if (encoding.n && !(encoding.n == 8 && strncasecmp(encoding.p, "identity", 8) == 0))
        return fail(E_MEDIA_TYPE, "bodies are taken without Content-Encoding only");
    TRY(check_media_type(x));
    if (x->body_length > most)
        return fail(E_TOO_LARGE, "the body is larger than %llu bytes", (unsigned long long)most);
    return 0;
}

static err check_idempotency_key(struct http_exchange *x)
{
    struct str value = ctx_header(&x->ctx, "Idempotency-Key");
    if (!x->ctx.route->idempotent || value.p == NULL)
        return 0;
    return idempotency_key_read(x->ctx.arena, value, &x->idempotency_key);
}

/* Whether a comma-separated list holds the token, in any case. */
static bool list_has(struct str list, const char *token)
{
    struct str part;
    size_t n = strlen(token);
    while (str_split(&list, ',', &part)) {
        while (part.n && (part.p[0] == ' ' || part.p[0] == '\t'))
            part = (struct str){part.p + 1, part.n - 1};
        while (part.n && (part.p[part.n - 1] == ' ' || part.p[part.n - 1] == '\t'))
            part.n--;
        if (part.n == n && strncasecmp(part.p, token, n) == 0)
            return true;
    }
    return false;
}

static err check_upgrade(struct http_exchange *x)
{
    const char *wanted = x->ctx.route->upgrade;
    if (wanted == NULL || (list_has(ctx_header(&x->ctx, "Connection"), "upgrade") &&
                           list_has(ctx_header(&x->ctx, "Upgrade"), wanted)))
        return 0;
    reply_header(&x->ctx, "Upgrade", wanted);
    return fail_as(E_INVALID, "upgrade_required",
                   "this endpoint leaves HTTP: it needs Connection: Upgrade and Upgrade: %s",
                   wanted);
}

/* Before anything is looked at that costs more than this. */
static err check_rate(struct http_exchange *x, const struct http_auth *auth)
{
    int64_t wait_ms = 0;
    if (!auth->limited ||
        buckets_take(http_buckets(x->server), auth->tenant, auth->requests_per_minute,
                     clock_monotonic_ms(x->options->clock), &wait_ms))
        return 0;
    int64_t wait_s = wait_ms < MAX_WAIT_S * 1000 ? (wait_ms + 999) / 1000 : MAX_WAIT_S;
    reply_header(&x->ctx, "Retry-After",
                 arena_printf(x->ctx.arena, "%lld", (long long)(wait_s > 0 ? wait_s : 1)));
    return fail_as(E_QUOTA, "rate_limited",
                   "the tenant makes more than its %.0f requests a minute: try again in %lld s",
                   auth->requests_per_minute, (long long)(wait_s > 0 ? wait_s : 1));
}

err door_admit(struct http_exchange *x, const struct http_auth *auth)
{
    struct ctx *ctx = &x->ctx;
    if (auth) {
        memcpy(ctx->tenant, auth->tenant, sizeof ctx->tenant);
        memcpy(ctx->key_id, auth->key_id, sizeof ctx->key_id);
        ctx->scope = auth->scope;
        TRY(check_rate(x, auth));
        if (auth->scope < ctx->route->scope)
            return fail(E_FORBIDDEN, "this needs an API key with the scope %s",
                        ctx->route->scope == SCOPE_ADMIN ? "admin" : "write");
    }
    TRY(query_parse(ctx->arena, x->raw_query, &ctx->queries, &ctx->query_count));
    TRY(query_check(ctx->route, ctx->queries, ctx->query_count));
    if (ctx->route->list)
        TRY(page_read(x));
    TRY(check_idempotency_key(x));
    TRY(check_body(x));
    return check_upgrade(x);
}

err door_upload(struct http_exchange *x)
{
    return x->body.n ? x->ctx.route->upload->write(&x->ctx, buf_str(&x->body)) : 0;
}

err door_body(struct http_exchange *x)
{
    if (x->ctx.route->upload) {
        TRY(door_upload(x));
        return x->ctx.route->upload->end(&x->ctx, x->fingerprint);
    }
    x->ctx.body = buf_str(&x->body);
    if (x->body.n == 0)
        return 0;
    return json_read(x->ctx.body, &x->ctx.json);
}
