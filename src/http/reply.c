/* The life of an exchange and its reply, which is put together in the request's arena; http.c sends
 * it. */
#include "base/log.h"
#include "base/mem.h"
#include "http/exchange.h"

struct http_exchange *exchange_new(struct http_server *server, const struct http_options *options,
                                   struct str target)
{
    struct http_exchange *x = mem_alloc(sizeof *x);
    struct ctx *ctx = &x->ctx;
    x->magic = EXCHANGE_MAGIC;
    x->server = server;
    x->options = options;
    ctx->arena = arena_new();
    ctx->clock = options->clock;
    ctx->service = options->service;
    ctx->exchange = x;
    ctx->target = arena_str(ctx->arena, target);
    id_new("req", clock_wall_ms(ctx->clock), ctx->request_id);
    x->began_ms = clock_monotonic_ms(ctx->clock);
    exchange_reset_reply(x);
    return x;
}

void exchange_free(struct http_exchange *x)
{
    if (x == NULL)
        return;
    CHECK(x, EXCHANGE_MAGIC);
    exchange_reset_reply(x); /* a stream that was never sent still has to be closed */
    if (x->ctx.upload)
        x->ctx.route->upload->closed(x->ctx.upload);
    json_decref(x->problems);
    json_decref(x->ctx.json);
    buf_done(&x->body);
    arena_free(x->ctx.arena);
    x->magic = 0;
    mem_free(x);
}

void exchange_run(struct http_exchange *x)
{
    log_bind(x->ctx.request_id, NULL);
    err e = door_body(x);
    if (!e && x->idempotency_key)
        e = idempotency_run(http_idempotency(x->server), x);
    else if (!e)
        e = x->ctx.route->handler(&x->ctx);
    if (!e && !x->reply.set)
        e = fail(E_INTERNAL, "the handler of %s set no reply", x->ctx.route->path);
    if (e)
        problem_reply(x, e);
    log_bind(NULL, NULL);
}

static struct http_exchange *exchange_of(const struct ctx *ctx)
{
    CHECK(ctx->exchange, EXCHANGE_MAGIC);
    return ctx->exchange;
}

void exchange_reset_reply(struct http_exchange *x)
{
    if (x->reply.stream)
        http_stream_free(x->reply.stream);
    if (x->reply.upgraded)
        http_upgraded_drop(x->reply.upgraded);
    x->reply = (struct http_reply){0};
    x->reply.fields_end = &x->reply.fields;
}

void reply_header(struct ctx *ctx, const char *name, const char *value)
{
    struct http_exchange *x = exchange_of(ctx);
    struct reply_field *f = arena_alloc(ctx->arena, sizeof *f);
    *f = (struct reply_field){.name = arena_strdup(ctx->arena, name),
                              .value = arena_strdup(ctx->arena, value)};
    *x->reply.fields_end = f;
    x->reply.fields_end = &f->next;
}

static void set_reply(struct ctx *ctx, int status, const char *content_type, struct str body)
{
    struct http_exchange *x = exchange_of(ctx);
    assert(!x->reply.set); /* a handler replies once */
    x->reply.set = true;
    x->reply.status = status;
    x->reply.content_type = content_type ? arena_strdup(ctx->arena, content_type) : NULL;
    x->reply.body = body;
}

err reply_json(struct ctx *ctx, int status, json_t *take_body)
{
    struct str text = json_write_arena(take_body, ctx->arena);
    json_decref(take_body);
    set_reply(ctx, status, "application/json", text);
    return 0;
}

err reply_json_text(struct ctx *ctx, int status, struct str json)
{
    return reply_bytes(ctx, status, "application/json", json);
}

err reply_empty(struct ctx *ctx, int status)
{
    set_reply(ctx, status, NULL, (struct str){0});
    return 0;
}

err reply_bytes(struct ctx *ctx, int status, const char *content_type, struct str body)
{
    set_reply(ctx, status, content_type, arena_str(ctx->arena, body));
    return 0;
}

err reply_sized(struct ctx *ctx, int status, const char *content_type, uint64_t size,
                struct http_source source)
{
    struct http_exchange *x = exchange_of(ctx);
    set_reply(ctx, status, content_type, (struct str){0});
    x->reply.sized = true;
    x->reply.size = size;
    x->reply.stream = http_stream_new(x, source, false);
    return 0;
}

err reply_stream(struct ctx *ctx, const char *content_type, struct http_source source,
                 struct http_stream **out)
{
    struct http_exchange *x = exchange_of(ctx);
    set_reply(ctx, 200, content_type, (struct str){0});
    x->reply.stream = http_stream_new(x, source, str_is(str_of(content_type), "text/event-stream"));
    *out = x->reply.stream;
    return 0;
}
