/* R10: errors as application/problem+json. The one table from error codes to HTTP status. */
#include "base/log.h"
#include "http/exchange.h"

#include <stdarg.h>

#define PROBLEMS_MAX 64

static const struct {
    int status;
    const char *title;
} statuses[E_COUNT] = {
    [E_INVALID] = {400, "Bad request"},
    [E_UNAUTHORIZED] = {401, "Not authenticated"},
    [E_FORBIDDEN] = {403, "Not allowed"},
    [E_NOT_FOUND] = {404, "Not found"},
    [E_METHOD] = {405, "Method not allowed"},
    [E_CONFLICT] = {409, "Conflict"},
    [E_TOO_LARGE] = {413, "Too large"},
    [E_MEDIA_TYPE] = {415, "Unsupported media type"},
    [E_RANGE] = {416, "Range not satisfiable"},
    [E_UNPROCESSABLE] = {422, "Cannot be processed"},
    [E_QUOTA] = {429, "Too much"},
    [E_INTERNAL] = {500, "Internal error"},
    [E_UNAVAILABLE] = {503, "Not available"},
    [E_IO] = {500, "Internal error"},
    [E_TIMEOUT] = {504, "Timed out"},
    [E_CLOSED] = {500, "Internal error"},
};

static int problem_status(err e)
{
    return e > E_OK && e < E_COUNT ? statuses[e].status : 500;
}

static const char *problem_title(err e)
{
    return e > E_OK && e < E_COUNT ? statuses[e].title : "Internal error";
}

void problem_add(struct ctx *ctx, const char *path, const char *fmt, ...)
{
    struct http_exchange *x = ctx->exchange;
    if (x->problems == NULL)
        x->problems = json_array();
    if (json_array_size(x->problems) >= PROBLEMS_MAX)
        return;
    va_list ap;
    va_start(ap, fmt);
    char *message = arena_vprintf(ctx->arena, fmt, ap);
    va_end(ap);
    json_t *entry = json_object();
    json_set_str(entry, "path", str_of(path));
    json_set_str(entry, "message", str_of(message));
    json_array_append_new(x->problems, entry);
}

/* An internal failure's text may name files, tables or addresses: it goes to the log only. */
static const char *public_detail(struct http_exchange *x, err e)
{
    if (problem_status(e) != 500)
        return err_text();
    log_error("%s %.*s failed: %s", x->method_name ? x->method_name : "?", STR_ARG(x->path),
              err_text());
    return "Something went wrong inside the service. Its log says more under this requestId.";
}

static void add_headers(struct ctx *ctx, err e, const char *code,
                        const struct reply_field *set_before)
{
    for (; set_before; set_before = set_before->next)
        reply_header(ctx, set_before->name, set_before->value);
    if (e == E_UNAUTHORIZED)
        reply_header(ctx, "WWW-Authenticate", "Bearer");
    for (const struct reply_field *f = ctx->exchange->reply.fields; f; f = f->next)
        if (str_is(str_of(f->name), "Retry-After"))
            return;
    if (e == E_QUOTA || e == E_UNAVAILABLE || strcmp(code, CODE_IN_FLIGHT) == 0)
        reply_header(ctx, "Retry-After", "1");
}

void problem_reply(struct http_exchange *x, err e)
{
    struct ctx *ctx = &x->ctx;
    /* Fields like Retry-After or Allow, set before failing, belong to the problem; those of a reply
       that was complete already do not. */
    const struct reply_field *fields = x->reply.set ? NULL : x->reply.fields;
    int status = problem_status(e);
    AUTO_JSON body = json_object();
    const char *code = arena_strdup(ctx->arena, err_code());
    json_object_set_new(
        body, "type", json_str(str_of(arena_printf(ctx->arena, "urn:pi-managed:error:%s", code))));
    json_object_set_new(body, "title", json_string(problem_title(e)));
    json_object_set_new(body, "status", json_integer(status));
    json_set_str(body, "detail", str_of(public_detail(x, e)));
    json_set_str(body, "code", str_of(code));
    json_set_str(body, "requestId", str_of(ctx->request_id));
    if (x->problems)
        json_object_set(body, "errors", x->problems);
    exchange_reset_reply(x);
    add_headers(ctx, e, code, fields);
    reply_bytes(ctx, status, "application/problem+json", json_write_arena(body, ctx->arena));
}
