#include "base/secret.h"

#include <sodium.h>
#include <stddef.h>
#include <stdlib.h>

struct secret {
    size_t n;
    char bytes[];
};

struct secret *secret_new(struct str bytes)
{
    if (sodium_init() < 0)
        abort();
    /* sodium puts the end of an object against a guard page: only a whole multiple is aligned. */
    size_t align = _Alignof(max_align_t);
    struct secret *s = sodium_malloc((sizeof *s + bytes.n + align) / align * align);
    if (s == NULL)
        abort();
    s->n = bytes.n;
    if (bytes.n)
        memcpy(s->bytes, bytes.p, bytes.n);
    s->bytes[bytes.n] = 0;
    return s;
}

void secret_free(struct secret *s)
{
    sodium_free(s);
}

struct str secret_bytes(const struct secret *s)
{
    return (struct str){s->bytes, s->n};
}

void secret_wipe(void *p, size_t n)
{
    sodium_memzero(p, n);
}
