/* How a script of the turn machine begins, for the suites turn_*.c. Header only. */
#ifndef TESTS_UNIT_TURN_SUPPORT_H
#define TESTS_UNIT_TURN_SUPPORT_H

#include "../support/turn_script.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static inline int set_up(void **state)
{
    *state = script_new(1);
    return 0;
}

static inline int tear_down(void **state)
{
    script_free(*state);
    return 0;
}

/* A turn up to the point where Pi has its prompt and the model is being asked. */
static inline void begin(struct script *s)
{
    post(s, "m1", "hi");
    opened(s);
    pi_user(s, "hi");
    request(s, "r1");
}

/* … and the model has asked for the given calls, which all run. */
static inline void begin_calls(struct script *s, const char *calls)
{
    begin(s);
    pi_calls(s, calls);
    request_done(s, "r1");
    struct str rest = str_of(calls), id;
    while (str_split(&rest, ' ', &id))
        tool(s, arena_str(s->a, id).p);
}

/* The time that the last step wants to wait. */
static inline int64_t backoff_of(struct script *s)
{
    int64_t wait = turn_deadline_ms(s->t) - s->now_ms;
    assert_true(wait > 0);
    return wait;
}

/* Up to four tries more, whoever makes them. */
static inline void exhaust(struct script *s)
{
    for (int i = 0; i < 5; i++) {
        request_held(s, "r1", -1);
        if (i < 4)
            tick(s, backoff_of(s));
    }
    pi_assistant(s, "error", "given up");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

#endif
