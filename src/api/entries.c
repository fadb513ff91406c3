/* GET /v1/sessions/:id/entries: the lines of the log as they are, by position (§5.1). */
#include "api/routes.h"
#include "api/service.h"
#include "api/sessions.h"
#include "session/history.h"
#include "session/manager.h"

#define PAGE_BYTES_MAX (16 * MB) /* of lines; a page of longer ones has fewer */

void session_position_key(const json_t *row, int64_t *out_at, char out_id[ID_MAX])
{
    *out_at = json_get_int(row, "position", 0);
    out_id[0] = 0;
}

/* from=POSITION begins a list there; a cursor goes on from where its page ended. */
static err session_position_query(struct ctx *ctx, struct history_query *out)
{
    struct str from = ctx_query(ctx, "from");
    uint64_t position = 0;
    if (from.p && (!str_to_u64(from, &position) || position == 0 || position > INT64_MAX / 2))
        return fail(E_INVALID, "query parameter from must be a position: 1 or more");
    *out = (struct history_query){
        .has_after = ctx->page.has_after,
        .after = ctx->page.after_at,
        .ascending = ctx->page.ascending,
        .limit = ctx->page.limit + 1,
    };
    if (from.p && !ctx->page.has_after) {
        out->has_after = true;
        out->after = (int64_t)position + (ctx->page.ascending ? -1 : 1);
    }
    return 0;
}

err session_position_page(struct ctx *ctx, const char *session, json_t **out)
{
    struct history_query query;
    bool cut = false;
    TRY(session_position_query(ctx, &query));
    query.bytes_max = PAGE_BYTES_MAX;
    query.out_cut = &cut;
    TRY(history_entries(session_manager_logs_dir(ctx->service->sessions), ctx->tenant, session,
                        &query, out));
    if (cut) /* the last row says that there is more, as in a full page */
        ctx->page.limit = (uint32_t)json_array_size(*out) - 1;
    return 0;
}

static err entries_list(struct ctx *ctx)
{
    struct session_row row;
    json_t *list = NULL;
    TRY(ctx_session(ctx, &row));
    TRY(session_position_page(ctx, row.id, &list));
    return reply_page(ctx, list, session_position_key);
}

ROUTES(entries,
       {GET, "/v1/sessions/:id/entries", entries_list, .scope = SCOPE_READ, .where = HTTP_LONG,
        .list = true, .limit_default = 100, .limit_max = 1000, .oldest_first = true,
        .query = "from"}, )
