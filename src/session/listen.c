/* What the harness and the broker tell the sessions: each event becomes an input in a mailbox. */
#include "base/mem.h"
#include "session/asks.h"
#include "session/live.h"

static void opened(void *arg, const char *session, err e, const char *text)
{
    manager_post_input(arg, session,
                       &(struct turn_input){.kind = TURN_HOST_OPENED,
                                            .ok = e == 0,
                                            .name = "harness_unavailable",
                                            .number = e == E_UNAVAILABLE,
                                            .text = text ? text : ""},
                       true);
}

static void replied(void *arg, const char *session, const char *op, bool ok, const char *text)
{
    manager_post_input(
        arg, session,
        &(struct turn_input){
            .kind = TURN_HOST_REPLIED, .name = op, .ok = ok, .text = text ? text : ""},
        true);
}

static void entry(void *arg, const char *session, struct str line)
{
    manager_post_input(arg, session, &(struct turn_input){.kind = TURN_ENTRY, .bytes = line}, true);
}

static void delta(void *arg, const char *session, const json_t *envelope)
{
    manager_post_input(arg, session, &(struct turn_input){.kind = TURN_DELTA, .event = envelope},
                       true);
}

static void tool(void *arg, const char *session, const char *call, const char *name,
                 struct str input)
{
    manager_post_input(
        arg, session,
        &(struct turn_input){.kind = TURN_TOOL, .id = call, .name = name, .bytes = input}, true);
}

static void tool_cancelled(void *arg, const char *session, const char *call)
{
    manager_post_input(arg, session, &(struct turn_input){.kind = TURN_TOOL_CANCELLED, .id = call},
                       true);
}

static void settled(void *arg, const char *session, bool aborted, const char *error)
{
    manager_post_input(arg, session,
                       &(struct turn_input){.kind = TURN_SETTLED, .ok = !aborted, .text = error},
                       true);
}

static void retry(void *arg, const char *session, const json_t *envelope)
{
    (void)envelope; /* when is control's business (R24) */
    manager_post_input(arg, session, &(struct turn_input){.kind = TURN_RETRY}, true);
}

static void lost(void *arg, const char *session, const char *why)
{
    manager_post_input(arg, session,
                       &(struct turn_input){.kind = TURN_HOST_LOST, .text = why ? why : ""}, true);
}

static void heard(void *arg)
{
    struct session_manager *m = arg;
    asks_heard(m->asks);
}

struct harness_events session_manager_harness_events(struct session_manager *m)
{
    return (struct harness_events){.opened = opened,
                                   .replied = replied,
                                   .entry = entry,
                                   .delta = delta,
                                   .tool = tool,
                                   .tool_cancel = tool_cancelled,
                                   .retry = retry,
                                   .settled = settled,
                                   .lost = lost,
                                   .heard = heard,
                                   .arg = m};
}

static void request_begin(void *arg, const char *session, const char *request, int64_t input_tokens,
                          int64_t said)
{
    struct session_manager *m = arg;
    asks_begin(m->asks, session, request, input_tokens, said);
}

static void request_end(void *arg, const char *session, const char *request, const json_t *end)
{
    struct session_manager *m = arg;
    asks_end(m->asks, session, request, end);
}

static void broker_lost(void *arg)
{
    struct session_manager *m = arg;
    asks_forget(m->asks);
    AUTO_LOCK(&m->table_lock);
    struct turn_input in = {.kind = TURN_BROKER_LOST, .now_ms = clock_wall_ms(m->o.clock)};
    for (size_t i = 0; i < LIVE_BUCKETS; i++)
        for (struct live *l = m->buckets[i]; l; l = l->next)
            manager_put(m, l, message_new(MESSAGE_INPUT, &in));
}

struct broker_events session_manager_broker_events(struct session_manager *m)
{
    return (struct broker_events){
        .request_begin = request_begin, .request_end = request_end, .lost = broker_lost, .arg = m};
}
