#include "base/buf.h"

#include "base/mem.h"

#include <stdio.h>

void buf_done(struct buf *b)
{
    mem_free(b->p);
    *b = (struct buf){0};
}

void buf_reserve(struct buf *b, size_t more)
{
    size_t need = size_add(size_add(b->n, more), 1);
    if (need <= b->cap)
        return;
    size_t cap = b->cap ? b->cap : 64;
    while (cap < need)
        cap = size_mul(cap, 2);
    b->p = mem_realloc(b->p, cap);
    b->cap = cap;
}

void buf_add(struct buf *b, const void *p, size_t n)
{
    if (b->cap - b->n <= n)
        buf_reserve(b, n);
    if (n)
        memcpy(b->p + b->n, p, n);
    b->n += n;
    b->p[b->n] = 0;
}

void buf_add_str(struct buf *b, struct str s)
{
    buf_add(b, s.p, s.n);
}

void buf_add_c(struct buf *b, const char *s)
{
    buf_add(b, s, strlen(s));
}

void buf_add_char(struct buf *b, char c)
{
    if (b->cap - b->n < 2)
        buf_reserve(b, 1);
    b->p[b->n++] = c;
    b->p[b->n] = 0;
}

void buf_vprintf(struct buf *b, const char *fmt, va_list ap)
{
    va_list again;
    va_copy(again, ap);
    buf_reserve(b, 31); /* most fit, and are printed once */
    size_t room = b->cap - b->n;
    int n = vsnprintf(b->p + b->n, room, fmt, ap);
    assert(n >= 0);
    if ((size_t)n >= room) {
        buf_reserve(b, (size_t)n);
        vsnprintf(b->p + b->n, (size_t)n + 1, fmt, again);
    }
    va_end(again);
    b->n += (size_t)n;
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(b, fmt, ap);
    va_end(ap);
}

void buf_drop(struct buf *b, size_t n)
{
    assert(n <= b->n);
    if (n == 0)
        return;
    memmove(b->p, b->p + n, b->n - n + 1);
    b->n -= n;
}

void buf_clear(struct buf *b)
{
    b->n = 0;
    if (b->p)
        b->p[0] = 0;
}
