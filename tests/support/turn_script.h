/* Plays inputs to a turn machine and tells each step in one line of text, so that tests read as
   scripts:

     assert_string_equal(post(s, "m1", "hi"), "header inbox:m1 run_started > status:running warm
   open");

   Before `>` stand the lines, behind it the effects, in order. A script keeps every line, so that
   its events (the projection) can be told too, and the machine be rebuilt from them. */
#ifndef TEST_TURN_SCRIPT_H
#define TEST_TURN_SCRIPT_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "session/projection.h"
#include "session/turn.h"

#include <stdio.h>

#define SCRIPT_SESSION "sess_01ARZ3NDEKTSV4RRFFQ69G5FAV"
#define SCRIPT_START_MS 1796040000000 /* 2026-11-30T12:00:00Z */

struct script {
    struct turn *t;
    struct arena *a; /* lives as long as the script */
    int64_t now_ms;
    uint64_t seed;
    unsigned entries; /* made by Pi so far: their ids */
    char leaf[24];
    struct str *lines;
    json_t **entries_read; /* the lines, read; NULL where one is no JSON */
    size_t n, kept, cap;   /* kept: read, of which n count (a crash forgets some) */
    const json_t *budget;
    double tenant_usd, reserved_usd; /* what the tenant may spend; 0 = no limit */
    struct turn_output out;          /* of the last step */
    struct buf told;
};

static inline uint64_t script_random(void *arg)
{
    uint64_t *x = arg; /* splitmix64 */
    uint64_t z = (*x += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline double script_price(void *arg, const struct session_usage *u, json_t *out_price,
                                  bool *out_known)
{
    (void)arg;
    json_object_set_new(out_price, "input", json_real(1));
    *out_known = true;
    return (double)(u->input_tokens + u->output_tokens) / 1e6;
}

static inline err script_reserve(void *arg, int64_t now_ms, double usd)
{
    struct script *s = arg;
    (void)now_ms;
    if (s->tenant_usd > 0 && usd > s->tenant_usd)
        return fail(E_QUOTA, "the tenant is poor");
    s->reserved_usd = usd;
    return 0;
}

static inline void script_settle(void *arg, double usd)
{
    struct script *s = arg;
    s->reserved_usd = 0;
    s->tenant_usd -= s->tenant_usd > 0 ? usd : 0;
}

static inline struct turn *script_machine(struct script *s)
{
    return turn_new(&(struct turn_options){.tenant = "tenant_1",
                                           .session = SCRIPT_SESSION,
                                           .random = script_random,
                                           .random_arg = &s->seed,
                                           .price = script_price,
                                           .budget = s->budget,
                                           .reserve = script_reserve,
                                           .settle = script_settle,
                                           .spend_arg = s,
                                           .provider = "acme",
                                           .model = "m-1"});
}

static inline struct script *script_new(uint64_t seed)
{
    struct script *s = mem_alloc(sizeof *s);
    s->a = arena_new();
    s->seed = seed;
    s->now_ms = SCRIPT_START_MS;
    s->t = script_machine(s);
    return s;
}

static inline void script_free(struct script *s)
{
    turn_free(s->t);
    arena_free(s->a);
    buf_done(&s->told);
    while (s->kept > 0)
        json_decref(s->entries_read[--s->kept]);
    mem_free(s->entries_read);
    mem_free(s->lines);
    mem_free(s);
}

/* A new machine from the first n lines, as after a crash; later lines are gone. */
static inline void script_restart(struct script *s, size_t n)
{
    turn_free(s->t);
    s->t = script_machine(s);
    s->n = n;
    while (s->kept > n)
        json_decref(s->entries_read[--s->kept]);
    for (size_t i = 0; i < n; i++)
        turn_load_line(s->t, s->lines[i]);
}

/* ---- telling ---- */

static inline const char *last_word(const char *type)
{
    const char *dot = type ? strrchr(type, '.') : NULL;
    const char *word = dot ? dot + 1 : type ? type : "?";
    return strncmp(word, "status_", 7) == 0           ? word + 7
           : strncmp(word, "model_request_", 14) == 0 ? word + 14
                                                      : word;
}

static inline void tell_event(struct buf *b, const json_t *event)
{
    const char *type = json_get_c(event, "type");
    buf_printf(b, "%s", last_word(type));
    const json_t *reason = json_object_get(event, "stopReason");
    if (reason)
        buf_printf(b, ":%s", json_get_c(reason, "type"));
    if (json_object_get(event, "requestNumber"))
        buf_printf(b, ":%lld", (long long)json_get_int(event, "requestNumber", 0));
    const json_t *error = json_object_get(event, "error");
    if (json_is_object(error))
        buf_printf(b, "!%s", json_get_c(error, "code"));
    const json_t *retry = json_object_get(event, "retryStatus");
    if (retry)
        buf_printf(b, "/%s", json_get_c(retry, "type"));
}

static inline void tell_control(struct buf *b, const json_t *entry)
{
    const char *type = json_get_c(entry, "customType") + strlen("pi-managed:");
    const json_t *data = json_object_get(entry, "data"), *event = json_object_get(data, "event");
    if (strcmp(type, "event") == 0)
        tell_event(b, event);
    else if (strcmp(type, "inbox") == 0)
        buf_printf(b, "inbox:%s", json_get_c(event, "id"));
    else if (strcmp(type, "processed") == 0)
        buf_printf(b, "%s:%s", json_get_bool(data, "withdrawn", false) ? "withdrawn" : "processed",
                   json_get_c(data, "eventId"));
    else if (strcmp(type, "tool_result") == 0)
        buf_printf(b, "result:%s%s", json_get_c(data, "toolCallId"),
                   json_get_bool(json_object_get(data, "result"), "interrupted", false) ? "(cut)"
                                                                                        : "");
    else
        buf_printf(b, "%s", type);
}

static inline void tell_line(struct buf *b, const json_t *entry)
{
    if (entry == NULL) {
        buf_add_c(b, "unreadable");
        return;
    }
    const char *type = json_get_c(entry, "type"), *custom = json_get_c(entry, "customType");
    if (type && strcmp(type, "session") == 0)
        buf_add_c(b, "header");
    else if (custom && strncmp(custom, "pi-managed:", 11) == 0)
        tell_control(b, entry);
    else if (type && strcmp(type, "message") == 0)
        buf_printf(b, "pi:%s", json_get_c(json_object_get(entry, "message"), "role"));
    else
        buf_printf(b, "pi:%s", type);
}

static inline void tell_text(struct buf *b, struct str blocks)
{
    json_t *parsed = NULL;
    if (json_read(blocks, &parsed))
        return;
    AUTO_JSON content = parsed;
    buf_printf(b, "(%s)", json_get_c(json_array_get(content, 0), "text"));
}

static inline void tell_resume(struct buf *b, struct str lines)
{
    struct str line;
    buf_add_c(b, "resume(");
    for (bool first = true; str_split(&lines, '\n', &line); first = false) {
        json_t *parsed = NULL;
        if (line.n == 0 || json_read(line, &parsed))
            continue;
        buf_printf(b, "%s%s", first ? "" : ",", json_get_c(parsed, "toolCallId"));
        json_decref(parsed);
    }
    buf_add_c(b, ")");
}

static inline void tell_effect(struct buf *b, const struct turn_effect *e)
{
    static const char *const names[] = {
        [EFFECT_HOST_OPEN] = "open",     [EFFECT_HOST_PROMPT] = "prompt",
        [EFFECT_HOST_STEER] = "steer",   [EFFECT_HOST_RESUME] = "",
        [EFFECT_HOST_ABORT] = "abort",   [EFFECT_HOST_RESULT] = "give",
        [EFFECT_TOOL_START] = "start",   [EFFECT_TOOL_ATTACH] = "attach",
        [EFFECT_TOOL_CANCEL] = "cancel", [EFFECT_TOOL_ACK] = "ack",
        [EFFECT_SANDBOX_WARM] = "warm",  [EFFECT_REQUEST_GO] = "go",
        [EFFECT_REQUEST_HOLD] = "hold",  [EFFECT_REQUEST_REFUSE] = "refuse",
        [EFFECT_REQUEST_CANCEL] = "cut", [EFFECT_FRAME] = "frame",
        [EFFECT_STATUS] = "status",
    };
    buf_add_c(b, names[e->kind]);
    if (e->kind == EFFECT_HOST_RESUME)
        tell_resume(b, e->bytes);
    else if (e->kind == EFFECT_HOST_PROMPT || e->kind == EFFECT_HOST_STEER)
        tell_text(b, e->bytes);
    else if (e->kind == EFFECT_FRAME || e->kind == EFFECT_STATUS)
        buf_printf(b, ":%s", e->name);
    else if (e->id)
        buf_printf(b, ":%s", e->id);
    if (e->kind == EFFECT_HOST_RESULT && strstr(e->bytes.p, "\"interrupted\":true"))
        buf_add_c(b, "(cut)");
}

static inline void script_keep(struct script *s, struct str line)
{
    if (s->n == s->cap) {
        s->cap = s->cap ? s->cap * 2 : 64;
        s->lines = mem_realloc(s->lines, s->cap * sizeof *s->lines);
        s->entries_read = mem_realloc(s->entries_read, s->cap * sizeof *s->entries_read);
    }
    s->entries_read[s->n] = NULL;
    if (json_read_log(line, &s->entries_read[s->n]))
        s->entries_read[s->n] = NULL;
    s->lines[s->n++] = line; /* its bytes live as long as the script */
    s->kept = s->n;
}

/* One step, told by nobody. */
static inline void script_feed(struct script *s, struct turn_input in)
{
    in.now_ms = s->now_ms;
    turn_step(s->t, &in, s->a, &s->out);
    for (size_t i = 0; i < s->out.line_count; i++)
        script_keep(s, s->out.lines[i]);
}

/* One step. The text is valid until the next one. event_processed frames go without saying. */
static inline const char *script_step(struct script *s, struct turn_input in)
{
    script_feed(s, in);
    buf_clear(&s->told);
    for (size_t i = s->n - s->out.line_count; i < s->n; i++) {
        buf_add_c(&s->told, s->told.n ? " " : "");
        tell_line(&s->told, s->entries_read[i]);
    }
    bool any = false;
    for (const struct turn_effect *e = s->out.effects; e; e = e->next) {
        if (e->kind == EFFECT_FRAME && strcmp(e->name, "event_processed") == 0)
            continue;
        buf_add_c(&s->told, any ? " " : s->told.n ? " > " : "> ");
        tell_effect(&s->told, e);
        any = true;
    }
    return s->told.n ? s->told.p : "";
}

/* ---- inputs: clients ---- */

static inline const char *post_event(struct script *s, json_t *take_event)
{
    json_set_time(take_event, "createdAt", s->now_ms);
    const char *told =
        script_step(s, (struct turn_input){.kind = TURN_POSTED, .event = take_event});
    json_decref(take_event);
    return told;
}

static inline json_t *message_event(const char *id, const char *text)
{
    return json_pack("{s:s, s:s, s:[{s:s, s:s}]}", "id", id, "type", "user.message", "content",
                     "type", "text", "text", text);
}

static inline const char *post(struct script *s, const char *id, const char *text)
{
    return post_event(s, message_event(id, text));
}

static inline const char *post_steer(struct script *s, const char *id, const char *text)
{
    json_t *event = message_event(id, text);
    json_object_set_new(event, "deliverAs", json_string("steer"));
    return post_event(s, event);
}

static inline const char *post_interrupt(struct script *s, const char *id)
{
    return post_event(s, json_pack("{s:s, s:s}", "id", id, "type", "user.interrupt"));
}

static inline const char *change_budget(struct script *s, const json_t *budget)
{
    AUTO_JSON event = json_pack("{s:s}", "type", "session.updated");
    json_object_set_new(event, "budget", budget ? json_deep_copy(budget) : json_null());
    return script_step(s, (struct turn_input){.kind = TURN_CHANGED, .event = event});
}

static inline const char *withdraw(struct script *s, const char *id)
{
    return script_step(s, (struct turn_input){.kind = TURN_WITHDRAW, .id = id});
}

/* ---- inputs: host and Pi ---- */

static inline const char *opened(struct script *s)
{
    return script_step(s, (struct turn_input){.kind = TURN_HOST_OPENED, .ok = true});
}

static inline const char *open_failed(struct script *s, const char *text)
{
    return script_step(s, (struct turn_input){.kind = TURN_HOST_OPENED, .text = text});
}

static inline const char *host_lost(struct script *s)
{
    return script_step(s, (struct turn_input){.kind = TURN_HOST_LOST, .text = "killed"});
}

static inline const char *refused(struct script *s, const char *op, const char *text)
{
    return script_step(s, (struct turn_input){.kind = TURN_HOST_REPLIED, .name = op, .text = text});
}

static inline const char *settled(struct script *s)
{
    return script_step(s, (struct turn_input){.kind = TURN_SETTLED, .ok = true});
}

static inline const char *settled_with(struct script *s, const char *text)
{
    return script_step(s, (struct turn_input){.kind = TURN_SETTLED, .ok = true, .text = text});
}

static inline const char *settled_aborted(struct script *s)
{
    return script_step(s, (struct turn_input){.kind = TURN_SETTLED});
}

static inline const char *pi_retries(struct script *s)
{
    return script_step(s, (struct turn_input){.kind = TURN_RETRY});
}

/* A line of Pi's, completed with id, parent and time. */
static inline const char *pi_entry(struct script *s, json_t *take_entry)
{
    char id[24];
    snprintf(id, sizeof id, "pi%06u", ++s->entries);
    json_object_set_new(take_entry, "id", json_string(id));
    json_object_set_new(take_entry, "parentId", s->leaf[0] ? json_string(s->leaf) : json_null());
    json_set_time(take_entry, "timestamp", s->now_ms);
    memcpy(s->leaf, id, sizeof id);
    struct str line = json_write_arena(take_entry, s->a);
    json_decref(take_entry);
    return script_step(s, (struct turn_input){.kind = TURN_ENTRY, .bytes = line});
}

static inline const char *pi_message(struct script *s, json_t *take_message)
{
    return pi_entry(s, json_pack("{s:s, s:o}", "type", "message", "message", take_message));
}

static inline const char *pi_user(struct script *s, const char *text)
{
    return pi_message(s, json_pack("{s:s, s:[{s:s, s:s}]}", "role", "user", "content", "type",
                                   "text", "text", text));
}

static inline const char *pi_assistant(struct script *s, const char *stop, const char *text)
{
    json_t *m = json_pack("{s:s, s:s, s:[{s:s, s:s}]}", "role", "assistant", "stopReason", stop,
                          "content", "type", "text", "text", text);
    if (strcmp(stop, "error") == 0)
        json_object_set_new(m, "errorMessage", json_string(text));
    return pi_message(s, m);
}

/* An assistant line with text and one call per word of `calls`. */
static inline const char *pi_calls(struct script *s, const char *calls)
{
    json_t *content = json_pack("[{s:s, s:s}]", "type", "text", "text", "let me see");
    struct str rest = str_of(calls), id;
    while (str_split(&rest, ' ', &id))
        json_array_append_new(content, json_pack("{s:s, s:o, s:s, s:{s:s}}", "type", "toolCall",
                                                 "id", json_str(id), "name", "bash", "arguments",
                                                 "command", "true"));
    return pi_message(s, json_pack("{s:s, s:s, s:o}", "role", "assistant", "stopReason", "toolUse",
                                   "content", content));
}

static inline const char *pi_result(struct script *s, const char *call)
{
    return pi_message(s, json_pack("{s:s, s:s, s:s, s:[{s:s, s:s}]}", "role", "toolResult",
                                   "toolCallId", call, "toolName", "bash", "content", "type",
                                   "text", "text", "done"));
}

static inline const char *delta(struct script *s, const char *kind, const char *text)
{
    AUTO_JSON event = json_pack("{s:s, s:i, s:s}", "kind", kind, "index", 0, "text", text);
    return script_step(s, (struct turn_input){.kind = TURN_DELTA, .event = event});
}

/* ---- inputs: broker ---- */

static inline const char *request(struct script *s, const char *id)
{
    return script_step(s, (struct turn_input){.kind = TURN_REQUEST_BEGIN, .id = id});
}

/* … that may hold so many tokens. */
static inline const char *request_of(struct script *s, const char *id, int64_t tokens)
{
    return script_step(s,
                       (struct turn_input){.kind = TURN_REQUEST_BEGIN, .id = id, .number = tokens});
}

static inline const char *request_over(struct script *s, const char *id, json_t *take_error)
{
    AUTO_JSON end = json_pack("{s:s, s:i, s:{s:i, s:i}, s:o}", "request", id, "status", 200,
                              "usage", "inputTokens", 10, "outputTokens", 5, "error", take_error);
    return script_step(s, (struct turn_input){.kind = TURN_REQUEST_END, .id = id, .event = end});
}

static inline const char *request_done(struct script *s, const char *id)
{
    return request_over(s, id, json_null());
}

static inline const char *request_failed(struct script *s, const char *id, const char *code,
                                         bool unrecoverable)
{
    return request_over(s, id,
                        json_pack("{s:s, s:s, s:b}", "code", code, "message", "it failed",
                                  "unrecoverable", unrecoverable));
}

/* … before its first byte: the broker asks what to do. */
static inline const char *request_held(struct script *s, const char *id, int64_t retry_after_ms)
{
    AUTO_JSON end = json_pack("{s:s, s:b, s:{s:s, s:s}}", "request", id, "holding", 1, "error",
                              "code", "model_overloaded", "message", "it failed");
    if (retry_after_ms >= 0)
        json_object_set_new(end, "retryAfterMs", json_integer(retry_after_ms));
    return script_step(s, (struct turn_input){.kind = TURN_REQUEST_END, .id = id, .event = end});
}

static inline const char *broker_lost(struct script *s)
{
    return script_step(s, (struct turn_input){.kind = TURN_BROKER_LOST});
}

/* ---- inputs: tools ---- */

static inline const char *tool(struct script *s, const char *call)
{
    return script_step(s, (struct turn_input){.kind = TURN_TOOL,
                                              .id = call,
                                              .name = "bash",
                                              .bytes = STR("{\"command\":\"true\"}")});
}

static inline const char *tool_result(struct script *s, const char *call)
{
    return script_step(
        s, (struct turn_input){.kind = TURN_TOOL_RESULT,
                               .id = call,
                               .bytes = STR("{\"content\":[{\"type\":\"text\",\"text\":\"done\"}],"
                                            "\"isError\":false}")});
}

static inline const char *tool_update(struct script *s, const char *call, const char *text)
{
    return script_step(
        s, (struct turn_input){.kind = TURN_TOOL_UPDATE, .id = call, .bytes = str_of(text)});
}

static inline const char *tool_cancelled(struct script *s, const char *call)
{
    return script_step(s, (struct turn_input){.kind = TURN_TOOL_CANCELLED, .id = call});
}

/* ---- inputs: time and crashes ---- */

static inline const char *tick(struct script *s, int64_t ms)
{
    s->now_ms += ms;
    return script_step(s, (struct turn_input){.kind = TURN_TICK});
}

static inline const char *recover(struct script *s)
{
    return script_step(s, (struct turn_input){.kind = TURN_RECOVER});
}

/* ---- events ---- */

static inline void collect_event(void *arg, int64_t seq, json_t *event)
{
    (void)seq;
    json_array_append(arg, event);
}

/* New array: what the projection makes of the lines so far. */
static inline json_t *script_events(const struct script *s)
{
    json_t *events = json_array();
    struct projection *p = projection_new(SCRIPT_SESSION);
    for (size_t i = 0; i < s->n; i++)
        if (s->entries_read[i])
            projection_feed_json(p, s->entries_read[i], collect_event, events);
    projection_free(p);
    return events;
}

/* The events in the words of tell_event, in the script's arena; agent.* and user.* with their
   call or id. */
static inline const char *script_tell_events(const struct script *s)
{
    AUTO_JSON events = script_events(s);
    AUTO_BUF b = {0};
    size_t i;
    json_t *event;
    json_array_foreach(events, i, event)
    {
        buf_add_c(&b, i ? " " : "");
        tell_event(&b, event);
        const char *call = json_get_c(event, "toolCallId");
        if (call)
            buf_printf(&b, ":%s", call);
    }
    return arena_str(s->a, buf_str(&b)).p;
}

#endif
