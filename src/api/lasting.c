#include "api/lasting.h"

#include "base/arena.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "db/db.h"

#include <stdio.h>
#include <string.h>

#define LOOK_MS 1000
/* Of revocations: a row may be committed a while after the time that stands in it, and a terminal
   begins as long after its key was looked at as its sandbox takes to start. */
#define LOOK_BACK_MS (60 * 60 * INT64_C(1000))

struct lastings {
    struct db *db;
    const struct clock *clock;
    pthread_t thread;

    pthread_mutex_t list_lock; /* guards what follows; outside the hub's and the streams' locks */
    pthread_cond_t changed;
    struct lasting *first;
    bool stopping;
};

static const char sql_revoked[] =
    "/* all tenants */ SELECT id FROM api_keys WHERE revoked_at IS NOT NULL AND revoked_at >= $1";

struct look {
    struct lastings *l;
    struct arena *arena;
    const char **ids;
    size_t n;
};

static err find_revoked(struct db_conn *c, void *arg)
{
    struct look *k = arg;
    size_t room = 0;
    struct db_rows *r;
    int64_t since = clock_wall_ms(k->l->clock) - LOOK_BACK_MS;
    TRY(db_query(c, sql_revoked, DB_ARGS(DB_I(since)), &r));
    while (db_next(r)) {
        if (k->n == room) {
            room = room ? size_mul(room, 2) : 8;
            const char **more = arena_alloc(k->arena, size_mul(room, sizeof *more));
            if (k->n)
                memcpy(more, k->ids, k->n * sizeof *k->ids);
            k->ids = more;
        }
        k->ids[k->n++] = db_text(r, 0, k->arena);
    }
    return db_rows_done(r);
}

static void look(struct lastings *l)
{
    AUTO_ARENA a = arena_new();
    struct look k = {.l = l, .arena = a};
    if (db_read(l->db, find_revoked, &k)) {
        log_warn("cannot look for revoked API keys: %s", err_text());
        return;
    }
    for (size_t i = 0; i < k.n; i++)
        lastings_end(l, k.ids[i]);
}

static void *run(void *arg)
{
    struct lastings *l = arg;
    pthread_mutex_lock(&l->list_lock);
    while (!l->stopping) {
        cond_wait_ms(&l->changed, &l->list_lock, l->first ? LOOK_MS : 60000); /* one that lasts */
        if (l->stopping || l->first == NULL)
            continue;
        pthread_mutex_unlock(&l->list_lock);
        look(l);
        pthread_mutex_lock(&l->list_lock);
    }
    pthread_mutex_unlock(&l->list_lock);
    return NULL;
}

struct lastings *lastings_new(struct db *db, const struct clock *clock)
{
    struct lastings *l = mem_alloc(sizeof *l);
    l->db = db;
    l->clock = clock;
    pthread_mutex_init(&l->list_lock, NULL);
    cond_init(&l->changed);
    l->thread = thread_start("revocations", run, l);
    return l;
}

void lastings_stop(struct lastings *l)
{
    if (l == NULL)
        return;
    pthread_mutex_lock(&l->list_lock);
    l->stopping = true;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->list_lock);
    pthread_join(l->thread, NULL);
}

void lasting_add(struct lastings *l, struct lasting *one, const char *key_id,
                 void (*end)(void *arg), void *arg)
{
    AUTO_LOCK(&l->list_lock);
    snprintf(one->key_id, sizeof one->key_id, "%s", key_id);
    one->end = end;
    one->arg = arg;
    one->next = l->first;
    one->at = &l->first;
    if (l->first)
        l->first->at = &one->next;
    else
        pthread_cond_broadcast(&l->changed); /* from now on it looks each second */
    l->first = one;
}

void lasting_remove(struct lastings *l, struct lasting *one)
{
    AUTO_LOCK(&l->list_lock);
    if (one->at == NULL)
        return;
    *one->at = one->next;
    if (one->next)
        one->next->at = one->at;
    one->at = NULL;
}

void lastings_end(struct lastings *l, const char *key_id)
{
    AUTO_LOCK(&l->list_lock);
    for (struct lasting *one = l->first; one; one = one->next)
        if (strcmp(one->key_id, key_id) == 0)
            one->end(one->arg);
}
