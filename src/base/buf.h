/* A growable byte buffer on the heap. Zero-initialise it, or AUTO_BUF; buf_done() frees. One owner
   at a time. Never fails; callers cap what users can make it hold. */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include "base/str.h"

#include <stdarg.h>

struct buf {
    char *p; /* NUL behind the last byte once anything was added */
    size_t n, cap;
};

void buf_done(struct buf *b); /* frees and zeroes */
void buf_reserve(struct buf *b, size_t more);
void buf_add(struct buf *b, const void *p, size_t n);
void buf_add_str(struct buf *b, struct str s);
void buf_add_c(struct buf *b, const char *s);
void buf_add_char(struct buf *b, char c);
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_vprintf(struct buf *b, const char *fmt, va_list ap);
/* Drops the first n bytes. */
void buf_drop(struct buf *b, size_t n);
void buf_clear(struct buf *b); /* n = 0, memory kept */

static inline struct str buf_str(const struct buf *b)
{
    return (struct str){b->p ? b->p : "", b->n};
}
#define AUTO_BUF __attribute__((cleanup(buf_done))) struct buf

#endif
