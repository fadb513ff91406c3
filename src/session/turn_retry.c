/* One retry budget for what Pi asks the model (R24). A request that failed before its first byte is
   held by the broker and sent again; after that byte Pi asks again by itself; where Pi does not, or
   a crash took it away, the run is resumed. All of them are attempts, counted here, and none begins
   before the backoff is over. Spans and session.error events carry the count through a crash. */
#include "session/turn_state.h"

#include "base/clock.h"

#include <stdio.h>

#define ATTEMPTS_MAX 5
#define BACKOFF_FIRST_MS 1000
#define BACKOFF_MAX_MS 32000
#define RETRY_AFTER_MAX_MS 60000

/* These two reach the host, in words that Pi does not take for something to try again. */
static const char given_up_text[] = "The model did not answer; the service has given up.";
static const char stopped_text[] = "The session is not running a turn.";

/* The last attempt failed, and what Pi asked for is still open. */
static bool is_pending(const struct turn *t)
{
    return t->retry.attempts > 0 && !t->retry.good;
}

static bool may_retry(const struct turn *t)
{
    return !t->error_unrecoverable && t->retry.attempts < ATTEMPTS_MAX;
}

/* The process in the middle died: nobody was asked too often, so there is nothing to wait for. */
static bool was_lost(const struct turn *t)
{
    return t->error_code && strcmp(t->error_code, REQUEST_LOST) == 0;
}

void retry_reset(struct turn *t)
{
    t->retry = (struct retry){.at_ms = -1};
}

void retry_note_line(struct turn *t, bool failed)
{
    if (t->request.open && failed)
        t->request.failed_line = true;
    else if (t->request.open)
        t->request.good_line = true;
    else
        t->retry.good = !failed;
}

void retry_note_start(struct turn *t, int64_t attempt)
{
    retry_reset(t);
    t->retry.attempts = (unsigned)attempt;
    t->budget.ended_turn = t->budget.cut_run = false;
}

/* After the error of the span's end is known. Pi's line knows best: it has the whole answer or not.
 */
void retry_note_end(struct turn *t)
{
    const struct request *r = &t->request;
    t->retry.good = r->good_line || (t->error_code == NULL && !r->failed_line);
}

void retry_note_scheduled(struct turn *t, int64_t attempt, int64_t at_ms)
{
    t->retry.attempts = attempt > 1 ? (unsigned)attempt - 1 : 1;
    t->retry.good = false;
    t->retry.at_ms = at_ms;
}

/* Exponential, a half of it by chance, so that sessions that failed together do not come back
   together. */
static int64_t backoff_ms(struct turn *t, int64_t retry_after_ms)
{
    int64_t whole = BACKOFF_FIRST_MS << (t->retry.attempts - 1);
    if (whole > BACKOFF_MAX_MS)
        whole = BACKOFF_MAX_MS;
    int64_t half = whole / 2;
    int64_t wait = half + (int64_t)(t->o.random(t->o.random_arg) % (uint64_t)(half + 1));
    if (retry_after_ms > RETRY_AFTER_MAX_MS)
        retry_after_ms = RETRY_AFTER_MAX_MS;
    return retry_after_ms > wait ? retry_after_ms : wait;
}

void retry_tell(struct step *s, json_t *take_status)
{
    const struct turn *t = s->t;
    const char *text = t->error_text ? t->error_text : t->last_error;
    json_t *error = json_pack("{s:s}", "code", t->error_code ? t->error_code : "model_error");
    json_set_str(error, "message", str_of(text ? text : "the model request failed"));
    step_event(s, json_pack("{s:s, s:o, s:o}", "type", "session.error", "error", error,
                            "retryStatus", take_status));
}

static void schedule(struct step *s, int64_t retry_after_ms)
{
    struct turn *t = s->t;
    t->retry.at_ms = s->now_ms + backoff_ms(t, retry_after_ms);
    json_t *status = json_pack("{s:s, s:i}", "type", "retrying", "attempt", t->retry.attempts + 1);
    json_set_time(status, "nextRetryAt", t->retry.at_ms);
    retry_tell(s, status);
    step_event(s, json_pack("{s:s}", "type", "session.status_rescheduled"));
    step_status(s, "rescheduling", NULL);
}

/* Pi has said that it asks again, and the span's end says why. On Pi's word alone nothing is told
   yet: the line that failed may belong to the request before. */
void retry_consider(struct step *s)
{
    struct turn *t = s->t;
    bool told = t->retry.at_ms >= 0 || t->request.open || t->aborting;
    if (t->retry.by_pi && t->error_code && !told && is_pending(t) && !was_lost(t) && may_retry(t))
        schedule(s, 0);
}

void retry_by_pi(struct step *s)
{
    struct turn *t = s->t;
    if (!t->in_run || t->aborting)
        return;
    t->retry.by_pi = true;
    retry_consider(s);
}

static void refuse(struct step *s, const char *request, const char *code, const char *text)
{
    struct turn_effect *e = step_effect(s, EFFECT_REQUEST_REFUSE);
    e->id = arena_strdup(s->a, request);
    e->name = code;
    e->text = text;
}

static void hold(struct step *s, const char *request)
{
    struct turn *t = s->t;
    snprintf(t->retry.waiting, sizeof t->retry.waiting, "%s", request);
    struct turn_effect *e = step_effect(s, EFFECT_REQUEST_HOLD);
    e->id = arena_strdup(s->a, request);
    e->number = t->retry.at_ms - s->now_ms;
}

/* A request that is not Pi's answer to the failure, such as the summary of a conversation that was
   too long, is a new one. */
static bool is_another(const struct turn *t)
{
    return t->error_unrecoverable && !t->retry.by_pi;
}

static void try_to_start(struct step *s, const char *request)
{
    struct turn *t = s->t;
    const char *why = budget_refuses(s, t->asked_tokens);
    if (why == NULL) {
        request_start(s, request, t->retry.attempts + 1);
        return;
    }
    t->retry.waiting[0] = 0;
    refuse(s, request, "budget_exhausted", why);
}

/* One at a time: what was held before is not waited for by anybody. */
static void drop_waiting(struct step *s)
{
    struct retry *r = &s->t->retry;
    if (r->waiting[0])
        refuse(s, r->waiting, "interrupted", stopped_text);
    r->waiting[0] = 0;
}

void retry_admit(struct step *s, const char *request)
{
    struct turn *t = s->t;
    drop_waiting(s);
    if (!t->running || t->aborting) {
        refuse(s, request, t->aborting ? "interrupted" : "session_not_running", stopped_text);
        return;
    }
    if (!is_pending(t) || is_another(t)) {
        retry_reset(t);
    } else if (!may_retry(t)) {
        refuse(s, request, "retries_exhausted", given_up_text);
        return;
    } else if (t->retry.at_ms < 0 && !was_lost(t)) {
        schedule(s, 0); /* this request is the first to tell */
    }
    if (t->retry.at_ms > s->now_ms)
        hold(s, request);
    else
        try_to_start(s, request);
}

void retry_held(struct step *s, const char *request, bool ours, int64_t retry_after_ms)
{
    struct turn *t = s->t;
    if (!ours || !t->running || t->aborting) {
        refuse(s, request, "interrupted", stopped_text);
        return;
    }
    if (!may_retry(t)) {
        refuse(s, request, "retries_exhausted", given_up_text);
        return;
    }
    schedule(s, retry_after_ms);
    hold(s, request);
}

bool retry_is_due(const struct turn *t)
{
    return is_pending(t) && may_retry(t);
}

bool retry_resume(struct step *s)
{
    struct turn *t = s->t;
    if (!is_pending(t) && t->retry.by_pi) /* not even the broker was reached */
        retry_note_scheduled(t, 2, -1);
    else if (t->retry.resumed) /* nor by the run that was to be the next attempt */
        retry_note_scheduled(t, t->retry.attempts + 2, -1);
    t->retry.resumed = false;
    bool worth_it = t->error_code != NULL || t->retry.by_pi; /* else Pi chokes on what it has */
    if (!worth_it || !retry_is_due(t))
        return false;
    if (t->retry.at_ms < 0)
        schedule(s, 0);
    t->retry.resume = true;
    retry_tick(s);
    return true;
}

void retry_tick(struct step *s)
{
    struct turn *t = s->t;
    if (t->aborting || t->retry.at_ms < 0 || s->now_ms < t->retry.at_ms)
        return;
    if (t->retry.waiting[0]) {
        char request[sizeof t->retry.waiting];
        memcpy(request, t->retry.waiting, sizeof request);
        try_to_start(s, request);
    } else if (t->retry.resume && t->host == HOST_OPEN) {
        t->retry.resume = false;
        t->retry.resumed = t->in_run = true;
        step_effect(s, EFFECT_HOST_RESUME);
    }
}

void retry_stop(struct step *s)
{
    drop_waiting(s);
    s->t->retry.resume = false;
}

int64_t retry_deadline_ms(const struct turn *t)
{
    return t->retry.waiting[0] || t->retry.resume ? t->retry.at_ms : -1;
}
