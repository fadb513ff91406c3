/* The table of live sessions, their mailboxes, the executors and the timer. */
#include "session/manager.h"

#include "base/log.h"
#include "base/mem.h"
#include "session/archive.h"
#include "session/asks.h"
#include "session/history.h"
#include "session/live.h"
#include "session/quota.h"
#include "session/sweep.h"

#include <stdio.h>

#define UNLOAD_MS_DEFAULT 60000
#define EXECUTORS_DEFAULT 8
#define RETRY_MS 5000 /* after the disk or the database refused something */
#define TIMER_IDLE_MS 30000
#define WITHDRAW_WAIT_MS 10000
#define CHANGE_WAIT_MS 10000
#define RETENTION_MS_DEFAULT (30 * 86400 * (int64_t)1000) /* R29 */
#define DELETE_WAIT_MS 30000

/* ---- messages ---- */

static const char *copy_text(char **at, const char *s)
{
    if (s == NULL)
        return NULL;
    size_t n = strlen(s) + 1;
    char *copy = *at;
    memcpy(copy, s, n);
    *at += n;
    return copy;
}

static size_t text_bytes(const char *s)
{
    return s ? strlen(s) + 1 : 0;
}

struct message *message_new(enum message_kind kind, const struct turn_input *input)
{
    struct message *msg = mem_alloc(sizeof *msg);
    msg->kind = kind;
    msg->bytes = sizeof *msg;
    if (input == NULL)
        return msg;
    msg->input = *input;
    size_t n = text_bytes(input->id) + text_bytes(input->name) + text_bytes(input->text) +
               input->bytes.n + 1;
    char *at = msg->storage = mem_alloc(n);
    msg->input.id = copy_text(&at, input->id);
    msg->input.name = copy_text(&at, input->name);
    msg->input.text = copy_text(&at, input->text);
    if (input->bytes.n)
        memcpy(at, input->bytes.p, input->bytes.n);
    msg->input.bytes.p = at;
    msg->input.event = json_deep_copy(input->event); /* counts are not shared between threads */
    msg->bytes += n;
    return msg;
}

void message_free(struct message *msg)
{
    json_decref((json_t *)msg->input.event);
    mem_free(msg->storage);
    mem_free(msg);
}

static struct waiter *waiter_new(void)
{
    struct waiter *w = mem_alloc(sizeof *w);
    pthread_mutex_init(&w->lock, NULL);
    cond_init(&w->done_cond);
    return w;
}

static void waiter_free(struct waiter *w)
{
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->done_cond);
    mem_free(w);
}

void waiter_answer(struct waiter *w, err e)
{
    pthread_mutex_lock(&w->lock);
    w->result = e;
    err_save(&w->slot);
    w->done = true;
    bool abandoned = w->abandoned;
    pthread_cond_signal(&w->done_cond);
    pthread_mutex_unlock(&w->lock);
    if (abandoned)
        waiter_free(w);
}

/* ---- table and mailboxes (table_lock held) ---- */

static struct live **bucket_of(struct session_manager *m, const char *id)
{
    return &m->buckets[str_hash(str_of(id)) % LIVE_BUCKETS];
}

static struct live *find_live(struct session_manager *m, const char *id)
{
    struct live *l = *bucket_of(m, id);
    while (l && strcmp(l->id, id) != 0)
        l = l->next;
    return l;
}

static struct live *add_live(struct session_manager *m, const char *tenant, const char *id)
{
    struct live *l = mem_alloc(sizeof *l);
    l->magic = LIVE_MAGIC;
    l->m = m;
    l->tail = &l->head;
    l->wake_at_ms = -1;
    snprintf(l->tenant, sizeof l->tenant, "%s", tenant);
    snprintf(l->id, sizeof l->id, "%s", id);
    struct live **bucket = bucket_of(m, id);
    l->next = *bucket;
    *bucket = l;
    m->live_count++;
    return l;
}

static void remove_live(struct session_manager *m, struct live *l)
{
    struct live **at = bucket_of(m, l->id);
    while (*at != l)
        at = &(*at)->next;
    *at = l->next;
    m->live_count--;
}

static void schedule(struct session_manager *m, struct live *l)
{
    if (l->scheduled)
        return;
    l->scheduled = true;
    l->run_next = NULL;
    *m->run_tail = l;
    m->run_tail = &l->run_next;
    pthread_cond_signal(&m->work);
}

void manager_put(struct session_manager *m, struct live *l, struct message *msg)
{
    *l->tail = msg;
    l->tail = &msg->next;
    l->mailbox_bytes += msg->bytes;
    schedule(m, l);
}

/* ---- posting ---- */

/* Into the session's mailbox. Its tenant, where known, has it loaded if need be. may_block:
   backpressure. */
static void post(struct session_manager *m, const char *tenant, const char *session,
                 struct message *msg, bool may_block)
{
    struct waiter *unheard = NULL;
    pthread_mutex_lock(&m->table_lock);
    struct live *l = find_live(m, session);
    while (may_block && l && l->mailbox_bytes > MAILBOX_BYTES_MAX && !m->stopping) {
        cond_wait_ms(&m->room, &m->table_lock, 1000); /* room in a full mailbox */
        l = find_live(m, session);
    }
    if (l == NULL && tenant && !m->stopping)
        l = add_live(m, tenant, session);
    if (l && !m->stopping) {
        manager_put(m, l, msg);
        msg = NULL;
    } else {
        unheard = msg->waiter;
    }
    pthread_mutex_unlock(&m->table_lock);
    if (msg == NULL)
        return;
    if (unheard)
        waiter_answer(unheard, fail(E_UNAVAILABLE, "the service is stopping"));
    message_free(msg);
}

void manager_post(struct session_manager *m, const char *tenant, const char *session,
                  struct message *take_msg)
{
    post(m, tenant, session, take_msg, false);
}

void manager_post_live(struct session_manager *m, const char *session, struct message *take_msg,
                       bool may_block)
{
    post(m, NULL, session, take_msg, may_block);
}

void manager_post_input(struct session_manager *m, const char *session,
                        const struct turn_input *input, bool may_block)
{
    struct turn_input in = *input;
    in.now_ms = clock_wall_ms(m->o.clock);
    post(m, NULL, session, message_new(MESSAGE_INPUT, &in), may_block);
}

/* ---- executors ---- */

static struct message *take_batch(struct session_manager *m, struct live *l)
{
    struct message *first = l->head, **end = &l->head;
    for (unsigned n = 0; *end && n < BATCH_MAX; n++) {
        l->mailbox_bytes -= (*end)->bytes;
        end = &(*end)->next;
    }
    l->head = *end;
    if (l->head == NULL)
        l->tail = &l->head;
    *end = NULL;
    if (first == NULL)
        return NULL;
    pthread_cond_broadcast(&m->room);
    return first;
}

static struct live *next_runnable(struct session_manager *m)
{
    struct live *l = m->run_head;
    m->run_head = l->run_next;
    if (m->run_head == NULL)
        m->run_tail = &m->run_head;
    return l;
}

/* After a run: back on the queue, out of memory, or at rest until the next message. */
static struct live *settle_down(struct session_manager *m, struct live *l)
{
    l->scheduled = false;
    if (l->failed && m->retry_at_ms == 0)
        m->retry_at_ms = clock_monotonic_ms(m->o.clock) + RETRY_MS;
    l->failed = false;
    if (l->head) {
        schedule(m, l);
        return NULL;
    }
    if (live_may_unload(l, clock_wall_ms(m->o.clock))) {
        remove_live(m, l);
        return l;
    }
    int64_t wake = live_next_wake(l);
    if (wake >= 0 && (l->wake_at_ms < 0 || wake < l->wake_at_ms))
        pthread_cond_signal(&m->timer_cond);
    l->wake_at_ms = wake;
    return NULL;
}

static void *executor(void *arg)
{
    struct session_manager *m = arg;
    pthread_mutex_lock(&m->table_lock);
    while (!m->stopping) {
        if (m->run_head == NULL) {
            cond_wait_ms(&m->work, &m->table_lock, 60000); /* a session with messages */
            continue;
        }
        struct live *l = next_runnable(m);
        struct message *batch = take_batch(m, l);
        pthread_mutex_unlock(&m->table_lock);
        log_bind(NULL, l->id);
        live_run(l, batch);
        log_bind(NULL, NULL);
        pthread_mutex_lock(&m->table_lock);
        struct live *leaving = settle_down(m, l);
        if (leaving) {
            pthread_mutex_unlock(&m->table_lock);
            live_free(leaving);
            pthread_mutex_lock(&m->table_lock);
        }
    }
    pthread_mutex_unlock(&m->table_lock);
    return NULL;
}

/* ---- timer ---- */

/* Posts ticks that are due; returns when the next one is (table_lock held). */
static int64_t post_ticks(struct session_manager *m, int64_t now_ms)
{
    int64_t next = now_ms + TIMER_IDLE_MS;
    for (size_t i = 0; i < LIVE_BUCKETS; i++) {
        for (struct live *l = m->buckets[i]; l; l = l->next) {
            if (l->wake_at_ms >= 0 && l->wake_at_ms <= now_ms) {
                l->wake_at_ms = -1;
                manager_put(m, l, message_new(MESSAGE_TICK, NULL));
            }
            if (l->wake_at_ms >= 0 && l->wake_at_ms < next)
                next = l->wake_at_ms;
        }
    }
    return next;
}

static void *timer(void *arg)
{
    struct session_manager *m = arg;
    AUTO_LOCK(&m->table_lock);
    while (!m->stopping) {
        int64_t now = clock_wall_ms(m->o.clock);
        int64_t wait = post_ticks(m, now) - now;
        cond_wait_ms(&m->timer_cond, &m->table_lock, wait > 0 ? wait : 1); /* the next tick */
    }
    return NULL;
}

/* ---- life ---- */

static err daily_usd(struct db_conn *c, const char *tenant, double *out_usd)
{
    struct quota_limits limits;
    TRY(quota_limits(c, tenant, &limits));
    *out_usd = limits.of[QUOTA_DAILY_USD];
    return 0;
}

struct session_manager *session_manager_new(const struct session_manager_options *o)
{
    struct session_manager *m = mem_alloc(sizeof *m);
    m->o = *o;
    m->logs_dir = mem_strdup(o->logs_dir);
    m->o.executors = o->executors ? o->executors : EXECUTORS_DEFAULT;
    m->o.retention_ms = o->retention_ms ? o->retention_ms : RETENTION_MS_DEFAULT;
    m->o.unload_ms = o->unload_ms ? o->unload_ms : UNLOAD_MS_DEFAULT;
    m->hub = hub_new();
    m->sandboxes = sandboxes_new(o->parent, o->db, o->objects, o->clock);
    m->spend = spend_new(o->db, daily_usd);
    m->asks = asks_new(m);
    m->run_tail = &m->run_head;
    pthread_mutex_init(&m->table_lock, NULL);
    cond_init(&m->work);
    cond_init(&m->room);
    cond_init(&m->timer_cond);
    cond_init(&m->sweep_cond);
    return m;
}

void session_manager_connect(struct session_manager *m, struct harness *h, struct broker_link *b)
{
    m->harness = h;
    m->broker = b;
}

err session_manager_start(struct session_manager *m)
{
    size_t unfinished;
    m->executors = mem_alloc(m->o.executors * sizeof *m->executors);
    for (unsigned i = 0; i < m->o.executors; i++)
        m->executors[i] = thread_start("session", executor, m);
    m->timer = thread_start("session-timer", timer, m);
    m->sweeper = thread_start("session-sweep", sweep_thread, m);
    m->started = true;
    TRY(sweep_wake_unfinished(m, &unfinished));
    if (unfinished > 0)
        log_info("going on with %zu unfinished session%s", unfinished, unfinished == 1 ? "" : "s");
    return 0;
}

void session_manager_stop(struct session_manager *m)
{
    pthread_mutex_lock(&m->table_lock);
    m->stopping = true;
    pthread_cond_broadcast(&m->work);
    pthread_cond_broadcast(&m->room);
    pthread_cond_broadcast(&m->timer_cond);
    pthread_cond_broadcast(&m->sweep_cond);
    pthread_mutex_unlock(&m->table_lock);
    if (!m->started)
        return;
    for (unsigned i = 0; i < m->o.executors; i++)
        pthread_join(m->executors[i], NULL);
    pthread_join(m->timer, NULL);
    pthread_join(m->sweeper, NULL);
}

/* ---- for the API ---- */

void session_wake(struct session_manager *m, const char *tenant, const char *session)
{
    post(m, tenant, session, message_new(MESSAGE_WAKE, NULL), false);
}

static err post_and_wait(struct session_manager *m, const char *tenant, const char *session,
                         struct message *msg, int64_t wait_ms)
{
    struct waiter *w = waiter_new();
    msg->waiter = w;
    post(m, tenant, session, msg, false);
    int64_t deadline = clock_monotonic_ms(clock_real()) + wait_ms;
    pthread_mutex_lock(&w->lock);
    while (!w->done) {
        int64_t left = deadline - clock_monotonic_ms(clock_real());
        if (left <= 0) {
            w->abandoned = true; /* the executor still holds it */
            pthread_mutex_unlock(&w->lock);
            return fail(E_TIMEOUT, "the session did not answer within %lld s",
                        (long long)wait_ms / 1000);
        }
        cond_wait_ms(&w->done_cond, &w->lock, left); /* the session's answer */
    }
    pthread_mutex_unlock(&w->lock);
    err e = w->result ? err_restore(&w->slot) : 0;
    waiter_free(w);
    return e;
}

err session_withdraw(struct session_manager *m, const char *tenant, const char *session,
                     const char *event_id)
{
    struct turn_input in = {
        .kind = TURN_WITHDRAW, .id = event_id, .now_ms = clock_wall_ms(m->o.clock)};
    return post_and_wait(m, tenant, session, message_new(MESSAGE_WITHDRAW, &in), WITHDRAW_WAIT_MS);
}

err session_change(struct session_manager *m, const char *tenant, const char *session,
                   const json_t *change)
{
    struct turn_input in = {.event = change};
    return post_and_wait(m, tenant, session, message_new(MESSAGE_CHANGE, &in), CHANGE_WAIT_MS);
}

struct deletion {
    const char *tenant, *session;
    int64_t now_ms;
};

static err mark_deleted(struct db_conn *c, void *arg)
{
    struct deletion *d = arg;
    return session_mark_deleted(c, d->tenant, d->session, d->now_ms);
}

err session_delete(struct session_manager *m, const char *tenant, const char *session, bool at_once)
{
    struct deletion d = {tenant, session, clock_wall_ms(m->o.clock)};
    TRY(db_write(m->o.db, mark_deleted, &d)); /* from here on it cannot be loaded again */
    TRY(post_and_wait(m, tenant, session, message_new(MESSAGE_END, NULL), DELETE_WAIT_MS));
    TRY(sandboxes_destroy(m->sandboxes, tenant, session));
    return at_once ? sweep_purge(m, tenant, session) : 0;
}

err session_fits(struct session_manager *m, const char *environment_json)
{
    return sandboxes_fit(m->sandboxes, environment_json);
}

void session_logged(struct session_manager *m, const char *tenant, const char *session)
{
    archive_note(m->o.archive, tenant, session, history_bytes(m->logs_dir, tenant, session), true);
}

struct hub *session_manager_hub(struct session_manager *m)
{
    return m->hub;
}

struct sandboxes *session_manager_sandboxes(struct session_manager *m)
{
    return m->sandboxes;
}

const char *session_manager_logs_dir(const struct session_manager *m)
{
    return m->logs_dir;
}
