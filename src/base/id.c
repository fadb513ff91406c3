#include "base/id.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static const char alphabet[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";

void rand_bytes(void *p, size_t n)
{
    char *at = p;
    while (n > 0) {
        size_t chunk = n < 256 ? n : 256; /* never short, never interrupted at this size */
        if (getrandom(at, chunk, 0) != (ssize_t)chunk)
            abort();
        at += chunk;
        n -= chunk;
    }
}

const char *id_make(const char *prefix, int64_t wall_ms, const uint8_t low[10], char *out)
{
    uint8_t raw[16];
    for (int i = 0; i < 6; i++)
        raw[i] = (uint8_t)((uint64_t)wall_ms >> (40 - 8 * i));
    memcpy(raw + 6, low, 10);
    size_t n = strlen(prefix);
    assert(n + 28 <= ID_MAX);
    memcpy(out, prefix, n);
    char *at = out + n;
    *at++ = '_';
    unsigned bits = 0, have = 2; /* 130 bits, five a character: two zero bits lead */
    for (size_t i = 0; i < sizeof raw; i++) {
        bits = bits << 8 | raw[i];
        for (have += 8; have >= 5;)
            *at++ = alphabet[bits >> (have -= 5) & 31];
    }
    *at = 0;
    return out;
}

const char *id_new(const char *prefix, int64_t wall_ms, char *out)
{
    uint8_t low[10];
    rand_bytes(low, sizeof low);
    return id_make(prefix, wall_ms, low, out);
}

bool id_valid(struct str s, const char *prefix)
{
    size_t n = strlen(prefix);
    if (s.n != n + 27 || memcmp(s.p, prefix, n) != 0 || s.p[n] != '_' || s.p[n + 1] > '7')
        return false;
    for (size_t i = n + 1; i < s.n; i++)
        if (s.p[i] == 0 || strchr(alphabet, s.p[i]) == NULL)
            return false;
    return true;
}

int64_t id_time_ms(struct str id)
{
    const char *at = memchr(id.p, '_', id.n);
    int64_t ms = 0;
    for (int i = 1; i <= 10; i++) { /* 50 bits: two zero bits lead */
        const char *digit = strchr(alphabet, at[i]);
        ms = ms << 5 | (digit - alphabet);
    }
    return ms;
}
