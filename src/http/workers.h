/* A pool of threads that run jobs from one bounded queue. workers_post: any thread. */
#ifndef HTTP_WORKERS_H
#define HTTP_WORKERS_H

#include <stdbool.h>

struct workers;

/* `name` (<= 12 characters) is what top and gdb show, with the number of the thread. */
struct workers *workers_new(const char *name, unsigned threads, unsigned queue_max);
/* False when the queue is full: the caller says so to its client (503). fn gets `stopping` = true
   for jobs that were still waiting at workers_free: it must only clean up. */
bool workers_post(struct workers *w, void (*fn)(void *arg, bool stopping), void *arg);
bool workers_full(struct workers *w);
/* Runs what is queued with stopping = true, waits for what is running, ends the threads. From then
   on nothing can be posted. */
void workers_stop(struct workers *w);
/* Stops if that was not done. NULL-safe. */
void workers_free(struct workers *w);

#endif
