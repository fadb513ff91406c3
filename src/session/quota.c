/* Plans, limits and counters. */
#include "session/quota.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"

#define PLAN_NAME_MAX 64

static const char *const names[QUOTA_KINDS] = {
    [QUOTA_CONCURRENT_SESSIONS] = "concurrentSessions",
    [QUOTA_CONCURRENT_SANDBOXES] = "concurrentSandboxes",
    [QUOTA_JOBS] = "jobs",
    [QUOTA_VAULT_CREDENTIALS] = "vaultCredentials",
    [QUOTA_MEMORY_STORES] = "memoryStores",
    [QUOTA_FILE_STORAGE_BYTES] = "fileStorageBytes",
    [QUOTA_MONTHLY_TOKENS] = "monthlyTokens",
    [QUOTA_REQUESTS_PER_MINUTE] = "requestsPerMinute",
    [QUOTA_DAILY_USD] = "dailyUsd",
};

const char *quota_name(enum quota_kind kind)
{
    return names[kind];
}

enum quota_kind quota_of(struct str name)
{
    enum quota_kind kind = 0;
    while (kind < QUOTA_KINDS && !str_is(name, names[kind]))
        kind++;
    return kind;
}

/* ---- limits ---- */

static const char sql_limits[] =
    "SELECT p.limits, t.limits FROM tenants t JOIN quota_plans p ON p.name = t.plan"
    " WHERE t.id = $1";

static void read_limits(struct str text, struct quota_limits *out)
{
    AUTO_JSON limits = NULL;
    if (text.n == 0 || json_read(text, &limits))
        return;
    for (enum quota_kind kind = 0; kind < QUOTA_KINDS; kind++) {
        const json_t *limit = json_object_get(limits, names[kind]);
        if (json_is_number(limit))
            out->of[kind] = json_number_value(limit);
        else if (json_is_null(limit)) /* a tenant's own: no limit, whatever the plan says */
            out->of[kind] = -1;
    }
}

err quota_limits(struct db_conn *c, const char *tenant, struct quota_limits *out)
{
    struct quota_limits limits;
    struct db_rows *r;
    for (enum quota_kind kind = 0; kind < QUOTA_KINDS; kind++)
        limits.of[kind] = -1;
    TRY(db_query(c, sql_limits, DB_ARGS(DB_C(tenant)), &r));
    bool found = db_next(r);
    if (found) {
        read_limits(db_str(r, 0), &limits);
        read_limits(db_str(r, 1), &limits);
    }
    TRY(db_rows_done(r));
    if (!found)
        return fail(E_NOT_FOUND, "there is no tenant %s", tenant);
    *out = limits;
    return 0;
}

/* ---- counters ---- */

static const char sql_take[] =
    "INSERT INTO quota_usage (tenant_id, kind, used) VALUES ($1, $2, $3)"
    " ON CONFLICT (tenant_id, kind) DO UPDATE SET used = quota_usage.used + excluded.used"
    " WHERE quota_usage.tenant_id = $1 AND quota_usage.used + excluded.used <= $4";
static const char sql_give[] =
    "UPDATE quota_usage SET used = CASE WHEN used > $3 THEN used - $3 ELSE 0 END"
    " WHERE tenant_id = $1 AND kind = $2";
static const char sql_used[] = "SELECT used FROM quota_usage WHERE tenant_id = $1 AND kind = $2";

static err limit_of(struct db_conn *c, const char *tenant, enum quota_kind kind, int64_t *out)
{
    struct quota_limits limits;
    TRY(quota_limits(c, tenant, &limits));
    double limit = limits.of[kind];
    *out = limit < 0 || limit >= 9e15 ? INT64_MAX / 2 : (int64_t)limit;
    return 0;
}

err quota_exceeded(enum quota_kind kind, int64_t limit)
{
    return fail_as(E_QUOTA, "quota_exceeded",
                   "the tenant's limit of %s is reached (%lld). Free some, or have it raised",
                   names[kind], (long long)limit);
}

err quota_take(struct db_conn *c, const char *tenant, enum quota_kind kind, int64_t n)
{
    int64_t limit, changed = 0;
    TRY(limit_of(c, tenant, kind, &limit));
    if (n > limit)
        return quota_exceeded(kind, limit);
    TRY(db_exec(c, sql_take, DB_ARGS(DB_C(tenant), DB_C(names[kind]), DB_I(n), DB_I(limit)),
                &changed));
    return changed ? 0 : quota_exceeded(kind, limit);
}

err quota_add(struct db_conn *c, const char *tenant, enum quota_kind kind, int64_t n)
{
    return db_exec(c, sql_take, DB_ARGS(DB_C(tenant), DB_C(names[kind]), DB_I(n), DB_I(INT64_MAX)),
                   NULL);
}

err quota_give(struct db_conn *c, const char *tenant, enum quota_kind kind, int64_t n)
{
    return db_exec(c, sql_give, DB_ARGS(DB_C(tenant), DB_C(names[kind]), DB_I(n)), NULL);
}

err quota_used(struct db_conn *c, const char *tenant, enum quota_kind kind, int64_t *out)
{
    struct db_rows *r;
    TRY(db_query(c, sql_used, DB_ARGS(DB_C(tenant), DB_C(names[kind])), &r));
    int64_t used = db_next(r) ? db_int(r, 0) : 0;
    TRY(db_rows_done(r));
    *out = used;
    return 0;
}

err quota_check(struct db_conn *c, const char *tenant, enum quota_kind kind, int64_t n)
{
    int64_t limit, used;
    TRY(limit_of(c, tenant, kind, &limit));
    TRY(quota_used(c, tenant, kind, &used));
    return n > limit || used > limit - n ? quota_exceeded(kind, limit) : 0;
}

/* ---- recounting ---- */

static const char sql_count_sessions[] =
    "/* all tenants */ INSERT INTO quota_usage (tenant_id, kind, used)"
    " SELECT t.id, 'concurrentSessions', (SELECT COUNT(*) FROM sessions s"
    " WHERE s.tenant_id = t.id AND s.deleted_at IS NULL) FROM tenants t WHERE 1 = 1"
    " ON CONFLICT (tenant_id, kind) DO UPDATE SET used = excluded.used";

static const char sql_count_files[] =
    "/* all tenants */ INSERT INTO quota_usage (tenant_id, kind, used)"
    " SELECT t.id, 'fileStorageBytes', (SELECT COALESCE(SUM(size), 0) FROM files f"
    " WHERE f.tenant_id = t.id AND f.state = 'ready') + (SELECT COALESCE(SUM(bytes), 0)"
    " FROM volumes v WHERE v.tenant_id = t.id AND v.state = 'ready') FROM tenants t WHERE 1 = 1"
    " ON CONFLICT (tenant_id, kind) DO UPDATE SET used = excluded.used";

static const char sql_count_credentials[] =
    "/* all tenants */ INSERT INTO quota_usage (tenant_id, kind, used)"
    " SELECT t.id, 'vaultCredentials', (SELECT COUNT(*) FROM credentials c"
    " WHERE c.tenant_id = t.id AND c.archived_at IS NULL) FROM tenants t WHERE 1 = 1"
    " ON CONFLICT (tenant_id, kind) DO UPDATE SET used = excluded.used";

static err recount(struct db_conn *c, void *arg)
{
    (void)arg;
    TRY(db_exec(c, sql_count_credentials, DB_NO_ARGS, NULL));
    TRY(db_exec(c, sql_count_sessions, DB_NO_ARGS, NULL));
    return db_exec(c, sql_count_files, DB_NO_ARGS, NULL);
}

err quota_recount(struct db *db)
{
    return db_write(db, recount, NULL);
}

/* ---- plans ---- */

static const char sql_plan[] = "SELECT limits, features FROM quota_plans WHERE name = $1";
static const char sql_plans[] = "SELECT name FROM quota_plans ORDER BY name";
static const char sql_plan_put[] =
    "INSERT INTO quota_plans (name, limits, features, updated_at) VALUES ($1, $2, $3, $4)"
    " ON CONFLICT (name) DO UPDATE SET limits = excluded.limits, features = excluded.features,"
    " updated_at = excluded.updated_at";
static const char sql_tenant[] = "SELECT plan, limits FROM tenants WHERE id = $1";
static const char sql_tenant_set[] = "UPDATE tenants SET plan = COALESCE($2, plan),"
                                     " limits = COALESCE($3, limits) WHERE id = $1";

err quota_plan_find(struct db_conn *c, const char *name, struct quota_plan *out)
{
    struct quota_plan plan = {.name = name};
    struct db_rows *r;
    TRY(db_query(c, sql_plan, DB_ARGS(DB_C(name)), &r));
    bool found = db_next(r);
    err e = 0;
    if (found)
        e = json_read(db_str(r, 0), &plan.limits);
    if (found && !e)
        e = json_read(db_str(r, 1), &plan.features);
    err done = db_rows_done(r);
    if (!e && !done && !found)
        e = fail_as(E_NOT_FOUND, "plan_not_found", "there is no plan %.64s", name);
    if (e || done) {
        json_decref(plan.limits);
        json_decref(plan.features);
        return e ? e : done;
    }
    *out = plan;
    return 0;
}

err quota_tenant_plan(struct db_conn *c, struct arena *a, const char *tenant, const char **out_plan,
                      json_t **out_own)
{
    struct db_rows *r;
    TRY(db_query(c, sql_tenant, DB_ARGS(DB_C(tenant)), &r));
    bool found = db_next(r);
    const char *plan = found ? db_text(r, 0, a) : NULL;
    const char *own = found ? db_text(r, 1, a) : NULL;
    TRY(db_rows_done(r));
    if (!found)
        return fail(E_NOT_FOUND, "there is no tenant %s", tenant);
    TRY(json_read(str_of(own ? own : "{}"), out_own));
    *out_plan = plan;
    return 0;
}

err quota_plan_list(struct db_conn *c, struct arena *a, const char ***out, size_t *out_n)
{
    const char **list = NULL;
    size_t n = 0, room = 0;
    struct db_rows *r;
    TRY(db_query(c, sql_plans, DB_NO_ARGS, &r));
    while (db_next(r)) {
        if (n == room) {
            room = room ? size_mul(room, 2) : 8;
            const char **more = arena_alloc(a, size_mul(room, sizeof *more));
            if (n)
                memcpy(more, list, n * sizeof *list);
            list = more;
        }
        list[n++] = db_text(r, 0, a);
    }
    TRY(db_rows_done(r));
    *out = list;
    *out_n = n;
    return 0;
}

/* `none`: null is allowed, and means no limit. */
static err check_limits(const json_t *limits, bool none)
{
    const char *name;
    json_t *limit;
    json_object_foreach((json_t *)limits, name, limit)
    {
        if (quota_of(str_of(name)) == QUOTA_KINDS)
            return fail(E_INVALID, "there is no limit called %.64s", name);
        bool ok =
            json_is_number(limit) ? json_number_value(limit) >= 0 : none && json_is_null(limit);
        if (!ok)
            return fail(E_INVALID, "the limit %s must be a number from 0 on", name);
    }
    return 0;
}

err quota_plan_put(struct db_conn *c, const char *name, const json_t *limits,
                   const json_t *features)
{
    AUTO_BUF limits_text = {0}, features_text = {0};
    if (!str_is_name(str_of(name), PLAN_NAME_MAX))
        return fail(E_INVALID, "a plan's name has 1 to %d characters and no control characters",
                    PLAN_NAME_MAX);
    TRY(check_limits(limits, false));
    json_write(limits, &limits_text);
    json_write(features, &features_text);
    return db_exec(c, sql_plan_put,
                   DB_ARGS(DB_C(name), DB_S(buf_str(&limits_text)), DB_S(buf_str(&features_text)),
                           DB_I(clock_wall_ms(clock_real()))),
                   NULL);
}

err quota_tenant_set(struct db_conn *c, const char *tenant, const char *plan,
                     const json_t *own_limits)
{
    AUTO_BUF text = {0};
    int64_t changed = 0;
    if (plan) {
        struct quota_plan found;
        TRY(quota_plan_find(c, plan, &found));
        json_decref(found.limits);
        json_decref(found.features);
    }
    if (own_limits) {
        TRY(check_limits(own_limits, true));
        json_write(own_limits, &text);
    }
    TRY(db_exec(c, sql_tenant_set,
                DB_ARGS(DB_C(tenant), DB_C(plan), own_limits ? DB_S(buf_str(&text)) : DB_N),
                &changed));
    return changed ? 0 : fail(E_NOT_FOUND, "there is no tenant %s", tenant);
}
