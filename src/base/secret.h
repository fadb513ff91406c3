/* Bytes that must not leak: guarded pages, locked where the system lets us, wiped when freed. There
   is no way to print one. One owner at a time. */
#ifndef BASE_SECRET_H
#define BASE_SECRET_H

#include "base/str.h"

struct secret;

struct secret *secret_new(struct str bytes); /* copies; wiping the source is the caller's task */
void secret_free(struct secret *s);          /* NULL-safe */
/* Borrowed, valid until freed; NUL-terminated for library edges. Do not copy further than needed.
 */
struct str secret_bytes(const struct secret *s);
void secret_wipe(void *p, size_t n);

static inline void secret_cleanup(struct secret **s)
{
    secret_free(*s);
}
#define AUTO_SECRET __attribute__((cleanup(secret_cleanup))) struct secret *

#endif
