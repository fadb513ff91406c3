#include "broker/upstream_pool.h"

#include "base/clock.h"
#include "base/lock.h"
#include "base/mem.h"

#include <poll.h>
#include <string.h>

#define IDLE_MAX 32
/* Providers and what lies between close idle connections after a minute or so; being earlier saves
   a request that would find it closed. */
#define IDLE_MS 30000

struct idle {
    struct idle *next;
    char *key;
    CURLM *multi;
    int fd;
    int64_t since_ms;
};

struct upstream_pool {
    pthread_mutex_t lock;
    struct idle *first; /* the newest */
};

struct upstream_pool *upstream_pool_new(void)
{
    struct upstream_pool *p = mem_alloc(sizeof *p);
    pthread_mutex_init(&p->lock, NULL);
    return p;
}

static void close_idle(struct idle *list)
{
    while (list) {
        struct idle *next = list->next;
        curl_multi_cleanup(list->multi);
        mem_free(list->key);
        mem_free(list);
        list = next;
    }
}

void upstream_pool_free(struct upstream_pool *p)
{
    if (p == NULL)
        return;
    close_idle(p->first);
    pthread_mutex_destroy(&p->lock);
    mem_free(p);
}

/* Whatever can be read now is an end, or an answer to nothing. */
static bool is_quiet(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN | POLLRDHUP};
    return poll(&poll_fd, 1, 0) == 0;
}

/* With the lock held: unlinks those that waited too long, and the oldest of too many. */
static struct idle *take_stale(struct upstream_pool *p)
{
    struct idle *stale = NULL;
    int64_t now_ms = clock_monotonic_ms(clock_real());
    size_t seen = 0;
    for (struct idle **at = &p->first; *at;) {
        struct idle *i = *at;
        if (++seen <= IDLE_MAX && now_ms - i->since_ms <= IDLE_MS && is_quiet(i->fd)) {
            at = &i->next;
            continue;
        }
        *at = i->next;
        i->next = stale;
        stale = i;
    }
    return stale;
}

CURLM *upstream_pool_take(struct upstream_pool *p, const char *key, int *out_fd)
{
    struct idle *stale, *found = NULL;
    {
        AUTO_LOCK(&p->lock);
        stale = take_stale(p);
        for (struct idle **at = &p->first; *at && !found; at = &(*at)->next)
            if (strcmp((*at)->key, key) == 0) {
                found = *at;
                *at = found->next;
                break;
            }
    }
    close_idle(stale);
    if (found == NULL)
        return NULL;
    CURLM *multi = found->multi;
    *out_fd = found->fd;
    mem_free(found->key);
    mem_free(found);
    return multi;
}

void upstream_pool_give(struct upstream_pool *p, const char *key, CURLM *take_multi, int fd)
{
    struct idle *i = mem_alloc(sizeof *i), *stale;
    *i = (struct idle){.key = mem_strdup(key),
                       .multi = take_multi,
                       .fd = fd,
                       .since_ms = clock_monotonic_ms(clock_real())};
    {
        AUTO_LOCK(&p->lock);
        i->next = p->first;
        p->first = i;
        stale = take_stale(p);
    }
    close_idle(stale);
}
