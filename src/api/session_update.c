/* PATCH /v1/sessions/:id (§6.3): title, metadata and budget at any time; the agent's tools and MCP
   servers, for this session only, while it is idle. */
#include "api/agents.h"
#include "api/budget.h"
#include "api/fields.h"
#include "api/routes.h"
#include "api/service.h"
#include "api/sessions.h"
#include "session/manager.h"

static const struct field update_fields[] = {
    {.name = "title", .kinds = FIELD_STRING, .nullable = true, .line = true, .min = 1, .max = 256},
    {.name = "metadata", .kinds = FIELD_OBJECT, .nullable = true, .check = fields_metadata},
    {.name = "agent", .kinds = FIELD_OBJECT, .members = agent_session_fields},
    BUDGET_FIELD,
    {0},
};

/* The members of the agent that change, with their defaults for null, after a look at the whole. */
static err agent_change(const struct session_row *row, const json_t *members, json_t **out)
{
    AUTO_JSON agent = NULL;
    TRY(json_read(str_of(row->agent_json), &agent));
    agent_apply(agent, members);
    TRY(agent_check_whole(agent));
    TRY(agent_check_runnable(agent));
    json_t *change = json_object();
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)members, name, value)
        json_object_set(change, name, json_object_get(agent, name));
    *out = change;
    return 0;
}

static err change_of(struct ctx *ctx, const struct session_row *row, json_t **out)
{
    AUTO_JSON change = json_object();
    json_t *title = json_object_get(ctx->json, "title");
    json_object_set(change, "title", title);
    json_t *metadata = json_object_get(ctx->json, "metadata");
    if (metadata)
        json_object_set_new(change, "metadata",
                            json_is_null(metadata) ? json_object() : json_incref(metadata));
    AUTO_JSON budget = budget_of(ctx);
    json_object_set(change, "budget", budget);
    const json_t *members = json_object_get(ctx->json, "agent");
    if (json_object_size(members) > 0) {
        json_t *agent = NULL;
        TRY(agent_change(row, members, &agent));
        json_object_set_new(change, "agent", agent);
    }
    *out = json_incref(change);
    return 0;
}

static err sessions_update(struct ctx *ctx)
{
    TRY(ctx_fields(ctx, ctx->service->catalog, update_fields));
    struct session_row row;
    TRY(ctx_session(ctx, &row));
    TRY(budget_check_price(ctx, row.agent_json));
    AUTO_JSON change = NULL;
    TRY(change_of(ctx, &row, &change));
    if (json_object_size(change) > 0) {
        TRY(session_change(ctx->service->sessions, ctx->tenant, row.id, change));
        TRY(ctx_session(ctx, &row));
    }
    return reply_session(ctx, 200, &row);
}

ROUTES(session_update,
       {PATCH, "/v1/sessions/:id", sessions_update, .scope = SCOPE_WRITE, .body_max = 256 * KB}, )
