/* Small things that resources share when they read rows and show them. */
#ifndef API_ROWS_H
#define API_ROWS_H

#include "base/id.h"
#include "base/json.h"
#include "db/db.h"

struct ctx;

/* Copies an id column; one that is too long (never made by us) becomes "". `out` has ID_MAX bytes.
 */
void row_id(struct db_rows *r, int column, char out[ID_MAX]);
int64_t row_time(struct db_rows *r, int column); /* -1 for NULL */

/* Where a list in (created_at, id) order starts: bounds for `(created_at, id) < (…)` or `>`. */
struct row_start {
    int64_t at;
    const char *id;
};
struct row_start row_start_at(bool has_after, bool ascending, int64_t after_at,
                              const char *after_id);
struct row_start row_start_of(const struct ctx *ctx); /* the same from ctx->page */

/* Ends the query: *out is the array of what `read` makes of each row. */
err rows_collect(struct db_rows *r, err (*read)(struct db_rows *r, json_t **out), json_t **out);

/* For reply_page: the key of a resource that shows id and createdAt. */
void row_key_of_created(const json_t *row, int64_t *out_at, char out_id[ID_MAX]);

/* A query parameter that is true or false when it is there: E_INVALID otherwise. */
err query_bool_check(struct ctx *ctx, const char *name);
bool query_bool(const struct ctx *ctx, const char *name); /* false when absent */

/* JSON text that we wrote ourselves; E_INTERNAL naming `what` when it does not parse. */
err row_json(struct str text, const char *what, json_t **out);

#endif
