/* sources: src/session/projection.c src/session/turn.c src/session/turn_calls.c src/session/turn_load.c */
/* sources: src/session/turn_requests.c src/session/turn_lines.c src/session/turn_run.c src/session/turn_retry.c src/session/turn_budget.c src/base/json.c src/base/json_scan.c src/base/buf.c src/base/mem.c src/base/err.c */
/* sources: src/base/str.c src/base/arena.c src/base/clock.c src/base/id.c */
/* runs: 150 */
/* Any bytes as a log: events count up by one and are whole, the same lines give the same events,
   and a session that ends so can be recovered to idle, with a log that still reads. */
#include "session/projection.h"
#include "base/arena.h"
#include "session/turn.h"

#include <stdlib.h>

#define SESSION "sess_01ARZ3NDEKTSV4RRFFQ69G5FAV"

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void note_event(void *arg, int64_t seq, json_t *event)
{
    json_t *events = arg;
    must(seq == (int64_t)json_array_size(events) + 1);
    must(json_get_int(event, "seq", 0) == seq);
    must(json_get_c(event, "type") != NULL && json_get_c(event, "sessionId") != NULL);
    must(json_get_c(event, "id") != NULL);
    json_array_append(events, event);
}

static json_t *project(struct str log)
{
    struct projection *p = projection_new(SESSION);
    json_t *events = json_array();
    struct str line;
    while (str_split(&log, '\n', &line))
        projection_feed(p, line, note_event, events);
    must(projection_seq(p) == (int64_t)json_array_size(events));
    projection_free(p);
    return events;
}

static uint64_t counting(void *arg)
{
    return ++*(uint64_t *)arg;
}

static double no_price(void *arg, const struct session_usage *u, json_t *out_price, bool *out_known)
{
    (void)arg;
    (void)u;
    (void)out_price;
    *out_known = false;
    return 0;
}

static void step(struct turn *t, enum turn_input_kind kind)
{
    AUTO_ARENA a = arena_new();
    struct turn_output out;
    turn_step(t, &(struct turn_input){.kind = kind, .text = "x", .ok = true}, a, &out);
    for (size_t i = 0; i < out.line_count; i++) {
        AUTO_JSON line = NULL;
        must(json_read_log(out.lines[i], &line) == 0 && json_get_c(line, "type") != NULL);
    }
}

static void recover(struct str log)
{
    uint64_t count = 0;
    struct turn *t = turn_new(&(struct turn_options){.tenant = "t",
                                                     .session = SESSION,
                                                     .random = counting,
                                                     .random_arg = &count,
                                                     .price = no_price,
                                                     .provider = "p",
                                                     .model = "m"});
    struct str line;
    while (str_split(&log, '\n', &line))
        turn_load_line(t, line);
    if (turn_needs_recovery(t))
        step(t, TURN_RECOVER);
    for (int i = 0; turn_is_running(t); i++) {
        must(i < 10000); /* each interrupted turn may start one queued message */
        step(t, TURN_HOST_LOST);
    }
    turn_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct str log = {(const char *)data, n};
    AUTO_JSON once = project(log);
    AUTO_JSON again = project(log);
    must(json_equal(once, again));
    recover(log);
    return 0;
}
