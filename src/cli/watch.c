#include "cli/watch.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/id.h"
#include "broker/sse_reader.h"

#define FRAME_MAX (64u << 20)
#define BACKOFF_FIRST_MS 200
#define BACKOFF_MAX_MS 5000
#define WAIT_ASKED_MAX_MS 60000
#define GIVE_UP_MS (10 * 60 * 1000)

struct watching {
    struct watch *w;
    struct sse_reader reader;
    int interrupt_fd; /* readable once SIGINT came */
    bool heard;       /* a frame came over this connection */
    bool enough, deleted;
};

static void take_frame(void *arg, const struct sse_event *frame)
{
    struct watching *g = arg;
    AUTO_JSON event = NULL;
    uint64_t seq;
    char type[64];
    if (g->enough || json_read_log(frame->data, &event) != 0)
        return;
    g->heard = true;
    snprintf(type, sizeof type, "%.*s", STR_ARG(frame->type));
    if (strcmp(type, "session.deleted") == 0)
        g->enough = g->deleted = true;
    else
        g->enough = !g->w->on_event(g->w->arg, type, event);
    /* Only now: an event that was not dealt with must come again. */
    if (str_to_u64(frame->last_id, &seq))
        g->w->after = (int64_t)seq;
}

static bool take_bytes(void *arg, struct str bytes)
{
    struct watching *g = arg;
    sse_reader_feed(&g->reader, bytes);
    return !g->enough;
}

static bool was_interrupted(const struct watching *g, int wait_ms)
{
    struct pollfd p = {.fd = g->interrupt_fd, .events = POLLIN};
    return poll(&p, 1, wait_ms) > 0;
}

/* *out_wait_ms: as long as the service asks to be left alone, at least. */
static err read_once(struct remote *r, struct watching *g, bool *out_connected, int *out_wait_ms)
{
    char path[ID_MAX + 96], after[32];
    snprintf(path, sizeof path, "/v1/sessions/%s/stream%s", g->w->session,
             g->w->deltas ? "?eventDeltas=agent.message,agent.tool_result" : "");
    snprintf(after, sizeof after, "%lld", (long long)g->w->after);
    struct http_stream s = {.path = path,
                            .last_event_id = after,
                            .on_bytes = take_bytes,
                            .arg = g,
                            .wake_fd = g->interrupt_fd};
    g->heard = false;
    sse_reader_init(&g->reader, FRAME_MAX, take_frame, g);
    err e = http_client_stream(r->http, &s);
    sse_reader_done(&g->reader);
    *out_connected = s.connected;
    *out_wait_ms =
        (int)(s.retry_after_ms < WAIT_ASKED_MAX_MS ? s.retry_after_ms : WAIT_ASKED_MAX_MS);
    return e;
}

/* A restart looks like each of these. */
static bool may_pass(err e)
{
    return e == 0 || e == E_CLOSED || e == E_UNAVAILABLE || e == E_QUOTA;
}

/* Longer each time, and not in step with other clients of a service that comes back. */
static int next_backoff_ms(int *backoff_ms)
{
    unsigned char random;
    rand_bytes(&random, sizeof random);
    int wait_ms = *backoff_ms * (192 + random / 2) / 255;
    *backoff_ms = *backoff_ms * 2 < BACKOFF_MAX_MS ? *backoff_ms * 2 : BACKOFF_MAX_MS;
    return wait_ms;
}

static err follow(struct remote *r, struct watching *g)
{
    bool ever = false, lost = false;
    int backoff_ms = BACKOFF_FIRST_MS;
    int64_t heard_at_ms = clock_monotonic_ms(clock_real());
    while (!g->enough) {
        bool connected = false;
        int asked_ms = 0;
        err e = read_once(r, g, &connected, &asked_ms);
        if (g->enough || was_interrupted(g, 0))
            return 0;
        if (!may_pass(e) || (e && !ever && !connected))
            return e;
        ever = true;
        if (g->heard) {
            heard_at_ms = clock_monotonic_ms(clock_real());
            backoff_ms = BACKOFF_FIRST_MS;
            lost = false;
        }
        if (clock_monotonic_ms(clock_real()) - heard_at_ms > GIVE_UP_MS)
            return fail(E_UNAVAILABLE, "gave up after ten minutes: %.300s", err_text());
        if (!lost)
            g->w->on_lost(g->w->arg, e ? err_text() : "the service ended the stream");
        lost = true;
        int wait_ms = next_backoff_ms(&backoff_ms);
        if (was_interrupted(g, asked_ms > wait_ms ? asked_ms : wait_ms))
            return 0;
    }
    return 0;
}

err watch_session(struct remote *r, struct watch *w, enum watch_end *out)
{
    sigset_t interrupt, before;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    sigprocmask(SIG_BLOCK, &interrupt, &before);
    struct watching g = {.w = w, .interrupt_fd = signalfd(-1, &interrupt, SFD_CLOEXEC)};
    err e = g.interrupt_fd < 0 ? fail_errno("make a descriptor for Ctrl-C") : follow(r, &g);
    bool interrupted = g.interrupt_fd >= 0 && was_interrupted(&g, 0);
    fd_close(&g.interrupt_fd);
    if (!interrupted) /* a second one would end us while we say what becomes of the session */
        sigprocmask(SIG_SETMASK, &before, NULL);
    TRY(e);
    *out = g.deleted ? WATCH_DELETED : interrupted ? WATCH_INTERRUPTED : WATCH_ENOUGH;
    return 0;
}
