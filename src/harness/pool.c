/* Lists and a hash table; sizes are small, so nothing here is clever. */
#include "harness/pool.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

static struct pool_session **bucket_of(struct pool *p, const char *session)
{
    return &p->buckets[str_hash(str_of(session)) % POOL_BUCKETS];
}

static struct pool_session **find_link(struct pool *p, const char *session)
{
    struct pool_session **at = bucket_of(p, session);
    while (*at && strcmp((*at)->id, session) != 0)
        at = &(*at)->next;
    return at;
}

struct pool_session *pool_find(struct pool *p, const char *session)
{
    return *find_link(p, session);
}

struct pool_session *pool_add(struct pool *p, struct pool_host *at, const char *session)
{
    struct pool_session **bucket = bucket_of(p, session);
    struct pool_session *s = mem_alloc(sizeof *s);
    *s = (struct pool_session){.next = *bucket, .at = at, .opening = true};
    snprintf(s->id, sizeof s->id, "%s", session);
    *bucket = s;
    at->sessions++;
    return s;
}

void pool_remove(struct pool *p, struct pool_session *s, int64_t now_ms)
{
    struct pool_session **at = find_link(p, s->id);
    assert(*at == s);
    *at = s->next;
    if (--s->at->sessions == 0)
        s->at->idle_since_ms = now_ms;
    mem_free(s);
}

struct pool_session *pool_evict(struct pool *p, struct pool_host *at)
{
    for (size_t i = 0; at->sessions > 0 && i < POOL_BUCKETS; i++) {
        for (struct pool_session **s = &p->buckets[i]; *s; s = &(*s)->next) {
            if ((*s)->at != at)
                continue;
            struct pool_session *found = *s;
            *s = found->next;
            at->sessions--;
            return found;
        }
    }
    return NULL;
}

struct pool_host *pool_pick(struct pool *p, const char *tenant, unsigned sessions_max)
{
    struct pool_host *best = NULL;
    for (struct pool_host *h = p->hosts; h; h = h->next) {
        bool usable = h->state == HOST_STARTING || h->state == HOST_READY;
        if (usable && h->sessions < sessions_max && strcmp(h->tenant, tenant) == 0 &&
            (!best || h->sessions < best->sessions))
            best = h;
    }
    return best;
}

void pool_expect(struct pool_host *at, int64_t id, int kind, const char *session, const char *op)
{
    struct due *d = mem_alloc(sizeof *d);
    *d = (struct due){.next = at->due, .id = id, .kind = (unsigned)kind};
    snprintf(d->session, sizeof d->session, "%s", session);
    snprintf(d->op, sizeof d->op, "%s", op);
    at->due = d;
}

struct due *pool_settle(struct pool_host *at, int64_t id)
{
    for (struct due **d = &at->due; *d; d = &(*d)->next) {
        if ((*d)->id != id)
            continue;
        struct due *found = *d;
        *d = found->next;
        return found;
    }
    return NULL;
}

bool pool_closing(const struct pool_host *at, const char *session)
{
    for (const struct due *d = at->due; d; d = d->next) {
        if (d->kind == DUE_CLOSE && strcmp(d->session, session) == 0)
            return true;
    }
    return false;
}

void pool_forget_due(struct pool_host *at)
{
    while (at->due) {
        struct due *d = at->due;
        at->due = d->next;
        mem_free(d);
    }
}
