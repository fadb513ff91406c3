/* The turn machine's core: inputs in, lines and effects out. Parts: turn_run.c (a turn's beginning
   and end), turn_calls.c (tool calls), turn_requests.c (model requests and previews), turn_retry.c
   (attempts), turn_budget.c (what may be spent), turn_lines.c (what a step leads to), turn_load.c
   (state from the log). */
#include "session/turn.h"

#include "base/clock.h"
#include "base/mem.h"
#include "session/turn_state.h"

#include <assert.h>
#include <stdio.h>

struct turn *turn_new(const struct turn_options *o)
{
    struct turn *t = mem_alloc(sizeof *t);
    t->magic = TURN_MAGIC;
    t->o = *o;
    t->o.tenant = mem_strdup(o->tenant);
    t->o.session = mem_strdup(o->session);
    t->o.provider = mem_strdup(o->provider);
    t->o.model = mem_strdup(o->model);
    t->known = json_object();
    t->request.hold_until_ms = -1;
    t->sandbox_ms = -1;
    retry_reset(t);
    t->o.budget = NULL; /* was lent */
    budget_set(t, o->budget);
    return t;
}

void turn_free(struct turn *t)
{
    if (t == NULL)
        return;
    CHECK(t, TURN_MAGIC);
    calls_clear(t);
    while (t->queue)
        turn_queue_drop(t, t->queue);
    request_forget(&t->request);
    json_decref(t->known);
    mem_free(t->settled_error);
    mem_free(t->last_error);
    mem_free(t->error_code);
    mem_free(t->error_text);
    mem_free(t->budget.text);
    mem_free((char *)t->o.tenant);
    mem_free((char *)t->o.session);
    mem_free((char *)t->o.provider);
    mem_free((char *)t->o.model);
    t->magic = 0;
    mem_free(t);
}

/* ---- inputs ---- */

static void posted(struct step *s, const struct turn_input *in)
{
    struct turn *t = s->t;
    const char *id = json_get_c(in->event, "id");
    if (id == NULL || turn_knows_event(t, id))
        return;
    json_object_set_new(t->known, id, json_true());
    step_control(s, "pi-managed:inbox", json_pack("{s:O}", "event", in->event));
    struct str type = json_get_str(in->event, "type");
    if (str_is(type, "user.interrupt")) {
        struct queued now = {0};
        snprintf(now.id, sizeof now.id, "%s", id);
        turn_mark_processed(s, &now, false);
        turn_interrupt(s);
        return;
    }
    if (!str_is(type, "user.message"))
        return;
    struct queued *q = turn_queue_push(t, id, in->event);
    if (!t->running) {
        turn_start(s);
    } else if (q->steer && t->in_run && !t->aborting && !t->settled) {
        turn_mark_processed(s, q, false);
        turn_hand_over(s, q, EFFECT_HOST_STEER);
    }
}

static void withdraw(struct step *s, const struct turn_input *in)
{
    struct turn *t = s->t;
    struct queued *q = t->queue;
    while (q && strcmp(q->id, in->id) != 0)
        q = q->next;
    if (q && !q->processed) {
        turn_mark_processed(s, q, true);
        turn_queue_drop(t, q);
        s->out->withdrawn = true;
    } else {
        s->out->withdraw_unknown = !turn_knows_event(t, in->id);
    }
}

static void host_opened(struct step *s, const struct turn_input *in)
{
    struct turn *t = s->t;
    t->host = in->ok ? HOST_OPEN : HOST_NONE;
    if (!t->running)
        return;
    if (in->ok) {
        turn_begin_run(s);
    } else if (in->number && ++t->host_losses < HOST_LOSSES_MAX) { /* it died meanwhile: another */
        t->host = HOST_OPENING;
        step_effect(s, EFFECT_HOST_OPEN);
    } else {
        turn_fail(s, in->name && in->name[0] ? in->name : "harness_unavailable", in->text);
    }
}

static void host_replied(struct step *s, const struct turn_input *in)
{
    struct turn *t = s->t;
    bool starts_run = strcmp(in->name, "prompt") == 0 || strcmp(in->name, "resume") == 0;
    bool ends_run =
        t->aborting && strcmp(in->name, "abort") == 0; /* refused: nothing to wait for */
    if (in->ok || !t->running || !t->in_run || !(starts_run || ends_run))
        return;
    t->in_run = false;
    if (t->aborting)
        turn_finish(s, turn_abort_type(t));
    else
        turn_fail(s, "harness_error", in->text);
}

static void host_lost(struct step *s, const struct turn_input *in)
{
    struct turn *t = s->t;
    t->host = HOST_NONE;
    if (!t->running)
        return;
    request_discard_previews(s);
    request_expire(s, true);
    if (t->aborting) {
        turn_finish(s, turn_abort_type(t));
        return;
    }
    t->resuming = t->resuming || t->in_run || t->retry.resume;
    t->in_run = t->settled = t->retry.resume = false;
    t->retry.waiting[0] = 0; /* hung up with it */
    if (++t->host_losses >= HOST_LOSSES_MAX) {
        char text[300];
        snprintf(text, sizeof text, "the Pi host died %d times in this turn: %s", HOST_LOSSES_MAX,
                 in->text);
        turn_fail(s, "harness_crashed", text);
        return;
    }
    calls_attach(s, true);
    t->host = HOST_OPENING;
    step_effect(s, EFFECT_HOST_OPEN);
}

static void entry(struct step *s, const struct turn_input *in)
{
    struct turn *t = s->t;
    json_t *parsed = NULL;
    err e = json_read_log(in->bytes, &parsed);
    AUTO_JSON line = parsed;
    struct str type = json_get_str(line, "type");
    if (e && t->running) /* nested deeper than any reader goes */
        step_error(s, "line_unreadable",
                   "An entry of Pi's could not be read and is missing in the log.", "exhausted");
    if (e || type.p == NULL || str_is(type, "session"))
        return; /* the header is ours; a line that is no entry cannot come from a sound host */
    step_header(s);
    const json_t *message = json_object_get(line, "message");
    const char *call = json_get_c(message, "toolCallId");
    bool is_result = str_is(json_get_str(message, "role"), "toolResult");
    bool is_answer = str_is(json_get_str(message, "role"), "assistant");
    if (is_answer && t->running)
        calls_give_up(s); /* Pi went on without their results */
    step_line(s, in->bytes);
    t->host_losses = 0;
    turn_note_entry(t, line);
    if (is_result && call) {
        step_effect(s, EFFECT_TOOL_ACK)->id = arena_strdup(s->a, call);
    } else if (is_answer || str_is(type, "compaction")) {
        request_answered(s);
        calls_try_start(s);
    }
}

static void settled(struct step *s, const struct turn_input *in)
{
    struct turn *t = s->t;
    if (!t->running || !t->in_run)
        return;
    t->settled = true;
    t->settled_aborted = !in->ok;
    mem_free(t->settled_error);
    t->settled_error = in->text && in->ok ? mem_strdup(in->text) : NULL;
    request_answered(s); /* no line will come for a request still open */
    turn_try_settle(s);
}

static void recover(struct step *s, const struct turn_input *in)
{
    struct turn *t = s->t;
    (void)in;
    if (!t->running) {
        if (turn_needs_recovery(t))
            turn_start(s);
        return;
    }
    request_expire(s, true);
    step_status(s, t->retry.at_ms > s->now_ms ? "rescheduling" : "running", NULL);
    if (t->aborting) { /* the interrupt was durable, its end was not */
        calls_cancel_all(s, true);
        turn_finish_interrupted(s);
        return;
    }
    t->resuming = true;
    calls_attach(s, false);
    step_effect(s, EFFECT_SANDBOX_WARM);
    t->host = HOST_OPENING;
    step_effect(s, EFFECT_HOST_OPEN);
}

/* What each kind of input leads to. */

static void delta(struct step *s, const struct turn_input *in)
{
    request_delta(s, in->event);
}

static void tool_cancelled(struct step *s, const struct turn_input *in)
{
    const struct call *c = calls_find(s->t, in->id);
    if (c && c->state == CALL_RUNNING)
        step_effect(s, EFFECT_TOOL_CANCEL)->id = arena_strdup(s->a, in->id);
}

static void sandbox_started(struct step *s, const struct turn_input *in)
{
    s->t->sandbox_ms = in->number;
    calls_tell_sandbox(s);
}

static void sandbox_failed(struct step *s, const struct turn_input *in)
{
    step_error(s, in->name && in->name[0] ? in->name : "sandbox_unavailable", in->text, "terminal");
}

static void retry(struct step *s, const struct turn_input *in)
{
    (void)in;
    retry_by_pi(s);
}

static void broker_lost(struct step *s, const struct turn_input *in)
{
    (void)in;
    request_expire(s, true);
    s->t->retry.waiting[0] = 0; /* what Pi hears makes it ask again */
}

static void changed(struct step *s, const struct turn_input *in)
{
    if (in->ok)
        s->t->host = HOST_NONE;
    step_event(s, json_deep_copy(in->event));
    if (json_object_get(in->event, "budget"))
        budget_changed(s, json_object_get(in->event, "budget"));
}

static void tick(struct step *s, const struct turn_input *in)
{
    (void)in;
    request_expire(s, false);
    turn_check_duration(s);
    retry_tick(s);
}

static void (*const steps[])(struct step *s, const struct turn_input *in) = {
    [TURN_POSTED] = posted,
    [TURN_WITHDRAW] = withdraw,
    [TURN_HOST_OPENED] = host_opened,
    [TURN_HOST_REPLIED] = host_replied,
    [TURN_HOST_LOST] = host_lost,
    [TURN_ENTRY] = entry,
    [TURN_DELTA] = delta,
    [TURN_TOOL] = calls_requested,
    [TURN_TOOL_CANCELLED] = tool_cancelled,
    [TURN_TOOL_UPDATE] = calls_update,
    [TURN_TOOL_RESULT] = calls_result,
    [TURN_SANDBOX_STARTED] = sandbox_started,
    [TURN_SANDBOX_FAILED] = sandbox_failed,
    [TURN_REQUEST_BEGIN] = request_begin,
    [TURN_REQUEST_END] = request_end,
    [TURN_RETRY] = retry,
    [TURN_BROKER_LOST] = broker_lost,
    [TURN_SETTLED] = settled,
    [TURN_RECOVER] = recover,
    [TURN_CHANGED] = changed,
    [TURN_TICK] = tick,
};

void turn_step(struct turn *t, const struct turn_input *in, struct arena *a,
               struct turn_output *out)
{
    CHECK(t, TURN_MAGIC);
    assert(in->kind < sizeof steps / sizeof *steps && steps[in->kind]);
    *out = (struct turn_output){0};
    struct step s = {.t = t, .a = a, .out = out, .tail = &out->effects, .now_ms = in->now_ms};
    steps[in->kind](&s, in);
    if (!t->request.open) {
        calls_try_start(&s);
        turn_try_settle(&s);
    }
}

/* -1 = never. */
static int64_t sooner(int64_t a, int64_t b)
{
    return a < 0 || (b >= 0 && b < a) ? b : a;
}

int64_t turn_deadline_ms(const struct turn *t)
{
    CHECK(t, TURN_MAGIC);
    int64_t hold = t->request.open ? t->request.hold_until_ms : -1;
    return sooner(hold, sooner(turn_overdue_at_ms(t), retry_deadline_ms(t)));
}

bool turn_is_running(const struct turn *t)
{
    CHECK(t, TURN_MAGIC);
    return t->running;
}

bool turn_may_reopen(const struct turn *t)
{
    CHECK(t, TURN_MAGIC);
    return !t->running && t->host != HOST_OPENING;
}

bool turn_is_quiet(const struct turn *t)
{
    CHECK(t, TURN_MAGIC);
    return !t->running && !t->request.open && (t->queue == NULL || t->blocked);
}

bool turn_needs_recovery(const struct turn *t)
{
    CHECK(t, TURN_MAGIC);
    return t->running || (turn_first_queued(t, false) && !t->blocked);
}

bool turn_knows_event(const struct turn *t, const char *event_id)
{
    CHECK(t, TURN_MAGIC);
    return json_object_get(t->known, event_id) != NULL;
}

int64_t turn_spent_at_ms(const struct turn *t)
{
    CHECK(t, TURN_MAGIC);
    return t->spent_at_ms;
}

const struct session_usage *turn_usage(const struct turn *t)
{
    CHECK(t, TURN_MAGIC);
    return &t->usage;
}
