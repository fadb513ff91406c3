#include "cli/tail.h"

#include <stdio.h>
#include <string.h>

#include "base/id.h"
#include "cli/resource.h"
#include "cli/screen.h"
#include "cli/watch.h"

struct tailing {
    struct remote *r;
    const struct tail *t;
    struct screen screen;
    bool seen; /* the message that is waited for is in the log */
    bool json, deltas;
};

/* ---- when a turn is over ---- */

static int status_of(const char *stop)
{
    if (stop && strcmp(stop, "end_turn") == 0)
        return 0;
    return stop && strcmp(stop, "requires_action") == 0 ? TAIL_WAITS : TAIL_ENDED_BADLY;
}

/* An interrupt may have ended the turn before ours. */
static bool is_still_queued(struct tailing *g)
{
    char path[ID_MAX + 96];
    AUTO_JSON rows = NULL;
    snprintf(path, sizeof path, "/v1/sessions/%s/events?type=user.message&order=desc&limit=100",
             g->t->session);
    if (remote_list(g->r, path, 100, &rows))
        return false;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *event = json_array_get(rows, i);
        const char *id = json_get_c(event, "id");
        if (id && strcmp(id, g->t->message) == 0)
            return json_is_null(json_object_get(event, "processedAt"));
    }
    return false;
}

/* The queue is empty when a turn ends well; after a failure it waits for the next message. */
static bool is_ours(struct tailing *g, const char *stop)
{
    if (g->t->message == NULL)
        return true;
    return g->seen && !(stop && strcmp(stop, "interrupted") == 0 && is_still_queued(g));
}

static bool goes_on(struct tailing *g, const char *type, const json_t *event)
{
    const char *id = json_get_c(event, "id");
    if (g->t->message && id && strcmp(id, g->t->message) == 0)
        g->seen = true;
    if (strcmp(type, "session.status_terminated") == 0) {
        g->r->status = TAIL_ENDED_BADLY;
        return false;
    }
    if (strcmp(type, "session.status_idle") != 0)
        return true;
    const char *stop = json_get_c(json_object_get(event, "stopReason"), "type");
    g->r->status = status_of(stop);
    return g->t->follow || !is_ours(g, stop);
}

/* ---- showing ---- */

static bool on_event(void *arg, const char *type, const json_t *event)
{
    struct tailing *g = arg;
    bool persisted = json_object_get(event, "seq") != NULL;
    if (!g->json)
        screen_event(&g->screen, type, event);
    else if (persisted || g->deltas)
        remote_print(event);
    return !persisted || goes_on(g, type, event);
}

static void on_lost(void *arg, const char *why)
{
    struct tailing *g = arg;
    AUTO_BUF line = {0};
    buf_printf(&line, "connection lost, trying again (%.200s)", why);
    screen_note(&g->screen, line.p);
    screen_break(&g->screen);
}

static void say_interrupted(struct tailing *g)
{
    fprintf(stderr,
            "\nStopped watching; the session goes on.\n"
            "  pi-managed session tail %s        watch it again\n"
            "  pi-managed session interrupt %s   stop its turn\n",
            g->t->session, g->t->session);
    g->r->status = TAIL_INTERRUPTED;
}

err tail_turn(struct remote *r, const struct tail *t)
{
    struct tailing g = {
        .r = r, .t = t, .json = remote_json(r), .deltas = option_flag(r->call, "deltas")};
    screen_init(&g.screen);
    g.screen.own_message = t->message;
    struct watch w = {.session = t->session,
                      .after = t->after,
                      .deltas = g.json ? g.deltas : g.screen.is_terminal,
                      .on_event = on_event,
                      .on_lost = on_lost,
                      .arg = &g};
    enum watch_end end = WATCH_ENOUGH;
    err e = watch_session(r, &w, &end);
    screen_done(&g.screen);
    TRY(e);
    if (end == WATCH_INTERRUPTED)
        say_interrupted(&g);
    return end == WATCH_DELETED ? fail(E_NOT_FOUND, "the session was deleted") : 0;
}

/* ---- session tail ---- */

static err newest_seq(struct remote *r, const char *session, const char *type, int64_t *out)
{
    char path[ID_MAX + 96];
    AUTO_JSON rows = NULL;
    snprintf(path, sizeof path, "/v1/sessions/%s/events?type=%s&order=desc&limit=1", session, type);
    TRY(remote_list(r, path, 1, &rows));
    *out = json_get_int(json_array_get(rows, 0), "seq", 0);
    return 0;
}

/* The turn that runs, or the last one: from the message it begins with. */
static err find_turn(struct remote *r, const char *session, int64_t *out_after)
{
    int64_t began = 0, message = 0;
    TRY(newest_seq(r, session, "session.status_run_started", &began));
    TRY(newest_seq(r, session, "user.message", &message));
    *out_after = began == 0 ? 0 : message == began - 1 ? began - 2 : began - 1;
    return 0;
}

static err read_after(struct remote *r, const char *session, int64_t *out)
{
    const char *text = option_value(r->call, "after");
    uint64_t n = 0;
    if (option_flag(r->call, "all"))
        *out = 0;
    else if (text == NULL)
        return find_turn(r, session, out);
    else if (!str_to_u64(str_of(text), &n) || n > INT64_MAX)
        return fail(E_INVALID, "--after %.40s: give the seq of an event, a number", text);
    else
        *out = (int64_t)n;
    return 0;
}

static err tail_work(struct remote *r)
{
    char id[ID_MAX];
    TRY(resource_find(r, &session_resource, r->call->arguments[0], id));
    struct tail t = {.session = id,
                     .follow = option_flag(r->call, "follow") || option_flag(r->call, "all")};
    TRY(read_after(r, id, &t.after));
    return tail_turn(r, &t);
}

static int run(const struct invocation *call)
{
    return remote_run(call, tail_work);
}

static const struct option options[] = {
    {"follow", NULL, NULL, "go on with the turns to come, until Ctrl-C"},
    {"all", NULL, NULL, "everything from the beginning, then as --follow"},
    {"after", "SEQ", NULL, "from behind the event with this seq"},
    TAIL_OPTIONS,
    REMOTE_OPTIONS,
    {0},
};

const struct command session_tail_command = {
    .name = "session tail",
    .arguments = "SESSION",
    .summary = "Watches the turn that runs (or shows the last one) to its end.",
    .details = TAIL_DETAILS,
    .options = options,
    .run = run,
};
