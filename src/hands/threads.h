/* Threads that may fail to start: the agent's code can use up the sandbox's process limit, and pid
   1 must outlive that. Small stacks, all signals blocked. */
#ifndef HANDS_THREADS_H
#define HANDS_THREADS_H

#include <stdbool.h>

bool thread_try(const char *name, void *(*fn)(void *), void *arg); /* detached */

#endif
