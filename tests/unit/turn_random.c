/* src/session/turn*.c: inputs in any order, sensible or not. TURN_SEEDS=N plays more. */
#include "../support/turn_script.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static const char *pick(struct script *s, const char *const *from, size_t n)
{
    return from[script_random(&s->seed) % n];
}
#define PICK(s, ...)                                                                               \
    pick(s, (const char *const[]){__VA_ARGS__},                                                    \
         sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static const char *some_call(struct script *s)
{
    return PICK(s, "a", "b", "c", "");
}

static void some_garbage(struct script *s)
{
    const char *line = PICK(s, "", "{", "null", "[]", "{\"type\":3}", "{\"type\":\"session\"}",
                            "{\"type\":\"message\"}", "{\"type\":\"message\",\"message\":[]}",
                            "{\"type\":\"message\",\"message\":{\"role\":\"assistant\"}}",
                            "{\"type\":\"custom\",\"customType\":\"pi-managed:event\"}",
                            "{\"type\":\"compaction\",\"id\":7}", "{\"id\":\"x\"}");
    script_step(s, (struct turn_input){.kind = TURN_ENTRY, .bytes = str_of(line)});
}

static void some_bad_result(struct script *s)
{
    script_step(s, (struct turn_input){.kind = TURN_TOOL_RESULT,
                                       .id = some_call(s),
                                       .bytes = str_of(PICK(s, "", "{", "[]", "{}", "null"))});
}

static const char *new_id(struct script *s)
{
    return arena_printf(s->a, "e%llu", (unsigned long long)(script_random(&s->seed) % 100));
}

static void from_client(struct script *s)
{
    switch (script_random(&s->seed) % 6) {
    case 0:
    case 1:
        post(s, new_id(s), "hi");
        break;
    case 2:
        post_steer(s, new_id(s), "hi");
        break;
    case 3:
        post_interrupt(s, new_id(s));
        break;
    case 4:
        withdraw(s, new_id(s));
        break;
    case 5:
        post_event(s, json_pack("{s:s, s:s}", "id", new_id(s), "type", "system.message"));
        break;
    }
}

static void from_pi(struct script *s)
{
    switch (script_random(&s->seed) % 10) {
    case 0:
        pi_user(s, "hi");
        break;
    case 1:
        pi_assistant(s, PICK(s, "stop", "length", "error", "aborted", "?"), "text");
        break;
    case 2:
        pi_calls(s, PICK(s, "a", "a b", "a b c", "a a"));
        break;
    case 3:
        pi_result(s, some_call(s));
        break;
    case 4:
        some_garbage(s);
        break;
    case 5:
        settled(s);
        break;
    case 6:
        settled_aborted(s);
        break;
    case 7:
        settled_with(s, "boom");
        break;
    default:
        tool(s, some_call(s));
        break;
    }
}

static void from_host(struct script *s)
{
    switch (script_random(&s->seed) % 6) {
    case 0:
    case 1:
        opened(s);
        break;
    case 2:
        open_failed(s, "no");
        break;
    case 3:
        host_lost(s);
        break;
    case 4:
        refused(s, PICK(s, "prompt", "resume", "steer", "abort"), "no");
        break;
    case 5:
        delta(s, PICK(s, "text", "thinking_start", "message_start", "discarded", "?"), "text");
        break;
    }
}

static void from_broker(struct script *s)
{
    switch (script_random(&s->seed) % 7) {
    case 5:
        request_held(s, PICK(s, "r1", "r2"), -1);
        break;
    case 6:
        pi_retries(s);
        break;
    case 0:
    case 1:
        request(s, PICK(s, "r1", "r2"));
        break;
    case 2:
        request_done(s, PICK(s, "r1", "r2"));
        break;
    case 3:
        request_failed(s, PICK(s, "r1", "r2"), "model_overloaded", script_random(&s->seed) % 2);
        break;
    case 4:
        broker_lost(s);
        break;
    }
}

static void from_tools(struct script *s)
{
    switch (script_random(&s->seed) % 5) {
    case 0:
        tool_update(s, some_call(s), "more");
        break;
    case 1:
        tool_cancelled(s, some_call(s));
        break;
    case 2:
        some_bad_result(s);
        break;
    default:
        tool_result(s, some_call(s));
        break;
    }
}

static void some_input(struct script *s)
{
    static void (*const sources[])(struct script * s) = {from_client, from_pi,     from_pi,
                                                         from_host,   from_broker, from_tools};
    if (script_random(&s->seed) % 50 == 0)
        tick(s, (int64_t)(script_random(&s->seed) % 2000));
    else if (script_random(&s->seed) % 100 == 0)
        recover(s);
    else
        sources[script_random(&s->seed) % 6](s);
}

/* Runs begin and end in turn, spans begin and end in turn, seq has no gap, and no turn is called
   idle while a call is open. */
static void check_events(const struct script *s)
{
    AUTO_JSON events = script_events(s);
    AUTO_JSON open = json_object();
    bool running = false, span = false;
    size_t i;
    json_t *e;
    json_array_foreach(events, i, e)
    {
        struct str type = json_get_str(e, "type");
        const char *call = json_get_c(e, "toolCallId");
        assert_int_equal(json_get_int(e, "seq", 0), i + 1);
        if (str_is(type, "session.status_run_started")) {
            assert_false(running);
            running = true;
        } else if (str_is(type, "session.status_idle")) {
            assert_true(running);
            assert_false(span);
            assert_int_equal(json_object_size(open), 0);
            running = false;
        } else if (str_is(type, "span.model_request_start")) {
            assert_false(span);
            span = true;
        } else if (str_is(type, "span.model_request_end")) {
            assert_true(span);
            span = false;
        } else if (call && str_is(type, "agent.tool_use") && running) {
            json_object_set_new(open, call, json_true());
        } else if (call && str_is(type, "agent.tool_result")) {
            json_object_del(open, call);
        }
    }
    assert_int_equal(running, turn_is_running(s->t));
}

/* What a new machine makes of the log is what this one knows. */
static void check_reload(struct script *s)
{
    struct turn *again = script_machine(s);
    for (size_t i = 0; i < s->n; i++)
        turn_load_line(again, s->lines[i]);
    assert_int_equal(turn_is_running(again), turn_is_running(s->t));
    assert_int_equal(turn_usage(again)->input_tokens, turn_usage(s->t)->input_tokens);
    assert_true(turn_usage(again)->cost_usd == turn_usage(s->t)->cost_usd);
    if (!turn_is_running(s->t) && turn_is_quiet(s->t)) {
        assert_false(turn_needs_recovery(again));
        assert_true(turn_is_quiet(again));
    }
    turn_free(again);
}

static void inputs_in_any_order_keep_the_rules(void **state)
{
    (void)state;
    const char *more = getenv("TURN_SEEDS");
    uint64_t n = 0;
    uint64_t seeds = more && str_to_u64(str_of(more), &n) ? n * 100 : 300;
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        struct script *s = script_new(seed);
        for (int i = 0; i < 300; i++)
            some_input(s);
        check_events(s);
        check_reload(s);
        for (int i = 0; turn_is_running(s->t); i++) { /* a dead host ends every turn */
            assert_in_range(i, 0, 400);
            host_lost(s);
        }
        check_events(s);
        check_reload(s);
        script_free(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(inputs_in_any_order_keep_the_rules)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
