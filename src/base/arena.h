/* Region memory: everything made for one request or task is allocated here and dies with it.
   Not thread-safe: one owner at a time. Memory is zeroed. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include "base/str.h"

#include <stdarg.h>

struct arena;

struct arena *arena_new(void);
void arena_free(struct arena *a); /* NULL-safe */

void *arena_alloc(struct arena *a, size_t n);
char *arena_strdup(struct arena *a, const char *s);
/* A NUL-terminated copy. */
struct str arena_str(struct arena *a, struct str s);
char *arena_printf(struct arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
char *arena_vprintf(struct arena *a, const char *fmt, va_list ap);
/* Runs fn(arg) when the arena is freed, newest first. */
void arena_defer(struct arena *a, void (*fn)(void *), void *arg);

static inline void arena_cleanup(struct arena **a)
{
    arena_free(*a);
}
#define AUTO_ARENA __attribute__((cleanup(arena_cleanup))) struct arena *

#endif
