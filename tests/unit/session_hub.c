/* src/session/hub.c: every watcher of a session gets every event once, in order, however its start
   falls among the publishing (R18; run it under ThreadSanitizer). */
#include "session/hub.h"

#include "base/lock.h"
#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define SESSION "sess_1"
#define EVENTS 2000
#define READERS 6
#define BEFORE 10 /* events that stand in the log when the watchers come */

/* A log in memory: `durable` events stand in it. */
struct fixture {
    struct hub *hub;
    pthread_mutex_t log_lock; /* guards durable */
    int64_t durable;
};

static int set_up(void **state)
{
    struct fixture *f = mem_alloc(sizeof *f);
    f->hub = hub_new();
    pthread_mutex_init(&f->log_lock, NULL);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    hub_free(f->hub);
    pthread_mutex_destroy(&f->log_lock);
    mem_free(f);
    return 0;
}

static void publish(struct fixture *f, const char *session, int64_t seq)
{
    hub_publish(f->hub, session, &(struct hub_frame){.seq = seq, .type = "t", .json = STR("{}")});
}

/* What one reader was offered. */
struct heard {
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t more;
    int64_t seqs[EVENTS * 2];
    size_t n;
    unsigned deltas;
    bool closed; /* detached: nothing may come any more */
};

static struct heard *heard_new(void)
{
    struct heard *h = mem_alloc(sizeof *h);
    pthread_mutex_init(&h->lock, NULL);
    cond_init(&h->more);
    return h;
}

static void heard_free(struct heard *h)
{
    pthread_mutex_destroy(&h->lock);
    pthread_cond_destroy(&h->more);
    mem_free(h);
}

static void hear(void *arg, const struct hub_frame *frame)
{
    struct heard *h = arg;
    AUTO_LOCK(&h->lock);
    if (h->closed)
        abort();
    if (frame->seq == 0)
        h->deltas++;
    else if (h->n < sizeof h->seqs / sizeof *h->seqs)
        h->seqs[h->n++] = frame->seq;
    pthread_cond_signal(&h->more);
}

static void nobody_has_to_listen(void **state)
{
    struct fixture *f = *state;
    publish(f, SESSION, 1);
    struct hub_topic *t = hub_open(f->hub, SESSION);
    struct hub_topic *again = hub_open(f->hub, SESSION);
    assert_ptr_equal(t, again);
    publish(f, SESSION, 2);
    hub_close(f->hub, again);
    hub_close(f->hub, t);
}

static void attaching_behind_the_head_is_refused(void **state)
{
    struct fixture *f = *state;
    struct hub_topic *t = hub_open(f->hub, SESSION);
    struct hub_reader *r = NULL;
    struct heard *h = heard_new();
    publish(f, SESSION, 7);
    assert_int_equal(hub_attach(f->hub, t, 6, hear, h, &r), E_CONFLICT);
    assert_null(r);
    assert_int_equal(hub_attach(f->hub, t, 7, hear, h, &r), 0);
    publish(f, SESSION, 0); /* a delta moves nothing */
    publish(f, SESSION, 8);
    assert_int_equal(h->n, 1);
    assert_int_equal(h->seqs[0], 8);
    assert_int_equal(h->deltas, 1);
    hub_detach(f->hub, r);
    publish(f, SESSION, 9);
    assert_int_equal(h->n, 1);
    hub_close(f->hub, t);
    heard_free(h);
}

static void sessions_do_not_hear_each_other(void **state)
{
    struct fixture *f = *state;
    enum {
        SESSIONS = 3000
    }; /* more than buckets: some share one */
    struct hub_topic *topics[SESSIONS];
    struct hub_reader *readers[SESSIONS];
    struct heard *h = heard_new(), *other = heard_new();
    char name[32];
    for (int i = 0; i < SESSIONS; i++) {
        snprintf(name, sizeof name, "sess_%d", i);
        topics[i] = hub_open(f->hub, name);
        assert_int_equal(hub_attach(f->hub, topics[i], 0, hear, i == 1234 ? h : other, &readers[i]),
                         0);
    }
    publish(f, "sess_1234", 1);
    publish(f, "sess_none", 1);
    assert_int_equal(h->n, 1);
    assert_int_equal(other->n, 0);
    for (int i = SESSIONS - 1; i >= 0; i--) {
        hub_detach(f->hub, readers[i]);
        hub_close(f->hub, topics[i]);
    }
    hub_detach(f->hub, NULL);
    heard_free(h);
    heard_free(other);
}

/* ---- while others publish ---- */

struct watcher {
    struct fixture *f;
    struct heard *heard;
    int64_t from; /* Last-Event-ID */
};

static void *publish_all(void *arg)
{
    struct fixture *f = arg;
    for (int64_t seq = BEFORE + 1; seq <= EVENTS; seq++) {
        pthread_mutex_lock(&f->log_lock);
        f->durable = seq; /* durable first, then published */
        pthread_mutex_unlock(&f->log_lock);
        if (seq % 5 == 0)
            publish(f, SESSION, 0);
        publish(f, SESSION, seq);
    }
    return NULL;
}

/* The loop of hub.h, then live until the last event. */
static void *watch(void *arg)
{
    struct watcher *w = arg;
    struct hub_topic *t = hub_open(w->f->hub, SESSION);
    struct hub_reader *r = NULL;
    int64_t after = w->from;
    do {
        pthread_mutex_lock(&w->f->log_lock);
        int64_t head = w->f->durable;
        pthread_mutex_unlock(&w->f->log_lock);
        while (after < head) {
            AUTO_LOCK(&w->heard->lock);
            w->heard->seqs[w->heard->n++] = ++after;
        }
    } while (hub_attach(w->f->hub, t, after, hear, w->heard, &r));
    pthread_mutex_lock(&w->heard->lock);
    while (w->heard->n == 0 || w->heard->seqs[w->heard->n - 1] < EVENTS)
        if (!cond_wait_ms(&w->heard->more, &w->heard->lock, 30000))
            abort(); /* events were lost */
    pthread_mutex_unlock(&w->heard->lock);
    hub_detach(w->f->hub, r);
    pthread_mutex_lock(&w->heard->lock);
    w->heard->closed = true;
    pthread_mutex_unlock(&w->heard->lock);
    hub_close(w->f->hub, t);
    return NULL;
}

/* CASES 1, 3, 4. */
static void every_watcher_gets_every_event_once(void **state)
{
    struct fixture *f = *state;
    f->durable = BEFORE;
    struct watcher watchers[READERS];
    pthread_t threads[READERS];
    for (int i = 0; i < READERS; i++) {
        watchers[i] = (struct watcher){.f = f, .heard = heard_new(), .from = i % 3 * 5};
        if (i < READERS / 2)
            threads[i] = thread_start("watcher", watch, &watchers[i]);
    }
    pthread_t publisher = thread_start("publisher", publish_all, f);
    for (int i = READERS / 2; i < READERS; i++) /* these come in the middle */
        threads[i] = thread_start("watcher", watch, &watchers[i]);
    pthread_join(publisher, NULL);
    publish(f, "sess_other", EVENTS + 1);
    for (int i = 0; i < READERS; i++) {
        pthread_join(threads[i], NULL);
        struct heard *h = watchers[i].heard;
        assert_int_equal(h->n, EVENTS - watchers[i].from);
        for (size_t k = 0; k < h->n; k++)
            assert_int_equal(h->seqs[k], watchers[i].from + (int64_t)k + 1);
        heard_free(h);
    }
}

static void *come_and_go(void *arg)
{
    struct fixture *f = arg;
    for (int i = 0; i < 300; i++) {
        struct heard *h = heard_new();
        struct hub_topic *t = hub_open(f->hub, SESSION);
        struct hub_reader *r = NULL;
        if (hub_attach(f->hub, t, INT64_MAX, hear, h, &r))
            abort();
        hub_detach(f->hub, r);
        heard_free(h); /* a late offer would write into freed memory */
        hub_close(f->hub, t);
    }
    return NULL;
}

static void watchers_may_come_and_go_while_events_pass(void **state)
{
    struct fixture *f = *state;
    pthread_t threads[3], publisher = thread_start("publisher", publish_all, f);
    for (int i = 0; i < 3; i++)
        threads[i] = thread_start("watcher", come_and_go, f);
    pthread_join(publisher, NULL);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nobody_has_to_listen),
        TEST(attaching_behind_the_head_is_refused),
        TEST(sessions_do_not_hear_each_other),
        TEST(every_watcher_gets_every_event_once),
        TEST(watchers_may_come_and_go_while_events_pass),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
