/* pi-managed why: what happened in a session, in one timeline, and what it cost. */
#include <stdio.h>
#include <string.h>

#include "cli/resource.h"
#include "cli/text.h"
#include "cli/timeline.h"

#define SAID_COLUMNS 120

static const struct column columns[] = {
    {"AFTER", "offsetMs", COLUMN_MS, 0}, {"TOOK", "durationMs", COLUMN_MS, 0},
    {"COST", "costUsd", COLUMN_USD, 0},  {"WHAT", "kind", COLUMN_TEXT, 0},
    {"DETAILS", "text", COLUMN_TEXT, 0}, {0},
};

static err fetch(struct remote *r, const char *id, json_t **out_session, json_t **out_events)
{
    AUTO_BUF path = {0};
    AUTO_BUF events = {0};
    AUTO_JSON session = NULL;
    buf_printf(&path, "%s/%s", session_resource.path, id);
    TRY(remote_get(r, path.p, &session));
    buf_printf(&events, "%s/events?order=asc&limit=1000", path.p);
    TRY(remote_list(r, events.p, SIZE_MAX, out_events));
    *out_session = json_incref(session);
    return 0;
}

static void print_head(const json_t *session)
{
    AUTO_BUF line = {0};
    const json_t *agent = json_object_get(session, "agent");
    const json_t *model = json_object_get(agent, "model");
    struct str title = json_get_str(session, "title");
    const char *stop = json_get_c(json_object_get(session, "stopReason"), "type");
    buf_printf(&line, "%s  %s", json_get_c(session, "id"), json_get_c(session, "status"));
    if (stop)
        buf_printf(&line, " (%s)", stop);
    buf_add_c(&line, "  agent ");
    text_add_line(&line, json_get_str(agent, "name"), 0);
    buf_printf(&line, " version %lld, ", (long long)json_get_int(session, "agentVersion", 0));
    text_add_line(&line, json_get_str(model, "provider"), 0);
    buf_add_char(&line, '/');
    text_add_line(&line, json_get_str(model, "id"), 0);
    if (title.n) {
        buf_add_c(&line, "  ");
        text_add_line(&line, title, 0);
    }
    printf("%s\n\n", line.p);
}

/* The members of totals that make "3 model requests in 1.2 s (1 failed)". */
static const struct count {
    const char *count, *one, *many;
    const char *ms, *failed; /* NULL: not said */
} counts[] = {
    {"turns", "turn", "turns", "runMs", NULL},
    {"modelRequests", "model request", "model requests", "modelMs", "failedModelRequests"},
    {"retries", "retry", "retries", NULL, NULL},
    {"toolCalls", "tool call", "tool calls", "toolMs", "failedToolCalls"},
    {"sandboxStarts", "sandbox start", "sandbox starts", "sandboxMs", NULL},
};

static void add_count(struct buf *out, const json_t *totals, const struct count *c)
{
    int64_t n = json_get_int(totals, c->count, 0);
    if (n == 0)
        return;
    buf_printf(out, "%s%lld %s", out->n ? ", " : "", (long long)n, n == 1 ? c->one : c->many);
    if (c->ms) {
        buf_add_c(out, " in ");
        text_add_ms(out, json_get_int(totals, c->ms, 0));
    }
    int64_t bad = c->failed ? json_get_int(totals, c->failed, 0) : 0;
    if (bad)
        buf_printf(out, " (%lld failed)", (long long)bad);
}

static void print_totals(const json_t *totals)
{
    AUTO_BUF line = {0};
    int64_t cached = json_get_int(totals, "cacheReadInputTokens", 0);
    int64_t stored = json_get_int(totals, "cacheCreationInputTokens", 0);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        add_count(&line, totals, &counts[i]);
    printf("\n%s\n", line.n ? line.p : "Nothing has happened yet.");
    if (line.n == 0)
        return;
    buf_clear(&line);
    double usd = json_get_real(totals, "costUsd", 0);
    if (json_get_int(totals, "unpricedModelRequests", 0) && usd == 0)
        buf_add_c(&line, "No price known");
    else
        text_add_usd(&line, usd);
    buf_printf(&line, "%s: %lld tokens in, %lld from cache, %lld to cache, %lld out",
               json_get_bool(totals, "estimated", false) ? " (some of it estimated)" : "",
               (long long)json_get_int(totals, "inputTokens", 0), (long long)cached,
               (long long)stored, (long long)json_get_int(totals, "outputTokens", 0));
    printf("%s\n", line.p);
}

/* X-Request-Id of an answer of the service: also in its errors (requestId) and its log. */
static err find_by_request(struct remote *r, const char *word, char out_id[ID_MAX])
{
    AUTO_BUF path = {0};
    AUTO_JSON rows = NULL;
    buf_printf(&path, "%s?limit=1&requestId=", session_resource.path);
    remote_escape(&path, word);
    TRY(remote_list(r, path.p, 1, &rows));
    if (json_array_size(rows))
        return resource_find(r, &session_resource, json_get_c(json_array_get(rows, 0), "id"),
                             out_id);
    return fail(E_NOT_FOUND,
                "the request %.80s made no session and spoke to none (or it is deleted); the "
                "service's log tells what became of it: look for its requestId there",
                word);
}

/* An id that the client chose for its request looks like anything. */
static err find(struct remote *r, const char *word, char out_id[ID_MAX])
{
    if (id_valid(str_of(word), "req"))
        return find_by_request(r, word, out_id);
    err e = resource_find(r, &session_resource, word, out_id);
    struct err_slot slot;
    err_save(&slot);
    if (e == E_NOT_FOUND && find_by_request(r, word, out_id) == 0)
        return 0;
    return e ? err_restore(&slot) : 0;
}

/* What the request said, among what others did. */
static void mark_rows(const json_t *timeline, const char *request)
{
    const json_t *rows = json_object_get(timeline, "rows");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        json_t *row = json_array_get(rows, i);
        const char *id = json_get_c(row, "requestId");
        if (id && strcmp(id, request) == 0)
            json_object_set_new(row, "kind", json_sprintf("%s <--", json_get_c(row, "kind")));
    }
}

/* What was said is cut; what went wrong is what the person came for. */
static void shorten_rows(const json_t *timeline)
{
    static const char *const whole[] = {"error", "retry", "model"};
    const json_t *rows = json_object_get(timeline, "rows");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        json_t *row = json_array_get(rows, i);
        const char *kind = json_get_c(row, "kind");
        bool keep = json_get_bool(row, "isError", false);
        for (size_t k = 0; k < sizeof whole / sizeof *whole; k++)
            keep = keep || strcmp(kind, whole[k]) == 0;
        AUTO_BUF text = {0};
        text_add_line(&text, json_get_str(row, "text"), keep ? 0 : SAID_COLUMNS);
        json_set_str(row, "text", buf_str(&text));
    }
}

static err why_work(struct remote *r)
{
    char id[ID_MAX];
    AUTO_JSON session = NULL;
    AUTO_JSON events = NULL;
    TRY(find(r, r->call->arguments[0], id));
    TRY(fetch(r, id, &session, &events));
    AUTO_JSON timeline = timeline_of(events);
    json_object_set(timeline, "session", session);
    if (remote_json(r)) {
        remote_print(timeline);
        return 0;
    }
    print_head(session);
    shorten_rows(timeline);
    mark_rows(timeline, r->call->arguments[0]);
    table_print(json_object_get(timeline, "rows"), columns);
    print_totals(json_object_get(timeline, "totals"));
    return 0;
}

static int run(const struct invocation *call)
{
    return remote_run(call, why_work);
}

static const struct option options[] = {OPTION_JSON, REMOTE_OPTIONS, {0}};

const struct command why_command = {
    .name = "why",
    .arguments = "SESSION|REQUEST_ID",
    .summary = "Tells what happened in a session: one timeline, durations, retries, cost.",
    .details =
        "Messages, model requests with tokens and price, retries, sandbox starts, tool calls "
        "and errors;\nthe sums at the end. REQUEST_ID is the X-Request-Id of an answer of the "
        "API: what that request\nsaid is marked with <--.",
    .options = options,
    .run = run,
};
