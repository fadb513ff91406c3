/* Heap memory that never fails: running out aborts the process, as in most daemons; sizes that
   users choose are capped before they get here. Also overflow-checked size arithmetic. Any thread.
 */
#ifndef BASE_MEM_H
#define BASE_MEM_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

void *mem_alloc(size_t n); /* zeroed */
void *mem_realloc(void *p, size_t n);
void *mem_copy(const void *p, size_t n); /* n bytes and a NUL behind them */
char *mem_strdup(const char *s);
void mem_free(void *p);

static inline size_t size_add(size_t a, size_t b)
{
    size_t r;
    assert(!__builtin_add_overflow(a, b, &r));
    return r;
}

static inline size_t size_mul(size_t a, size_t b)
{
    size_t r;
    assert(!__builtin_mul_overflow(a, b, &r));
    return r;
}

/* A heap object starts with its magic number; CHECK at every entry catches stale and foreign
 * pointers. */
#define CHECK(ptr, type_magic) assert((ptr) != NULL && (ptr)->magic == (type_magic))

#endif
