/* Who takes part in the world of turn_world.h: messages on their way, the sandbox and what it keeps
   of calls, the host. Header only. */
#ifndef TEST_TURN_PARTIES_H
#define TEST_TURN_PARTIES_H

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

#endif
