/* Query parameters: decoded once, each at most once, and none that the route row does not name: a
   misspelt filter must not silently return everything. */
#include "http/exchange.h"
#include "http/route.h"

#define CODE "invalid_query"
#define QUERIES_MAX 32

static err read_pair(struct arena *a, struct str pair, struct http_query *out)
{
    struct str rest = pair, name;
    str_split(&rest, '=', &name);
    struct http_query q;
    TRY(route_decode(a, name, true, &q.name));
    size_t skip = name.n < pair.n ? name.n + 1 : name.n;
    TRY(route_decode(a, (struct str){pair.p + skip, pair.n - skip}, true, &q.value));
    *out = q;
    return 0;
}

static err refuse_duplicate(const struct http_query *queries, size_t count, struct str name)
{
    for (size_t i = 0; i < count; i++)
        if (str_eq(queries[i].name, name))
            return fail_as(E_INVALID, CODE, "the query parameter %.*s is given more than once",
                           STR_ARG(name));
    return 0;
}

err query_parse(struct arena *a, struct str raw, const struct http_query **out, size_t *out_count)
{
    struct http_query *queries = arena_alloc(a, QUERIES_MAX * sizeof *queries);
    size_t count = 0;
    for (size_t i = 0; i < raw.n;) {
        const char *amp = memchr(raw.p + i, '&', raw.n - i);
        size_t n = amp ? (size_t)(amp - raw.p) - i : raw.n - i;
        struct str pair = {raw.p + i, n};
        i += n + 1;
        if (n == 0)
            continue;
        if (count == QUERIES_MAX)
            return fail_as(E_INVALID, CODE, "more than %d query parameters", QUERIES_MAX);
        struct http_query q;
        TRY(read_pair(a, pair, &q));
        TRY(refuse_duplicate(queries, count, q.name));
        queries[count++] = q;
    }
    *out = queries;
    *out_count = count;
    return 0;
}

static bool in_words(const char *words, struct str word)
{
    while (words && *words) {
        size_t n = strcspn(words, " ");
        if (n && str_eq(word, (struct str){words, n}))
            return true;
        words += n;
        words += strspn(words, " ");
    }
    return false;
}

err query_check(const struct route *row, const struct http_query *queries, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct str name = queries[i].name;
        if (in_words(row->query, name) || (row->list && in_words("limit cursor order", name)))
            continue;
        return fail_as(E_INVALID, CODE, "there is no query parameter %.*s here",
                       (int)(name.n < 64 ? name.n : 64), name.p);
    }
    return 0;
}
