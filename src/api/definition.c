#include "api/definition.h"

#include "api/service.h"
#include "http/http.h"

static err show(struct ctx *ctx, const struct definition_kind *kind, int status,
                struct definition *d)
{
    return reply_json(ctx, status, kind->show(d));
}

err definition_name_taken(const struct definition_kind *kind, err e, const json_t *body)
{
    if (e != E_CONFLICT)
        return e;
    return fail_as(E_CONFLICT, "name_taken", "there is %s %s named %.128s already", kind->article,
                   kind->noun, json_get_c(body, "name"));
}

static err create_in(struct ctx *ctx, struct db_conn *c, void *arg)
{
    const struct definition_kind *kind = arg;
    int64_t now = clock_wall_ms(ctx->clock);
    struct definition d = {.body = json_object(),
                           .created_at = now,
                           .updated_at = now,
                           .archived_at = -1,
                           .version = 1,
                           .version_created_at = now};
    id_new(kind->id_prefix, now, d.id);
    kind->apply(d.body, ctx->json);
    err e = kind->check(ctx, c, d.body);
    if (!e)
        e = kind->insert(ctx, c, &d);
    if (e) {
        json_decref(d.body);
        return e;
    }
    return show(ctx, kind, 201, &d);
}

err definition_create(struct ctx *ctx, const struct definition_kind *kind)
{
    return ctx_write(ctx, create_in, (void *)kind);
}

static err update(struct ctx *ctx, struct db_conn *c, const struct definition_kind *kind,
                  struct definition *d)
{
    if (d->archived_at >= 0)
        return fail_as(E_CONFLICT, kind->archived_code, "the %s is archived and cannot change",
                       kind->noun);
    return kind->update(ctx, c, d);
}

static err update_in(struct ctx *ctx, struct db_conn *c, void *arg)
{
    const struct definition_kind *kind = arg;
    struct definition d = {0};
    TRY(kind->find(c, ctx->tenant, ctx->params[0], &d));
    err e = update(ctx, c, kind, &d);
    if (e) {
        json_decref(d.body);
        return e;
    }
    return show(ctx, kind, 200, &d);
}

err definition_update(struct ctx *ctx, const struct definition_kind *kind)
{
    return ctx_write(ctx, update_in, (void *)kind);
}

static err find_and_show(struct ctx *ctx, struct db_conn *c, const struct definition_kind *kind)
{
    struct definition d = {0};
    TRY(kind->find(c, ctx->tenant, ctx->params[0], &d));
    return show(ctx, kind, 200, &d);
}

static err archive_in(struct ctx *ctx, struct db_conn *c, void *arg)
{
    const struct definition_kind *kind = arg;
    TRY(db_exec(c, kind->sql_archive,
                DB_ARGS(DB_C(ctx->tenant), DB_S(ctx->params[0]), DB_I(clock_wall_ms(ctx->clock))),
                NULL));
    return find_and_show(ctx, c, kind);
}

err definition_archive(struct ctx *ctx, const struct definition_kind *kind)
{
    return ctx_write(ctx, archive_in, (void *)kind);
}

struct reading {
    struct ctx *ctx;
    const struct definition_kind *kind;
};

static err get_in(struct db_conn *c, void *arg)
{
    const struct reading *r = arg;
    return find_and_show(r->ctx, c, r->kind);
}

err definition_get(struct ctx *ctx, const struct definition_kind *kind)
{
    struct reading r = {ctx, kind};
    return db_read(ctx->service->db, get_in, &r);
}
