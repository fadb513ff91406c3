/* GET /v1/tenant (§8.12): who the key speaks for, what it may use and what it uses. */
#include "api/routes.h"
#include "api/rows.h"
#include "api/service.h"
#include "session/quota.h"
#include "session/spend.h"
#include "session/store.h"

static const char sql_tenant[] = "SELECT name, created_at FROM tenants WHERE id = $1";

struct view {
    struct ctx *ctx;
    json_t *body;
};

static err add_names(struct db_conn *c, struct view *v)
{
    struct db_rows *r;
    TRY(db_query(c, sql_tenant, DB_ARGS(DB_C(v->ctx->tenant)), &r));
    if (db_next(r)) {
        json_set_str(v->body, "id", str_of(v->ctx->tenant));
        json_set_str(v->body, "type", STR("tenant"));
        json_set_str(v->body, "name", db_str(r, 0));
        json_set_time(v->body, "createdAt", row_time(r, 1));
    }
    return db_rows_done(r);
}

static err add_plan(struct db_conn *c, struct view *v)
{
    struct quota_plan plan;
    const char *name;
    json_t *own = NULL;
    TRY(quota_tenant_plan(c, v->ctx->arena, v->ctx->tenant, &name, &own));
    json_decref(own);
    TRY(quota_plan_find(c, name, &plan));
    json_decref(plan.limits);
    json_set_str(v->body, "quotaPlan", str_of(plan.name));
    json_object_set_new(v->body, "features", plan.features);
    return 0;
}

/* null: nobody counts it (a rate), or not here. */
static err used_json(struct ctx *ctx, struct db_conn *c, enum quota_kind kind, json_t **out)
{
    int64_t used;
    double usd;
    const char *tenant = ctx->tenant;
    if (kind == QUOTA_REQUESTS_PER_MINUTE || kind == QUOTA_MONTHLY_TOKENS) {
        *out = json_null();
        return 0;
    }
    if (kind == QUOTA_DAILY_USD) {
        TRY(spend_today(c, tenant, clock_wall_ms(ctx->clock), &usd));
        *out = json_real(usd);
        return 0;
    }
    if (kind == QUOTA_CONCURRENT_SANDBOXES)
        TRY(sessions_count_sandboxes(c, tenant, "", &used));
    else
        TRY(quota_used(c, tenant, kind, &used));
    *out = json_integer(used);
    return 0;
}

static json_t *limit_json(double limit)
{
    if (limit < 0)
        return json_null();
    return limit == (double)(int64_t)limit ? json_integer((int64_t)limit) : json_real(limit);
}

static err add_quotas(struct db_conn *c, struct view *v)
{
    struct quota_limits limits;
    json_t *quotas = json_object();
    json_object_set_new(v->body, "quotas", quotas);
    TRY(quota_limits(c, v->ctx->tenant, &limits));
    for (enum quota_kind kind = 0; kind < QUOTA_KINDS; kind++) {
        json_t *used = NULL;
        TRY(used_json(v->ctx, c, kind, &used));
        json_t *quota = json_object();
        json_object_set_new(quota, "limit", limit_json(limits.of[kind]));
        json_object_set_new(quota, "used", used);
        json_object_set_new(quotas, quota_name(kind), quota);
    }
    return 0;
}

static err read_view(struct db_conn *c, void *arg)
{
    struct view *v = arg;
    TRY(add_names(c, v));
    TRY(add_plan(c, v));
    return add_quotas(c, v);
}

static err tenant_get(struct ctx *ctx)
{
    struct view v = {.ctx = ctx, .body = json_object()};
    err e = db_read(ctx->service->db, read_view, &v);
    if (e) {
        json_decref(v.body);
        return e;
    }
    return reply_json(ctx, 200, v.body);
}

ROUTES(tenant, {GET, "/v1/tenant", tenant_get, .scope = SCOPE_READ}, )
