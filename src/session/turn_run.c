/* A turn from its beginning to its end: what Pi is given next, how a run ends, what stops it. */
#include "session/turn_state.h"

#include "base/clock.h"
#include "base/mem.h"
#include "session/projection.h"

#include <stdio.h>

void turn_mark_processed(struct step *s, struct queued *q, bool withdrawn)
{
    json_t *data = json_pack("{s:s}", "eventId", q->id);
    json_set_time(data, "at", s->now_ms);
    if (withdrawn)
        json_object_set_new(data, "withdrawn", json_true());
    step_control(s, "pi-managed:processed", data);
    q->processed = true;
    json_t *frame = json_pack("{s:s}", "eventId", q->id);
    json_set_time(frame, "processedAt", s->now_ms);
    step_frame(s, "event_processed", NULL, frame);
}

struct queued *turn_first_queued(const struct turn *t, bool processed)
{
    struct queued *q = t->queue;
    while (q && q->processed != processed)
        q = q->next;
    return q;
}

void turn_hand_over(struct step *s, const struct queued *q, enum turn_effect_kind how)
{
    step_effect(s, how)->bytes = json_write_arena(q->content, s->a);
}

/* How long the session has run in all; only turns count, not the time between them. */
static int64_t ran_ms(const struct turn *t, int64_t now_ms)
{
    return t->ran_ms + (t->running ? now_ms - t->running_since_ms : 0);
}

static bool is_overdue(const struct turn *t, int64_t now_ms)
{
    return t->o.max_running_ms > 0 && ran_ms(t, now_ms) >= t->o.max_running_ms;
}

static const char overdue_text[] =
    "The session has run as long as its environment's maxDuration allows. Fork it or start a new "
    "session in an environment with a longer one.";

void turn_start(struct step *s)
{
    struct turn *t = s->t;
    t->running = true;
    t->running_since_ms = s->now_ms;
    t->begun = t->blocked = false;
    t->budget.code = NULL;
    t->host_losses = 0;
    retry_reset(t);
    step_event(s, json_pack("{s:s}", "type", "session.status_run_started"));
    step_status(s, "running", NULL);
    if (is_overdue(t, s->now_ms)) {
        turn_fail(s, "max_duration_exceeded", overdue_text);
        return;
    }
    if (budget_is_used_up(t)) {
        budget_finish(s);
        return;
    }
    step_effect(s, EFFECT_SANDBOX_WARM);
    if (t->host == HOST_OPEN) {
        turn_begin_run(s);
    } else if (t->host == HOST_NONE) {
        t->host = HOST_OPENING;
        step_effect(s, EFFECT_HOST_OPEN);
    }
}

/* Goes on after a crash cut a run off; true if there was something to go on with. */
static bool continue_run(struct step *s)
{
    struct turn *t = s->t;
    if (t->calls) {
        if (!calls_all_done(t))
            return true; /* called again with the last result */
        step_effect(s, EFFECT_HOST_RESUME)->bytes = calls_resume_lines(s);
        t->in_run = true;
        return true;
    }
    bool open_end = t->last_role == LAST_USER || t->last_role == LAST_TOOL_RESULT ||
                    (t->last_role == LAST_ASSISTANT && t->last_failed &&
                     (retry_is_due(t) || t->budget.cut_run));
    if (turn_first_queued(t, true) == NULL && open_end) {
        step_effect(s, EFFECT_HOST_RESUME);
        t->retry.resumed = t->last_failed;
        t->in_run = true;
        return true;
    }
    return false;
}

/* The last model request of a run failed for good, or Pi itself did. */
static void finish_failed(struct step *s)
{
    struct turn *t = s->t;
    bool terminal = t->error_unrecoverable || !t->last_failed;
    const char *type = terminal ? "terminal" : "exhausted";
    if (t->last_failed)
        retry_tell(s, json_pack("{s:s}", "type", type));
    else
        step_error(s, "harness_error", t->settled_error, type);
    turn_finish(s, terminal ? "error" : "retries_exhausted");
}

void turn_begin_run(struct step *s)
{
    struct turn *t = s->t;
    bool resuming = t->resuming;
    if (resuming && continue_run(s)) {
        t->resuming = !t->in_run;
        return;
    }
    t->resuming = false;
    if (resuming && t->last_role == LAST_ASSISTANT && t->last_failed && !t->budget.ended_turn) {
        finish_failed(s);
        return;
    }
    /* What Pi was given and has not written down it does not know: a steer that came too late, or a
       prompt that its host took along. */
    struct queued *next = turn_first_queued(t, true);
    if (next == NULL && (next = turn_first_queued(t, false)) == NULL) {
        turn_finish(s, "end_turn");
        return;
    }
    calls_give_up(s); /* left open by a run that broke off: Pi tells the model itself */
    if (!next->processed)
        turn_mark_processed(s, next, false);
    turn_hand_over(s, next, EFFECT_HOST_PROMPT);
    t->in_run = t->begun = true;
}

bool turn_failed_by(const char *stop_type)
{
    return stop_type &&
           (strcmp(stop_type, "error") == 0 || strcmp(stop_type, "retries_exhausted") == 0 ||
            strcmp(stop_type, "budget_exhausted") == 0);
}

void turn_finish(struct step *s, const char *stop_type)
{
    struct turn *t = s->t;
    request_expire(s, true);
    retry_stop(s);
    calls_give_up(s);
    t->ran_ms = ran_ms(t, s->now_ms);
    t->running = t->in_run = t->aborting = t->resuming = t->settled = t->overdue = false;
    t->blocked = turn_failed_by(stop_type);
    t->sandbox_used = false;
    budget_note_end(t, stop_type);
    AUTO_JSON reason = json_pack("{s:s}", "type", stop_type);
    AUTO_JSON idle = json_pack("{s:s, s:O}", "type", "session.status_idle", "stopReason", reason);
    step_event(s, json_incref(idle));
    if (projection_drops_handed(idle))
        turn_queue_drop_handed(t);
    step_status(s, "idle", reason);
    if (t->queue && !t->blocked && strcmp(stop_type, "interrupted") == 0)
        turn_start(s); /* what was posted after, or queued before, the interrupt */
}

const char *turn_abort_type(const struct turn *t)
{
    return t->overdue ? "error" : "interrupted";
}

/* Pi is done. Everything of the turn that is still held comes first (R19). */
void turn_try_settle(struct step *s)
{
    struct turn *t = s->t;
    if (!t->settled || t->request.open)
        return;
    t->settled = t->in_run = false;
    if (t->aborting) {
        turn_finish(s, turn_abort_type(t));
    } else if (t->budget.code) {
        budget_finish(s);
    } else if (t->last_failed && retry_resume(s)) {
        return; /* goes on after the backoff */
    } else if (t->last_failed || t->settled_error) {
        finish_failed(s);
    } else {
        turn_begin_run(s);
    }
}

void turn_fail(struct step *s, const char *code, const char *text)
{
    step_error(s, code, text, "terminal");
    turn_finish(s, "error");
}

/* Pi has nothing in hand. If this turn has not begun, its message is what gets interrupted. */
void turn_finish_interrupted(struct step *s)
{
    struct turn *t = s->t;
    struct queued *head = t->queue;
    if (head && !t->begun) {
        turn_mark_processed(s, head, true);
        turn_queue_drop(t, head);
    }
    turn_finish(s, turn_abort_type(t));
}

void turn_interrupt(struct step *s)
{
    struct turn *t = s->t;
    if (!t->running || t->aborting)
        return;
    t->aborting = true;
    step_effect(s, EFFECT_REQUEST_CANCEL);
    retry_stop(s);
    calls_cancel_all(s, false);
    if (t->in_run && t->host == HOST_OPEN) {
        step_effect(s, EFFECT_HOST_ABORT);
        return;
    }
    turn_finish_interrupted(s);
}

void turn_check_duration(struct step *s)
{
    struct turn *t = s->t;
    if (!t->running || t->aborting || !is_overdue(t, s->now_ms))
        return;
    step_error(s, "max_duration_exceeded", overdue_text, "terminal");
    t->overdue = true;
    turn_interrupt(s);
}

int64_t turn_overdue_at_ms(const struct turn *t)
{
    return t->running && !t->aborting && t->o.max_running_ms > 0
               ? t->running_since_ms + t->o.max_running_ms - t->ran_ms
               : -1;
}
