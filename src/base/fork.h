/* A step of a process that it does not want to have done itself: what reads hostile data, gives up
   rights for good, or may hang. It runs in a child that ends afterwards; its error and its result
   come back. Only in processes without other threads. */
#ifndef BASE_FORK_H
#define BASE_FORK_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

/* fn fills `n` bytes of `result` in the child, which starts as zeroes. E_TIMEOUT when it took
   longer than timeout_ms (then it is killed); E_INTERNAL when it died. `result` is not written on
   error. */
err fork_call(err (*fn)(void *arg, void *result), void *arg, void *result, size_t n,
              int64_t timeout_ms);

#endif
