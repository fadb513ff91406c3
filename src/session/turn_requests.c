/* Model requests of the turn: spans in the log, usage and price, and the live previews of what the
 * model says. */
#include "session/turn_state.h"

#include "base/mem.h"
#include "session/projection.h"

#include <stdio.h>

void request_forget(struct request *r)
{
    json_decref(r->end);
    *r = (struct request){.hold_until_ms = -1};
}

void request_begin(struct step *s, const struct turn_input *in)
{
    if (s->t->running && !s->t->aborting)
        request_expire(s, true);
    s->t->asked_tokens = in->number;
    retry_admit(s, in->id);
}

void request_start(struct step *s, const char *id, unsigned attempt)
{
    struct turn *t = s->t;
    struct request *r = &t->request;
    if (t->retry.at_ms >= 0)
        step_status(s, "running", NULL);
    retry_note_start(t, attempt);
    r->open = true;
    snprintf(r->id, sizeof r->id, "%s", id);
    t->requests++;
    json_t *event = json_pack("{s:s, s:I, s:i, s:s, s:s, s:I}", "type", "span.model_request_start",
                              "requestNumber", (json_int_t)t->requests, "attempt", (int)attempt,
                              "provider", t->o.provider, "model", t->o.model,
                              "estimatedInputTokens", (json_int_t)t->asked_tokens);
    const char *line = step_event(s, event);
    snprintf(r->line_id, sizeof r->line_id, "%s", line);
    r->line_at_ms = s->now_ms;
    r->input_tokens = t->asked_tokens;
    struct turn_effect *e = step_effect(s, EFFECT_REQUEST_GO);
    e->id = arena_strdup(s->a, id);
    e->number = t->requests;
}

static struct session_usage usage_of(const json_t *j)
{
    return (struct session_usage){
        .input_tokens = json_get_int(j, "inputTokens", 0),
        .output_tokens = json_get_int(j, "outputTokens", 0),
        .cache_read_tokens = json_get_int(j, "cacheReadInputTokens", 0),
        .cache_creation_tokens = json_get_int(j, "cacheCreationInputTokens", 0),
        .estimated = json_get_bool(j, "estimated", false),
    };
}

/* Usage and failure of a span.model_request_end event, from the log or as it is written. */
void request_apply_end(struct turn *t, const json_t *event, int64_t at_ms)
{
    struct session_usage u = usage_of(json_object_get(event, "usage"));
    t->usage.input_tokens += u.input_tokens;
    t->usage.output_tokens += u.output_tokens;
    t->usage.cache_read_tokens += u.cache_read_tokens;
    t->usage.cache_creation_tokens += u.cache_creation_tokens;
    t->usage.cost_usd += json_get_real(event, "costUsd", 0);
    t->spent_at_ms = at_ms;
    t->usage.estimated = t->usage.estimated || u.estimated;
    if (u.cache_read_tokens + u.cache_creation_tokens > 0)
        t->budget.cached_tokens = u.input_tokens + u.cache_read_tokens + u.cache_creation_tokens;
    const json_t *error = json_object_get(event, "error");
    const char *code = json_get_c(error, "code");
    const char *text = json_get_c(error, "message");
    mem_free(t->error_code);
    mem_free(t->error_text);
    t->error_code = code ? mem_strdup(code) : NULL;
    t->error_text = code && text ? mem_strdup(text) : NULL;
    t->error_unrecoverable = json_get_bool(error, "unrecoverable", false);
    retry_note_end(t);
}

static void add_price(struct turn *t, json_t *event)
{
    const json_t *usage = json_object_get(event, "usage");
    if (!json_is_object(usage))
        return;
    struct session_usage u = usage_of(usage);
    json_t *price = json_object();
    bool known = false;
    double cost = t->o.price(t->o.price_arg, &u, price, &known);
    if (known) {
        json_object_set(event, "price", price);
        json_object_set_new(event, "costUsd", json_real(cost));
    }
    json_decref(price);
}

/* R28: nobody told what it took; the provider will charge for it all the same. */
static void add_loss(const struct request *r, json_t *event)
{
    json_object_set_new(event, "error",
                        json_pack("{s:s, s:s}", "code", REQUEST_LOST, "message",
                                  "The request was cut off before its usage was known."));
    json_object_set_new(event, "usage",
                        json_pack("{s:I, s:I, s:i, s:i, s:b}", "inputTokens",
                                  (json_int_t)r->input_tokens, "outputTokens",
                                  (json_int_t)((r->streamed_bytes + 3) / 4), "cacheReadInputTokens",
                                  0, "cacheCreationInputTokens", 0, "estimated", 1));
}

static void write_end(struct step *s)
{
    struct turn *t = s->t;
    struct request *r = &t->request;
    json_t *e = json_pack("{s:s, s:I, s:i, s:s, s:s}", "type", "span.model_request_end",
                          "requestNumber", (json_int_t)t->requests, "attempt",
                          (int)t->retry.attempts, "provider", t->o.provider, "model", t->o.model);
    static const char *const copied[] = {"status",     "usage",   "ttftMs",
                                         "durationMs", "aborted", "error"};
    for (size_t i = 0; r->end && i < sizeof copied / sizeof *copied; i++)
        if (json_object_get(r->end, copied[i]))
            json_object_set(e, copied[i], json_object_get(r->end, copied[i]));
    if (r->end == NULL)
        add_loss(r, e);
    add_price(t, e);
    request_apply_end(t, e, s->now_ms);
    double usd = json_get_real(e, "costUsd", 0);
    step_event(s, e);
    request_forget(r);
    budget_spent(s, usd);
    retry_consider(s);
}

static void hold_or_write(struct step *s)
{
    struct request *r = &s->t->request;
    if (r->end && r->answered)
        write_end(s);
    else if (r->hold_until_ms < 0)
        r->hold_until_ms = s->now_ms + SPAN_HOLD_MS;
}

void request_answered(struct step *s)
{
    struct request *r = &s->t->request;
    if (!r->open)
        return;
    r->answered = true;
    hold_or_write(s);
}

void request_end(struct step *s, const struct turn_input *in)
{
    struct request *r = &s->t->request;
    bool ours = r->open && strcmp(r->id, in->id) == 0 && r->end == NULL;
    bool held = json_get_bool(in->event, "holding", false);
    if (ours)
        r->end = json_deep_copy(in->event);
    if (held && ours)
        write_end(s); /* no line of Pi's comes of it */
    else if (ours)
        hold_or_write(s);
    if (!held && strcmp(s->t->retry.waiting, in->id) == 0)
        s->t->retry.waiting[0] = 0; /* the host has hung up */
    if (held)
        retry_held(s, in->id, ours, json_get_int(in->event, "retryAfterMs", -1));
}

void request_expire(struct step *s, bool at_once)
{
    struct request *r = &s->t->request;
    if (!r->open)
        return;
    if (at_once || (r->hold_until_ms >= 0 && s->now_ms >= r->hold_until_ms))
        write_end(s);
}

/* ---- previews (R18) ---- */

/* Preview and final event share their id: both come from the request's start line (projection.c).
 */
static void announce(struct step *s, const char *event_type, unsigned index)
{
    const struct request *r = &s->t->request;
    char id[ID_MAX];
    projection_event_id(s->t->o.session, r->line_id, r->line_at_ms, index, id);
    step_frame(s, "event_start", "agent.message",
               json_pack("{s:s, s:s}", "eventId", id, "eventType", event_type));
}

void request_delta(struct step *s, const json_t *envelope)
{
    struct request *r = &s->t->request;
    struct str kind = json_get_str(envelope, "kind");
    if (!r->open || s->t->aborting)
        return;
    if (str_is(kind, "discarded")) {
        request_discard_previews(s);
    } else if (str_is(kind, "thinking_start")) {
        announce(s, "agent.thinking", PREVIEW_THINKING + r->thinking_announced++);
    } else if (str_is(kind, "text")) {
        if (!r->text_announced)
            announce(s, "agent.message", PREVIEW_MESSAGE);
        r->text_announced = true;
        r->streamed_bytes += (int64_t)json_get_str(envelope, "text").n;
        char id[ID_MAX];
        projection_event_id(s->t->o.session, r->line_id, r->line_at_ms, PREVIEW_MESSAGE, id);
        json_t *delta = json_pack("{s:s, s:I}", "type", "text", "index",
                                  (json_int_t)json_get_int(envelope, "index", 0));
        json_set_str(delta, "text", json_get_str(envelope, "text"));
        step_frame(s, "event_delta", "agent.message",
                   json_pack("{s:s, s:o}", "eventId", id, "delta", delta));
    }
}

static void discard(struct step *s, unsigned index)
{
    const struct request *r = &s->t->request;
    char id[ID_MAX];
    projection_event_id(s->t->o.session, r->line_id, r->line_at_ms, index, id);
    step_frame(s, "event_discarded", "agent.message", json_pack("{s:s}", "eventId", id));
}

void request_discard_previews(struct step *s)
{
    struct request *r = &s->t->request;
    if (!r->open)
        return;
    if (r->text_announced)
        discard(s, PREVIEW_MESSAGE);
    for (unsigned i = 0; i < r->thinking_announced; i++)
        discard(s, PREVIEW_THINKING + i);
    r->text_announced = false;
    r->thinking_announced = 0;
}
