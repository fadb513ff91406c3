/* src/session/turn_budget.c: what a session may spend (R27). Each request of a script takes 15
   tokens and $0.000015. */
#include "../support/turn_script.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>
#undef fail /* ours */

struct test {
    struct script *s;
    json_t *budget;
};

static void play(struct test *t, const char *budget)
{
    assert_int_equal(json_read(str_of(budget), &t->budget), 0);
    t->s = script_new(1);
    t->s->budget = t->budget;
    script_restart(t->s, 0); /* a machine that knows it */
}

static void end(struct test *t)
{
    script_free(t->s);
    json_decref(t->budget);
}

/* A message, a request, a call of a tool whose result is in: Pi is about to ask again. */
static void one_round(struct script *s)
{
    post(s, "m1", "hi");
    opened(s);
    pi_user(s, "hi");
    request_of(s, "r1", 10);
    pi_calls(s, "a");
    request_done(s, "r1");
    tool(s, "a");
    tool_result(s, "a");
    pi_result(s, "a");
}

static void refuse_and_settle(struct script *s, const char *id, int64_t tokens)
{
    assert_string_equal(request_of(s, id, tokens), arena_printf(s->a, "> refuse:%s", id));
    assert_string_equal(s->out.effects->name, "budget_exhausted");
    pi_assistant(s, "error", "The budget is used up.");
    assert_string_equal(settled_with(s, "The budget is used up."),
                        "error!budget_exhausted/terminal idle:budget_exhausted > status:idle");
}

static void what_the_next_request_takes_counts(void **state)
{
    (void)state;
    struct test t;
    play(&t, "{\"maxTokens\": 40}");
    one_round(t.s);
    refuse_and_settle(t.s, "r2", 26);
    end(&t);
    play(&t, "{\"maxTokens\": 40}");
    one_round(t.s);
    assert_string_equal(request_of(t.s, "r2", 25), "start:2 > go:r2");
    end(&t);
    play(&t, "{\"maxUsd\": 0.00004}");
    one_round(t.s);
    refuse_and_settle(t.s, "r2", 26);
    end(&t);
}

static void a_running_request_may_finish(void **state)
{
    (void)state;
    struct test t;
    play(&t, "{\"maxTokens\": 14}");
    one_round(t.s); /* takes 15 */
    refuse_and_settle(t.s, "r2", 1);
    assert_string_equal(post(t.s, "m2", "more"),
                        "inbox:m2 run_started error!budget_exhausted/terminal "
                        "idle:budget_exhausted > status:running status:idle");
    assert_true(turn_is_quiet(t.s->t)); /* m2 waits */
    end(&t);
}

static void a_higher_budget_lets_the_run_go_on(void **state)
{
    (void)state;
    struct test t;
    for (int crash = 0; crash < 2; crash++) {
        play(&t, "{\"maxTokens\": 14}");
        one_round(t.s);
        refuse_and_settle(t.s, "r2", 1);
        if (crash)
            script_restart(t.s, t.s->n);
        AUTO_JSON low = json_pack("{s:i}", "maxTokens", 15);
        assert_string_equal(change_budget(t.s, low), "updated");
        AUTO_JSON high = json_pack("{s:i}", "maxTokens", 1000);
        assert_string_equal(change_budget(t.s, high),
                            crash ? "updated run_started > status:running warm open"
                                  : "updated run_started > status:running warm resume()");
        if (crash)
            assert_string_equal(opened(t.s), "> resume()");
        assert_string_equal(request_of(t.s, "r3", 10), "start:2 > go:r3");
        pi_assistant(t.s, "stop", "done");
        request_done(t.s, "r3");
        assert_string_equal(settled(t.s), "idle:end_turn > status:idle");
        end(&t);
    }
}

static void a_higher_budget_lets_the_queue_go_on(void **state)
{
    (void)state;
    struct test t;
    play(&t, "{\"maxTokens\": 15}");
    one_round(t.s);
    pi_assistant(t.s, "stop", "done");
    settled(t.s);
    post(t.s, "m2", "more"); /* ends at once */
    assert_string_equal(change_budget(t.s, NULL),
                        "updated run_started processed:m2 > status:running warm prompt(more)");
    end(&t);
}

static void the_run_that_was_cut_off_comes_before_the_queue(void **state)
{
    (void)state;
    struct test t;
    play(&t, "{\"maxTokens\": 15}");
    one_round(t.s);
    refuse_and_settle(t.s, "r2", 1);
    post(t.s, "m2", "more");
    script_restart(t.s, t.s->n);
    change_budget(t.s, NULL);
    assert_string_equal(opened(t.s), "> resume()");
    request_of(t.s, "r3", 10);
    pi_assistant(t.s, "stop", "done");
    request_done(t.s, "r3");
    assert_string_equal(settled(t.s), "processed:m2 > prompt(more)");
    end(&t);
}

static void a_change_while_idle_or_running_starts_nothing(void **state)
{
    (void)state;
    struct test t;
    play(&t, "{\"maxTokens\": 1000}");
    assert_string_equal(change_budget(t.s, NULL), "header updated");
    one_round(t.s);
    AUTO_JSON low = json_pack("{s:i}", "maxTokens", 1);
    assert_string_equal(change_budget(t.s, low), "updated");
    refuse_and_settle(t.s, "r2", 1);
    end(&t);
}

static void a_held_attempt_is_checked_again(void **state)
{
    (void)state;
    struct test t;
    play(&t, "{\"maxTokens\": 1000}");
    one_round(t.s);
    request_of(t.s, "r2", 10);
    request_held(t.s, "r2", -1);
    AUTO_JSON low = json_pack("{s:i}", "maxTokens", 16);
    change_budget(t.s, low);
    assert_string_equal(tick(t.s, turn_deadline_ms(t.s->t) - t.s->now_ms), "> refuse:r2");
    pi_assistant(t.s, "error", "The budget is used up.");
    assert_string_equal(settled_with(t.s, "The budget is used up."),
                        "error!budget_exhausted/terminal idle:budget_exhausted > status:idle");
    end(&t);
}

static void warned_once(void **state)
{
    (void)state;
    struct test t;
    play(&t, "{\"maxTokens\": 30, \"warnAt\": 0.5}");
    post(t.s, "m1", "hi");
    opened(t.s);
    request_of(t.s, "r1", 10);
    pi_calls(t.s, "a");
    assert_string_equal(request_done(t.s, "r1"), "end:1 budget_warning");
    script_restart(t.s, t.s->n);
    recover(t.s);
    opened(t.s);
    tool_result(t.s, "a");
    pi_result(t.s, "a");
    request_of(t.s, "r2", 10);
    pi_assistant(t.s, "stop", "done");
    assert_string_equal(request_done(t.s, "r2"), "end:2");
    end(&t);
}

/* The last prompt is in the provider's cache: the next one is not counted at its full price. */
static void what_is_cached_costs_less(void **state)
{
    (void)state;
    struct test t;
    play(&t, "{\"maxUsd\": 0.00005}");
    post(t.s, "m1", "hi");
    opened(t.s);
    pi_user(t.s, "hi");
    request_of(t.s, "r1", 10);
    pi_calls(t.s, "a");
    AUTO_JSON end_event =
        json_pack("{s:s, s:{s:i, s:i, s:i, s:i}}", "request", "r1", "usage", "inputTokens", 5,
                  "outputTokens", 5, "cacheReadInputTokens", 0, "cacheCreationInputTokens", 95);
    script_step(t.s, (struct turn_input){.kind = TURN_REQUEST_END, .id = "r1", .event = end_event});
    tool(t.s, "a");
    tool_result(t.s, "a");
    pi_result(t.s, "a");
    assert_string_equal(request_of(t.s, "r2", 120), "start:2 > go:r2");
    assert_true(t.s->reserved_usd > 0.0000199 && t.s->reserved_usd < 0.0000201);
    end(&t);
}

static void the_tenants_limit_ends_the_turn_too(void **state)
{
    (void)state;
    struct test t;
    play(&t, "{}");
    t.s->tenant_usd = 0.00002;
    one_round(t.s);
    assert_string_equal(request_of(t.s, "r2", 10), "> refuse:r2");
    pi_assistant(t.s, "error", "The budget is used up.");
    assert_string_equal(settled_with(t.s, "The budget is used up."),
                        "error!tenant_budget_exhausted/terminal idle:budget_exhausted > "
                        "status:idle");
    end(&t);
}

/* R28: what nobody told is estimated, or a crash would make requests free. */
static void a_lost_request_is_charged_for(void **state)
{
    (void)state;
    struct test t;
    for (int crash = 0; crash < 2; crash++) {
        play(&t, "{}");
        post(t.s, "m1", "hi");
        opened(t.s);
        request_of(t.s, "r1", 100);
        delta(t.s, "text", "twelve bytes");
        if (crash)
            script_restart(t.s, t.s->n);
        assert_non_null(strstr(crash ? recover(t.s) : broker_lost(t.s), "end:1!request_lost"));
        const struct session_usage *u = turn_usage(t.s->t);
        assert_int_equal(u->input_tokens, 100);
        assert_int_equal(u->output_tokens, crash ? 0 : 3);
        assert_true(u->estimated);
        end(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_next_request_takes_counts),
        cmocka_unit_test(a_running_request_may_finish),
        cmocka_unit_test(a_higher_budget_lets_the_run_go_on),
        cmocka_unit_test(a_higher_budget_lets_the_queue_go_on),
        cmocka_unit_test(the_run_that_was_cut_off_comes_before_the_queue),
        cmocka_unit_test(a_change_while_idle_or_running_starts_nothing),
        cmocka_unit_test(a_held_attempt_is_checked_again),
        cmocka_unit_test(warned_once),
        cmocka_unit_test(what_is_cached_costs_less),
        cmocka_unit_test(the_tenants_limit_ends_the_turn_too),
        cmocka_unit_test(a_lost_request_is_charged_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
