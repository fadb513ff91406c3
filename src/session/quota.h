/* What a tenant may use (§27.3, R53). Plans are rows, so that tiers are data: a plan has limits by
   kind, a tenant has a plan and may have limits of its own that go before it. A kind without a
   limit is unlimited.

   Counted kinds are counters beside the rows they count, changed in the same transaction: of many
   creates at once exactly as many succeed as fit, on both engines. Functions run inside db_read or
   db_write; texts live in the arena. */
#ifndef SESSION_QUOTA_H
#define SESSION_QUOTA_H

#include "base/arena.h"
#include "base/json.h"
#include "db/db.h"

#include <stdbool.h>

enum quota_kind {
    QUOTA_CONCURRENT_SESSIONS,  /* that are not deleted */
    QUOTA_CONCURRENT_SANDBOXES, /* that run */
    QUOTA_JOBS,
    QUOTA_VAULT_CREDENTIALS,
    QUOTA_MEMORY_STORES,
    QUOTA_FILE_STORAGE_BYTES,
    QUOTA_MONTHLY_TOKENS,
    QUOTA_REQUESTS_PER_MINUTE, /* a token bucket in each process; not a counter */
    QUOTA_DAILY_USD,           /* may have a fraction */
    QUOTA_KINDS
};

const char *quota_name(enum quota_kind kind); /* "concurrentSessions" */
/* QUOTA_KINDS if there is none of that name. */
enum quota_kind quota_of(struct str name);

/* The limit of each kind; negative: none. */
struct quota_limits {
    double of[QUOTA_KINDS];
};
err quota_limits(struct db_conn *c, const char *tenant, struct quota_limits *out);

/* Counts `n` more; E_QUOTA (quota_exceeded), naming kind and limit, when they do not fit. */
err quota_take(struct db_conn *c, const char *tenant, enum quota_kind kind, int64_t n);
/* Counts `n` more whether they fit or not: they are there already. */
err quota_add(struct db_conn *c, const char *tenant, enum quota_kind kind, int64_t n);
/* Counts `n` less; never below 0. */
err quota_give(struct db_conn *c, const char *tenant, enum quota_kind kind, int64_t n);
err quota_exceeded(enum quota_kind kind, int64_t limit); /* for those who count themselves */
err quota_used(struct db_conn *c, const char *tenant, enum quota_kind kind, int64_t *out);
/* E_QUOTA as quota_take would, without counting. */
err quota_check(struct db_conn *c, const char *tenant, enum quota_kind kind, int64_t n);

/* Brings the counters in line with the rows, of all tenants; at each start. */
err quota_recount(struct db *db);

struct quota_plan {
    const char *name;
    json_t *limits;   /* {kind: number}; the caller's */
    json_t *features; /* {name: true or text}; the caller's */
};
/* E_NOT_FOUND */
err quota_plan_find(struct db_conn *c, const char *name, struct quota_plan *out);
/* The name of a tenant's plan, and the limits of its own: a new reference. E_NOT_FOUND */
err quota_tenant_plan(struct db_conn *c, struct arena *a, const char *tenant, const char **out_plan,
                      json_t **out_own);
/* Names of all plans, in order. */
err quota_plan_list(struct db_conn *c, struct arena *a, const char ***out, size_t *out_n);
/* Makes or replaces a plan. E_INVALID for limits that are no numbers ≥ 0 or name no kind. */
err quota_plan_put(struct db_conn *c, const char *name, const json_t *limits,
                   const json_t *features);
/* plan, own limits: NULL = unchanged. E_NOT_FOUND for the tenant or the plan. */
err quota_tenant_set(struct db_conn *c, const char *tenant, const char *plan,
                     const json_t *own_limits);

#endif
