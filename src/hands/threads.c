#include "hands/threads.h"

#include <pthread.h>

#define STACK_BYTES ((size_t)256 * 1024)

bool thread_try(const char *name, void *(*fn)(void *), void *arg)
{
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    bool ok = pthread_create(&thread, &attr, fn, arg) == 0; /* the mask is main's: all blocked */
    pthread_attr_destroy(&attr);
    if (ok)
        pthread_setname_np(thread, name);
    return ok;
}
