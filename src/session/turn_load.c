/* The machine's state from log lines: the same changes when a line is loaded and when Pi sends it.
 */
#include "session/turn_state.h"

#include "base/clock.h"
#include "base/mem.h"
#include "session/projection.h"

#include <stdio.h>

/* Pi's user message has one text: the blocks joined by LF (images stand behind it). */
static void join_text(const json_t *content, struct buf *out)
{
    size_t i;
    json_t *block;
    bool first = true;
    if (json_is_string(content))
        buf_add(out, json_string_value(content), json_string_length(content));
    json_array_foreach(content, i, block)
    {
        if (!str_is(json_get_str(block, "type"), "text"))
            continue;
        if (!first)
            buf_add_char(out, '\n');
        buf_add_str(out, json_get_str(block, "text"));
        first = false;
    }
}

struct queued *turn_queue_push(struct turn *t, const char *id, const json_t *event)
{
    struct queued *q = mem_alloc(sizeof *q);
    snprintf(q->id, sizeof q->id, "%s", id);
    q->content = json_deep_copy(json_object_get(event, "content"));
    join_text(q->content, &q->text);
    q->steer = str_is(json_get_str(event, "deliverAs"), "steer");
    struct queued **tail = &t->queue;
    while (*tail)
        tail = &(*tail)->next;
    *tail = q;
    return q;
}

void turn_queue_drop(struct turn *t, struct queued *q)
{
    struct queued **at = &t->queue;
    while (*at != q)
        at = &(*at)->next;
    *at = q->next;
    json_decref(q->content);
    buf_done(&q->text);
    mem_free(q);
}

void turn_queue_drop_handed(struct turn *t)
{
    for (struct queued *q = t->queue, *next; q; q = next) {
        next = q->next;
        if (q->processed)
            turn_queue_drop(t, q);
    }
}

/* Which message Pi wrote down. Not always the first that was handed over: a steer may have been
   lost with its host and wait to be given again. */
static void note_user(struct turn *t, const json_t *message)
{
    AUTO_BUF text = {0};
    join_text(json_object_get(message, "content"), &text);
    struct queued *found = NULL;
    for (struct queued *q = t->queue; q; q = q->next) {
        bool same = q->processed && str_eq(buf_str(&q->text), buf_str(&text));
        if (same || (q->processed && found == NULL))
            found = q;
        if (same)
            break;
    }
    if (found)
        turn_queue_drop(t, found);
    t->last_role = LAST_USER;
    t->last_failed = false;
}

static void note_assistant(struct turn *t, const json_t *entry, const json_t *message)
{
    struct str stop = json_get_str(message, "stopReason");
    t->last_role = LAST_ASSISTANT;
    t->last_failed = str_is(stop, "error");
    mem_free(t->last_error);
    const char *text = json_get_c(message, "errorMessage");
    t->last_error = text ? mem_strdup(text) : NULL;
    bool aborted = str_is(stop, "aborted");
    if (!aborted)
        retry_note_line(t, t->last_failed);
    if (!t->last_failed && !aborted)
        calls_declare(t, entry, message);
}

static void note_message(struct turn *t, const json_t *entry)
{
    const json_t *message = json_object_get(entry, "message");
    struct str role = json_get_str(message, "role");
    const char *call = json_get_c(message, "toolCallId");
    if (str_is(role, "user")) {
        note_user(t, message);
    } else if (str_is(role, "assistant")) {
        note_assistant(t, entry, message);
    } else if (str_is(role, "toolResult")) {
        t->last_role = LAST_TOOL_RESULT;
        if (call)
            calls_close(t, call);
    }
}

/* A line of Pi's: moves the leaf. */
void turn_note_entry(struct turn *t, const json_t *entry)
{
    const char *id = json_get_c(entry, "id");
    if (id)
        snprintf(t->leaf, sizeof t->leaf, "%s", id);
    t->begun = t->begun || t->running;
    if (str_is(json_get_str(entry, "type"), "message"))
        note_message(t, entry);
    else if (str_is(json_get_str(entry, "type"), "compaction"))
        retry_note_line(t, false);
}

static void load_inbox(struct turn *t, const json_t *data)
{
    const json_t *event = json_object_get(data, "event");
    const char *id = json_get_c(event, "id");
    if (id == NULL)
        return;
    json_object_set_new(t->known, id, json_true());
    if (str_is(json_get_str(event, "type"), "user.message"))
        turn_queue_push(t, id, event);
    else if (str_is(json_get_str(event, "type"), "user.interrupt") && t->running)
        t->aborting = true;
}

static void load_processed(struct turn *t, const json_t *data)
{
    const char *id = json_get_c(data, "eventId");
    for (struct queued *q = t->queue; id && q; q = q->next) {
        if (strcmp(q->id, id) != 0)
            continue;
        q->processed = t->begun = true;
        if (json_get_bool(data, "withdrawn", false))
            turn_queue_drop(t, q);
        return;
    }
}

static void load_early_result(struct turn *t, const json_t *data)
{
    const char *id = json_get_c(data, "toolCallId");
    struct call *c = id ? calls_find(t, id) : NULL;
    if (c == NULL)
        return;
    AUTO_BUF result = {0};
    json_write(json_object_get(data, "result"), &result);
    call_set_result(c, buf_str(&result));
    c->shown = true;
}

static void load_idle(struct turn *t, const json_t *event)
{
    t->running = t->aborting = false;
    t->blocked = turn_failed_by(json_get_c(json_object_get(event, "stopReason"), "type"));
    budget_note_end(t, json_get_c(json_object_get(event, "stopReason"), "type"));
    if (projection_drops_handed(event))
        turn_queue_drop_handed(t);
    calls_clear(t);
}

/* R29: the new session begins idle, with the conversation and nothing else. */
static void load_fork(struct turn *t)
{
    t->running = t->aborting = t->blocked = false;
    t->usage = (struct session_usage){0};
    t->budget.warned = t->budget.ended_turn = t->budget.cut_run = false;
    request_forget(&t->request);
    retry_reset(t);
    calls_clear(t);
    while (t->queue)
        turn_queue_drop(t, t->queue);
}

static int64_t time_of(const json_t *entry)
{
    const char *text = json_get_c(entry, "timestamp");
    int64_t at = 0;
    return text && clock_parse(text, &at) ? at : 0;
}

static void load_retry(struct turn *t, const json_t *status)
{
    const char *at = json_get_c(status, "nextRetryAt");
    int64_t at_ms = -1;
    if (at && clock_parse(at, &at_ms))
        retry_note_scheduled(t, json_get_int(status, "attempt", 0), at_ms);
}

static void load_event(struct turn *t, const json_t *entry, const json_t *event)
{
    struct str type = json_get_str(event, "type");
    if (str_is(type, "session.status_run_started")) {
        t->running = true;
        t->running_since_ms = time_of(entry);
        t->begun = t->blocked = false;
        retry_reset(t);
    } else if (str_is(type, "session.error")) {
        load_retry(t, json_object_get(event, "retryStatus"));
    } else if (str_is(type, "session.status_idle")) {
        t->ran_ms += t->running ? time_of(entry) - t->running_since_ms : 0;
        load_idle(t, event);
    } else if (str_is(type, "span.model_request_start")) {
        const char *id = json_get_c(entry, "id");
        t->requests = json_get_int(event, "requestNumber", t->requests + 1);
        retry_note_start(t, json_get_int(event, "attempt", 1));
        t->request.open = true;
        snprintf(t->request.line_id, sizeof t->request.line_id, "%s", id ? id : "");
        t->request.line_at_ms = time_of(entry);
        t->request.input_tokens = json_get_int(event, "estimatedInputTokens", 0);
    } else if (str_is(type, "session.budget_warning")) {
        t->budget.warned = true;
    } else if (str_is(type, "session.updated")) {
        t->budget.warned = t->budget.warned && json_object_get(event, "budget") == NULL;
    } else if (str_is(type, "span.model_request_end")) {
        request_apply_end(t, event, time_of(entry));
        request_forget(&t->request);
    }
}

static void load_control(struct turn *t, const json_t *entry)
{
    struct str type = json_get_str(entry, "customType");
    const json_t *data = json_object_get(entry, "data");
    if (str_is(type, "pi-managed:inbox"))
        load_inbox(t, data);
    else if (str_is(type, "pi-managed:processed"))
        load_processed(t, data);
    else if (str_is(type, "pi-managed:tool_result"))
        load_early_result(t, data);
    else if (str_is(type, "pi-managed:event"))
        load_event(t, entry, json_object_get(data, "event"));
    else if (str_is(type, "pi-managed:fork"))
        load_fork(t);
}

void turn_load_line(struct turn *t, struct str line)
{
    CHECK(t, TURN_MAGIC);
    json_t *parsed = NULL;
    struct err_slot saved;
    err_save(&saved);
    if (json_read_log(line, &parsed)) {
        err_restore(&saved); /* a damaged line is reported by history and the projection */
        return;
    }
    AUTO_JSON entry = parsed;
    struct str type = json_get_str(entry, "type");
    if (str_is(type, "session"))
        t->has_header = true;
    else if (str_is(type, "custom") &&
             str_starts(json_get_str(entry, "customType"), STR("pi-managed:")))
        load_control(t, entry);
    else
        turn_note_entry(t, entry);
}
