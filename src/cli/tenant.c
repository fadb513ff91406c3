/* pi-managed tenant and plan: who may use the service, and how much of it (§27.3). Rows in the
   database; the service may be running meanwhile and follows within a second. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/keys.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/secret.h"
#include "cli/command.h"
#include "cli/database.h"
#include "session/quota.h"

#define LIMITS_HELP "KIND=N,…: the limits to set; KIND=none for no limit"
#define NUMBER_MAX 32

/* ---- words of the command line ---- */

static const char *kinds(struct arena *a)
{
    const char *all = quota_name(0);
    for (enum quota_kind kind = 1; kind < QUOTA_KINDS; kind++)
        all = arena_printf(a, "%s, %s", all, quota_name(kind));
    return all;
}

static err parse_number(struct str word, struct str name, json_t **out)
{
    char text[NUMBER_MAX], *end;
    if (str_is(word, "none")) {
        *out = json_null();
        return 0;
    }
    snprintf(text, sizeof text, "%.*s", STR_ARG(word));
    double v = strtod(text, &end);
    if (word.n == 0 || word.n >= sizeof text || *end || strspn(text, "0123456789.") != word.n)
        return fail(E_INVALID, "the limit %.*s=%.*s is no number and not none", STR_ARG(name),
                    STR_ARG(word));
    *out = v == (double)(int64_t)v ? json_integer((int64_t)v) : json_real(v);
    return 0;
}

/* "jobs=3,dailyUsd=2.5,memoryStores=none" over what `limits` holds. */
static err parse_limits(struct arena *a, const char *text, json_t *limits)
{
    struct str rest = str_of(text), item;
    while (str_split(&rest, ',', &item)) {
        struct str name, value = item;
        if (memchr(item.p, '=', item.n) == NULL || !str_split(&value, '=', &name))
            return fail(E_INVALID, "--limits takes KIND=N,…; %.*s is none", STR_ARG(item));
        if (quota_of(name) == QUOTA_KINDS)
            return fail(E_INVALID, "there is no limit called %.*s. There are: %s", STR_ARG(name),
                        kinds(a));
        json_t *number = NULL;
        TRY(parse_number(value, name, &number));
        json_object_set_new(limits, quota_name(quota_of(name)), number);
    }
    return 0;
}

static int finish(const struct invocation *call, err e)
{
    return e ? command_fail(call) : 0;
}

/* ---- tenants ---- */

struct tenant_call {
    const char *name, *plan;
    struct key_new key;
};

static err create_tenant(struct db_conn *c, void *arg)
{
    struct tenant_call *t = arg;
    TRY(tenant_insert(c, t->name, t->key.created_at_ms, t->key.tenant));
    TRY(quota_tenant_set(c, t->key.tenant, t->plan, NULL));
    return key_insert(c, &t->key);
}

/* With a first key: a tenant nobody can speak for is of no use. */
static err run_tenant_create(const struct invocation *call)
{
    struct tenant_call t = {.name = call->arguments[0], .plan = option_value(call, "plan")};
    TRY(key_draw("", "first key", SCOPE_ADMIN, clock_wall_ms(clock_real()), &t.key));
    err e = database_write(call, create_tenant, &t);
    if (!e && option_flag(call, "json"))
        database_print(json_pack("{s:s, s:s, s:s}", "tenantId", t.key.tenant, "name", t.name,
                                 "apiKey", t.key.token));
    else if (!e)
        printf("tenant   %s\nAPI key  %s   (shown once)\n", t.key.tenant, t.key.token);
    secret_wipe(&t, sizeof t);
    return e;
}

static err list_tenants(struct db_conn *c, void *arg)
{
    const struct invocation *call = arg;
    AUTO_ARENA a = arena_new();
    struct tenant_row *rows = NULL;
    size_t n = 0;
    TRY(tenant_list(c, a, &rows, &n));
    for (size_t i = 0; i < n; i++) {
        char at[CLOCK_TEXT_MAX];
        clock_format(rows[i].created_at_ms, at);
        if (option_flag(call, "json"))
            database_print(json_pack("{s:s, s:s, s:s}", "id", rows[i].id, "name", rows[i].name,
                                     "createdAt", at));
        else
            printf("%s  %s  %s\n", rows[i].id, at, rows[i].name);
    }
    return 0;
}

static err set_tenant(struct db_conn *c, void *arg)
{
    const struct invocation *call = arg;
    const char *tenant = call->arguments[0], *text = option_value(call, "limits");
    AUTO_ARENA a = arena_new();
    const char *plan;
    json_t *found = NULL;
    if (!id_valid(str_of(tenant), "tenant"))
        return fail(E_INVALID, "%s is no tenant id. See: pi-managed tenant list", tenant);
    TRY(quota_tenant_plan(c, a, tenant, &plan, &found));
    AUTO_JSON own = found;
    if (text)
        TRY(parse_limits(a, text, own));
    return quota_tenant_set(c, tenant, option_value(call, "plan"), own);
}

/* ---- plans ---- */

static err put_plan(struct db_conn *c, void *arg)
{
    const struct invocation *call = arg;
    const char *name = call->arguments[0], *limits_text = option_value(call, "limits"),
               *features_text = option_value(call, "features");
    AUTO_ARENA a = arena_new();
    struct quota_plan plan = {0};
    err e = quota_plan_find(c, name, &plan);
    if (e && e != E_NOT_FOUND)
        return e;
    AUTO_JSON limits = e ? json_object() : plan.limits;
    AUTO_JSON features = e ? json_object() : plan.features;
    if (limits_text)
        TRY(parse_limits(a, limits_text, limits));
    void *next;
    const char *kind;
    json_t *limit;
    json_object_foreach_safe(limits, next, kind, limit)
    {
        if (json_is_null(limit)) /* a plan without the kind has no limit of it */
            json_object_del(limits, kind);
    }
    if (features_text) {
        AUTO_JSON given = NULL;
        TRY(json_read(str_of(features_text), &given));
        if (!json_is_object(given))
            return fail(E_INVALID, "--features takes a JSON object");
        json_object_clear(features);
        json_object_update(features, given);
    }
    return quota_plan_put(c, name, limits, features);
}

static void print_plan(const char *name, const json_t *limits)
{
    const char *kind;
    json_t *limit;
    printf("%s\n", name);
    json_object_foreach((json_t *)limits, kind, limit)
    {
        AUTO_BUF text = {0};
        json_write(limit, &text);
        printf("  %-22s %s\n", kind, text.p);
    }
    if (json_object_size(limits) == 0)
        printf("  no limits\n");
}

static err list_plans(struct db_conn *c, void *arg)
{
    const struct invocation *call = arg;
    AUTO_ARENA a = arena_new();
    const char **names = NULL;
    size_t n = 0;
    TRY(quota_plan_list(c, a, &names, &n));
    for (size_t i = 0; i < n; i++) {
        struct quota_plan plan;
        TRY(quota_plan_find(c, names[i], &plan));
        AUTO_JSON j = json_pack("{s:s, s:o, s:o}", "name", names[i], "limits", plan.limits,
                                "features", plan.features);
        if (option_flag(call, "json"))
            database_print(json_incref(j));
        else
            print_plan(names[i], json_object_get(j, "limits"));
    }
    return 0;
}

/* ---- commands ---- */

static int tenant_create_run(const struct invocation *call)
{
    return finish(call, run_tenant_create(call));
}

static int tenant_list_run(const struct invocation *call)
{
    return finish(call, database_write(call, list_tenants, (void *)call));
}

static int tenant_set_run(const struct invocation *call)
{
    return finish(call, database_write(call, set_tenant, (void *)call));
}

static int plan_set_run(const struct invocation *call)
{
    return finish(call, database_write(call, put_plan, (void *)call));
}

static int plan_list_run(const struct invocation *call)
{
    return finish(call, database_write(call, list_plans, (void *)call));
}

static const struct option list_options[] = {OPTION_DATA, OPTION_JSON, {0}};
static const struct option create_options[] = {
    OPTION_DATA,
    {"plan", "NAME", "unlimited", "what it may use; see plan list"},
    OPTION_JSON,
    {0},
};
static const struct option set_options[] = {
    OPTION_DATA,
    {"plan", "NAME", NULL, "another plan"},
    {"limits", "LIMITS", NULL, LIMITS_HELP " of its own, before those of the plan"},
    {0},
};
static const struct option plan_options[] = {
    OPTION_DATA,
    {"limits", "LIMITS", NULL, LIMITS_HELP},
    {"features", "JSON", NULL, "what the tier includes, shown by GET /v1/tenant"},
    {0},
};

const struct command tenant_create_command = {
    .name = "tenant create",
    .arguments = "NAME",
    .summary = "Makes a tenant and its first API key.",
    .options = create_options,
    .run = tenant_create_run,
};
const struct command tenant_list_command = {
    .name = "tenant list",
    .arguments = "",
    .summary = "Lists the tenants.",
    .options = list_options,
    .run = tenant_list_run,
};
const struct command tenant_set_command = {
    .name = "tenant set",
    .arguments = "TENANT-ID",
    .summary = "Gives a tenant another plan, or limits of its own.",
    .options = set_options,
    .run = tenant_set_run,
};
const struct command plan_list_command = {
    .name = "plan list",
    .arguments = "",
    .summary = "Lists the plans and their limits.",
    .options = list_options,
    .run = plan_list_run,
};
const struct command plan_set_command = {
    .name = "plan set",
    .arguments = "NAME",
    .summary = "Makes a plan, or changes its limits for all who have it.",
    .options = plan_options,
    .run = plan_set_run,
};
