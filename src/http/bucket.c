#include "http/bucket.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/id.h"
#include "base/lock.h"
#include "base/mem.h"

#define BUCKETS_MAGIC 0x6255636bu
#define SLOTS 1024
#define MINUTE_MS 60000.0
#define BURST_SHARE 6.0 /* of a minute: ten seconds */
#define BURST_LEAST 10.0

struct bucket {
    struct bucket *next; /* in its slot */
    char tenant[ID_MAX];
    double tokens;
    double size, per_ms; /* as of the last call */
    int64_t at_ms;       /* when tokens was right */
};

struct buckets {
    unsigned magic;
    pthread_mutex_t slots_lock; /* guards what follows; lock order 8 */
    struct bucket *slots[SLOTS];
    unsigned count;
};

struct buckets *buckets_new(void)
{
    struct buckets *b = mem_alloc(sizeof *b);
    b->magic = BUCKETS_MAGIC;
    pthread_mutex_init(&b->slots_lock, NULL);
    return b;
}

static void drop(struct buckets *b, struct bucket **at)
{
    struct bucket *gone = *at;
    *at = gone->next;
    mem_free(gone);
    b->count--;
}

void buckets_free(struct buckets *b)
{
    if (b == NULL)
        return;
    CHECK(b, BUCKETS_MAGIC);
    for (size_t i = 0; i < SLOTS; i++)
        while (b->slots[i])
            drop(b, &b->slots[i]);
    pthread_mutex_destroy(&b->slots_lock);
    b->magic = 0;
    mem_free(b);
}

static double size_of(double per_minute)
{
    double size = fmax(per_minute / BURST_SHARE, BURST_LEAST);
    return floor(fmin(size, per_minute));
}

static double filled(const struct bucket *k, int64_t now_ms)
{
    double since = now_ms > k->at_ms ? (double)(now_ms - k->at_ms) : 0;
    return fmin(k->size, k->tokens + since * k->per_ms);
}

/* The tenant's bucket; full ones of others on the way are dropped: they are as new. With slots_lock
   held. */
static struct bucket *find(struct buckets *b, const char *tenant, double per_minute, int64_t now_ms)
{
    struct bucket **at = &b->slots[str_hash(str_of(tenant)) % SLOTS];
    while (*at && strcmp((*at)->tenant, tenant) != 0) {
        if (filled(*at, now_ms) >= (*at)->size)
            drop(b, at);
        else
            at = &(*at)->next;
    }
    if (*at == NULL) {
        *at = mem_alloc(sizeof **at);
        snprintf((*at)->tenant, sizeof(*at)->tenant, "%s", tenant);
        (*at)->tokens = size_of(per_minute);
        (*at)->at_ms = now_ms;
        b->count++;
    }
    (*at)->size = size_of(per_minute);
    (*at)->per_ms = per_minute / MINUTE_MS;
    return *at;
}

bool buckets_take(struct buckets *b, const char *tenant, double per_minute, int64_t now_ms,
                  int64_t *out_wait_ms)
{
    CHECK(b, BUCKETS_MAGIC);
    AUTO_LOCK(&b->slots_lock);
    struct bucket *k = find(b, tenant, per_minute, now_ms);
    k->tokens = filled(k, now_ms);
    k->at_ms = now_ms > k->at_ms ? now_ms : k->at_ms;
    if (k->tokens >= 1) {
        k->tokens -= 1;
        return true;
    }
    *out_wait_ms = k->per_ms > 0 ? (int64_t)ceil((1 - k->tokens) / k->per_ms) : INT64_MAX;
    return false;
}

unsigned buckets_count(struct buckets *b)
{
    CHECK(b, BUCKETS_MAGIC);
    AUTO_LOCK(&b->slots_lock);
    return b->count;
}
