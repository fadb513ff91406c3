/* GET /v1/sessions/:id/stream (§9.3, R17, R18): first the persisted events after Last-Event-ID,
   read from the log, then live from the hub, without a gap or a double between the two.

   A watcher is one client. Its replay runs in parts as the client takes them: the connection says
   `hungry` on the loop thread, a thread of service->replays pushes the next part. Once the log has
   nothing more the watcher attaches to the hub and the publishers push. */
#include "api/stream.h"

#include "api/lasting.h"
#include "api/routes.h"
#include "api/service.h"
#include "api/sessions.h"
#include "base/lock.h"
#include "base/mem.h"
#include "http/sse.h"
#include "http/workers.h"
#include "session/history.h"
#include "session/hub.h"
#include "session/manager.h"

#define QUEUE_BYTES (4 * MB)
#define STREAM_DELETED "session.deleted" /* stream-only, the last frame */
#define WATCHER_MAGIC 0x57415443u

struct watcher {
    unsigned magic;
    const struct service *service;
    char tenant[ID_MAX], session[ID_MAX];
    unsigned deltas; /* bits of delta_kinds, as eventDeltas asked for */
    struct sse *sse; /* borrowed: the watcher lives as long as the sse */
    struct lasting lasting;
    struct hub_topic *topic;

    /* The last seq pushed. Of the replay until attached, then of the hub's publishers (under the
       hub's lock). */
    int64_t after;
    int64_t bytes_at_open; /* of the log */
    bool first_pass;       /* after is what the client said and may lie beyond the head */

    pthread_mutex_t watcher_lock; /* guards what follows; outside the hub's lock */
    struct hub_reader *reader;    /* live */
    bool replaying;               /* a job is queued or runs */
    bool hungry;                  /* asked for more meanwhile */
    bool closed;
};

static struct hub *hub_of(const struct watcher *w)
{
    return session_manager_hub(w->service->sessions);
}

/* Live */

/* R18: what eventDeltas may name. */
static const char *const delta_kinds[] = {"agent.message", "agent.tool_result"};

/* 0 if it is none. */
static unsigned delta_bit(struct str name)
{
    for (unsigned i = 0; i < sizeof delta_kinds / sizeof *delta_kinds; i++)
        if (str_is(name, delta_kinds[i]))
            return 1u << i;
    return 0;
}

static bool is_wanted(const struct watcher *w, const struct hub_frame *frame)
{
    if (frame->seq)
        return frame->seq > w->after;
    return frame->delta_of == NULL || (w->deltas & delta_bit(str_of(frame->delta_of)));
}

/* On the publisher's thread, under the hub's lock. */
static void offer(void *arg, const struct hub_frame *frame)
{
    struct watcher *w = arg;
    CHECK(w, WATCHER_MAGIC);
    if (!is_wanted(w, frame))
        return;
    AUTO_BUF text = {0};
    sse_format(&text, frame->seq, frame->type, frame->json);
    sse_push(w->sse, buf_str(&text), frame->delta_of ? SSE_DROPPABLE : SSE_KEEP);
    if (frame->seq)
        w->after = frame->seq;
    if (strcmp(frame->type, STREAM_DELETED) == 0)
        sse_end(w->sse);
}

static void deleted_json(const char *session, struct buf *out)
{
    AUTO_JSON j = json_pack("{s:s, s:s}", "type", STREAM_DELETED, "sessionId", session);
    json_write(j, out);
}

void stream_tell_deleted(const struct service *service, const char *session)
{
    AUTO_BUF text = {0};
    deleted_json(session, &text);
    hub_publish(session_manager_hub(service->sessions), session,
                &(struct hub_frame){.type = STREAM_DELETED, .json = buf_str(&text)});
}

/* Replay */

struct part {
    struct watcher *w;
    int64_t head; /* highest seq seen */
    bool full;    /* the client must take what was pushed first */
};

static bool push_event(void *arg, int64_t seq, const json_t *event)
{
    struct part *p = arg;
    struct watcher *w = p->w;
    p->head = seq;
    if (seq <= w->after)
        return true;
    AUTO_BUF json = {0};
    json_write(event, &json);
    AUTO_BUF text = {0};
    sse_format(&text, seq, json_get_c(event, "type"), buf_str(&json));
    /* A single event may be larger than the queue: the empty queue takes it. */
    if (sse_room(w->sse) < (text.n < QUEUE_BYTES / 2 ? text.n : QUEUE_BYTES / 2)) {
        p->full = true;
        return false;
    }
    if (!sse_push(w->sse, buf_str(&text), SSE_KEEP))
        return false;
    w->after = seq;
    return true;
}

/* One pass over the log. *out_full: the client must take what was pushed first. */
static err replay(struct watcher *w, bool *out_full)
{
    struct part part = {.w = w};
    int64_t last;
    TRY(history_replay(session_manager_logs_dir(w->service->sessions), w->tenant, w->session,
                       w->first_pass ? 0 : w->after, push_event, &part, &last));
    if (w->first_pass && !part.full && w->after > part.head) /* R17: that means live only */
        TRY(history_head(session_manager_logs_dir(w->service->sessions), w->tenant, w->session,
                         w->bytes_at_open, &w->after)); /* what came since then is live */
    w->first_pass = false;
    *out_full = part.full;
    return 0;
}

/* True when live, or when there is nothing to go live for. */
static bool attach(struct watcher *w)
{
    AUTO_LOCK(&w->watcher_lock);
    if (w->closed)
        return true;
    return hub_attach(hub_of(w), w->topic, w->after, offer, w, &w->reader) == 0;
}

/* False: hungry came meanwhile, so there is room again. */
static bool wait_for_hungry(struct watcher *w)
{
    AUTO_LOCK(&w->watcher_lock);
    if (w->hungry && !w->closed) {
        w->hungry = false;
        return false;
    }
    w->replaying = false;
    return true;
}

static err find_session(struct db_conn *c, void *arg)
{
    const struct watcher *w = arg;
    AUTO_ARENA a = arena_new();
    struct session_row row;
    return session_find(c, a, w->tenant, str_of(w->session), &row);
}

static void stop_listening(struct watcher *w)
{
    pthread_mutex_lock(&w->watcher_lock);
    struct hub_reader *reader = w->reader;
    w->reader = NULL;
    pthread_mutex_unlock(&w->watcher_lock);
    hub_detach(hub_of(w), reader);
}

/* A session deleted before the watcher was live told nobody: look once more. Detached first, so
   that its last frame comes once. */
static void end_if_deleted(struct watcher *w)
{
    if (db_read(w->service->db, find_session, w) != E_NOT_FOUND)
        return;
    stop_listening(w);
    AUTO_BUF json = {0};
    deleted_json(w->session, &json);
    AUTO_BUF text = {0};
    sse_format(&text, 0, STREAM_DELETED, buf_str(&json));
    sse_push(w->sse, buf_str(&text), SSE_KEEP);
    sse_end(w->sse);
}

static void catch_up(struct watcher *w)
{
    for (;;) {
        bool full = false;
        if (replay(w, &full) != 0) {
            sse_end(w->sse); /* the log cannot be read: the client's next request says so */
            return;
        }
        if (full && wait_for_hungry(w))
            return;
        if (!full && attach(w)) {
            end_if_deleted(w);
            return;
        }
    }
}

static void replay_job(void *arg, bool stopping)
{
    struct watcher *w = arg;
    CHECK(w, WATCHER_MAGIC);
    struct sse *sse = w->sse;
    if (stopping)
        sse_end(sse);
    else
        catch_up(w);
    sse_unref(sse); /* may free the watcher */
}

/* Loop thread. */
static bool start_replay(struct watcher *w)
{
    AUTO_LOCK(&w->watcher_lock);
    if (w->reader || w->closed)
        return false;
    w->hungry = w->replaying;
    if (w->replaying)
        return false;
    w->replaying = true;
    return true;
}

static void on_hungry(void *arg)
{
    struct watcher *w = arg;
    CHECK(w, WATCHER_MAGIC);
    if (!start_replay(w))
        return;
    sse_ref(w->sse);
    if (workers_post(w->service->replays, replay_job, w))
        return;
    sse_end(w->sse); /* too many clients catch up at once; this one comes back */
    sse_unref(w->sse);
}

/* The key was revoked. */
static void on_revoked(void *arg)
{
    struct watcher *w = arg;
    CHECK(w, WATCHER_MAGIC);
    sse_end(w->sse);
}

/* Loop thread. */
static void on_closed(void *arg)
{
    struct watcher *w = arg;
    CHECK(w, WATCHER_MAGIC);
    pthread_mutex_lock(&w->watcher_lock);
    w->closed = true;
    pthread_mutex_unlock(&w->watcher_lock);
    lasting_remove(w->service->lastings, &w->lasting);
    stop_listening(w);
}

static void on_freed(void *arg)
{
    struct watcher *w = arg;
    CHECK(w, WATCHER_MAGIC);
    lasting_remove(w->service->lastings, &w->lasting); /* a stream that never became a reply */
    hub_detach(hub_of(w), w->reader);
    hub_close(hub_of(w), w->topic);
    pthread_mutex_destroy(&w->watcher_lock);
    w->magic = 0;
    mem_free(w);
}

/* The request */

/* The header wins: browsers send it when they reconnect to the same address. */
static err last_event_id(const struct ctx *ctx, int64_t *out)
{
    struct str text = ctx_header(ctx, "Last-Event-ID");
    if (text.p == NULL)
        text = ctx_query(ctx, "lastEventId");
    uint64_t seq = 0;
    if (text.p && (!str_to_u64(text, &seq) || seq > INT64_MAX))
        return fail_as(E_INVALID, "invalid_last_event_id",
                       "Last-Event-ID must be the id of an event of this stream, a number");
    *out = (int64_t)seq;
    return 0;
}

static err wanted_deltas(const struct ctx *ctx, unsigned *out_bits)
{
    struct str rest = ctx_query(ctx, "eventDeltas"), one;
    unsigned bits = 0;
    while (rest.p && str_split(&rest, ',', &one)) {
        unsigned bit = delta_bit(one);
        if (bit == 0)
            return fail(E_INVALID, "query parameter eventDeltas: agent.message and "
                                   "agent.tool_result are what can be streamed");
        bits |= bit;
    }
    *out_bits = bits;
    return 0;
}

static struct watcher *watcher_new(const struct ctx *ctx, const char *session)
{
    struct watcher *w = mem_alloc(sizeof *w);
    w->magic = WATCHER_MAGIC;
    w->service = ctx->service;
    memcpy(w->tenant, ctx->tenant, sizeof w->tenant);
    memcpy(w->session, session, sizeof w->session);
    w->first_pass = true;
    pthread_mutex_init(&w->watcher_lock, NULL);
    w->topic = hub_open(hub_of(w), session); /* before the log's length: no event is in neither */
    w->bytes_at_open =
        history_bytes(session_manager_logs_dir(w->service->sessions), w->tenant, session);
    w->sse = sse_new(&(struct sse_options){.bytes_max = QUEUE_BYTES,
                                           .hungry = on_hungry,
                                           .closed = on_closed,
                                           .freed = on_freed,
                                           .arg = w});
    return w;
}

static err stream_open(struct ctx *ctx)
{
    int64_t after = 0;
    unsigned deltas = 0;
    TRY(last_event_id(ctx, &after));
    TRY(wanted_deltas(ctx, &deltas));
    struct session_row row;
    TRY(ctx_session(ctx, &row));
    struct watcher *w = watcher_new(ctx, row.id);
    w->after = after;
    w->deltas = deltas;
    struct sse *sse = w->sse;
    lasting_add(w->service->lastings, &w->lasting, ctx->key_id, on_revoked, w);
    err e = sse_reply(ctx, sse);
    sse_unref(sse);
    return e;
}

ROUTES(stream,
       {GET, "/v1/sessions/:id/stream", stream_open, .scope = SCOPE_READ,
        .query = "lastEventId eventDeltas"}, )
