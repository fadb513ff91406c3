/* The supervisor: which host a session goes to, what becomes of sessions whose host ended, and the
   keeper, a thread that keeps one spare host warm, stops idle hosts and frees those that ended. */
#include "harness/harness.h"

#include <stdio.h>
#include <string.h>

#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "harness/host.h"
#include "harness/pool.h"
#include "harness/wire.h"

#define HARNESS_MAGIC 0x68617273u
#define IDLE_MS_DEFAULT 60000
#define SESSIONS_MAX_DEFAULT 200
#define BACKOFF_MIN_MS 1000
#define BACKOFF_MAX_MS 60000
#define KEEPER_WAIT_MS 1000
#define PING_AFTER_MS 15000 /* of silence */
#define STUCK_AFTER_MS 60000

struct harness {
    unsigned magic;
    struct harness_options o;
    pthread_t keeper;

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    bool stopping;
    struct pool pool;
    int64_t last_id;
    int64_t spare_not_before_ms; /* monotonic */
    int64_t backoff_ms;          /* 0: the last host got as far as its hello */
    char failure[ERR_TEXT_MAX];  /* why the last host did not */
    bool confinement_told;
};

static int64_t now_ms(const struct harness *h)
{
    return clock_monotonic_ms(h->o.clock);
}

static struct pool_host *entry_of(struct harness *h, const struct host *host)
{
    for (struct pool_host *p = h->pool.hosts; p; p = p->next) {
        if (p->host == host)
            return p;
    }
    return NULL;
}

/* Hosts' events; no lock is held while the session is told. */

static void tell_of_hello(struct harness *h, struct host *host, const json_t *hello)
{
    const char *pi = json_get_c(hello, "pi"), *node = json_get_c(hello, "node");
    log_info("Pi host %u is ready: Pi %s, Node %s", host_id(host), pi ? pi : "?",
             node ? node : "?");
    const json_t *missing = json_object_get(json_object_get(hello, "confinement"), "missing");
    if (json_array_size(missing) == 0 || h->confinement_told)
        return;
    h->confinement_told = true;
    for (size_t i = 0; i < json_array_size(missing); i++)
        log_warn("Pi hosts lack a wall on this machine: %s",
                 json_string_value(json_array_get(missing, i)));
}

static void on_hello(struct harness *h, struct host *host, const json_t *hello)
{
    AUTO_LOCK(&h->lock);
    struct pool_host *at = entry_of(h, host);
    if (!at || at->state != HOST_STARTING)
        return;
    at->state = HOST_READY;
    at->idle_since_ms = now_ms(h);
    h->backoff_ms = 0;
    h->failure[0] = 0;
    tell_of_hello(h, host, hello);
    pthread_cond_broadcast(&h->changed);
}

/* What the reply belongs to; NULL when nobody waits for it any more. */
static struct due *settle(struct harness *h, struct host *host, const json_t *reply, bool ok)
{
    AUTO_LOCK(&h->lock);
    struct pool_host *at = entry_of(h, host);
    struct due *due = at ? pool_settle(at, json_get_int(reply, "id", 0)) : NULL;
    if (!due)
        return NULL;
    struct pool_session *s = pool_find(&h->pool, due->session);
    bool stale = !s || s->at != at || pool_closing(at, due->session); /* a ping has no session */
    if (due->kind == DUE_OPEN && !stale && ok)
        s->opening = false;
    else if (due->kind == DUE_OPEN && !stale)
        pool_remove(&h->pool, s, now_ms(h));
    if (due->kind != DUE_CLOSE && !stale)
        return due;
    mem_free(due);
    return NULL;
}

static void on_reply(struct harness *h, struct host *host, const json_t *reply)
{
    const struct harness_events *e = &h->o.events;
    bool ok = json_get_bool(reply, "ok", false);
    const char *text = json_get_c(reply, "error");
    struct due *due = settle(h, host, reply, ok);
    if (due && due->kind == DUE_OPEN)
        e->opened(e->arg, due->session, ok ? 0 : E_INVALID, ok ? NULL : text);
    else if (due)
        e->replied(e->arg, due->session, due->op, ok, text);
    mem_free(due);
}

/* Is this session open in that host, in the opening the host speaks of? */
static bool is_current(struct harness *h, const struct host *host, const char *session)
{
    AUTO_LOCK(&h->lock);
    struct pool_session *s = session ? pool_find(&h->pool, session) : NULL;
    return s && s->at->host == host && !pool_closing(s->at, session);
}

static void on_session_message(struct harness *h, const char *type, const char *session,
                               const json_t *m, struct str line)
{
    const struct harness_events *e = &h->o.events;
    const char *call = json_get_c(m, "call"), *name = json_get_c(m, "name");
    if (strcmp(type, "entry") == 0 && line.n)
        e->entry(e->arg, session, line);
    else if (strcmp(type, "delta") == 0)
        e->delta(e->arg, session, m);
    else if (strcmp(type, "tool") == 0 && call && name)
        e->tool(e->arg, session, call, name, line);
    else if (strcmp(type, "tool_cancel") == 0 && call)
        e->tool_cancel(e->arg, session, call);
    else if (strcmp(type, "retry") == 0)
        e->retry(e->arg, session, m);
    else if (strcmp(type, "settled") == 0)
        e->settled(e->arg, session, json_get_bool(m, "aborted", false), json_get_c(m, "error"));
}

static void note_heard(struct harness *h, struct host *host, bool listening)
{
    AUTO_LOCK(&h->lock);
    struct pool_host *at = entry_of(h, host);
    at->heard_ms = now_ms(h);
    at->pinged_ms = 0;
    at->listening = listening;
    if (listening)
        at->heard++;
}

static void tell_heard(struct harness *h)
{
    if (h->o.events.heard)
        h->o.events.heard(h->o.events.arg);
}

static void take_message(struct harness *h, struct host *host, const json_t *m, struct str line)
{
    const char *type = json_get_c(m, "t");
    const char *session = json_get_c(m, "session"), *error = json_get_c(m, "error");
    if (!type)
        host_stop(host, "the Pi host sent a message without a type");
    else if (strcmp(type, "hello") == 0)
        on_hello(h, host, m);
    else if (strcmp(type, "failed") == 0)
        host_stop(host, error ? error : "the launcher says that Node cannot start");
    else if (strcmp(type, "reply") == 0)
        on_reply(h, host, m);
    else if (is_current(h, host, session))
        on_session_message(h, type, session, m, line);
}

static void on_message(void *arg, struct host *host, const json_t *m, struct str line)
{
    note_heard(arg, host, false);
    take_message(arg, host, m, line);
    note_heard(arg, host, true);
    tell_heard(arg);
}

static void note_failed_start(struct harness *h, const char *why)
{
    int64_t next = h->backoff_ms ? h->backoff_ms * 2 : BACKOFF_MIN_MS;
    h->backoff_ms = next < BACKOFF_MAX_MS ? next : BACKOFF_MAX_MS;
    h->spare_not_before_ms = now_ms(h) + h->backoff_ms;
    if (strcmp(h->failure, why) != 0) /* once, not at every attempt */
        log_error("no Pi host can start: %s", why);
    snprintf(h->failure, sizeof h->failure, "%s", why);
}

/* Takes out one session of the host that ended; NULL when there is none left, and then the keeper
   may free the host. */
static struct pool_session *evict(struct harness *h, struct pool_host *at)
{
    AUTO_LOCK(&h->lock);
    struct pool_session *s = pool_evict(&h->pool, at);
    if (!s) {
        at->state = HOST_ENDED;
        pthread_cond_broadcast(&h->changed);
    }
    return s;
}

static void on_ended(void *arg, struct host *host, const char *why)
{
    struct harness *h = arg;
    const struct harness_events *e = &h->o.events;
    pthread_mutex_lock(&h->lock);
    struct pool_host *at = entry_of(h, host);
    bool silent = h->stopping;
    if (at->state == HOST_STARTING && !silent)
        note_failed_start(h, why);
    else if (at->state == HOST_READY && !silent)
        log_warn("Pi host %u is gone: %s; %u sessions were open in it", host_id(host), why,
                 at->sessions);
    at->state = HOST_STOPPING;
    pool_forget_due(at);
    pthread_mutex_unlock(&h->lock);
    for (struct pool_session *s; (s = evict(h, at));) {
        if (!silent && s->opening)
            e->opened(e->arg, s->id, E_UNAVAILABLE, why);
        else if (!silent)
            e->lost(e->arg, s->id, why);
        mem_free(s);
    }
    tell_heard(h);
}

/* Hosts. With the lock held. */

static struct pool_host *start_host(struct harness *h, const char *tenant)
{
    struct pool_host *at = mem_alloc(sizeof *at);
    *at = (struct pool_host){.next = h->pool.hosts, .idle_since_ms = now_ms(h)};
    snprintf(at->tenant, sizeof at->tenant, "%s", tenant);
    h->pool.hosts = at;
    struct host_events events = {.message = on_message, .ended = on_ended, .arg = h};
    at->host = host_new(h->o.parent, tenant, &events);
    return at;
}

/* One with room, else the spare, else a new one. */
static struct pool_host *host_for(struct harness *h, const char *tenant)
{
    struct pool_host *at = pool_pick(&h->pool, tenant, h->o.sessions_max);
    if (at)
        return at;
    at = pool_pick(&h->pool, "", h->o.sessions_max);
    if (!at)
        return start_host(h, tenant);
    snprintf(at->tenant, sizeof at->tenant, "%s", tenant);
    host_bind(at->host, tenant);
    pthread_cond_broadcast(&h->changed); /* the keeper starts the next spare */
    return at;
}

static int64_t next_id(struct harness *h)
{
    AUTO_LOCK(&h->lock);
    return ++h->last_id;
}

/* A message for a session, whole; logs are large, so this is done without the lock. */
static struct buf message_of(json_t *envelope, const char *session, int64_t id, struct str lines)
{
    struct buf bytes = {0};
    json_object_set_new(envelope, "session", json_string(session));
    if (id)
        json_object_set_new(envelope, "id", json_integer(id));
    wire_build(envelope, lines, &bytes);
    return bytes;
}

void harness_open(struct harness *h, const char *tenant, const char *session, json_t *take_envelope,
                  struct str log)
{
    CHECK(h, HARNESS_MAGIC);
    AUTO_JSON envelope = take_envelope;
    json_object_set_new(envelope, "op", json_string("open"));
    int64_t id = next_id(h);
    struct buf bytes = message_of(envelope, session, id, log);
    AUTO_LOCK(&h->lock);
    assert(!pool_find(&h->pool, session));
    struct pool_host *at = host_for(h, tenant);
    pool_add(&h->pool, at, session);
    pool_expect(at, id, DUE_OPEN, session, "open");
    host_send(at->host, &bytes);
}

void harness_send(struct harness *h, const char *session, json_t *take_envelope, struct str lines,
                  bool reply)
{
    CHECK(h, HARNESS_MAGIC);
    AUTO_JSON envelope = take_envelope;
    const char *op = json_get_c(envelope, "op");
    int64_t id = reply ? next_id(h) : 0;
    AUTO_BUF bytes = message_of(envelope, session, id, lines);
    AUTO_LOCK(&h->lock);
    struct pool_session *s = pool_find(&h->pool, session);
    if (!s)
        return;
    if (reply)
        pool_expect(s->at, id, DUE_REPLY, session, op ? op : "");
    host_send(s->at->host, &bytes);
}

void harness_close(struct harness *h, const char *session)
{
    CHECK(h, HARNESS_MAGIC);
    AUTO_JSON envelope = json_pack("{s:s}", "op", "close");
    int64_t id = next_id(h);
    AUTO_BUF bytes = message_of(envelope, session, id, (struct str){0});
    AUTO_LOCK(&h->lock);
    struct pool_session *s = pool_find(&h->pool, session);
    if (!s)
        return;
    struct pool_host *at = s->at;
    pool_remove(&h->pool, s, now_ms(h));
    pool_expect(at, id, DUE_CLOSE, session, "close");
    host_send(at->host, &bytes);
}

int64_t harness_heard(struct harness *h, const char *session)
{
    CHECK(h, HARNESS_MAGIC);
    AUTO_LOCK(&h->lock);
    struct pool_session *s = pool_find(&h->pool, session);
    return s ? s->at->heard : INT64_MAX;
}

void harness_host_exited(struct harness *h, uint32_t host, int status)
{
    CHECK(h, HARNESS_MAGIC);
    AUTO_LOCK(&h->lock);
    for (struct pool_host *at = h->pool.hosts; at; at = at->next) {
        if (host_note_exit(at->host, host, status))
            return;
    }
}

void harness_ready(struct harness *h, bool *out_ready, char *out_text, size_t cap)
{
    CHECK(h, HARNESS_MAGIC);
    AUTO_LOCK(&h->lock);
    bool ready = false;
    for (struct pool_host *at = h->pool.hosts; at; at = at->next)
        ready = ready || at->state == HOST_READY;
    *out_ready = ready;
    const char *text = h->failure[0] ? h->failure : "a Pi host is starting";
    snprintf(out_text, cap, "%s", ready ? "" : text);
}

/* The keeper. */

/* Unlinks a host that ended, or NULL. */
static struct pool_host *take_ended(struct harness *h)
{
    for (struct pool_host **p = &h->pool.hosts; *p; p = &(*p)->next) {
        if ((*p)->state != HOST_ENDED)
            continue;
        struct pool_host *ended = *p;
        *p = ended->next;
        return ended;
    }
    return NULL;
}

static void stop_idle_hosts(struct harness *h)
{
    for (struct pool_host *at = h->pool.hosts; at; at = at->next) {
        if (at->state != HOST_READY || at->sessions > 0 || !at->tenant[0] ||
            now_ms(h) - at->idle_since_ms < h->o.idle_ms)
            continue;
        at->state = HOST_STOPPING;
        host_stop(at->host, "the Pi host was idle");
    }
}

static void ping(struct harness *h, struct pool_host *at)
{
    AUTO_JSON envelope = json_pack("{s:s, s:I}", "op", "ping", "id", (json_int_t)++h->last_id);
    AUTO_BUF bytes = {0};
    wire_build(envelope, (struct str){0}, &bytes);
    pool_expect(at, h->last_id, DUE_PING, "", "ping");
    at->pinged_ms = now_ms(h);
    host_send(at->host, &bytes);
}

/* A host that is busy in one endless step of JavaScript hears no abort: its sessions go on in
 * another. */
static void check_health(struct harness *h)
{
    for (struct pool_host *at = h->pool.hosts; at; at = at->next) {
        if (at->state != HOST_READY || at->sessions == 0 || !at->listening)
            continue;
        if (at->pinged_ms == 0 && now_ms(h) - at->heard_ms >= PING_AFTER_MS)
            ping(h, at);
        else if (at->pinged_ms != 0 && now_ms(h) - at->pinged_ms >= STUCK_AFTER_MS)
            host_stop(at->host, "the Pi host has not answered for a minute");
    }
}

static void keep_spare(struct harness *h)
{
    if (!pool_pick(&h->pool, "", h->o.sessions_max) && now_ms(h) >= h->spare_not_before_ms)
        start_host(h, "");
}

static void *keeper_thread(void *arg)
{
    struct harness *h = arg;
    pthread_mutex_lock(&h->lock);
    while (!h->stopping || h->pool.hosts) {
        struct pool_host *ended = take_ended(h);
        if (ended) {
            pthread_mutex_unlock(&h->lock);
            host_free(ended->host);
            mem_free(ended);
            pthread_mutex_lock(&h->lock);
            continue;
        }
        if (!h->stopping) {
            stop_idle_hosts(h);
            check_health(h);
            keep_spare(h);
        }
        cond_wait_ms(&h->changed, &h->lock, KEEPER_WAIT_MS); /* for a host's end or its idle time */
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

err harness_new(const struct harness_options *options, struct harness **out)
{
    struct harness *h = mem_alloc(sizeof *h);
    *h = (struct harness){.magic = HARNESS_MAGIC, .o = *options};
    if (h->o.idle_ms == 0)
        h->o.idle_ms = IDLE_MS_DEFAULT;
    if (h->o.sessions_max == 0)
        h->o.sessions_max = SESSIONS_MAX_DEFAULT;
    pthread_mutex_init(&h->lock, NULL);
    cond_init(&h->changed);
    h->keeper = thread_start("host-keeper", keeper_thread, h);
    *out = h;
    return 0;
}

void harness_free(struct harness *h)
{
    if (!h)
        return;
    CHECK(h, HARNESS_MAGIC);
    pthread_mutex_lock(&h->lock);
    h->stopping = true;
    for (struct pool_host *at = h->pool.hosts; at; at = at->next)
        host_stop(at->host, "the service stops");
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
    pthread_join(h->keeper, NULL);
    pthread_mutex_destroy(&h->lock);
    pthread_cond_destroy(&h->changed);
    h->magic = 0;
    mem_free(h);
}
