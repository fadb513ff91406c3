/* src/session/turn*.c: whatever breaks off, and wherever, a turn comes to its end and nothing is
   lost or doubled. Turns are played by a simulated Pi, broker and sandbox (support/turn_world.h)
   and cut after every line, or robbed of a process after every move. TURN_SEEDS=N plays more
   interleavings. */
#include "../support/turn_checks.h"

struct scenario {
    const char *name;
    struct client_action actions[8];
};

static const struct scenario scenarios[] = {
    {"one message", {{1, CLIENT_POST, "m1", "hello"}, {0}}},
    {"tools", {{1, CLIENT_POST, "m1", "tools 3"}, {0}}},
    {"several rounds of tools", {{1, CLIENT_POST, "m1", "deep 3"}, {0}}},
    {"queued messages",
     {{1, CLIENT_POST, "m1", "tools 2"},
      {5, CLIENT_POST, "m2", "two"},
      {9, CLIENT_POST, "m3", "deep 1"},
      {0}}},
    {"steers",
     {{1, CLIENT_POST, "m1", "deep 2"},
      {8, CLIENT_STEER, "m2", "hurry"},
      {14, CLIENT_STEER, "m3", "or not"},
      {0}}},
    {"a late steer", {{1, CLIENT_POST, "m1", "hi"}, {10, CLIENT_STEER, "m2", "and"}, {0}}},
    {"an interrupt",
     {{1, CLIENT_POST, "m1", "tools 2"},
      {4, CLIENT_POST, "m2", "two"},
      {11, CLIENT_INTERRUPT, "i1", NULL},
      {0}}},
    {"an interrupt at once",
     {{1, CLIENT_POST, "m1", "hello"},
      {1, CLIENT_INTERRUPT, "i1", NULL},
      {2, CLIENT_POST, "m2", "again"},
      {0}}},
    {"a withdrawn message",
     {{1, CLIENT_POST, "m1", "tools 2"},
      {3, CLIENT_POST, "m2", "two"},
      {6, CLIENT_WITHDRAW, NULL, "m2"},
      {0}}},
    {"a failed request", {{1, CLIENT_POST, "m1", "fail"}, {60, CLIENT_POST, "m2", "better"}, {0}}},
    {"requests that fail at first", {{1, CLIENT_POST, "m1", "flaky 3"}, {0}}},
    {"what Pi chokes on",
     {{1, CLIENT_POST, "m1", "choke"}, {90, CLIENT_POST, "m2", "better"}, {0}}},
    {"failures and an interrupt",
     {{1, CLIENT_POST, "m1", "flaky 4"},
      {12, CLIENT_INTERRUPT, "i1", NULL},
      {14, CLIENT_POST, "m2", "after"},
      {0}}},
    {"a lost host",
     {{1, CLIENT_POST, "m1", "tools 3"},
      {14, CLIENT_KILL_HOST, NULL, NULL},
      {25, CLIENT_STEER, "m2", "now"},
      {0}}},
    {"a lost broker",
     {{1, CLIENT_POST, "m1", "deep 2"},
      {8, CLIENT_KILL_BROKER, NULL, NULL},
      {60, CLIENT_POST, "m2", "go on"},
      {0}}},
};
#define SCENARIOS (sizeof scenarios / sizeof *scenarios)

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define DEFAULT_SEEDS 1 /* a sanitizer costs a factor of five and more */
#else
#define DEFAULT_SEEDS 2
#endif

#ifdef __SANITIZE_THREAD__
#define POINTS_APART 4 /* one thread, in which it has nothing to find, and it is the slowest */
#else
#define POINTS_APART 1
#endif

static uint64_t seeds(void)
{
    const char *more = getenv("TURN_SEEDS");
    uint64_t n = 0;
    return more && str_to_u64(str_of(more), &n) ? n : DEFAULT_SEEDS;
}

static bool interrupts(const struct client_action *a)
{
    for (; a->after; a++)
        if (a->verb == CLIENT_INTERRUPT)
            return true;
    return false;
}

/* For the reader of a failure. */
static void say(const char *what, const char *name, uint64_t seed, uint64_t at)
{
    static char text[200];
    snprintf(text, sizeof text, "%s, %s, seed %llu, at %llu\n", name, what,
             (unsigned long long)seed, (unsigned long long)at);
    if (getenv("TURN_TRACE"))
        print_message("%s", text);
}

static void turns_come_to_their_end(void **state)
{
    (void)state;
    for (size_t i = 0; i < SCENARIOS; i++) {
        for (uint64_t seed = 1; seed <= seeds() * 40; seed++) {
            say("undisturbed", scenarios[i].name, seed, 0);
            struct world *w = world_new(seed, scenarios[i].actions);
            world_play(w);
            world_check(w);
            world_free(w);
        }
    }
}

/* A world whose log is the first n lines of another, whose client has still to be heard. */
static struct world *world_after_crash(const struct world *recorded, size_t n, bool sandbox_lost,
                                       uint64_t seed)
{
    struct world *w = world_new(seed, recorded->actions);
    w->interrupted = interrupts(w->actions);
    w->s->entries = 1000; /* ids that the recorded world has not used */
    w->requests = 1000;
    w->s->now_ms = recorded->s->now_ms;
    for (size_t i = 0; i < recorded->s->n; i++)
        script_keep(w->s, recorded->s->lines[i]);
    for (const struct journal *j = recorded->journal; j; j = j->next) {
        struct journal *copy = arena_alloc(w->s->a, sizeof *copy);
        *copy = *j;
        copy->next = w->journal;
        w->journal = copy;
    }
    world_crash(w, n, sandbox_lost);
    world_repost(w);
    while (w->actions[w->next_action].after)
        w->next_action++;
    return w;
}

static void play_after_crash(const struct world *recorded, const char *name, uint64_t seed,
                             size_t n, bool sandbox_lost)
{
    say(sandbox_lost ? "all lost" : "service lost", name, seed, n);
    struct world *w = world_after_crash(recorded, n, sandbox_lost, seed + n);
    world_play(w);
    world_check(w);
    /* A second crash finds nothing to do, or the same again. */
    script_restart(w->s, w->s->n);
    assert_false(turn_needs_recovery(w->s->t));
    world_free(w);
}

static void a_crash_after_any_line_loses_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < SCENARIOS; i++) {
        for (uint64_t seed = 1; seed <= seeds(); seed++) {
            struct world *recorded = world_new(seed, scenarios[i].actions);
            world_play(recorded);
            for (size_t n = 0; n <= recorded->s->n; n++) {
                play_after_crash(recorded, scenarios[i].name, seed, n, false);
                play_after_crash(recorded, scenarios[i].name, seed, n, true);
            }
            world_free(recorded);
        }
    }
}

/* Crashes one after the other, at points the seed chooses, until the log has grown past them. */
static void crashes_during_recovery_lose_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < SCENARIOS; i++) {
        for (uint64_t seed = 1; seed <= seeds() * 20; seed++) {
            say("crash upon crash", scenarios[i].name, seed, 0);
            struct world *w = world_new(seed, scenarios[i].actions);
            w->interrupted = interrupts(w->actions);
            for (int crash = 0; crash < 4; crash++) {
                uint64_t moves = world_random(w, 30);
                while (moves-- > 0 && world_move(w))
                    ;
                world_crash(w, w->s->n, false);
                world_repost(w);
            }
            while (w->actions[w->next_action].after)
                w->next_action++;
            world_play(w);
            world_check(w);
            world_free(w);
        }
    }
}

/* The scenario with one more thing that happens after `at` moves; false when it ended before. */
static bool play_with(const struct scenario *sc, uint64_t seed, unsigned at, enum client_verb verb)
{
    struct client_action actions[16] = {0};
    size_t n = 0, out = 0;
    bool done = false;
    while (sc->actions[n].after) {
        if (!done && sc->actions[n].after >= at) {
            actions[out++] = (struct client_action){at, verb, "x1", NULL};
            done = true;
        }
        actions[out++] = sc->actions[n++];
    }
    if (!done)
        actions[out++] = (struct client_action){at, verb, "x1", NULL};
    struct world *w = world_new(seed, actions);
    w->interrupted = interrupts(actions);
    world_play(w);
    world_check(w);
    bool reached = w->moves > at;
    world_free(w);
    return reached;
}

/* Each seed takes its share of the points; together they take all. */
static void play_with_everywhere(const char *what, enum client_verb verb)
{
    for (size_t i = 0; i < SCENARIOS; i++) {
        for (uint64_t seed = 1; seed <= seeds(); seed++) {
            bool reached = true;
            for (unsigned at = (unsigned)seed; reached && at < 200;
                 at += (unsigned)seeds() * POINTS_APART) {
                say(what, scenarios[i].name, seed, at);
                reached = play_with(&scenarios[i], seed, at, verb);
            }
        }
    }
}

static void a_host_may_die_at_any_time(void **state)
{
    (void)state;
    play_with_everywhere("host lost", CLIENT_KILL_HOST);
}

static void a_broker_may_die_at_any_time(void **state)
{
    (void)state;
    play_with_everywhere("broker lost", CLIENT_KILL_BROKER);
}

static void an_interrupt_may_come_at_any_time(void **state)
{
    (void)state;
    play_with_everywhere("interrupt", CLIENT_INTERRUPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(turns_come_to_their_end),
        cmocka_unit_test(a_crash_after_any_line_loses_nothing),
        cmocka_unit_test(crashes_during_recovery_lose_nothing),
        cmocka_unit_test(a_host_may_die_at_any_time),
        cmocka_unit_test(a_broker_may_die_at_any_time),
        cmocka_unit_test(an_interrupt_may_come_at_any_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
