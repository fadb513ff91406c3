/* What an engine provides to objects.c: one file (fs.c, later s3.c), one const struct, one row in
   objects.c. objects.c checks keys and hashes; engines move bytes. The structs of an engine begin
   with these. */
#ifndef OBJECTS_ENGINE_H
#define OBJECTS_ENGINE_H

#include "objects/objects.h"

#include <sodium.h>

struct object_engine {
    const char *scheme;                                  /* "file:" */
    err (*open)(const char *rest, struct objects **out); /* rest: the URL behind the scheme */
    void (*close)(struct objects *o);
    err (*put_begin)(struct objects *o, const char *key, struct object_put **out);
    err (*put_write)(struct object_put *p, struct str bytes);
    err (*put_end)(struct object_put *p); /* frees it, whatever happens */
    void (*put_abort)(struct object_put *p);
    err (*get)(struct objects *o, const char *key, uint64_t from, uint64_t length,
               struct object_get **out, uint64_t *out_size);
    err (*get_read)(struct object_get *g, void *out, size_t cap, size_t *out_n);
    void (*get_close)(struct object_get *g);
    err (*size)(struct objects *o, const char *key, uint64_t *out);
    err (*remove)(struct objects *o, const char *key);
    err (*list)(struct objects *o, const char *prefix, object_fn fn, void *arg);
};

struct objects {
    const struct object_engine *engine;
};

struct object_put {
    const struct object_engine *engine;
    crypto_hash_sha256_state hash; /* objects.c's, as is size */
    uint64_t size;
};

struct object_get {
    const struct object_engine *engine;
};

extern const struct object_engine objects_fs;

#endif
