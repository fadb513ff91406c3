#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *checked(void *p, size_t n)
{
    if (p == NULL) {
        fprintf(stderr, "out of memory allocating %zu bytes\n", n);
        abort();
    }
    return p;
}

void *mem_alloc(size_t n)
{
    return checked(calloc(1, n ? n : 1), n);
}

void *mem_realloc(void *p, size_t n)
{
    return checked(realloc(p, n ? n : 1), n);
}

void *mem_copy(const void *p, size_t n)
{
    char *c = checked(malloc(size_add(n, 1)), n);
    if (n)
        memcpy(c, p, n);
    c[n] = 0;
    return c;
}

char *mem_strdup(const char *s)
{
    return mem_copy(s, strlen(s));
}

void mem_free(void *p)
{
    free(p);
}
