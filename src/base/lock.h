/* clang-format off */
/* Mutexes, conditions with a timeout and a reason, and threads. One mutex per struct, named after
   what it guards. Lock order, outermost first (a thread holding one may only take those below it):
     0 requests that wait (session/asks.c); what lasts beyond its request (api/lasting.c)
     1 session table (session/manager.c)        5 db writer queue (db/sqlite.c)
     2 one session's mailbox (session/manager.c) 6 hub (session/hub.c)
     3 harness pool (harness/harness.c)          7 one SSE stream (http/sse.c)
     4 broker link, parent link                  8 leaf locks: log, clock, caches
   No lock is held while waiting for disk, a socket or another process, except the two links while
   writing. */
/* clang-format on */
#ifndef BASE_LOCK_H
#define BASE_LOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

static inline void lock_release(pthread_mutex_t **m)
{
    if (*m)
        pthread_mutex_unlock(*m);
}
/* Holds the mutex until the end of the block. */
#define LOCK_CONCAT2(a, b) a##b
#define LOCK_CONCAT(a, b) LOCK_CONCAT2(a, b)
#define AUTO_LOCK(m)                                                                               \
    __attribute__((cleanup(lock_release), unused)) pthread_mutex_t *LOCK_CONCAT(held_, __LINE__) = \
        lock_acquire(m)

static inline pthread_mutex_t *lock_acquire(pthread_mutex_t *m)
{
    pthread_mutex_lock(m);
    return m;
}

/* A condition whose waits use the monotonic clock. */
void cond_init(pthread_cond_t *c);
/* False when timeout_ms passed; spurious wake-ups return true: loop on your predicate. */
bool cond_wait_ms(pthread_cond_t *c, pthread_mutex_t *m, int64_t timeout_ms);

/* Starts a thread with a small stack and a name (<= 15 characters, seen in top and gdb). Signals
   are blocked in it. Aborts if the system has no thread to give. */
pthread_t thread_start(const char *name, void *(*fn)(void *), void *arg);
void thread_start_detached(const char *name, void *(*fn)(void *), void *arg);

#endif
