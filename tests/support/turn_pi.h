/* The Pi of turn_world.h: what it does next, each time sending something. Header only. */
#ifndef TEST_TURN_PI_H
#define TEST_TURN_PI_H

#include "turn_parties.h"

static inline void drop_json(void *j)
{
    json_decref(j);
}

/* The parcel carries the entry twice: as the bytes the machine gets, and read for hear(). */
static inline void send_entry(struct world *w, json_t *take_message)
{
    struct script *s = w->s;
    char id[24];
    snprintf(id, sizeof id, "pi%06u", ++s->entries);
    json_t *entry =
        json_pack("{s:s, s:s, s:o}", "type", "message", "id", id, "message", take_message);
    json_object_set_new(entry, "parentId", s->leaf[0] ? json_string(s->leaf) : json_null());
    json_set_time(entry, "timestamp", s->now_ms);
    memcpy(s->leaf, id, sizeof id);
    send_parcel(w, &w->from_host,
                (struct turn_input){
                    .kind = TURN_ENTRY, .bytes = json_write_arena(entry, s->a), .event = entry});
    arena_defer(s->a, drop_json, entry);
}

static inline void send_user(struct world *w, const char *text)
{
    send_entry(w, json_pack("{s:s, s:[{s:s, s:s}]}", "role", "user", "content", "type", "text",
                            "text", text));
}

static inline void send_answer(struct world *w, const char *stop)
{
    json_t *m = json_pack("{s:s, s:s, s:[{s:s, s:s}]}", "role", "assistant", "stopReason", stop,
                          "content", "type", "text", "text", "an answer");
    if (strcmp(stop, "error") == 0)
        json_object_set_new(m, "errorMessage", json_string("it failed"));
    send_entry(w, m);
}

static inline void send_calls(struct world *w, unsigned n)
{
    json_t *content = json_array();
    w->call_count = n < WORLD_CALLS ? n : WORLD_CALLS;
    for (unsigned i = 0; i < w->call_count; i++) {
        const char *id = arena_printf(w->s->a, "call-%u-%u", w->s->entries, i);
        w->calls[i] = (struct world_call){.id = id};
        json_array_append_new(content, json_pack("{s:s, s:s, s:s, s:{}}", "type", "toolCall", "id",
                                                 id, "name", "bash", "arguments"));
    }
    send_entry(w, json_pack("{s:s, s:s, s:o}", "role", "assistant", "stopReason", "toolUse",
                            "content", content));
    for (unsigned i = 0; i < w->call_count; i++)
        send_parcel(
            w, &w->from_host,
            (struct turn_input){
                .kind = TURN_TOOL, .id = w->calls[i].id, .name = "bash", .bytes = STR("{}")});
    w->pi = PI_CALLING;
}

static inline void ask_model(struct world *w)
{
    snprintf(w->request, sizeof w->request, "r%u", ++w->requests);
    w->request_open = true;
    w->pi = PI_ASKING;
    send_parcel(
        w, &w->from_broker,
        (struct turn_input){.kind = TURN_REQUEST_BEGIN, .id = arena_strdup(w->s->a, w->request)});
}

/* What the conversation holds, from the log and from what is on its way to it. */
struct talk {
    const char *last_user;
    unsigned batches; /* assistant lines with calls since then */
    bool user_is_last;
};

static inline void hear(struct world *w, const json_t *entry, struct talk *t)
{
    const json_t *m = json_object_get(entry, "message");
    struct str role = json_get_str(m, "role");
    if (str_is(role, "user")) {
        *t = (struct talk){.user_is_last = true};
        t->last_user = arena_strdup(
            w->s->a, json_get_c(json_array_get(json_object_get(m, "content"), 0), "text"));
    } else if (role.p) {
        t->user_is_last = false;
        t->batches += str_is(json_get_str(m, "stopReason"), "toolUse");
    }
}

static inline struct talk read_talk(struct world *w)
{
    struct talk t = {0};
    for (size_t i = 0; i < w->s->n; i++)
        hear(w, w->s->entries_read[i], &t);
    for (const struct parcel *p = w->from_host.head; p; p = p->next)
        if (p->in.kind == TURN_ENTRY)
            hear(w, p->in.event, &t);
    return t;
}

static inline unsigned calls_wanted(const struct talk *t)
{
    unsigned n = 0;
    if (t->last_user && sscanf(t->last_user, "tools %u", &n) == 1)
        return t->batches == 0 ? n : 0;
    if (t->last_user && sscanf(t->last_user, "deep %u", &n) == 1)
        return t->batches < n ? 1 : 0;
    return 0;
}

static inline void end_request(struct world *w, json_t *take_error)
{
    w->request_open = false;
    json_t *end = json_pack("{s:{s:i, s:i}, s:o}", "usage", "inputTokens", 10, "outputTokens", 5,
                            "error", take_error);
    send_parcel(w, &w->from_broker,
                (struct turn_input){.kind = TURN_REQUEST_END,
                                    .id = arena_strdup(w->s->a, w->request),
                                    .bytes = json_write_arena(end, w->s->a)});
    json_decref(end);
}

static inline void after_answer(struct world *w)
{
    if (w->steer_count == 0) {
        w->pi = PI_SETTLING;
        return;
    }
    send_user(w, w->pi_steers[0]);
    memmove(w->pi_steers, w->pi_steers + 1, --w->steer_count * sizeof *w->pi_steers);
    ask_model(w);
}

/* Nothing of what Pi has to say reaches the broker. */
static inline bool pi_chokes(struct world *w)
{
    struct talk t = read_talk(w);
    return t.last_user && strcmp(t.last_user, "choke") == 0;
}

/* Pi heard of a failure: it asks again at most four times, or not at all. */
static inline void pi_fails(struct world *w)
{
    send_answer(w, "error");
    if (w->pi_refused || w->pi_retries == 4 || world_random(w, 3) == 0) {
        w->pi = PI_SETTLING;
        return;
    }
    w->pi_retries++;
    send_parcel(w, &w->from_host, (struct turn_input){.kind = TURN_RETRY});
    if (pi_chokes(w))
        w->pi = PI_CUT_OFF;
    else
        ask_model(w);
}

static inline bool provider_fails(struct world *w, const struct talk *t)
{
    unsigned n = 0;
    if (t->last_user == NULL)
        return false;
    if (strcmp(t->last_user, "fail") == 0)
        return true;
    return sscanf(t->last_user, "flaky %u", &n) == 1 && w->failures++ < n;
}

static inline void request_fails(struct world *w)
{
    json_t *error = json_pack("{s:s, s:s}", "code", "model_overloaded", "message", "529");
    if (world_random(w, 2)) {
        end_request(w, error);
        pi_fails(w);
        return;
    }
    json_t *end = json_pack("{s:b, s:o}", "holding", 1, "error", error);
    send_parcel(w, &w->from_broker,
                (struct turn_input){.kind = TURN_REQUEST_END,
                                    .id = arena_strdup(w->s->a, w->request),
                                    .bytes = json_write_arena(end, w->s->a)});
    json_decref(end);
    w->pi = PI_ASKING;
}

static inline void pi_streams(struct world *w)
{
    struct talk t = read_talk(w);
    unsigned n = calls_wanted(&t);
    if (provider_fails(w, &t)) {
        request_fails(w);
        return;
    }
    w->pi_retries = 0;
    end_request(w, json_null());
    if (n > 0) {
        send_calls(w, n);
        return;
    }
    send_answer(w, "stop");
    after_answer(w);
}

static inline void send_results(struct world *w)
{
    for (unsigned i = 0; i < w->call_count; i++) {
        json_t *message = NULL;
        if (!w->calls[i].answered)
            message = json_pack("{s:[], s:b}", "content", "isError", 1);
        else
            assert_int_equal(json_read(w->calls[i].result, &message), 0);
        json_object_set_new(message, "role", json_string("toolResult"));
        json_object_set_new(message, "toolCallId", json_string(w->calls[i].id));
        send_entry(w, message);
    }
    w->call_count = 0;
}

static inline void send_resumed_results(struct world *w)
{
    struct str rest = w->pi_results, line;
    while (str_split(&rest, '\n', &line)) {
        json_t *message = NULL;
        if (line.n && json_read(line, &message) == 0)
            send_entry(w, message);
    }
    w->pi_results = (struct str){0};
}

static inline void pi_aborts(struct world *w)
{
    bool heard = w->pi != PI_PROMPTED || world_random(w, 2);
    if (w->pi == PI_CALLING)
        send_results(w);
    if (heard && w->pi_text)
        send_user(w, w->pi_text);
    if (heard)
        send_answer(w, "aborted");
    w->pi_text = NULL;
    cut_request(w);
    w->pi = PI_SETTLING;
}

static inline bool pi_can_move(const struct world *w)
{
    if (!w->host_up || w->pi == PI_IDLE)
        return false;
    if (w->pi_abort || w->pi == PI_PROMPTED || w->pi == PI_STREAMING || w->pi == PI_CUT_OFF ||
        w->pi == PI_SETTLING)
        return true;
    for (unsigned i = 0; w->pi == PI_CALLING && i < w->call_count; i++)
        if (!w->calls[i].answered)
            return false;
    return w->pi == PI_CALLING;
}

static inline void pi_moves(struct world *w)
{
    if (w->pi_abort && w->pi != PI_SETTLING) {
        pi_aborts(w);
        return;
    }
    switch (w->pi) {
    case PI_PROMPTED:
        send_resumed_results(w);
        if (w->pi_text)
            send_user(w, w->pi_text);
        w->pi_text = NULL;
        if (pi_chokes(w))
            pi_fails(w);
        else
            ask_model(w);
        break;
    case PI_STREAMING:
        pi_streams(w);
        break;
    case PI_CUT_OFF:
        pi_fails(w);
        break;
    case PI_CALLING:
        send_results(w);
        if (w->steer_count) {
            send_user(w, w->pi_steers[0]);
            memmove(w->pi_steers, w->pi_steers + 1, --w->steer_count * sizeof *w->pi_steers);
        }
        ask_model(w);
        break;
    case PI_SETTLING:
        send_parcel(w, &w->from_host,
                    (struct turn_input){.kind = TURN_SETTLED, .ok = !w->pi_abort});
        w->pi = PI_IDLE;
        w->pi_abort = false;
        w->steer_count = 0;
        break;
    default:
        break;
    }
}

#endif
