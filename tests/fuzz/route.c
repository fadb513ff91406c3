/* sources: src/http/route.c src/http/query.c src/http/guard.c src/http/idempotency.c */
/* sources: src/base/str.c src/base/arena.c src/base/mem.c src/base/err.c src/base/buf.c */
/* sources: src/base/clock.c src/base/json.c src/base/json_scan.c */
/* sources: src/base/lock.c src/base/log.c src/base/fd.c src/base/id.c */
/* Everything of a request that is ours to parse: target, query, header fields, idempotency key.
   What is accepted must be what the rest of the code relies on: segments without slash and NUL,
   UTF-8, names in no query twice, keys of visible ASCII. The first byte says which. */
#include "http/route.h"
#include "http/exchange.h"
#include "http/guard.h"

#include "db/db.h"

#include <stdlib.h>

static err nothing(struct ctx *ctx)
{
    (void)ctx;
    return 0;
}

static const struct route rows[] = {
    {GET, "/v1/a/:b/c/:d", nothing, .scope = SCOPE_NONE, .list = true, .query = "one two"},
    {POST, "/v1/a", nothing, .scope = SCOPE_NONE},
    {0},
};
static const struct route *const tables[] = {rows, NULL};

/* What idempotency.c calls beyond what is tested here. */
void problem_reply(struct http_exchange *x, err e)
{
    (void)x;
    (void)e;
}
void reply_header(struct ctx *ctx, const char *name, const char *value)
{
    (void)ctx;
    (void)name;
    (void)value;
}
void exchange_reset_reply(struct http_exchange *x)
{
    (void)x;
}
err reply_bytes(struct ctx *ctx, int status, const char *type, struct str body)
{
    (void)ctx;
    (void)type;
    (void)body;
    return status;
}
err reply_empty(struct ctx *ctx, int status)
{
    (void)ctx;
    return status;
}
err db_read(struct db *db, db_fn fn, void *arg)
{
    (void)db;
    (void)fn;
    (void)arg;
    return E_INTERNAL;
}
err db_write(struct db *db, db_fn fn, void *arg)
{
    return db_read(db, fn, arg);
}
err db_exec(struct db_conn *c, const char *sql, const struct db_value *args, size_t n, int64_t *out)
{
    (void)c;
    (void)sql;
    (void)args;
    (void)n;
    (void)out;
    return E_INTERNAL;
}
err db_query(struct db_conn *c, const char *sql, const struct db_value *args, size_t n,
             struct db_rows **out)
{
    (void)out;
    return db_exec(c, sql, args, n, NULL);
}
bool db_next(struct db_rows *r)
{
    (void)r;
    return false;
}
err db_rows_done(struct db_rows *r)
{
    (void)r;
    return 0;
}
int64_t db_int(struct db_rows *r, int column)
{
    (void)r;
    return column;
}
struct str db_str(struct db_rows *r, int column)
{
    (void)r;
    (void)column;
    return (struct str){0};
}

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void try_query(struct arena *a, struct str raw)
{
    const struct http_query *queries;
    size_t n;
    if (query_parse(a, raw, &queries, &n))
        return;
    for (size_t i = 0; i < n; i++) {
        must(str_is_utf8(queries[i].name) && str_is_utf8(queries[i].value));
        must(!str_has_nul(queries[i].name) && !str_has_nul(queries[i].value));
        for (size_t k = 0; k < i; k++)
            must(!str_eq(queries[i].name, queries[k].name));
    }
    (void)query_check(&rows[0], queries, n);
}

static void try_target(struct arena *a, struct str target)
{
    struct route_path path;
    struct str query;
    if (route_split(a, target, &path, &query))
        return;
    must(path.count >= 1 && path.count <= ROUTE_SEGMENTS_MAX);
    for (size_t i = 0; i < path.count; i++) {
        struct str s = path.segments[i];
        must(str_is_utf8(s) && !str_has_nul(s));
        must(s.n == 0 || memchr(s.p, '/', s.n) == NULL);
    }
    struct route_match match;
    route_find(tables, &path, GET, &match);
    try_query(a, query.p ? query : STR(""));
}

static void try_fields(struct str text)
{
    struct http_field fields[GUARD_FIELDS_MAX + 1];
    size_t count = 0;
    struct str line;
    while (count <= GUARD_FIELDS_MAX && str_split(&text, '\n', &line)) {
        struct str name;
        struct str rest = line;
        str_split(&rest, ':', &name);
        fields[count++] = (struct http_field){name, rest.p ? rest : STR("")};
    }
    if (guard_check(fields, count))
        return;
    for (size_t i = 0; i < count; i++)
        must(fields[i].name.n > 0 && !str_has_nul(fields[i].value));
}

static void try_key(struct arena *a, struct str value)
{
    const char *key;
    if (idempotency_key_read(a, value, &key))
        return;
    must(strlen(key) >= 1 && strlen(key) <= 255);
    for (; *key; key++)
        must(*key > 0x20 && *key < 0x7f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n == 0)
        return 0;
    AUTO_ARENA a = arena_new();
    struct str text = {(const char *)data + 1, n - 1};
    switch (data[0]) {
    case 't':
        try_target(a, text);
        break;
    case 'q':
        try_query(a, text);
        break;
    case 'f':
        try_fields(text);
        break;
    default:
        try_key(a, text);
    }
    return 0;
}
