#include "base/arena.h"

#include "base/mem.h"

#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>

#define BLOCK_BYTES 4096

struct block {
    struct block *next;
    size_t used, size;
    alignas(max_align_t) char data[];
};

struct deferred {
    struct deferred *next;
    void (*fn)(void *);
    void *arg;
};

struct arena {
    struct block *blocks; /* newest first */
    struct deferred *deferred;
};

static struct block *block_new(size_t n, struct block *next)
{
    struct block *b = malloc(size_add(sizeof *b, n));
    if (b == NULL)
        abort();
    b->next = next;
    b->used = 0;
    b->size = n;
    return b;
}

struct arena *arena_new(void)
{
    return mem_alloc(sizeof(struct arena));
}

static void run_deferred(struct arena *a)
{
    while (a->deferred) {
        struct deferred *d = a->deferred;
        a->deferred = d->next;
        d->fn(d->arg);
    }
}

void arena_free(struct arena *a)
{
    if (a == NULL)
        return;
    run_deferred(a);
    while (a->blocks) {
        struct block *next = a->blocks->next;
        free(a->blocks);
        a->blocks = next;
    }
    free(a);
}

void *arena_alloc(struct arena *a, size_t n)
{
    size_t align = alignof(max_align_t);
    size_t need = size_add(n, align - 1) & ~(align - 1);
    if (a->blocks == NULL || a->blocks->size - a->blocks->used < need)
        a->blocks = block_new(need > BLOCK_BYTES ? need : BLOCK_BYTES, a->blocks);
    void *p = a->blocks->data + a->blocks->used;
    a->blocks->used += need;
    return memset(p, 0, need);
}

char *arena_strdup(struct arena *a, const char *s)
{
    return (char *)arena_str(a, str_of(s)).p;
}

struct str arena_str(struct arena *a, struct str s)
{
    char *p = arena_alloc(a, size_add(s.n, 1));
    if (s.n)
        memcpy(p, s.p, s.n);
    return (struct str){p, s.n};
}

char *arena_vprintf(struct arena *a, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    assert(n >= 0);
    char *p = arena_alloc(a, (size_t)n + 1);
    vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    return p;
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *p = arena_vprintf(a, fmt, ap);
    va_end(ap);
    return p;
}

void arena_defer(struct arena *a, void (*fn)(void *), void *arg)
{
    struct deferred *d = arena_alloc(a, sizeof *d);
    *d = (struct deferred){.next = a->deferred, .fn = fn, .arg = arg};
    a->deferred = d;
}
