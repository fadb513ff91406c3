/* Events (§8.4, R21, R42): posting goes to the inbox in one transaction with the reply; the session
   takes it from there. Reading is a projection of the log (R17). */
#include <sodium.h>
#include <stdio.h>

#include "api/fields.h"
#include "api/routes.h"
#include "api/service.h"
#include "api/sessions.h"
#include "base/mem.h"
#include "session/history.h"
#include "session/manager.h"

#define BATCH_MAX 50
#define BLOCKS_MAX 100
#define BODY_MAX (10 * MB)
#define POSTABLE "user.message and user.interrupt"

/* What a posted event may say */

static const char *const block_types[] = {"text", "image", NULL};
static const char *const image_types[] = {"image/png", "image/jpeg", "image/gif", "image/webp",
                                          NULL};
static const char *const deliveries[] = {"followUp", "steer", NULL};

static const struct field text_fields[] = {
    {.name = "type", .kinds = FIELD_STRING, .required = true},
    {.name = "text", .kinds = FIELD_STRING, .required = true, .min = 1},
    {0},
};

static void check_base64(struct fields *f, const json_t *value)
{
    size_t n = json_string_length(value), room = n / 4 * 3 + 3, decoded;
    unsigned char *out = mem_alloc(room);
    int bad = sodium_base642bin(out, room, json_string_value(value), n, NULL, &decoded, NULL,
                                sodium_base64_VARIANT_ORIGINAL);
    mem_free(out);
    if (bad)
        fields_problem(f, NULL, "must be base64");
}

static const struct field image_fields[] = {
    {.name = "type", .kinds = FIELD_STRING, .required = true},
    {.name = "mimeType", .kinds = FIELD_STRING, .required = true, .one_of = image_types},
    {.name = "data", .kinds = FIELD_STRING, .required = true, .min = 4, .check = check_base64},
    {0},
};

static void check_block(struct fields *f, const json_t *block)
{
    struct str type = json_get_str(block, "type");
    if (str_is(type, "text"))
        fields_object(f, block, text_fields);
    else if (str_is(type, "image"))
        fields_object(f, block, image_fields);
    else
        fields_problem_at(f, "type", NULL, "must be \"%s\" or \"%s\"", block_types[0],
                          block_types[1]);
}

static const struct field block = {.kinds = FIELD_OBJECT, .check = check_block};

static const struct field message_fields[] = {
    {.name = "type", .kinds = FIELD_STRING, .required = true},
    {.name = "content",
     .kinds = FIELD_STRING | FIELD_ARRAY,
     .required = true,
     .min = 1,
     .item = &block},
    {.name = "deliverAs", .kinds = FIELD_STRING, .one_of = deliveries},
    {0},
};

static const struct field interrupt_fields[] = {
    {.name = "type", .kinds = FIELD_STRING, .required = true},
    {0},
};

/* Events of the catalogue (§9.2) whose features are not there yet. */
static bool is_later_type(struct str type)
{
    static const char *const later[] = {"user.custom_tool_result", "user.tool_confirmation",
                                        "user.define_outcome", "user.tool_result",
                                        "system.message"};
    for (size_t i = 0; i < sizeof later / sizeof *later; i++)
        if (str_is(type, later[i]))
            return true;
    return false;
}

static void check_event(struct fields *f, const json_t *event)
{
    struct str type = json_get_str(event, "type");
    if (type.p == NULL)
        fields_problem_at(f, "type", NULL, "is required: " POSTABLE " can be posted");
    else if (str_is(type, "user.message"))
        fields_object(f, event, message_fields);
    else if (str_is(type, "user.interrupt"))
        fields_object(f, event, interrupt_fields);
    else if (is_later_type(type))
        fields_problem_at(f, "type", "not_supported",
                          "%s is not supported by this version; " POSTABLE " work", type.p);
    else
        fields_problem_at(f, "type", NULL, "no such event can be posted; " POSTABLE " work");
}

static const struct field event_field = {.kinds = FIELD_OBJECT, .check = check_event};
static const struct field batch_fields[] = {
    {.name = "events",
     .kinds = FIELD_ARRAY,
     .required = true,
     .min = 1,
     .max = BATCH_MAX,
     .item = &event_field},
    {0},
};

static void report(void *arg, const char *path, const char *text)
{
    problem_add(arg, path, "%s", text);
}

/* One event, or {events: [...]}. */
static err check_body(struct ctx *ctx)
{
    struct fields f = {.report = report, .report_arg = ctx};
    if (json_is_object(ctx->json) && json_object_get(ctx->json, "events") == NULL) {
        check_event(&f, ctx->json);
        return fields_result(&f);
    }
    return fields_check(&f, ctx->json, batch_fields);
}

/* Posting */

/* R42: events always carry blocks. */
static json_t *blocks_of(json_t *content)
{
    if (!json_is_string(content))
        return json_incref(content);
    json_t *text = json_object();
    json_object_set_new(text, "type", json_string("text"));
    json_object_set(text, "text", content);
    json_t *blocks = json_array();
    json_array_append_new(blocks, text);
    return blocks;
}

/* The event as it will stand in the log. */
static json_t *event_of(const json_t *posted, const char *request_id, int64_t now)
{
    char id[ID_MAX];
    json_t *event = json_object();
    json_set_str(event, "id", str_of(id_new("evt", now, id)));
    json_set_str(event, "type", json_get_str(posted, "type"));
    json_set_time(event, "createdAt", now);
    json_set_str(event, "requestId", str_of(request_id));
    json_t *content = json_object_get(posted, "content");
    if (content) {
        json_object_set_new(event, "content", blocks_of(content));
        struct str deliver = json_get_str(posted, "deliverAs");
        json_set_str(event, "deliverAs", deliver.p ? deliver : STR("followUp"));
    }
    return event;
}

static err post_one(struct ctx *ctx, struct db_conn *c, const struct session_row *row,
                    const json_t *posted, json_t *list)
{
    int64_t now = clock_wall_ms(ctx->clock);
    json_t *event = event_of(posted, ctx->request_id, now);
    json_array_append_new(list, event);
    AUTO_BUF text = {0};
    json_write(event, &text);
    TRY(inbox_add(c, ctx->tenant, row->id, json_get_c(event, "id"), buf_str(&text), now));
    json_object_set_new(event, "processedAt", json_null());
    json_object_set_new(event, "sessionId", json_string(row->id));
    return 0;
}

static err post_all(struct ctx *ctx, struct db_conn *c, const struct session_row *row, json_t *list)
{
    const json_t *events = json_object_get(ctx->json, "events");
    if (events == NULL)
        return post_one(ctx, c, row, ctx->json, list);
    for (size_t i = 0; i < json_array_size(events); i++)
        TRY(post_one(ctx, c, row, json_array_get(events, i), list));
    return 0;
}

static err post_in(struct ctx *ctx, struct db_conn *c, void *arg)
{
    struct session_row *row = arg;
    TRY(session_find(c, ctx->arena, ctx->tenant, ctx->params[0], row));
    if (strcmp(row->status, "terminated") == 0)
        return fail_as(E_CONFLICT, "session_terminated",
                       "the session is terminated and takes no more events");
    TRY(session_note_request(c, ctx->tenant, row->id, ctx->request_id));
    json_t *reply = json_object(), *list = json_array();
    json_object_set_new(reply, "data", list);
    err e = post_all(ctx, c, row, list);
    if (e) {
        json_decref(reply);
        return e;
    }
    return reply_json(ctx, 202, reply);
}

static err events_post(struct ctx *ctx)
{
    TRY(check_body(ctx));
    struct session_row *row = arena_alloc(ctx->arena, sizeof *row);
    TRY(ctx_write(ctx, post_in, row));
    session_wake(ctx->service->sessions, ctx->tenant, row->id);
    return 0;
}

static err events_withdraw(struct ctx *ctx)
{
    struct session_row row;
    TRY(ctx_session(ctx, &row));
    struct str id = arena_str(ctx->arena, ctx->params[1]);
    if (!id_valid(id, "evt"))
        return fail_as(E_NOT_FOUND, "event_not_found", "there is no event with this id");
    TRY(session_withdraw(ctx->service->sessions, ctx->tenant, row.id, id.p));
    return reply_empty(ctx, 204);
}

/* Reading */

static void key_of_event(const json_t *row, int64_t *out_at, char out_id[ID_MAX])
{
    const char *id = json_get_c(row, "id");
    *out_at = json_get_int(row, "seq", 0);
    snprintf(out_id, ID_MAX, "%s", id ? id : "");
}

static err events_list(struct ctx *ctx)
{
    struct session_row row;
    TRY(ctx_session(ctx, &row));
    struct str type = ctx_query(ctx, "type");
    struct history_query query = {
        .has_after = ctx->page.has_after,
        .after = ctx->page.after_at,
        .ascending = ctx->page.ascending,
        .limit = ctx->page.limit + 1,
        .type = type.p ? arena_str(ctx->arena, type).p : NULL,
    };
    json_t *list = NULL;
    TRY(history_events(session_manager_logs_dir(ctx->service->sessions), ctx->tenant, row.id,
                       &query, &list));
    return reply_page(ctx, list, key_of_event);
}

ROUTES(events,
       {POST, "/v1/sessions/:id/events", events_post, .scope = SCOPE_WRITE, .idempotent = true,
        .body_max = BODY_MAX},
       {GET, "/v1/sessions/:id/events", events_list, .scope = SCOPE_READ, .where = HTTP_LONG,
        .list = true, .limit_default = 100, .limit_max = 1000, .oldest_first = true,
        .query = "type"},
       {DELETE, "/v1/sessions/:id/events/:event", events_withdraw, .scope = SCOPE_WRITE}, )
