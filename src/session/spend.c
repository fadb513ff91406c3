#include "session/spend.h"

#include "base/id.h"
#include "base/lock.h"
#include "base/mem.h"

#include <stdio.h>

#define DAY_MS 86400000

/* What a tenant holds and owes, all its sessions together. Gone when it is nothing. */
struct pending {
    struct pending *next;
    char tenant[ID_MAX];
    double usd;
    unsigned holders; /* sessions with a part in it */
};

struct spend {
    struct db *db;
    spend_limit limit;
    pthread_mutex_t lock; /* guards what follows; held while a reservation reads the database */
    struct pending *pending;
};

struct spend *spend_new(struct db *db, spend_limit limit)
{
    struct spend *s = mem_alloc(sizeof *s);
    s->db = db;
    s->limit = limit;
    pthread_mutex_init(&s->lock, NULL);
    return s;
}

void spend_free(struct spend *s)
{
    if (s == NULL)
        return;
    while (s->pending) {
        struct pending *p = s->pending;
        s->pending = p->next;
        mem_free(p);
    }
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
}

static struct pending *find(struct spend *s, const char *tenant)
{
    struct pending *p = s->pending;
    while (p && strcmp(p->tenant, tenant) != 0)
        p = p->next;
    return p;
}

static struct pending *find_or_make(struct spend *s, const char *tenant)
{
    struct pending *p = find(s, tenant);
    if (p)
        return p;
    p = mem_alloc(sizeof *p);
    snprintf(p->tenant, sizeof p->tenant, "%s", tenant);
    p->next = s->pending;
    s->pending = p;
    return p;
}

/* With the lock held: the session's part becomes these two. */
static void change(struct spend *s, const char *tenant, struct spend_hold *h, double reserved,
                   double owed)
{
    bool had = h->reserved > 0 || h->owed > 0, has = reserved > 0 || owed > 0;
    if (!had && !has)
        return;
    struct pending *p = find_or_make(s, tenant);
    p->usd += reserved + owed - h->reserved - h->owed;
    p->holders += (unsigned)has - (unsigned)had;
    if (p->holders == 0)
        p->usd = 0; /* no rest of rounding stays */
    h->reserved = reserved;
    h->owed = owed;
}

static const char sql_today[] = "SELECT usd FROM tenant_spend WHERE tenant_id = $1 AND day = $2";
static const char sql_add[] =
    "INSERT INTO tenant_spend (tenant_id, day, usd) VALUES ($1, $2, $3)"
    " ON CONFLICT (tenant_id, day) DO UPDATE SET usd = tenant_spend.usd + excluded.usd"
    " WHERE tenant_spend.tenant_id = $1";

err spend_today(struct db_conn *c, const char *tenant, int64_t now_ms, double *out_usd)
{
    struct db_rows *r;
    TRY(db_query(c, sql_today, DB_ARGS(DB_C(tenant), DB_I(now_ms / DAY_MS)), &r));
    double usd = db_next(r) ? db_real(r, 0) : 0;
    TRY(db_rows_done(r));
    *out_usd = usd;
    return 0;
}

err spend_add(struct db_conn *c, const char *tenant, int64_t now_ms, double usd)
{
    return db_exec(c, sql_add, DB_ARGS(DB_C(tenant), DB_I(now_ms / DAY_MS), DB_R(usd)), NULL);
}

struct books {
    spend_limit find_limit;
    const char *tenant;
    int64_t now_ms;
    double limit, spent;
};

static err read_books(struct db_conn *c, void *arg)
{
    struct books *b = arg;
    TRY(b->find_limit(c, b->tenant, &b->limit));
    return b->limit < 0 ? 0 : spend_today(c, b->tenant, b->now_ms, &b->spent);
}

err spend_reserve(struct spend *s, const char *tenant, int64_t now_ms, struct spend_hold *h,
                  double usd)
{
    struct books b = {.find_limit = s->limit, .tenant = tenant, .now_ms = now_ms, .limit = -1};
    AUTO_LOCK(&s->lock);
    if (s->limit)
        TRY(db_read(s->db, read_books, &b));
    const struct pending *p = find(s, tenant);
    double others = p ? p->usd - h->reserved : 0;
    if (b.limit >= 0 && (b.spent + others >= b.limit || b.spent + others + usd > b.limit))
        return fail_as(E_QUOTA, "tenant_budget_exhausted",
                       "The account has spent or holds $%.4f of the $%.4f that it may spend in a "
                       "day, and the next request costs at least $%.4f. The day ends at 00:00 UTC.",
                       b.spent + others, b.limit, usd);
    change(s, tenant, h, usd, h->owed);
    return 0;
}

void spend_settle(struct spend *s, const char *tenant, struct spend_hold *h, double usd)
{
    AUTO_LOCK(&s->lock);
    change(s, tenant, h, 0, h->owed + usd);
}

void spend_recorded(struct spend *s, const char *tenant, struct spend_hold *h)
{
    AUTO_LOCK(&s->lock);
    change(s, tenant, h, h->reserved, 0);
}

void spend_drop(struct spend *s, const char *tenant, struct spend_hold *h)
{
    AUTO_LOCK(&s->lock);
    change(s, tenant, h, 0, 0);
}
