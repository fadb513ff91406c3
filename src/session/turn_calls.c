/* Tool calls of the turn: declared by an assistant line, started once the span's end is durable,
   answered to the host, closed by Pi's own message(toolResult) line. */
#include "session/turn_state.h"

#include "base/clock.h"
#include "base/mem.h"
#include "session/projection.h"

#include <stdio.h>

#define ERROR_RESULT(text, more)                                                                   \
    "{\"content\":[{\"type\":\"text\",\"text\":\"" text "\"}],\"isError\":true" more "}"
#define INTERRUPTED_RESULT                                                                         \
    ERROR_RESULT("Interrupted by the user before it finished; its effects may be partial.",        \
                 ",\"interrupted\":true")
#define FAILED_TURN_RESULT                                                                         \
    ERROR_RESULT("Interrupted: the turn failed before this call finished; its effects may be "     \
                 "partial.",                                                                       \
                 ",\"interrupted\":true")
#define NOT_RUN_RESULT                                                                             \
    ERROR_RESULT("This call was not run: it is not one the session waits for.", "")
#define SAME_ID_RESULT ERROR_RESULT("This call was not run: another call has the same id.", "")
#define CUT_OFF_RESULT                                                                             \
    ERROR_RESULT("This call was not run: the model's answer was cut off, so its arguments may be " \
                 "incomplete.",                                                                    \
                 "")
#define UNREADABLE_RESULT                                                                          \
    ERROR_RESULT("The tool ran, but its result could not be read; its effects are unknown.", "")

static struct str heap_str(struct str s)
{
    return (struct str){mem_copy(s.p, s.n), s.n};
}

static void call_free(struct call *c)
{
    mem_free(c->id);
    mem_free(c->name);
    mem_free((char *)c->input.p);
    mem_free((char *)c->result.p);
    mem_free(c);
}

struct call *calls_find(struct turn *t, const char *id)
{
    struct call *c = t->calls;
    while (c && strcmp(c->id, id) != 0)
        c = c->next;
    return c;
}

/* A model can use an id twice in one answer: the first of them without a result. */
static struct call *find_open(struct turn *t, const char *id)
{
    struct call *c = t->calls;
    while (c && (c->state == CALL_DONE || strcmp(c->id, id) != 0))
        c = c->next;
    return c;
}

/* How many events the projection makes of the line before its tool calls. */
static unsigned events_before_calls(const json_t *content)
{
    unsigned n = 0;
    bool text = false;
    size_t i;
    json_t *block;
    json_array_foreach(content, i, block)
    {
        n += str_is(json_get_str(block, "type"), "thinking");
        text = text ||
               (str_is(json_get_str(block, "type"), "text") && json_get_str(block, "text").n > 0);
    }
    return n + text;
}

static struct call *call_new(const json_t *block, const char *id, const char *name)
{
    struct call *c = mem_alloc(sizeof *c);
    c->id = mem_strdup(id);
    c->name = mem_strdup(name);
    AUTO_BUF input = {0};
    json_write(json_object_get(block, "arguments"), &input);
    c->input = heap_str(buf_str(&input));
    return c;
}

void calls_declare(struct turn *t, const json_t *entry, const json_t *message)
{
    const json_t *content = json_object_get(message, "content");
    bool cut_off = str_is(json_get_str(message, "stopReason"), "length");
    const char *line = json_get_c(entry, "id"), *at_text = json_get_c(entry, "timestamp");
    int64_t at = 0;
    if (at_text == NULL || !clock_parse(at_text, &at))
        at = 0;
    unsigned index = events_before_calls(content);
    struct call **tail = &t->calls;
    calls_clear(t);
    size_t i;
    json_t *block;
    json_array_foreach(content, i, block)
    {
        const char *id = json_get_c(block, "id"), *name = json_get_c(block, "name");
        if (!str_is(json_get_str(block, "type"), "toolCall") || id == NULL || name == NULL)
            continue;
        struct call *c = call_new(block, id, name);
        projection_event_id(t->o.session, line ? line : "", at, index++, c->event_id);
        if (cut_off) /* R25: never runs */
            call_set_result(c, STR(CUT_OFF_RESULT));
        *tail = c;
        tail = &c->next;
    }
}

void calls_close(struct turn *t, const char *id)
{
    for (struct call **at = &t->calls; *at; at = &(*at)->next) {
        struct call *c = *at;
        if (strcmp(c->id, id) != 0)
            continue;
        *at = c->next;
        call_free(c);
        return;
    }
}

void calls_clear(struct turn *t)
{
    while (t->calls) {
        struct call *c = t->calls;
        t->calls = c->next;
        call_free(c);
    }
}

static void give_result(struct step *s, const char *id, struct str result)
{
    struct turn_effect *e = step_effect(s, EFFECT_HOST_RESULT);
    e->id = arena_strdup(s->a, id);
    e->bytes = arena_str(s->a, result);
}

void calls_requested(struct step *s, const struct turn_input *in)
{
    struct call *c = find_open(s->t, in->id);
    if (s->t->aborting) {
        give_result(s, in->id, STR(INTERRUPTED_RESULT));
        return;
    }
    if (c == NULL || c->state != CALL_DECLARED) {
        /* Not in the log: it must not run (the entry always precedes the call). Or asked twice. */
        give_result(s, in->id, STR(NOT_RUN_RESULT));
        return;
    }
    if (c != calls_find(s->t, in->id)) { /* one key, one call in the sandbox */
        call_set_result(c, STR(SAME_ID_RESULT));
        give_result(s, in->id, c->result);
        return;
    }
    mem_free((char *)c->input.p);
    c->input = heap_str(in->bytes); /* as validated by Pi */
    c->state = CALL_REQUESTED;
}

void calls_try_start(struct step *s)
{
    if (s->t->request.open || s->t->aborting)
        return;
    for (struct call *c = s->t->calls; c; c = c->next) {
        if (c->state != CALL_REQUESTED)
            continue;
        c->state = CALL_RUNNING;
        struct turn_effect *e = step_effect(s, EFFECT_TOOL_START);
        e->id = arena_strdup(s->a, c->id);
        e->name = arena_strdup(s->a, c->name);
        e->bytes = arena_str(s->a, c->input);
    }
}

void calls_update(struct step *s, const struct turn_input *in)
{
    struct call *c = calls_find(s->t, in->id);
    if (c == NULL || c->state != CALL_RUNNING)
        return;
    json_t *delta = json_pack("{s:s, s:I}", "type", "text", "index", (json_int_t)in->number);
    json_set_str(delta, "text", in->bytes);
    step_frame(
        s, "event_delta", "agent.tool_result",
        json_pack("{s:s, s:s, s:o}", "eventId", c->event_id, "toolCallId", c->id, "delta", delta));
}

void call_set_result(struct call *c, struct str result)
{
    mem_free((char *)c->result.p);
    c->result = heap_str(result);
    c->state = CALL_DONE;
}

static void show_result(struct step *s, struct call *c)
{
    json_t *result = NULL;
    if (c->shown || json_read_log(c->result, &result))
        return;
    c->shown = true;
    step_control(
        s, "pi-managed:tool_result",
        json_pack("{s:s, s:s, s:o}", "toolCallId", c->id, "toolName", c->name, "result", result));
}

bool calls_all_done(const struct turn *t)
{
    for (const struct call *c = t->calls; c; c = c->next)
        if (c->state != CALL_DONE)
            return false;
    return true;
}

static bool is_object(struct str text)
{
    json_t *j = NULL;
    struct err_slot saved;
    err_save(&saved);
    bool ok = json_read_log(text, &j) == 0 && json_is_object(j);
    err_restore(&saved);
    json_decref(j);
    return ok;
}

void calls_tell_sandbox(struct step *s)
{
    struct turn *t = s->t;
    if (t->sandbox_ms < 0 || !t->sandbox_used)
        return;
    step_event(s, json_pack("{s:s, s:I}", "type", "span.sandbox_start", "durationMs",
                            (json_int_t)t->sandbox_ms));
    t->sandbox_ms = -1;
}

void calls_result(struct step *s, const struct turn_input *in)
{
    struct turn *t = s->t;
    struct call *c = find_open(t, in->id);
    if (c == NULL)
        return;
    t->sandbox_used = t->running;
    calls_tell_sandbox(s);
    call_set_result(c, is_object(in->bytes) ? in->bytes : STR(UNREADABLE_RESULT));
    if (!calls_all_done(t)) /* Pi writes a batch's results when all are in: keep this one now */
        show_result(s, c);
    if (t->in_run) {
        give_result(s, c->id, c->result);
    } else if (t->resuming && t->host == HOST_OPEN) {
        turn_begin_run(s);
    }
}

void calls_cancel_all(struct step *s, bool after_crash)
{
    for (struct call *c = s->t->calls; c; c = c->next) {
        if (c->state == CALL_RUNNING || (after_crash && c->state == CALL_DECLARED)) {
            step_effect(s, EFFECT_TOOL_CANCEL)->id = arena_strdup(s->a, c->id);
        } else if (c->state == CALL_REQUESTED) {
            call_set_result(c, STR(INTERRUPTED_RESULT));
            give_result(s, c->id, c->result);
        }
    }
}

void calls_attach(struct step *s, bool declared_only)
{
    for (struct call *c = s->t->calls; c; c = c->next) {
        if (c->state == CALL_DONE || (declared_only && c->state != CALL_DECLARED))
            continue;
        c->state = CALL_RUNNING;
        struct turn_effect *e = step_effect(s, EFFECT_TOOL_ATTACH);
        e->id = arena_strdup(s->a, c->id);
        e->name = arena_strdup(s->a, c->name);
    }
}

struct str calls_resume_lines(struct step *s)
{
    AUTO_BUF lines = {0};
    for (struct call *c = s->t->calls; c; c = c->next) {
        json_t *result = NULL;
        if (json_read_log(c->result, &result))
            continue;
        json_object_set_new(result, "role", json_string("toolResult"));
        json_object_set_new(result, "toolCallId", json_string(c->id));
        json_object_set_new(result, "toolName", json_string(c->name));
        json_object_set_new(result, "timestamp", json_integer(s->now_ms));
        json_write(result, &lines);
        buf_add_char(&lines, '\n');
        json_decref(result);
    }
    return arena_str(s->a, buf_str(&lines));
}

/* R22 and R19: no status_idle between a tool_use and its result, however the turn ended. */
void calls_give_up(struct step *s)
{
    bool by_user = s->t->aborting; /* then calls_cancel_all has stopped what ran */
    for (struct call *c = s->t->calls; c; c = c->next) {
        if (c->state == CALL_RUNNING && !by_user)
            step_effect(s, EFFECT_TOOL_CANCEL)->id = arena_strdup(s->a, c->id);
        if (c->state != CALL_DONE)
            call_set_result(c, by_user ? STR(INTERRUPTED_RESULT) : STR(FAILED_TURN_RESULT));
        show_result(s, c);
        step_effect(s, EFFECT_TOOL_ACK)->id = arena_strdup(s->a, c->id);
    }
    calls_clear(s->t);
}
