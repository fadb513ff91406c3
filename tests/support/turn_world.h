/* A world around the turn machine: a Pi in a host, a broker, tools and clients, played by rules and
   a seed. Every message of each is delivered in its own order, the four interleave at random. The
   world can lose its host, its broker, or everything (a crash of the service) at any point, and
   checks at the end what must always hold.

   What the model says is decided by the text it answers: "tools 2" calls two tools and then stops,
   "deep 3" does so three times with one tool, "fail" is a failed request, "flaky 2" fails twice, on
   "choke" Pi fails without asking, anything else is answered with a text. A request fails before
   its first byte or after it, and Pi asks again by itself or gives up, as the seed will have it. */
#ifndef TEST_TURN_WORLD_H
#define TEST_TURN_WORLD_H

#include "turn_script.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define WORLD_CALLS 8
#define WORLD_MOVES_MAX 5000 /* a world that is not at rest by then never will be */

enum pi_state {
    PI_IDLE,
    PI_PROMPTED, /* was given `pi_text`, or nothing when it resumes */
    PI_ASKING,   /* has sent a request, waits for the broker to go on */
    PI_STREAMING,
    PI_CUT_OFF, /* its request broke */
    PI_CALLING, /* waits for tool results */
    PI_SETTLING
};

struct parcel { /* an input on its way */
    struct parcel *next;
    struct turn_input in;
};
struct mailbag {
    struct parcel *head, **tail;
};

struct world_call {
    const char *id;
    bool answered;
    struct str result;
};

/* A call as the sandbox knows it. */
struct journal {
    struct journal *next;
    const char *id;
    size_t started_at; /* number of log lines then */
    unsigned starts;
    bool running, cancelled; /* running: a tool thread of ours waits for it */
};

enum client_verb {
    CLIENT_POST,
    CLIENT_STEER,
    CLIENT_INTERRUPT,
    CLIENT_WITHDRAW, /* text: the id of a message */
    CLIENT_KILL_HOST,
    CLIENT_KILL_BROKER
};
struct client_action {
    unsigned after; /* moves of the world */
    enum client_verb verb;
    const char *id, *text;
};

struct world {
    struct script *s;
    uint64_t seed;
    unsigned moves;
    bool host_up, host_opening;
    enum pi_state pi;
    const char *pi_text;   /* to be written as user message first */
    struct str pi_results; /* of a resume: to be written first */
    bool pi_abort, pi_deep_reply;
    bool pi_refused;     /* what cut its request off is nothing to try again */
    unsigned pi_retries; /* of this run */
    unsigned failures;   /* of the provider, so far */
    const char *pi_steers[8];
    unsigned steer_count;
    struct world_call calls[WORLD_CALLS];
    unsigned call_count;
    unsigned requests;
    char request[24];
    bool request_open; /* at the broker */
    struct mailbag from_host, from_broker, from_tools;
    struct journal *journal;
    const struct client_action *actions; /* up to one with after == 0 */
    size_t next_action;
    bool interrupted; /* by a client, at any time */
    bool sandbox_lost;
};

static inline uint64_t world_random(struct world *w, uint64_t below)
{
    return script_random(&w->seed) % below;
}

/* ---- parcels ---- */

static inline void send_parcel(struct world *w, struct mailbag *bag, struct turn_input in)
{
    struct parcel *p = arena_alloc(w->s->a, sizeof *p);
    p->in = in;
    if (bag->head == NULL)
        bag->tail = &bag->head;
    *bag->tail = p;
    bag->tail = &p->next;
}

static inline struct turn_input take_parcel(struct mailbag *bag)
{
    struct parcel *p = bag->head;
    bag->head = p->next;
    if (bag->head == NULL)
        bag->tail = &bag->head;
    return p->in;
}

static inline void drop_parcels(struct mailbag *bag)
{
    bag->head = NULL;
    bag->tail = &bag->head;
}

/* ---- the sandbox ---- */

static inline struct journal *find_journal(struct world *w, const char *id)
{
    struct journal *j = w->journal;
    while (j && strcmp(j->id, id) != 0)
        j = j->next;
    return j;
}

static inline void tool_over(struct world *w, const char *id, const char *text, bool failed)
{
    json_t *result = json_pack("{s:[{s:s, s:s}], s:b}", "content", "type", "text", "text",
                               arena_printf(w->s->a, "%s of %s", text, id), "isError", failed);
    send_parcel(w, &w->from_tools,
                (struct turn_input){.kind = TURN_TOOL_RESULT,
                                    .id = id,
                                    .bytes = json_write_arena(result, w->s->a)});
    json_decref(result);
}

static inline void world_start(struct world *w, const char *id)
{
    struct journal *j = find_journal(w, id);
    if (j == NULL) {
        j = arena_alloc(w->s->a, sizeof *j);
        *j = (struct journal){.next = w->journal, .id = id, .started_at = w->s->n};
        w->journal = j;
    }
    j->starts++;
    j->running = true;
}

static inline void world_attach(struct world *w, const char *id)
{
    struct journal *j = find_journal(w, id);
    if (j && !w->sandbox_lost)
        j->running = true;
    else
        tool_over(w, id, "unknown effects", true);
}

/* ---- the host ---- */

static inline void host_gone(struct world *w)
{
    w->host_up = w->host_opening = false;
    w->pi = PI_IDLE;
    w->pi_text = NULL;
    w->pi_results = (struct str){0};
    w->pi_abort = false;
    w->steer_count = w->call_count = 0;
    drop_parcels(&w->from_host);
}

static inline void begin_pi(struct world *w, const char *op)
{
    bool fine = w->host_up && w->pi == PI_IDLE;
    send_parcel(
        w, &w->from_host,
        (struct turn_input){.kind = TURN_HOST_REPLIED, .name = op, .ok = fine, .text = "busy"});
    assert_true(fine); /* control asks for one run at a time */
    w->pi = PI_PROMPTED;
    w->pi_abort = w->pi_deep_reply = w->pi_refused = false;
    w->pi_retries = 0;
}

static inline const char *text_of(struct world *w, struct str blocks)
{
    json_t *content = NULL;
    assert_int_equal(json_read(blocks, &content), 0);
    const char *text = arena_strdup(w->s->a, json_get_c(json_array_get(content, 0), "text"));
    json_decref(content);
    return text;
}

static inline void give_to_pi(struct world *w, const char *id, struct str result)
{
    for (unsigned i = 0; i < w->call_count; i++) {
        if (strcmp(w->calls[i].id, id) == 0 && !w->calls[i].answered) {
            w->calls[i].answered = true;
            w->calls[i].result = result;
            return;
        }
    }
}

static inline void cut_request(struct world *w)
{
    if (!w->request_open)
        return;
    w->request_open = false;
    AUTO_JSON end = json_pack("{s:b, s:n, s:n}", "aborted", 1, "usage", "error");
    struct str text = json_write_arena(end, w->s->a);
    send_parcel(w, &w->from_broker,
                (struct turn_input){.kind = TURN_REQUEST_END,
                                    .id = arena_strdup(w->s->a, w->request),
                                    .bytes = text});
    if (w->pi == PI_ASKING || w->pi == PI_STREAMING)
        w->pi = PI_CUT_OFF;
}

/* A host that opens goes on where the log ends. */
static inline void find_leaf(struct script *s)
{
    s->leaf[0] = 0;
    for (size_t i = 0; i < s->n; i++) {
        const json_t *entry = s->entries_read[i];
        if (strcmp(json_get_c(entry, "type"), "message") == 0)
            snprintf(s->leaf, sizeof s->leaf, "%s", json_get_c(entry, "id"));
    }
}

static inline void perform(struct world *w, const struct turn_effect *e)
{
    switch (e->kind) {
    case EFFECT_HOST_OPEN:
        host_gone(w);
        find_leaf(w->s);
        w->host_opening = true;
        send_parcel(w, &w->from_host, (struct turn_input){.kind = TURN_HOST_OPENED, .ok = true});
        break;
    case EFFECT_HOST_PROMPT:
        begin_pi(w, "prompt");
        w->pi_text = text_of(w, e->bytes);
        break;
    case EFFECT_HOST_RESUME:
        begin_pi(w, "resume");
        w->pi_results = e->bytes;
        break;
    case EFFECT_HOST_STEER:
        if (w->pi == PI_IDLE || w->pi == PI_SETTLING)
            send_parcel(w, &w->from_host,
                        (struct turn_input){
                            .kind = TURN_HOST_REPLIED, .name = "steer", .text = "not running"});
        else if (w->steer_count < 8)
            w->pi_steers[w->steer_count++] = text_of(w, e->bytes);
        break;
    case EFFECT_HOST_ABORT:
        w->pi_abort = w->pi != PI_IDLE;
        break;
    case EFFECT_HOST_RESULT:
        give_to_pi(w, e->id, e->bytes);
        break;
    case EFFECT_TOOL_START:
        world_start(w, e->id);
        break;
    case EFFECT_TOOL_ATTACH:
        world_attach(w, e->id);
        break;
    case EFFECT_TOOL_CANCEL: {
        struct journal *j = find_journal(w, e->id);
        if (j)
            j->cancelled = true;
        break;
    }
    case EFFECT_REQUEST_GO:
        if (w->pi == PI_ASKING && strcmp(e->id, w->request) == 0)
            w->pi = PI_STREAMING;
        break;
    case EFFECT_REQUEST_REFUSE:
        if (w->pi == PI_ASKING && strcmp(e->id, w->request) == 0) {
            w->request_open = false;
            w->pi = PI_CUT_OFF;
            w->pi_refused = true;
        }
        break;
    case EFFECT_REQUEST_CANCEL:
        cut_request(w);
        break;
    default:
        break;
    }
}

static inline void world_perform(struct world *w)
{
    for (const struct turn_effect *e = w->s->out.effects; e; e = e->next)
        perform(w, e);
}

/* ---- Pi's moves: each sends something ---- */

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

/* ---- moves of the world ---- */

static inline void step_world(struct world *w, struct turn_input in)
{
    json_t *event = NULL;
    if (in.kind == TURN_REQUEST_END)
        assert_int_equal(json_read(in.bytes, &event), 0);
    in.event = event ? event : in.event;
    if (in.kind == TURN_HOST_OPENED) {
        w->host_up = true;
        w->host_opening = false;
    }
    script_feed(w->s, in);
    json_decref(event);
    world_perform(w);
}

static inline void lose_host(struct world *w)
{
    if (!w->host_up && !w->host_opening)
        return;
    host_gone(w);
    if (w->request_open)
        cut_request(w);
    step_world(w, (struct turn_input){.kind = TURN_HOST_LOST, .text = "killed"});
}

static inline void lose_broker(struct world *w)
{
    drop_parcels(&w->from_broker);
    w->request_open = false;
    if (w->pi == PI_ASKING || w->pi == PI_STREAMING)
        w->pi = PI_CUT_OFF;
    step_world(w, (struct turn_input){.kind = TURN_BROKER_LOST});
}

static inline void act(struct world *w, const struct client_action *a)
{
    switch (a->verb) {
    case CLIENT_POST:
        post(w->s, a->id, a->text);
        break;
    case CLIENT_STEER:
        post_steer(w->s, a->id, a->text);
        break;
    case CLIENT_INTERRUPT:
        w->interrupted = true;
        post_interrupt(w->s, a->id);
        break;
    case CLIENT_WITHDRAW:
        withdraw(w->s, a->text);
        break;
    case CLIENT_KILL_HOST:
        lose_host(w);
        return;
    case CLIENT_KILL_BROKER:
        lose_broker(w);
        return;
    }
    world_perform(w);
}

static inline struct journal *running_tool(struct world *w)
{
    struct journal *found = NULL;
    uint64_t n = 0;
    for (struct journal *j = w->journal; j; j = j->next)
        if (j->running && world_random(w, ++n) == 0)
            found = j;
    return found;
}

/* One move of one of the parties, or of time when all of them wait; false when all is at rest. */
static inline bool world_move(struct world *w)
{
    struct journal *tool = running_tool(w);
    enum {
        HOST,
        BROKER,
        TOOLS,
        TOOL,
        PI,
        PARTIES
    };
    bool can[PARTIES] = {w->from_host.head != NULL, w->from_broker.head != NULL,
                         w->from_tools.head != NULL, tool != NULL, pi_can_move(w)};
    unsigned n = 0, choice = PARTIES;
    for (unsigned i = 0; i < PARTIES; i++)
        if (can[i] && world_random(w, ++n) == 0)
            choice = i;
    w->moves++;
    if (n && world_random(w, 40) == 0)
        tick(w->s, (int64_t)world_random(w, 1500)), world_perform(w);
    if (choice == HOST)
        step_world(w, take_parcel(&w->from_host));
    else if (choice == BROKER)
        step_world(w, take_parcel(&w->from_broker));
    else if (choice == TOOLS)
        step_world(w, take_parcel(&w->from_tools));
    else if (choice == TOOL) {
        tool->running = false;
        tool_over(w, tool->id, tool->cancelled ? "half a result" : "the result", tool->cancelled);
    } else if (choice == PI)
        pi_moves(w);
    else if (turn_deadline_ms(w->s->t) >= 0)
        tick(w->s, turn_deadline_ms(w->s->t) - w->s->now_ms), world_perform(w);
    else
        return false;
    return true;
}

/* Plays until all is at rest and every action was taken. */
static inline void world_play(struct world *w)
{
    for (;;) {
        assert_in_range(w->moves, 0, WORLD_MOVES_MAX);
        const struct client_action *a = w->actions ? &w->actions[w->next_action] : NULL;
        if (a && a->after && w->moves >= a->after) {
            w->next_action++;
            act(w, a);
            continue;
        }
        if (world_move(w))
            continue;
        if (a == NULL || a->after == 0)
            return;
        w->moves = a->after; /* nothing happens until then */
    }
}

static inline struct world *world_new(uint64_t seed, const struct client_action *actions)
{
    struct world *w = mem_alloc(sizeof *w);
    w->s = script_new(seed);
    w->seed = seed * 7919;
    w->actions = actions;
    drop_parcels(&w->from_host);
    drop_parcels(&w->from_broker);
    drop_parcels(&w->from_tools);
    return w;
}

static inline void world_free(struct world *w)
{
    script_free(w->s);
    mem_free(w);
}

/* ---- crashes ---- */

/* kill -9 of the service when the log had `n` lines: everything but the log, the inbox and the
   sandbox is gone. What started later never started. */
static inline void world_crash(struct world *w, size_t n, bool sandbox_lost)
{
    struct script *s = w->s;
    host_gone(w);
    drop_parcels(&w->from_broker);
    drop_parcels(&w->from_tools);
    w->request_open = false;
    w->sandbox_lost = sandbox_lost;
    for (struct journal **at = &w->journal; *at;) {
        (*at)->running = false;
        if ((*at)->started_at > n || sandbox_lost)
            *at = (*at)->next;
        else
            at = &(*at)->next;
    }
    script_restart(s, n);
    if (turn_needs_recovery(s->t)) {
        recover(s);
        world_perform(w);
    }
}

/* What the inbox still holds: every post whose line did not make it, in order. */
static inline void world_repost(struct world *w)
{
    for (const struct client_action *a = w->actions; a->after; a++)
        if (a->verb <= CLIENT_INTERRUPT && !turn_knows_event(w->s->t, a->id))
            act(w, a);
}

#endif
