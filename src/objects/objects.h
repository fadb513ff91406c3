/* The object store: blobs by key, for what must outlive this machine's data directory (§28): copies
   of session logs, the database's snapshots, uploaded files. One interface, made for a folder
   (fs.c, the default) and S3 alike: an object is written whole or not at all, never changed in
   place, and read in ranges.

   Keys are paths of 1 to OBJECT_KEY_MAX bytes: parts of [A-Za-z0-9._-] that do not begin with a
   dot, joined by '/'. Any thread; one put or get belongs to one thread at a time. Everything here
   may block on a disk or a network. Errors: E_NOT_FOUND, E_INVALID for a bad key, E_IO. */
#ifndef OBJECTS_OBJECTS_H
#define OBJECTS_OBJECTS_H

#include "base/buf.h"
#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OBJECT_KEY_MAX 512
#define OBJECT_HASH_MAX 65       /* SHA-256 in hex with its NUL */
#define OBJECT_TO_END UINT64_MAX /* a length */

struct objects;
struct object_put; /* an object on its way in */
struct object_get; /* a range on its way out */

struct object_info {
    uint64_t size;
    char sha256[OBJECT_HASH_MAX];
};

/* url: "file:/folder" or the folder's path; it must exist. "s3://…" is refused with a clear text
   until that engine is built. What a crash left half written is removed: one store has one
   process. */
err objects_open(const char *url, struct objects **out);
void objects_close(struct objects *o); /* NULL-safe; nothing may be under way */

/* Writing: begin, write…, then end or abort. The object is there, durable and whole, when end
   returned 0, and replaces an older one of that key at one instant; otherwise nothing happened. */
err objects_put_begin(struct objects *o, const char *key, struct object_put **out);
err objects_put_write(struct object_put *p, struct str bytes);
err objects_put_end(struct object_put *take_p, struct object_info *out); /* out may be NULL */
void objects_put_abort(struct object_put *take_p);                       /* NULL-safe */
err objects_put(struct objects *o, const char *key, struct str bytes);   /* the three in one */

/* Reading `length` bytes from `from` on, fewer where the object ends. out_size, the size of the
   whole object, may be NULL. A get goes on although its object is replaced or deleted. */
err objects_get(struct objects *o, const char *key, uint64_t from, uint64_t length,
                struct object_get **out, uint64_t *out_size);
/* *out_n = 0 at the end of the range. */
err objects_get_read(struct object_get *g, void *out, size_t cap, size_t *out_n);
void objects_get_close(struct object_get *g); /* NULL-safe */

/* Appends an object of at most `max` bytes; E_TOO_LARGE. */
err objects_read(struct objects *o, const char *key, uint64_t max, struct buf *out);

err objects_size(struct objects *o, const char *key, uint64_t *out);
err objects_delete(struct objects *o, const char *key); /* 0 when there is none */

/* Calls fn for each object whose key begins with `prefix` ("" or ending in '/'), in the order of
   the keys' bytes. fn returns false to stop. It may delete what it is shown. */
typedef bool (*object_fn)(void *arg, const char *key, uint64_t size);
err objects_list(struct objects *o, const char *prefix, object_fn fn, void *arg);

#endif
