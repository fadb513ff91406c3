/* Log line → events, by the table of LOG.md. */
#include "session/projection.h"

#include "base/clock.h"
#include "base/id.h"
#include "base/mem.h"

#include <sodium.h>
#include <stdio.h>

#define PROJECTION_MAGIC 0x9205ec70u
#define SAVED_VERSION 1 /* of the rules and of what is saved */

struct projection {
    unsigned magic;
    char session[ID_MAX];
    int64_t seq, bad_lines;
    bool forked_prefix; /* between a header with parentSession and the fork line: ids are derived */
    json_t *messages;   /* object: ids of user.message events not yet processed */
    json_t *given;      /* toolCallIds whose result a tool_result line has shown already */
    char start_line[64]; /* of the span.model_request_start no assistant line has followed yet, or
                            "" */
    int64_t start_at_ms;
    int64_t waiting; /* processed user.messages waiting for their message(user) line */
};

/* One line on its way through: what add_event needs to know. */
struct feed {
    struct projection *p;
    const char *line_id;
    int64_t at_ms;
    unsigned index;
    projection_event_fn fn;
    void *arg;
};

struct projection *projection_new(const char *session)
{
    struct projection *p = mem_alloc(sizeof *p);
    p->magic = PROJECTION_MAGIC;
    snprintf(p->session, sizeof p->session, "%s", session);
    p->messages = json_object();
    p->given = json_object();
    return p;
}

struct projection *projection_copy(const struct projection *p)
{
    CHECK(p, PROJECTION_MAGIC);
    struct projection *copy = mem_copy(p, sizeof *p);
    copy->messages = json_copy(p->messages);
    copy->given = json_copy(p->given);
    return copy;
}

json_t *projection_save(const struct projection *p)
{
    CHECK(p, PROJECTION_MAGIC);
    return json_pack("{s:i, s:I, s:I, s:b, s:o, s:o, s:s, s:I, s:I}", "version", SAVED_VERSION,
                     "seq", (json_int_t)p->seq, "badLines", (json_int_t)p->bad_lines,
                     "forkedPrefix", (int)p->forked_prefix, "messages", json_copy(p->messages),
                     "given", json_copy(p->given), "startLine", p->start_line, "startAt",
                     (json_int_t)p->start_at_ms, "waiting", (json_int_t)p->waiting);
}

struct projection *projection_restore(const char *session, const json_t *saved)
{
    json_t *messages = json_object_get(saved, "messages"), *given = json_object_get(saved, "given");
    const char *start_line = json_get_c(saved, "startLine");
    if (json_get_int(saved, "version", 0) != SAVED_VERSION || !json_is_object(messages) ||
        !json_is_object(given) || start_line == NULL)
        return NULL;
    struct projection *p = projection_new(session);
    p->seq = json_get_int(saved, "seq", 0);
    p->bad_lines = json_get_int(saved, "badLines", 0);
    p->forked_prefix = json_get_bool(saved, "forkedPrefix", false);
    json_object_update(p->messages, messages);
    json_object_update(p->given, given);
    snprintf(p->start_line, sizeof p->start_line, "%s", start_line);
    p->start_at_ms = json_get_int(saved, "startAt", 0);
    p->waiting = json_get_int(saved, "waiting", 0);
    return p;
}

void projection_free(struct projection *p)
{
    if (p == NULL)
        return;
    CHECK(p, PROJECTION_MAGIC);
    json_decref(p->messages);
    json_decref(p->given);
    p->magic = 0;
    mem_free(p);
}

int64_t projection_seq(const struct projection *p)
{
    CHECK(p, PROJECTION_MAGIC);
    return p->seq;
}

int64_t projection_bad_lines(const struct projection *p)
{
    CHECK(p, PROJECTION_MAGIC);
    return p->bad_lines;
}

const char *projection_event_id(const char *session, const char *line_id, int64_t line_at_ms,
                                unsigned index, char *out)
{
    AUTO_BUF text = {0}; /* an imported line's id may be of any length */
    buf_printf(&text, "%s\n%s\n%u", session, line_id, index);
    uint8_t hash[32];
    crypto_generichash(hash, sizeof hash, (const uint8_t *)text.p, text.n, NULL, 0);
    return id_make("evt", line_at_ms, hash, out);
}

/* Completes the event (seq, times, session) and hands it over. Takes the reference. */
static void add_event_as(struct feed *f, json_t *event, const char *id, bool queued)
{
    struct projection *p = f->p;
    json_t *whole = json_object();
    json_object_set_new(whole, "id", json_string(id));
    json_object_set(whole, "type", json_object_get(event, "type"));
    json_object_set_new(whole, "seq", json_integer(++p->seq));
    if (json_object_get(event, "createdAt"))
        json_object_set(whole, "createdAt", json_object_get(event, "createdAt"));
    else
        json_set_time(whole, "createdAt", f->at_ms);
    json_set_time(whole, "processedAt", queued ? -1 : f->at_ms);
    json_object_set_new(whole, "sessionId", json_string(p->session));
    json_object_update_missing(whole, event);
    json_decref(event);
    f->fn(f->arg, p->seq, whole);
    json_decref(whole);
}

static void add_event(struct feed *f, json_t *event)
{
    char id[ID_MAX];
    projection_event_id(f->p->session, f->line_id, f->at_ms, f->index++, id);
    add_event_as(f, event, id, false);
}

/* An event posted by a client keeps the id of its inbox, except in a fork's copied part. */
static void add_posted(struct feed *f, json_t *event, const char *own_id)
{
    char id[ID_MAX];
    projection_event_id(f->p->session, f->line_id, f->at_ms, f->index++, id);
    add_event_as(f, event, f->p->forked_prefix ? id : own_id, true);
}

/* What the model said: announced under the ids of its request (projection.h). */
static void add_said(struct feed *f, json_t *event, unsigned preview)
{
    struct projection *p = f->p;
    char id[ID_MAX];
    unsigned index = f->index++;
    if (p->start_line[0])
        projection_event_id(p->session, p->start_line, p->start_at_ms, preview, id);
    else
        projection_event_id(p->session, f->line_id, f->at_ms, index, id);
    add_event_as(f, event, id, false);
}

static json_t *event_of(const char *type)
{
    json_t *e = json_object();
    json_object_set_new(e, "type", json_string(type));
    return e;
}

static json_t *text_blocks(const json_t *content)
{
    if (json_is_string(content)) {
        json_t *block = json_pack("{s:s, s:O}", "type", "text", "text", content);
        return json_pack("[o]", block);
    }
    return json_is_array(content) ? json_deep_copy(content) : json_array();
}

static void feed_user(struct feed *f, const json_t *message)
{
    if (f->p->waiting > 0) { /* this is the text of a posted event: shown already */
        f->p->waiting--;
        return;
    }
    json_t *e = event_of("user.message");
    json_object_set_new(e, "content", text_blocks(json_object_get(message, "content")));
    add_event(f, e);
}

static void add_thinking(struct feed *f, const json_t *block, unsigned n)
{
    json_t *e = event_of("agent.thinking");
    json_object_set(e, "text", json_object_get(block, "thinking"));
    if (json_is_true(json_object_get(block, "redacted")))
        json_object_set_new(e, "redacted", json_true());
    add_said(f, e, PREVIEW_THINKING + n);
}

static void add_tool_use(struct feed *f, const json_t *block)
{
    const char *call = json_get_c(block, "id");
    if (call == NULL || json_get_c(block, "name") == NULL)
        return; /* nothing could ever answer it */
    json_t *e = event_of("agent.tool_use");
    json_object_set(e, "toolCallId", json_object_get(block, "id"));
    json_object_set(e, "name", json_object_get(block, "name"));
    json_object_set(e, "input", json_object_get(block, "arguments"));
    /* An id may come again: the result of the earlier call does not stand for this one. */
    json_object_del(f->p->given, call);
    add_event(f, e);
}

static json_t *joined_text(const json_t *content)
{
    AUTO_BUF text = {0};
    size_t i;
    json_t *block;
    json_array_foreach(content, i, block) if (str_is(json_get_str(block, "type"), "text"))
        buf_add_str(&text, json_get_str(block, "text"));
    return text.n ? json_str(buf_str(&text)) : NULL;
}

static void add_agent_message(struct feed *f, json_t *take_text, bool partial)
{
    json_t *e = event_of("agent.message");
    json_object_set_new(e, "content", json_pack("[{s:s, s:o}]", "type", "text", "text", take_text));
    if (partial)
        json_object_set_new(e, "partial", json_true());
    add_said(f, e, PREVIEW_MESSAGE);
}

static void feed_assistant(struct feed *f, const json_t *message)
{
    const json_t *content = json_object_get(message, "content");
    struct str stop = json_get_str(message, "stopReason");
    if (str_is(stop, "error"))
        return; /* the span's end carries it */
    bool aborted = str_is(stop, "aborted");
    size_t i;
    json_t *block;
    unsigned thoughts = 0;
    if (!aborted)
        json_array_foreach(content, i, block) if (str_is(json_get_str(block, "type"), "thinking"))
            add_thinking(f, block, thoughts++);
    json_t *text = joined_text(content);
    if (text)
        add_agent_message(f, text, aborted);
    if (!aborted)
        json_array_foreach(content, i, block) if (str_is(json_get_str(block, "type"), "toolCall"))
            add_tool_use(f, block);
}

static void add_tool_result(struct feed *f, const char *call, const json_t *name,
                            const json_t *result)
{
    json_t *e = event_of("agent.tool_result");
    json_object_set_new(e, "toolCallId", json_string(call));
    json_object_set(e, "name", (json_t *)name);
    json_object_set_new(e, "content", text_blocks(json_object_get(result, "content")));
    json_object_set_new(e, "isError", json_boolean(json_get_bool(result, "isError", false)));
    if (json_get_bool(result, "interrupted", false))
        json_object_set_new(e, "interrupted", json_true());
    add_event(f, e);
}

static void feed_tool_result(struct feed *f, const json_t *message)
{
    const char *call = json_get_c(message, "toolCallId");
    if (call == NULL || json_object_del(f->p->given, call) == 0)
        return;
    add_tool_result(f, call, json_object_get(message, "toolName"), message);
}

static void feed_message(struct feed *f, const json_t *entry)
{
    const json_t *message = json_object_get(entry, "message");
    struct str role = json_get_str(message, "role");
    if (str_is(role, "user"))
        feed_user(f, message);
    else if (str_is(role, "assistant")) {
        feed_assistant(f, message);
        f->p->start_line[0] = 0;
    } else if (str_is(role, "toolResult"))
        feed_tool_result(f, message);
}

static void feed_inbox(struct feed *f, const json_t *data)
{
    json_t *event = json_object_get(data, "event");
    const char *id = json_get_c(event, "id");
    if (id == NULL || json_get_c(event, "type") == NULL)
        return;
    if (str_is(json_get_str(event, "type"), "user.message"))
        json_object_set_new(f->p->messages, id, json_true());
    add_posted(f, json_incref(event), id);
}

static void feed_processed(struct feed *f, const json_t *data)
{
    const char *id = json_get_c(data, "eventId");
    bool is_message = id && json_object_del(f->p->messages, id) == 0;
    if (is_message && !json_get_bool(data, "withdrawn", false))
        f->p->waiting++;
}

static void feed_early_result(struct feed *f, const json_t *data)
{
    const char *call = json_get_c(data, "toolCallId");
    if (call == NULL)
        return;
    json_object_set_new(f->p->given, call, json_true());
    add_tool_result(f, call, json_object_get(data, "toolName"), json_object_get(data, "result"));
}

/* A turn that ends like this takes the messages along that Pi was given and did not write down. */
bool projection_drops_handed(const json_t *event)
{
    struct str reason = json_get_str(json_object_get(event, "stopReason"), "type");
    return str_is(json_get_str(event, "type"), "session.status_idle") &&
           (str_is(reason, "interrupted") || str_is(reason, "error"));
}

static void feed_event_line(struct feed *f, const json_t *data)
{
    json_t *event = json_object_get(data, "event");
    if (json_get_c(event, "type") == NULL)
        return;
    if (str_is(json_get_str(event, "type"), "span.model_request_start")) {
        snprintf(f->p->start_line, sizeof f->p->start_line, "%s", f->line_id);
        f->p->start_at_ms = f->at_ms;
    } else if (projection_drops_handed(event)) {
        f->p->waiting = 0;
    }
    add_event(f, json_incref(event));
}

static void feed_fork(struct feed *f, const json_t *data)
{
    f->p->forked_prefix = false;
    f->p->waiting = 0; /* what was queued or cut off in the other session stays there */
    json_object_clear(f->p->messages);
    json_object_clear(f->p->given);
    f->p->start_line[0] = 0;
    json_t *e = event_of("session.forked");
    json_object_update_missing(e, (json_t *)data);
    add_event(f, e);
}

static void feed_custom(struct feed *f, const json_t *entry)
{
    static const struct {
        const char *type;
        void (*feed)(struct feed *f, const json_t *data);
    } kinds[] = {
        {"pi-managed:inbox", feed_inbox},      {"pi-managed:processed", feed_processed},
        {"pi-managed:event", feed_event_line}, {"pi-managed:tool_result", feed_early_result},
        {"pi-managed:fork", feed_fork},
    };
    struct str type = json_get_str(entry, "customType");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (str_is(type, kinds[i].type))
            kinds[i].feed(f, json_object_get(entry, "data"));
}

static void feed_compaction(struct feed *f, const json_t *entry)
{
    json_t *e = event_of("session.compacted");
    json_object_set_new(e, "summaryEntryId", json_string(f->line_id));
    static const char *const kept[] = {"tokensBefore", "tokensAfter"};
    for (size_t i = 0; i < 2; i++)
        json_object_set(e, kept[i],
                        json_object_get(entry, kept[i]) ? json_object_get(entry, kept[i])
                                                        : json_null());
    add_event(f, e);
}

void projection_feed_json(struct projection *p, const json_t *entry, projection_event_fn fn,
                          void *arg)
{
    CHECK(p, PROJECTION_MAGIC);
    struct str type = json_get_str(entry, "type");
    if (str_is(type, "session")) {
        p->forked_prefix = json_get_c(entry, "parentSession") != NULL;
        return;
    }
    int64_t at = 0;
    const char *timestamp = json_get_c(entry, "timestamp");
    if (timestamp == NULL || !clock_parse(timestamp, &at))
        at = 0;
    const char *id = json_get_c(entry, "id");
    struct feed f = {.p = p, .line_id = id ? id : "", .at_ms = at, .fn = fn, .arg = arg};
    if (str_is(type, "message"))
        feed_message(&f, entry);
    else if (str_is(type, "custom"))
        feed_custom(&f, entry);
    else if (str_is(type, "compaction") || str_is(type, "branch_summary"))
        feed_compaction(&f, entry);
}

void projection_feed(struct projection *p, struct str line, projection_event_fn fn, void *arg)
{
    CHECK(p, PROJECTION_MAGIC);
    json_t *parsed = NULL;
    struct err_slot saved;
    err_save(&saved);
    err e = json_read_log(line, &parsed);
    AUTO_JSON entry = parsed;
    if (e || !json_is_object(entry)) {
        err_restore(&saved); /* reported by the counter, not as this thread's error */
        p->bad_lines++;
        return;
    }
    projection_feed_json(p, entry, fn, arg);
}
