/* The turn machine's core: inputs in, lines and effects out. Parts: turn_calls.c (tool calls),
   turn_requests.c (model requests and previews), turn_load.c (state from the log). */
#include "session/turn.h"

#include "base/clock.h"
#include "base/mem.h"
#include "hands/frames.h"
#include "session/projection.h"
#include "session/turn_state.h"

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
    mem_free((char *)t->o.tenant);
    mem_free((char *)t->o.session);
    mem_free((char *)t->o.provider);
    mem_free((char *)t->o.model);
    t->magic = 0;
    mem_free(t);
}

/* ---- lines and effects ---- */

void step_line(struct step *s, struct str line)
{
    struct turn_output *out = s->out;
    if ((out->line_count & (out->line_count - 1)) == 0) { /* room for the next power of two */
        struct str *more = arena_alloc(s->a, (out->line_count * 2 + 1) * sizeof *more);
        if (out->line_count)
            memcpy(more, out->lines, out->line_count * sizeof *more);
        out->lines = more;
    }
    out->lines[out->line_count++] = arena_str(s->a, line);
}

static void step_json_line(struct step *s, json_t *take_line)
{
    AUTO_BUF text = {0};
    json_write(take_line, &text);
    json_decref(take_line);
    step_line(s, buf_str(&text));
}

/* LOG.md: a log begins with Pi's header, whoever writes first. */
static void ensure_header(struct step *s)
{
    struct turn *t = s->t;
    if (t->has_header)
        return;
    t->has_header = true;
    json_t *h = json_pack("{s:s, s:i, s:s}", "type", "session", "version", 3, "id", t->o.session);
    json_set_time(h, "timestamp", s->now_ms);
    json_object_set_new(h, "cwd", json_string(SANDBOX_WORKDIR));
    step_json_line(s, h);
}

const char *step_control(struct step *s, const char *custom_type, json_t *take_data)
{
    struct turn *t = s->t;
    ensure_header(s);
    const char *id =
        arena_printf(s->a, "%016llx", (unsigned long long)t->o.random(t->o.random_arg));
    json_t *line =
        json_pack("{s:s, s:s, s:s}", "type", "custom", "customType", custom_type, "id", id);
    json_object_set_new(line, "parentId", t->leaf[0] ? json_string(t->leaf) : json_null());
    json_set_time(line, "timestamp", s->now_ms);
    json_object_set_new(line, "data", take_data);
    step_json_line(s, line);
    return id;
}

const char *step_event(struct step *s, json_t *take_event)
{
    return step_control(s, "pi-managed:event", json_pack("{s:o}", "event", take_event));
}

struct turn_effect *step_effect(struct step *s, enum turn_effect_kind kind)
{
    struct turn_effect *e = arena_alloc(s->a, sizeof *e);
    e->kind = kind;
    *s->tail = e;
    s->tail = &e->next;
    return e;
}

void step_frame(struct step *s, const char *type, const char *delta_of, json_t *take_frame)
{
    json_object_set_new(take_frame, "type", json_string(type));
    json_object_set_new(take_frame, "sessionId", json_string(s->t->o.session));
    struct turn_effect *e = step_effect(s, EFFECT_FRAME);
    e->name = type;
    e->text = delta_of;
    e->bytes = json_write_arena(take_frame, s->a);
    json_decref(take_frame);
}

void step_error(struct step *s, const char *code, const char *message, const char *retry_type)
{
    step_event(s, json_pack("{s:s, s:{s:s, s:o}, s:{s:s}}", "type", "session.error", "error",
                            "code", code, "message", json_str(str_of(message)), "retryStatus",
                            "type", retry_type));
}

static void set_status(struct step *s, const char *status, const json_t *stop_reason)
{
    struct turn_effect *e = step_effect(s, EFFECT_STATUS);
    e->name = status;
    if (stop_reason)
        e->bytes = json_write_arena(stop_reason, s->a);
}

/* ---- a turn's beginning and end ---- */

static void mark_processed(struct step *s, struct queued *q, bool withdrawn)
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

static struct queued *first_with(const struct turn *t, bool processed)
{
    struct queued *q = t->queue;
    while (q && q->processed != processed)
        q = q->next;
    return q;
}

static void hand_to_pi(struct step *s, const struct queued *q, enum turn_effect_kind how)
{
    step_effect(s, how)->bytes = json_write_arena(q->content, s->a);
}

static void fail_turn(struct step *s, const char *code, const char *text);

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

static void start_turn(struct step *s)
{
    struct turn *t = s->t;
    t->running = true;
    t->running_since_ms = s->now_ms;
    t->begun = t->blocked = false;
    t->host_losses = 0;
    step_event(s, json_pack("{s:s}", "type", "session.status_run_started"));
    set_status(s, "running", NULL);
    if (is_overdue(t, s->now_ms)) {
        fail_turn(s, "max_duration_exceeded", overdue_text);
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
    if (first_with(t, true) == NULL &&
        (t->last_role == LAST_USER || t->last_role == LAST_TOOL_RESULT)) {
        step_effect(s, EFFECT_HOST_RESUME);
        t->in_run = true;
        return true;
    }
    return false;
}

/* The last model request of a run failed for good, or Pi itself did. */
/* What went wrong, in the words of who knows best: the broker, then Pi, then the host. */
static void finish_failed(struct step *s)
{
    struct turn *t = s->t;
    bool terminal = t->error_unrecoverable || !t->last_failed;
    const char *code = "harness_error", *text = t->settled_error;
    if (t->last_failed) {
        code = t->error_code ? t->error_code : "model_error";
        text = t->error_text ? t->error_text : t->last_error;
    }
    step_error(s, code, text ? text : "the model request failed",
               terminal ? "terminal" : "exhausted");
    turn_finish(s, terminal ? "error" : "retries_exhausted");
}

/* The host is open and idle: gives Pi what is next, or ends the turn. */
void turn_begin_run(struct step *s)
{
    struct turn *t = s->t;
    bool resuming = t->resuming;
    if (resuming && continue_run(s)) {
        t->resuming = !t->in_run;
        return;
    }
    t->resuming = false;
    if (resuming && t->last_role == LAST_ASSISTANT && t->last_failed) {
        finish_failed(s);
        return;
    }
    /* What Pi was given and has not written down it does not know: a steer that came too late, or a
       prompt that its host took along. */
    struct queued *next = first_with(t, true);
    if (next == NULL && (next = first_with(t, false)) == NULL) {
        turn_finish(s, "end_turn");
        return;
    }
    calls_give_up(s); /* left open by a run that broke off: Pi tells the model itself */
    if (!next->processed)
        mark_processed(s, next, false);
    hand_to_pi(s, next, EFFECT_HOST_PROMPT);
    t->in_run = t->begun = true;
}

bool turn_failed_by(const char *stop_type)
{
    return stop_type &&
           (strcmp(stop_type, "error") == 0 || strcmp(stop_type, "retries_exhausted") == 0);
}

void turn_finish(struct step *s, const char *stop_type)
{
    struct turn *t = s->t;
    request_expire(s, true);
    calls_give_up(s);
    t->ran_ms = ran_ms(t, s->now_ms);
    t->running = t->in_run = t->aborting = t->resuming = t->settled = t->overdue = false;
    t->blocked = turn_failed_by(stop_type);
    AUTO_JSON reason = json_pack("{s:s}", "type", stop_type);
    AUTO_JSON idle = json_pack("{s:s, s:O}", "type", "session.status_idle", "stopReason", reason);
    step_event(s, json_incref(idle));
    if (projection_drops_handed(idle))
        turn_queue_drop_handed(t);
    set_status(s, "idle", reason);
    if (t->queue && !t->blocked && strcmp(stop_type, "interrupted") == 0)
        start_turn(s); /* what was posted after, or queued before, the interrupt */
}

static const char *abort_type(const struct turn *t)
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
        turn_finish(s, abort_type(t));
    } else if (t->last_failed || t->settled_error) {
        finish_failed(s);
    } else {
        turn_begin_run(s);
    }
}

static void fail_turn(struct step *s, const char *code, const char *text)
{
    step_error(s, code, text, "terminal");
    turn_finish(s, "error");
}

/* ---- inputs ---- */

/* Pi has nothing in hand. If this turn has not begun, its message is what gets interrupted. */
static void finish_interrupted(struct step *s)
{
    struct turn *t = s->t;
    struct queued *head = t->queue;
    if (head && !t->begun) {
        mark_processed(s, head, true);
        turn_queue_drop(t, head);
    }
    turn_finish(s, abort_type(t));
}

static void interrupt(struct step *s)
{
    struct turn *t = s->t;
    if (!t->running || t->aborting)
        return;
    t->aborting = true;
    step_effect(s, EFFECT_REQUEST_CANCEL);
    calls_cancel_all(s, false);
    if (t->in_run && t->host == HOST_OPEN) {
        step_effect(s, EFFECT_HOST_ABORT);
        return;
    }
    finish_interrupted(s);
}

static void check_duration(struct step *s)
{
    struct turn *t = s->t;
    if (!t->running || t->aborting || !is_overdue(t, s->now_ms))
        return;
    step_error(s, "max_duration_exceeded", overdue_text, "terminal");
    t->overdue = true;
    interrupt(s);
}

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
        mark_processed(s, &now, false);
        interrupt(s);
        return;
    }
    if (!str_is(type, "user.message"))
        return;
    struct queued *q = turn_queue_push(t, id, in->event);
    if (!t->running) {
        start_turn(s);
    } else if (q->steer && t->in_run && !t->aborting && !t->settled) {
        mark_processed(s, q, false);
        hand_to_pi(s, q, EFFECT_HOST_STEER);
    }
}

static void withdraw(struct step *s, const struct turn_input *in)
{
    struct turn *t = s->t;
    struct queued *q = t->queue;
    while (q && strcmp(q->id, in->id) != 0)
        q = q->next;
    if (q && !q->processed) {
        mark_processed(s, q, true);
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
        fail_turn(s, in->name && in->name[0] ? in->name : "harness_unavailable", in->text);
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
        turn_finish(s, abort_type(t));
    else
        fail_turn(s, "harness_error", in->text);
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
        turn_finish(s, abort_type(t));
        return;
    }
    t->resuming = t->resuming || t->in_run;
    t->in_run = t->settled = false;
    if (++t->host_losses >= HOST_LOSSES_MAX) {
        char text[300];
        snprintf(text, sizeof text, "the Pi host died %d times in this turn: %s", HOST_LOSSES_MAX,
                 in->text);
        fail_turn(s, "harness_crashed", text);
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
    ensure_header(s);
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
            start_turn(s);
        return;
    }
    request_expire(s, true);
    set_status(s, "running", NULL);
    if (t->aborting) { /* the interrupt was durable, its end was not */
        calls_cancel_all(s, true);
        finish_interrupted(s);
        return;
    }
    t->resuming = true;
    calls_attach(s, false);
    step_effect(s, EFFECT_SANDBOX_WARM);
    t->host = HOST_OPENING;
    step_effect(s, EFFECT_HOST_OPEN);
}

void turn_step(struct turn *t, const struct turn_input *in, struct arena *a,
               struct turn_output *out)
{
    CHECK(t, TURN_MAGIC);
    *out = (struct turn_output){0};
    struct step s = {.t = t, .a = a, .out = out, .tail = &out->effects, .now_ms = in->now_ms};
    switch (in->kind) {
    case TURN_POSTED:
        posted(&s, in);
        break;
    case TURN_WITHDRAW:
        withdraw(&s, in);
        break;
    case TURN_HOST_OPENED:
        host_opened(&s, in);
        break;
    case TURN_HOST_REPLIED:
        host_replied(&s, in);
        break;
    case TURN_HOST_LOST:
        host_lost(&s, in);
        break;
    case TURN_ENTRY:
        entry(&s, in);
        break;
    case TURN_DELTA:
        request_delta(&s, in->event);
        break;
    case TURN_TOOL:
        calls_requested(&s, in);
        break;
    case TURN_TOOL_CANCELLED: {
        struct call *c = calls_find(t, in->id);
        if (c && c->state == CALL_RUNNING)
            step_effect(&s, EFFECT_TOOL_CANCEL)->id = arena_strdup(a, in->id);
        break;
    }
    case TURN_TOOL_UPDATE:
        calls_update(&s, in);
        break;
    case TURN_TOOL_RESULT:
        calls_result(&s, in);
        break;
    case TURN_SANDBOX_FAILED:
        step_error(&s, in->name && in->name[0] ? in->name : "sandbox_unavailable", in->text,
                   "terminal");
        break;
    case TURN_REQUEST_BEGIN:
        request_begin(&s, in);
        break;
    case TURN_REQUEST_END:
        request_end(&s, in);
        break;
    case TURN_BROKER_LOST:
        request_expire(&s, true);
        break;
    case TURN_SETTLED:
        settled(&s, in);
        break;
    case TURN_RECOVER:
        recover(&s, in);
        break;
    case TURN_TICK:
        request_expire(&s, false);
        check_duration(&s);
        break;
    }
    if (t->request.open == false) {
        calls_try_start(&s);
        turn_try_settle(&s);
    }
}

int64_t turn_deadline_ms(const struct turn *t)
{
    CHECK(t, TURN_MAGIC);
    int64_t hold = t->request.open ? t->request.hold_until_ms : -1;
    int64_t limit = t->running && !t->aborting && t->o.max_running_ms > 0
                        ? t->running_since_ms + t->o.max_running_ms - t->ran_ms
                        : -1;
    return hold < 0 || (limit >= 0 && limit < hold) ? limit : hold;
}

bool turn_is_running(const struct turn *t)
{
    CHECK(t, TURN_MAGIC);
    return t->running;
}

bool turn_is_quiet(const struct turn *t)
{
    CHECK(t, TURN_MAGIC);
    return !t->running && !t->request.open && (t->queue == NULL || t->blocked);
}

bool turn_needs_recovery(const struct turn *t)
{
    CHECK(t, TURN_MAGIC);
    return t->running || (first_with(t, false) && !t->blocked);
}

bool turn_knows_event(const struct turn *t, const char *event_id)
{
    CHECK(t, TURN_MAGIC);
    return json_object_get(t->known, event_id) != NULL;
}

const struct session_usage *turn_usage(const struct turn *t)
{
    CHECK(t, TURN_MAGIC);
    return &t->usage;
}
