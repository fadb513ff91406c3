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

#include "turn_pi.h"

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
