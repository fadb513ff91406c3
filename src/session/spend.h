/* What tenants spend in a day, of the dailyUsd they may (R53): the sums in the database, and beside
   them what requests under way hold and what was spent but is not in the database yet. Days begin
   at 00:00 UTC. Any thread; of one process (each has the whole limit for its own reservations). */
#ifndef SESSION_SPEND_H
#define SESSION_SPEND_H

#include "base/err.h"
#include "db/db.h"

struct spend;

/* A session's part of it: one request at a time. Zero at first; the session's thread only. */
struct spend_hold {
    double reserved; /* for the request under way */
    double owed;     /* of ended requests, until spend_recorded */
};

/* What a tenant may spend in a day; negative: as much as it likes. In db_read. */
typedef err (*spend_limit)(struct db_conn *c, const char *tenant, double *out_usd);
struct spend *spend_new(struct db *db, spend_limit limit); /* NULL: nobody has a limit */
void spend_free(struct spend *s);                          /* NULL-safe */

/* E_QUOTA (tenant_budget_exhausted) when what the tenant has spent today, holds and asks for now is
   beyond its limit. Admits one after the other: callers side by side cannot overspend beyond what
   their requests cost over the estimate. */
err spend_reserve(struct spend *s, const char *tenant, int64_t now_ms, struct spend_hold *h,
                  double usd);
/* The request has ended and did cost so much. */
void spend_settle(struct spend *s, const char *tenant, struct spend_hold *h, double usd);
/* In db_write: adds to the tenant's day; spend_recorded after the COMMIT. */
err spend_add(struct db_conn *c, const char *tenant, int64_t now_ms, double usd);
void spend_recorded(struct spend *s, const char *tenant, struct spend_hold *h);
/* The session leaves memory. */
void spend_drop(struct spend *s, const char *tenant, struct spend_hold *h);
err spend_today(struct db_conn *c, const char *tenant, int64_t now_ms, double *out_usd);

#endif
