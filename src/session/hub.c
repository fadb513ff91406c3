/* Fan-out of published frames to attached readers, one lock for all: publishing is rare next to
   token deltas, and a delta's work under the lock is a copy into each reader's queue. */
#include "session/hub.h"

#include "base/id.h"
#include "base/lock.h"
#include "base/mem.h"

#include <stdio.h>

#define TOPIC_BUCKETS 1024

struct hub_reader {
    struct hub_reader *next;
    struct hub_topic *topic;
    hub_offer_fn offer;
    void *arg;
    int64_t after; /* what it has: an event read from the log may be published only afterwards */
};

struct hub_topic {
    struct hub_topic *next; /* in its bucket */
    char session[ID_MAX];
    unsigned users;    /* hub_open minus hub_close */
    int64_t published; /* highest seq since the topic was opened */
    struct hub_reader *readers;
};

struct hub {
    pthread_mutex_t topics_lock; /* guards everything below */
    struct hub_topic *buckets[TOPIC_BUCKETS];
};

static struct hub_topic **bucket_of(struct hub *h, const char *session)
{
    return &h->buckets[str_hash(str_of(session)) % TOPIC_BUCKETS];
}

static struct hub_topic *find_topic(struct hub *h, const char *session)
{
    struct hub_topic *t = *bucket_of(h, session);
    while (t && strcmp(t->session, session) != 0)
        t = t->next;
    return t;
}

struct hub *hub_new(void)
{
    struct hub *h = mem_alloc(sizeof *h);
    pthread_mutex_init(&h->topics_lock, NULL);
    return h;
}

void hub_free(struct hub *h)
{
    if (h == NULL)
        return;
    for (size_t i = 0; i < TOPIC_BUCKETS; i++)
        assert(h->buckets[i] == NULL); /* every stream was detached and closed */
    pthread_mutex_destroy(&h->topics_lock);
    mem_free(h);
}

struct hub_topic *hub_open(struct hub *h, const char *session)
{
    AUTO_LOCK(&h->topics_lock);
    struct hub_topic *t = find_topic(h, session);
    if (t == NULL) {
        struct hub_topic **bucket = bucket_of(h, session);
        t = mem_alloc(sizeof *t);
        snprintf(t->session, sizeof t->session, "%s", session);
        t->next = *bucket;
        *bucket = t;
    }
    t->users++;
    return t;
}

void hub_close(struct hub *h, struct hub_topic *t)
{
    AUTO_LOCK(&h->topics_lock);
    if (--t->users > 0)
        return;
    assert(t->readers == NULL);
    struct hub_topic **at = bucket_of(h, t->session);
    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
    mem_free(t);
}

err hub_attach(struct hub *h, struct hub_topic *t, int64_t after_seq, hub_offer_fn offer, void *arg,
               struct hub_reader **out)
{
    AUTO_LOCK(&h->topics_lock);
    if (t->published > after_seq)
        return fail(E_CONFLICT, "event %lld was published meanwhile", (long long)t->published);
    struct hub_reader *r = mem_alloc(sizeof *r);
    *r = (struct hub_reader){
        .next = t->readers, .topic = t, .offer = offer, .arg = arg, .after = after_seq};
    t->readers = r;
    *out = r;
    return 0;
}

void hub_detach(struct hub *h, struct hub_reader *r)
{
    if (r == NULL)
        return;
    AUTO_LOCK(&h->topics_lock);
    struct hub_reader **at = &r->topic->readers;
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    mem_free(r);
}

void hub_publish(struct hub *h, const char *session, const struct hub_frame *frame)
{
    AUTO_LOCK(&h->topics_lock);
    struct hub_topic *t = find_topic(h, session);
    if (t == NULL)
        return; /* nobody watches */
    if (frame->seq > t->published)
        t->published = frame->seq;
    for (struct hub_reader *r = t->readers; r; r = r->next) {
        if (frame->seq && frame->seq <= r->after)
            continue;
        if (frame->seq)
            r->after = frame->seq;
        r->offer(r->arg, frame);
    }
}
