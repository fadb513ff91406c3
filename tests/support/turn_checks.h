/* What must hold once a world is at rest, whatever was lost on the way. */
#ifndef TEST_TURN_CHECKS_H
#define TEST_TURN_CHECKS_H

#include "turn_world.h"

static inline void check_status(const json_t *events)
{
    bool running = false;
    size_t i;
    json_t *e;
    json_array_foreach(events, i, e)
    {
        struct str type = json_get_str(e, "type");
        assert_int_equal(json_get_int(e, "seq", 0), i + 1);
        if (str_is(type, "session.status_run_started")) {
            assert_false(running);
            running = true;
        } else if (str_is(type, "session.status_idle")) {
            assert_true(running); /* at most one idle per run_started */
            running = false;
        }
    }
    assert_false(running);
}

/* One result per tool use, after it, before the turn ends. */
static inline void check_calls(const json_t *events)
{
    AUTO_JSON open = json_object();
    size_t i;
    json_t *e;
    json_array_foreach(events, i, e)
    {
        const char *type = json_get_c(e, "type"), *call = json_get_c(e, "toolCallId");
        if (strcmp(type, "agent.tool_use") == 0)
            json_object_set_new(open, call, json_true());
        else if (strcmp(type, "agent.tool_result") == 0)
            assert_int_equal(json_object_del(open, call), 0);
        else if (strcmp(type, "session.status_idle") == 0)
            assert_int_equal(json_object_size(open), 0);
    }
    assert_int_equal(json_object_size(open), 0);
}

/* Spans in order, each ended once before the next begins. */
static inline void check_spans(const json_t *events)
{
    int64_t open = 0, last = 0;
    size_t i;
    json_t *e;
    json_array_foreach(events, i, e)
    {
        const char *type = json_get_c(e, "type");
        int64_t number = json_get_int(e, "requestNumber", 0);
        if (strcmp(type, "span.model_request_start") == 0) {
            assert_int_equal(open, 0);
            assert_int_equal(number, ++last);
            open = number;
        } else if (strcmp(type, "span.model_request_end") == 0) {
            assert_int_equal(number, open);
            open = 0;
        } else if (strcmp(type, "session.status_idle") == 0) {
            assert_int_equal(open, 0);
        }
    }
}

/* R24: five attempts, and none before its time. */
static inline void check_attempts(const json_t *events)
{
    int64_t next_at = 0, begun_at = 0;
    size_t i;
    json_t *e;
    json_array_foreach(events, i, e)
    {
        struct str type = json_get_str(e, "type");
        const char *at = json_get_c(json_object_get(e, "retryStatus"), "nextRetryAt");
        if (at)
            assert_true(clock_parse(at, &next_at));
        if (str_is(type, "session.status_idle"))
            next_at = 0; /* another turn is another request */
        if (!str_is(type, "span.model_request_start"))
            continue;
        assert_in_range(json_get_int(e, "attempt", 0), 1, 5);
        assert_true(clock_parse(json_get_c(e, "createdAt"), &begun_at));
        assert_true(begun_at >= next_at);
    }
}

/* LOG.md, parent rule; and no line comes from nowhere. */
static inline void check_parents(const struct script *s)
{
    char leaf[64] = "";
    for (size_t i = 0; i < s->n; i++) {
        const json_t *entry = s->entries_read[i];
        assert_non_null(entry);
        const char *type = json_get_c(entry, "type"), *parent = json_get_c(entry, "parentId");
        assert_true((strcmp(type, "session") == 0) == (i == 0));
        if (i > 0)
            assert_string_equal(parent ? parent : "", leaf);
        if (strcmp(type, "message") == 0)
            snprintf(leaf, sizeof leaf, "%s", json_get_c(entry, "id"));
    }
}

static inline unsigned times_in_talk(const struct world *w, const char *text)
{
    unsigned n = 0;
    for (size_t i = 0; i < w->s->n; i++) {
        const json_t *m = json_object_get(w->s->entries_read[i], "message");
        const json_t *block = json_array_get(json_object_get(m, "content"), 0);
        n += str_is(json_get_str(m, "role"), "user") && str_is(json_get_str(block, "text"), text);
    }
    return n;
}

static inline unsigned times_posted(const json_t *events, const char *id)
{
    unsigned n = 0;
    size_t i;
    json_t *e;
    json_array_foreach(events, i, e) n += str_is(json_get_str(e, "id"), id);
    return n;
}

static inline bool was_withdrawn(const struct world *w, const char *id)
{
    for (const struct client_action *a = w->actions; a->after; a++)
        if (a->verb == CLIENT_WITHDRAW && strcmp(a->text, id) == 0)
            return true;
    return false;
}

/* Then what is queued waits for the next post. */
static inline bool ended_in_failure(const json_t *events)
{
    for (size_t i = json_array_size(events); i > 0; i--) {
        const json_t *reason = json_object_get(json_array_get(events, i - 1), "stopReason");
        if (reason)
            return !str_is(json_get_str(reason, "type"), "end_turn");
    }
    return false;
}

/* Every message stands once in the events, and once in the conversation unless somebody stopped
   it. The texts of a world's messages differ. */
static inline void check_messages(const struct world *w, const json_t *events)
{
    size_t users = 0, i;
    json_t *e;
    for (const struct client_action *a = w->actions; a->after; a++) {
        if (a->verb > CLIENT_INTERRUPT)
            continue;
        assert_int_equal(times_posted(events, a->id), 1);
        if (a->verb == CLIENT_INTERRUPT)
            continue;
        users++;
        unsigned n = times_in_talk(w, a->text);
        if (w->interrupted || was_withdrawn(w, a->id) || ended_in_failure(events))
            assert_in_range(n, 0, 1);
        else
            assert_int_equal(n, 1);
    }
    json_array_foreach(events, i, e) users -= str_is(json_get_str(e, "type"), "user.message");
    assert_int_equal(users, 0);
}

/* A call runs once; if it ran to its end undisturbed its true result is told. */
static inline void check_tools(const struct world *w, const json_t *events)
{
    for (const struct journal *j = w->journal; j; j = j->next) {
        assert_int_equal(j->starts, 1);
        size_t i;
        json_t *e;
        json_array_foreach(events, i, e)
        {
            if (!str_is(json_get_str(e, "type"), "agent.tool_result") ||
                !str_is(json_get_str(e, "toolCallId"), j->id) || j->cancelled)
                continue;
            const json_t *block = json_array_get(json_object_get(e, "content"), 0);
            if (block)
                assert_non_null(strstr(json_get_c(block, "text"), "the result of"));
        }
    }
}

/* For the reader of a failure: the lines, and what Pi's users said. */
static inline void world_tell(const struct world *w)
{
    AUTO_BUF b = {0};
    for (size_t i = 0; i < w->s->n; i++) {
        buf_add_char(&b, ' ');
        tell_line(&b, w->s->entries_read[i]);
        const json_t *m = json_object_get(w->s->entries_read[i], "message");
        const char *text = json_get_c(json_array_get(json_object_get(m, "content"), 0), "text");
        if (text)
            buf_printf(&b, "(%s)", text);
    }
    print_message("%s\n", b.p);
}

static inline void world_check(struct world *w)
{
    if (getenv("TURN_TRACE"))
        world_tell(w);
    assert_false(turn_is_running(w->s->t));
    assert_true(turn_is_quiet(w->s->t));
    AUTO_JSON events = script_events(w->s);
    check_status(events);
    check_calls(events);
    check_spans(events);
    check_attempts(events);
    check_parents(w->s);
    check_messages(w, events);
    check_tools(w, events);
}

#endif
