/* Walks a folder that hostile programs filled, or are filling: any depth, any names, links never
   followed, other file systems left alone. One thread; what it calls runs on the same. */
#ifndef BASE_WALK_H
#define BASE_WALK_H

#include "base/err.h"

#include <stdint.h>
#include <sys/stat.h>

struct walk {
    /* Each entry, a folder before what is in it: `name` in the open folder `dir`. */
    err (*entry)(void *arg, int dir, const char *name, const struct stat *st);
    /* May be NULL. Between them come the entries of the folder (itself open as `dir`); not called
       for the top. */
    err (*enter)(void *arg, int dir, const char *name);
    err (*leave)(void *arg, int dir, const struct stat *st);
    void *arg;
};

/* `top` is an open folder, borrowed. What vanishes meanwhile is passed over; E_CONFLICT when a very
   deep folder is moved away under us. Otherwise the first error of a callback. */
err walk_folder(int top, const struct walk *w);

/* Bytes on disk of all there is beneath `path` and of itself, files with several names counted
   once. 0 when it does not exist. */
err walk_measure(const char *path, uint64_t *out_bytes);

#endif
