#include "http/workers.h"

#include "base/lock.h"
#include "base/mem.h"

#include <stdio.h>

#define WORKERS_MAGIC 0x574f524bu
#define IDLE_WAIT_MS                                                                               \
    60000 /* every wait has a timeout; waking for nothing once a minute is cheap                   \
           */

struct job {
    void (*fn)(void *arg, bool stopping);
    void *arg;
};

struct workers {
    unsigned magic;
    unsigned thread_count, queue_max;
    pthread_t *threads;
    pthread_mutex_t queue_lock; /* guards what follows */
    pthread_cond_t more;
    struct job *ring;
    unsigned first, count;
    bool stopping;
};

/* Waits for a job; false when the pool ends and none is left. */
static bool take_job(struct workers *w, struct job *out, bool *out_stopping)
{
    AUTO_LOCK(&w->queue_lock);
    while (w->count == 0) {
        if (w->stopping)
            return false;
        cond_wait_ms(&w->more, &w->queue_lock, IDLE_WAIT_MS);
    }
    *out = w->ring[w->first];
    w->first = (w->first + 1) % w->queue_max;
    w->count--;
    *out_stopping = w->stopping;
    return true;
}

static void *work(void *arg)
{
    struct workers *w = arg;
    struct job job;
    bool stopping;
    while (take_job(w, &job, &stopping))
        job.fn(job.arg, stopping);
    return NULL;
}

struct workers *workers_new(const char *name, unsigned threads, unsigned queue_max)
{
    struct workers *w = mem_alloc(sizeof *w);
    w->magic = WORKERS_MAGIC;
    w->thread_count = threads;
    w->queue_max = queue_max;
    w->ring = mem_alloc(size_mul(queue_max, sizeof *w->ring));
    w->threads = mem_alloc(size_mul(threads, sizeof *w->threads));
    pthread_mutex_init(&w->queue_lock, NULL);
    cond_init(&w->more);
    for (unsigned i = 0; i < threads; i++) {
        char full[16];
        snprintf(full, sizeof full, "%.12s%u", name, i % 100);
        w->threads[i] = thread_start(full, work, w);
    }
    return w;
}

bool workers_post(struct workers *w, void (*fn)(void *arg, bool stopping), void *arg)
{
    CHECK(w, WORKERS_MAGIC);
    AUTO_LOCK(&w->queue_lock);
    if (w->count == w->queue_max || w->stopping)
        return false;
    w->ring[(w->first + w->count) % w->queue_max] = (struct job){fn, arg};
    w->count++;
    pthread_cond_signal(&w->more);
    return true;
}

bool workers_full(struct workers *w)
{
    CHECK(w, WORKERS_MAGIC);
    AUTO_LOCK(&w->queue_lock);
    return w->count == w->queue_max || w->stopping;
}

void workers_stop(struct workers *w)
{
    CHECK(w, WORKERS_MAGIC);
    pthread_mutex_lock(&w->queue_lock);
    w->stopping = true;
    pthread_cond_broadcast(&w->more);
    pthread_mutex_unlock(&w->queue_lock);
    for (unsigned i = 0; i < w->thread_count; i++)
        pthread_join(w->threads[i], NULL);
    w->thread_count = 0;
}

void workers_free(struct workers *w)
{
    if (w == NULL)
        return;
    workers_stop(w);
    pthread_cond_destroy(&w->more);
    pthread_mutex_destroy(&w->queue_lock);
    mem_free(w->threads);
    mem_free(w->ring);
    w->magic = 0;
    mem_free(w);
}
