#include "base/lock.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Only what is used costs memory. JSON as deep as its reader goes (2048 levels, written by a model)
   takes 700 KiB to write out again. */
#define STACK_BYTES ((size_t)1024 * 1024)

void cond_init(pthread_cond_t *c)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(c, &attr);
    pthread_condattr_destroy(&attr);
}

bool cond_wait_ms(pthread_cond_t *c, pthread_mutex_t *m, int64_t timeout_ms)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += timeout_ms / 1000;
    t.tv_nsec += timeout_ms % 1000 * 1000000;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    return pthread_cond_timedwait(c, m, &t) != ETIMEDOUT;
}

pthread_t thread_start(const char *name, void *(*fn)(void *), void *arg)
{
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    int rc = pthread_create(&thread, &attr, fn, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    if (rc != 0) {
        fprintf(stderr, "cannot start the thread %s: %s\n", name, strerror(rc));
        abort();
    }
    pthread_setname_np(thread, name);
    return thread;
}

void thread_start_detached(const char *name, void *(*fn)(void *), void *arg)
{
    pthread_detach(thread_start(name, fn, arg));
}
