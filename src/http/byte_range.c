#include "http/byte_range.h"

#include <strings.h>

#define UNIT "bytes="

/* "a-b", "a-" or "-n"; false when it is none of them. A missing number is UINT64_MAX. */
static bool read_ends(struct str text, uint64_t *out_first, uint64_t *out_last)
{
    struct str rest = text, first;
    *out_first = *out_last = UINT64_MAX;
    if (memchr(text.p, '-', text.n) == NULL || !str_split(&rest, '-', &first))
        return false;
    if (first.n == 0 && rest.n == 0)
        return false;
    if (first.n && !str_to_u64(first, out_first))
        return false;
    if (rest.n && !str_to_u64(rest, out_last))
        return false;
    return first.n == 0 || rest.n == 0 || *out_first <= *out_last;
}

err byte_range_read(struct str header, uint64_t size, struct byte_range *out)
{
    struct byte_range whole = {.length = size};
    size_t n = sizeof UNIT - 1;
    uint64_t first, last;
    *out = whole;
    if (header.n <= n || strncasecmp(header.p, UNIT, n) != 0 ||
        !read_ends((struct str){header.p + n, header.n - n}, &first, &last))
        return 0;
    bool suffix = first == UINT64_MAX; /* the last so many */
    if (suffix ? last == 0 || size == 0 : first >= size)
        return fail(E_RANGE, "the range asked for is not in these %llu bytes",
                    (unsigned long long)size);
    uint64_t from = !suffix ? first : last < size ? size - last : 0;
    uint64_t end = suffix || last >= size ? size : last + 1;
    *out = (struct byte_range){.partial = true, .from = from, .length = end - from};
    return 0;
}
