/* Small things that resources share when they read rows and show them. */
#include "api/rows.h"

#include <stdio.h>

#include "base/clock.h"
#include "http/http.h"

void row_id(struct db_rows *r, int column, char out[ID_MAX])
{
    struct str s = db_str(r, column);
    size_t n = s.n < ID_MAX ? s.n : 0;
    if (n)
        memcpy(out, s.p, n);
    out[n] = 0;
}

int64_t row_time(struct db_rows *r, int column)
{
    return db_is_null(r, column) ? -1 : db_int(r, column);
}

struct row_start row_start_at(bool has_after, bool ascending, int64_t after_at,
                              const char *after_id)
{
    if (has_after)
        return (struct row_start){after_at, after_id};
    return (struct row_start){ascending ? INT64_MIN : INT64_MAX, ""};
}

struct row_start row_start_of(const struct ctx *ctx)
{
    const struct page *p = &ctx->page;
    return row_start_at(p->has_after, p->ascending, p->after_at, p->after_id);
}

void row_key_of_created(const json_t *row, int64_t *out_at, char out_id[ID_MAX])
{
    const char *created = json_get_c(row, "createdAt"), *id = json_get_c(row, "id");
    if (created == NULL || !clock_parse(created, out_at))
        *out_at = 0;
    snprintf(out_id, ID_MAX, "%s", id ? id : "");
}

err row_json(struct str text, const char *what, json_t **out)
{
    if (json_read(text, out) != 0)
        return fail(E_INTERNAL, "%s in the database is not valid JSON", what);
    return 0;
}

err query_bool_check(struct ctx *ctx, const char *name)
{
    struct str value = ctx_query(ctx, name);
    if (value.p == NULL || str_is(value, "true") || str_is(value, "false"))
        return 0;
    return fail(E_INVALID, "query parameter %s must be true or false", name);
}

bool query_bool(const struct ctx *ctx, const char *name)
{
    return str_is(ctx_query(ctx, name), "true");
}

err rows_collect(struct db_rows *r, err (*read)(struct db_rows *r, json_t **out), json_t **out)
{
    json_t *list = json_array();
    err e = 0;
    while (e == 0 && db_next(r)) {
        json_t *row = NULL;
        e = read(r, &row);
        if (e == 0)
            json_array_append_new(list, row);
    }
    err done = db_rows_done(r);
    if (e || done) {
        json_decref(list);
        return e ? e : done;
    }
    *out = list;
    return 0;
}
