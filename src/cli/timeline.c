#include "cli/timeline.h"

#include <string.h>

#include "base/clock.h"
#include "cli/screen.h"
#include "cli/text.h"

#define TEXT_COLUMNS 400
#define WAIT_TOLD_MS 1000

struct telling {
    json_t *rows;     /* new */
    json_t *open;     /* new: rows that are not over yet, by "tool ID" or "request N/ATTEMPT" */
    int64_t first_ms; /* wall clock of the first event */
    int64_t turn_ms;  /* when the turn began; -1 between turns */
    int64_t turns, requests, failed_requests, retries, calls, failed_calls, sandboxes;
    int64_t model_ms, tool_ms, run_ms, sandbox_ms;
    struct {
        const char *name;
        int64_t n;
    } tokens[4];
    double cost_usd;
    int64_t unpriced; /* requests with usage whose model has no known price */
    bool estimated;
};

static int64_t time_of(const json_t *event, const char *member)
{
    int64_t ms = -1;
    const char *text = json_get_c(event, member);
    return text && clock_parse(text, &ms) ? ms : -1;
}

static json_t *add_row(struct telling *t, const json_t *event, const char *kind, struct str text)
{
    static const char *const kept[] = {"seq", "requestId", "toolCallId", "attempt"};
    json_t *row = json_pack("{s:s}", "kind", kind);
    json_set_str(row, "text", text);
    json_object_set(row, "at", json_object_get(event, "createdAt"));
    json_object_set_new(row, "offsetMs", json_integer(time_of(event, "createdAt") - t->first_ms));
    json_object_set(row, "eventId", json_object_get(event, "id"));
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        if (json_object_get(event, kept[i]))
            json_object_set(row, kept[i], json_object_get(event, kept[i]));
    }
    json_array_append_new(t->rows, row);
    return row;
}

static void add_line(struct buf *out, struct str text)
{
    text_add_line(out, text, TEXT_COLUMNS);
}

/* The blocks of an event's content, on one line. */
static void add_content(struct buf *out, const json_t *event)
{
    const json_t *content = json_object_get(event, "content");
    for (size_t i = 0; i < json_array_size(content); i++) {
        struct str text = json_get_str(json_array_get(content, i), "text");
        buf_add_c(out, i ? " " : "");
        add_line(out, text.p ? text : STR("[image]"));
    }
}

static void set_duration(json_t *row, int64_t ms)
{
    if (ms >= 0)
        json_object_set_new(row, "durationMs", json_integer(ms));
}

/* ---- messages and turns ---- */

static void tell_message(struct telling *t, const json_t *event)
{
    AUTO_BUF text = {0};
    int64_t taken_ms = time_of(event, "processedAt");
    bool withdrawn = json_get_bool(event, "withdrawn", false);
    if (withdrawn)
        buf_add_c(&text, "(withdrawn) ");
    else if (taken_ms < 0)
        buf_add_c(&text, "(waits) ");
    add_content(&text, event);
    int64_t waited_ms = withdrawn || taken_ms < 0 ? -1 : taken_ms - time_of(event, "createdAt");
    if (waited_ms >= WAIT_TOLD_MS) {
        buf_add_c(&text, " (given to the agent after ");
        text_add_ms(&text, waited_ms);
        buf_add_char(&text, ')');
    }
    json_t *row = add_row(t, event, "message", buf_str(&text));
    if (waited_ms >= 0)
        json_object_set_new(row, "waitedMs", json_integer(waited_ms));
}

static void tell_interrupt(struct telling *t, const json_t *event)
{
    add_row(t, event, "interrupt", STR("somebody interrupted the turn"));
}

static void tell_turn(struct telling *t, const json_t *event)
{
    AUTO_BUF text = {0};
    t->turn_ms = time_of(event, "createdAt");
    buf_printf(&text, "turn %lld begins", (long long)++t->turns);
    add_row(t, event, "turn", buf_str(&text));
}

/* What was open when a turn ended does not go on. */
static void close_all(struct telling *t)
{
    const char *key;
    json_t *row;
    json_object_foreach(t->open, key, row)
    {
        json_object_set_new(row, "unfinished", json_true());
    }
    json_object_clear(t->open);
}

static void tell_idle(struct telling *t, const json_t *event)
{
    AUTO_BUF text = {0};
    const char *stop = json_get_c(json_object_get(event, "stopReason"), "type");
    buf_printf(&text, "turn %lld ends: %s", (long long)t->turns, stop ? stop : "idle");
    json_t *row = add_row(t, event, "turn", buf_str(&text));
    if (t->turn_ms >= 0) {
        int64_t ms = time_of(event, "createdAt") - t->turn_ms;
        set_duration(row, ms);
        t->run_ms += ms;
    }
    t->turn_ms = -1;
    close_all(t);
}

static void tell_said(struct telling *t, const json_t *event)
{
    AUTO_BUF text = {0};
    add_content(&text, event);
    add_row(t, event, "answer", buf_str(&text));
}

static void tell_thinking(struct telling *t, const json_t *event)
{
    AUTO_BUF text = {0};
    add_line(&text, json_get_str(event, "text"));
    add_row(t, event, "thinking", buf_str(&text));
}

/* ---- model requests ---- */

static void request_key(struct buf *out, const json_t *event)
{
    buf_printf(out, "request %lld/%lld", (long long)json_get_int(event, "requestNumber", 0),
               (long long)json_get_int(event, "attempt", 1));
}

static void add_request(struct buf *out, const json_t *event)
{
    const char *provider = json_get_c(event, "provider"), *model = json_get_c(event, "model");
    int64_t attempt = json_get_int(event, "attempt", 1);
    buf_printf(out, "request %lld to %s/%s", (long long)json_get_int(event, "requestNumber", 0),
               provider ? provider : "?", model ? model : "?");
    if (attempt > 1)
        buf_printf(out, ", attempt %lld", (long long)attempt);
}

static void tell_request(struct telling *t, const json_t *event)
{
    AUTO_BUF text = {0};
    AUTO_BUF key = {0};
    add_request(&text, event);
    request_key(&key, event);
    json_object_set(t->open, key.p, add_row(t, event, "model", buf_str(&text)));
    t->requests++;
}

static void add_usage(struct telling *t, const json_t *usage, struct buf *text)
{
    static const char *const words[] = {"in", "from cache", "to cache", "out"};
    const char *gap = "; ";
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        int64_t n = json_get_int(usage, t->tokens[i].name, 0);
        t->tokens[i].n += n;
        if (n == 0)
            continue;
        buf_printf(text, "%s%lld %s", gap, (long long)n, words[i]);
        gap = ", ";
    }
    t->estimated = t->estimated || json_get_bool(usage, "estimated", false);
}

static void add_error(struct buf *text, const json_t *error)
{
    const char *code = json_get_c(error, "code");
    buf_add_c(text, code ? code : "error");
    buf_add_c(text, ": ");
    add_line(text, json_get_str(error, "message"));
}

static void tell_request_end(struct telling *t, const json_t *event)
{
    static const char *const kept[] = {"ttftMs", "usage", "price", "costUsd", "error", "aborted"};
    AUTO_BUF text = {0};
    AUTO_BUF key = {0};
    request_key(&key, event);
    json_t *row = json_object_get(t->open, key.p);
    add_request(&text, event);
    if (row == NULL) { /* its beginning is not among these events */
        row = add_row(t, event, "model", buf_str(&text));
        t->requests++;
    }
    const json_t *error = json_object_get(event, "error");
    int64_t ttft_ms = json_get_int(event, "ttftMs", -1),
            took_ms = json_get_int(event, "durationMs", -1);
    if (ttft_ms >= 0)
        buf_printf(&text, ", first token after %lld ms", (long long)ttft_ms);
    add_usage(t, json_object_get(event, "usage"), &text);
    if (json_is_object(error)) {
        buf_add_c(&text, "; failed: ");
        add_error(&text, error);
        t->failed_requests++;
    }
    json_set_str(row, "text", buf_str(&text));
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        if (json_object_get(event, kept[i]))
            json_object_set(row, kept[i], json_object_get(event, kept[i]));
    }
    set_duration(row, took_ms);
    t->model_ms += took_ms > 0 ? took_ms : 0;
    t->cost_usd += json_get_real(event, "costUsd", 0);
    if (json_is_object(json_object_get(event, "usage")) && !json_object_get(event, "costUsd"))
        t->unpriced++;
    json_object_del(t->open, key.p);
}

static void tell_error(struct telling *t, const json_t *event)
{
    AUTO_BUF text = {0};
    const json_t *retry = json_object_get(event, "retryStatus");
    const char *type = json_get_c(retry, "type");
    bool again = type && strcmp(type, "retrying") == 0;
    add_error(&text, json_object_get(event, "error"));
    json_t *row = add_row(t, event, again ? "retry" : "error", STR(""));
    if (again) {
        int64_t wait_ms = time_of(retry, "nextRetryAt") - time_of(event, "createdAt");
        buf_printf(&text, "; attempt %lld follows", (long long)json_get_int(retry, "attempt", 0));
        set_duration(row, time_of(retry, "nextRetryAt") < 0 ? -1 : wait_ms);
        t->retries++;
    }
    json_set_str(row, "text", buf_str(&text));
    json_object_set(row, "error", json_object_get(event, "error"));
}

/* Told by the error that stands before it. */
static void tell_nothing(struct telling *t, const json_t *event)
{
    (void)t;
    (void)event;
}

/* ---- tools and sandboxes ---- */

static void tell_tool_use(struct telling *t, const json_t *event)
{
    AUTO_BUF text = {0};
    AUTO_BUF key = {0};
    const char *call = json_get_c(event, "toolCallId");
    screen_add_call(&text, event, TEXT_COLUMNS);
    buf_printf(&key, "tool %s", call ? call : "");
    json_object_set(t->open, key.p, add_row(t, event, "tool", buf_str(&text)));
    t->calls++;
}

static void tell_tool_result(struct telling *t, const json_t *event)
{
    AUTO_BUF key = {0};
    const char *call = json_get_c(event, "toolCallId");
    buf_printf(&key, "tool %s", call ? call : "");
    json_t *row = json_object_get(t->open, key.p);
    if (row == NULL)
        return;
    int64_t ms = time_of(event, "createdAt") - time_of(row, "at");
    set_duration(row, ms);
    t->tool_ms += ms;
    bool failed = json_get_bool(event, "isError", false);
    json_object_set_new(row, "isError", json_boolean(failed));
    if (failed) {
        AUTO_BUF text = {0};
        buf_add_str(&text, json_get_str(row, "text"));
        buf_add_c(&text, "; failed: ");
        add_content(&text, event);
        json_set_str(row, "text", buf_str(&text));
        t->failed_calls++;
    }
    json_object_del(t->open, key.p);
}

static void tell_sandbox(struct telling *t, const json_t *event)
{
    int64_t ms = json_get_int(event, "durationMs", -1);
    set_duration(add_row(t, event, "sandbox", STR("ready for its first tool call")), ms);
    t->sandboxes++;
    t->sandbox_ms += ms > 0 ? ms : 0;
}

static void tell_compacted(struct telling *t, const json_t *event)
{
    AUTO_BUF text = {0};
    buf_printf(&text, "the conversation was summed up: %lld tokens before, %lld after",
               (long long)json_get_int(event, "tokensBefore", 0),
               (long long)json_get_int(event, "tokensAfter", 0));
    add_row(t, event, "compacted", buf_str(&text));
}

static const struct {
    const char *type;
    void (*tell)(struct telling *t, const json_t *event);
} kinds[] = {
    {"user.message", tell_message},
    {"user.interrupt", tell_interrupt},
    {"session.status_run_started", tell_turn},
    {"session.status_idle", tell_idle},
    {"session.status_rescheduled", tell_nothing},
    {"session.error", tell_error},
    {"session.compacted", tell_compacted},
    {"agent.message", tell_said},
    {"agent.thinking", tell_thinking},
    {"agent.tool_use", tell_tool_use},
    {"agent.mcp_tool_use", tell_tool_use},
    {"agent.custom_tool_use", tell_tool_use},
    {"agent.tool_result", tell_tool_result},
    {"agent.mcp_tool_result", tell_tool_result},
    {"user.custom_tool_result", tell_tool_result},
    {"span.model_request_start", tell_request},
    {"span.model_request_end", tell_request_end},
    {"span.sandbox_start", tell_sandbox},
};

static void tell(struct telling *t, const json_t *event)
{
    const char *type = json_get_c(event, "type");
    for (size_t i = 0; type && i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].type, type) == 0) {
            kinds[i].tell(t, event);
            return;
        }
    }
    add_row(t, event, "event", str_of(type ? type : "?"));
}

static json_t *totals_of(const struct telling *t)
{
    const struct {
        const char *name;
        int64_t n;
    } counts[] = {
        {"turns", t->turns},
        {"runMs", t->run_ms},
        {"modelRequests", t->requests},
        {"failedModelRequests", t->failed_requests},
        {"modelMs", t->model_ms},
        {"retries", t->retries},
        {"toolCalls", t->calls},
        {"failedToolCalls", t->failed_calls},
        {"toolMs", t->tool_ms},
        {"unpricedModelRequests", t->unpriced},
        {"sandboxStarts", t->sandboxes},
        {"sandboxMs", t->sandbox_ms},
    };
    json_t *totals = json_object();
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        json_object_set_new(totals, counts[i].name, json_integer(counts[i].n));
    for (size_t i = 0; i < sizeof t->tokens / sizeof *t->tokens; i++)
        json_object_set_new(totals, t->tokens[i].name, json_integer(t->tokens[i].n));
    json_object_set_new(totals, "costUsd", json_real(t->cost_usd));
    if (t->estimated)
        json_object_set_new(totals, "estimated", json_true());
    return totals;
}

json_t *timeline_of(const json_t *events)
{
    struct telling t = {.rows = json_array(),
                        .open = json_object(),
                        .turn_ms = -1,
                        .tokens = {{.name = "inputTokens"},
                                   {.name = "cacheReadInputTokens"},
                                   {.name = "cacheCreationInputTokens"},
                                   {.name = "outputTokens"}}};
    t.first_ms = time_of(json_array_get(events, 0), "createdAt");
    for (size_t i = 0; i < json_array_size(events); i++)
        tell(&t, json_array_get(events, i));
    json_decref(t.open);
    return json_pack("{s:o, s:o}", "rows", t.rows, "totals", totals_of(&t));
}
