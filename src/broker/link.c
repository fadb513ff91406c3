#include "broker/link.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/secret.h"
#include "broker/frames.h"

#include <sodium.h>
#include <sys/socket.h>

/* Frames wait here while the broker is slow or away. It is far more than thousands of sessions
   need: a broker that lets it fill is broken, and its link is cut. */
#define QUEUE_MAX (64u << 20)
#define WAIT_MS 60000
#define KEY_WAITS_MAX 4

struct session_entry {
    struct session_entry *next;
    char *token;
    struct buf frame; /* its session_open, ready to be sent again */
};

/* Somebody who waits for a key to be tried; his own. */
struct key_wait {
    struct key_wait *next;
    char id[ID_MAX];
    bool done;
    struct broker_verdict *out;
};

struct broker_link {
    struct broker_events events;
    pthread_t reader, writer;

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    int fd;       /* the link in use, -1 if none; the reader closes it */
    int next_fd;  /* attached, not yet in use */
    bool up;      /* the broker said hello */
    bool writing; /* the writer is using fd: it must not be closed */
    bool ending;
    struct buf queue;
    struct session_entry *sessions;
    struct key_wait *key_waits;
    unsigned key_wait_count;
    bool checks_over;
};

static void queue_frame(struct broker_link *l, struct str frame)
{
    if (l->fd < 0)
        return; /* sessions are sent again; the rest is void with the link */
    if (l->queue.n + frame.n > QUEUE_MAX) {
        shutdown(l->fd, SHUT_RDWR);
        return;
    }
    buf_add_str(&l->queue, frame);
    pthread_cond_broadcast(&l->changed);
}

static void send_message(struct broker_link *l, json_t *take_message)
{
    AUTO_JSON message = take_message;
    AUTO_BUF frame = {0};
    if (broker_frame_encode(message, &frame) != 0) {
        log_error("%s", err_text());
        return;
    }
    AUTO_LOCK(&l->lock);
    queue_frame(l, buf_str(&frame));
}

/* The writer: takes the whole queue, writes it without the lock. */

static bool next_batch(struct broker_link *l, struct buf *batch, int *out_fd)
{
    AUTO_LOCK(&l->lock);
    l->writing = false;
    pthread_cond_broadcast(&l->changed);
    while (!l->ending && (l->fd < 0 || l->queue.n == 0))
        cond_wait_ms(&l->changed, &l->lock, WAIT_MS);
    if (l->ending)
        return false;
    struct buf empty = *batch;
    empty.n = 0;
    *batch = l->queue;
    l->queue = empty;
    l->writing = true;
    *out_fd = l->fd;
    return true;
}

static void *write_frames(void *arg)
{
    struct broker_link *l = arg;
    AUTO_BUF batch = {0};
    int fd;
    while (next_batch(l, &batch, &fd))
        if (fd_write_full(fd, batch.p, batch.n) != 0)
            shutdown(fd, SHUT_RDWR); /* the reader sees the end and tidies up */
    return NULL;
}

/* Keys that are tried */

static void set_verdict(struct broker_verdict *v, const char *verdict, const char *reason)
{
    v->verdict = verdict;
    snprintf(v->reason, sizeof v->reason, "%s", reason ? reason : "");
}

/* With the lock held. */
static void end_key_waits(struct broker_link *l, const char *reason)
{
    for (struct key_wait *w = l->key_waits; w; w = w->next) {
        if (!w->done)
            set_verdict(w->out, "unknown", reason);
        w->done = true;
    }
    pthread_cond_broadcast(&l->changed);
}

static void on_checked(struct broker_link *l, const json_t *m)
{
    static const char *const verdicts[] = {"valid", "invalid"};
    const char *verdict = "unknown";
    struct str id = json_get_str(m, "check");
    for (size_t i = 0; i < sizeof verdicts / sizeof *verdicts; i++)
        if (str_is(json_get_str(m, "verdict"), verdicts[i]))
            verdict = verdicts[i];
    AUTO_LOCK(&l->lock);
    for (struct key_wait *w = l->key_waits; w; w = w->next)
        if (!w->done && str_is(id, w->id)) {
            set_verdict(w->out, verdict, json_get_c(m, "reason"));
            w->done = true;
        }
    pthread_cond_broadcast(&l->changed);
}

/* The reader: one link after the other. */

static int take_next(struct broker_link *l)
{
    AUTO_LOCK(&l->lock);
    while (!l->ending && l->next_fd < 0)
        cond_wait_ms(&l->changed, &l->lock, WAIT_MS);
    if (l->ending)
        return -1;
    l->fd = fd_take(&l->next_fd);
    buf_clear(&l->queue);
    for (struct session_entry *s = l->sessions; s; s = s->next)
        queue_frame(l, buf_str(&s->frame));
    return l->fd;
}

static void give_up(struct broker_link *l)
{
    AUTO_LOCK(&l->lock);
    shutdown(l->fd, SHUT_RDWR);
    while (l->writing)
        cond_wait_ms(&l->changed, &l->lock, WAIT_MS);
    fd_close(&l->fd);
    buf_clear(&l->queue);
    l->up = false;
    end_key_waits(l, "the broker went away meanwhile: try again");
}

static void on_message(struct broker_link *l, const json_t *m)
{
    struct str op = json_get_str(m, "op");
    const char *request = json_get_c(m, "request"), *session = json_get_c(m, "session");
    if (str_is(op, "hello")) {
        AUTO_LOCK(&l->lock);
        l->up = true;
    } else if (str_is(op, "request_begin") && request && session) {
        l->events.request_begin(l->events.arg, session, request, json_get_int(m, "inputTokens", 0),
                                json_get_int(m, "said", 0));
    } else if (str_is(op, "request_end") && request && session) {
        l->events.request_end(l->events.arg, session, request, m);
    } else if (str_is(op, "credential_checked")) {
        on_checked(l, m);
    } else {
        log_warn("the broker sent a message that is not understood: %.*s", STR_ARG(op));
    }
}

static void *read_frames(void *arg)
{
    struct broker_link *l = arg;
    AUTO_BUF scratch = {0};
    for (int fd; (fd = take_next(l)) >= 0;) {
        err e;
        for (;;) {
            AUTO_JSON m = NULL;
            e = broker_frame_read(fd, &scratch, &m);
            if (e) {
                m = NULL;
                break;
            }
            on_message(l, m);
        }
        if (e != E_CLOSED)
            log_error("the link to the broker broke: %s", err_text());
        give_up(l);
        l->events.lost(l->events.arg);
    }
    return NULL;
}

struct broker_link *broker_link_new(const struct broker_events *events)
{
    struct broker_link *l = mem_alloc(sizeof *l);
    *l = (struct broker_link){.events = *events, .fd = -1, .next_fd = -1};
    pthread_mutex_init(&l->lock, NULL);
    cond_init(&l->changed);
    l->reader = thread_start("broker-read", read_frames, l);
    l->writer = thread_start("broker-write", write_frames, l);
    return l;
}

void broker_link_attach(struct broker_link *l, int take_fd)
{
    AUTO_LOCK(&l->lock);
    fd_close(&l->next_fd);
    l->next_fd = take_fd;
    if (l->fd >= 0)
        shutdown(l->fd, SHUT_RDWR);
    pthread_cond_broadcast(&l->changed);
}

static void free_entry(struct session_entry *s)
{
    secret_wipe(s->token, strlen(s->token));
    secret_wipe(s->frame.p, s->frame.n);
    mem_free(s->token);
    buf_done(&s->frame);
    mem_free(s);
}

static struct session_entry *take_out(struct broker_link *l, const char *token)
{
    for (struct session_entry **at = &l->sessions; *at; at = &(*at)->next) {
        struct session_entry *s = *at;
        if (strcmp(s->token, token) == 0) {
            *at = s->next;
            return s;
        }
    }
    return NULL;
}

static json_t *sealed_json(struct str sealed)
{
    if (sealed.n == 0)
        return json_null();
    size_t cap = sodium_base64_ENCODED_LEN(sealed.n, sodium_base64_VARIANT_ORIGINAL);
    AUTO_BUF text = {0};
    buf_reserve(&text, cap);
    sodium_bin2base64(text.p, cap, (const unsigned char *)sealed.p, sealed.n,
                      sodium_base64_VARIANT_ORIGINAL);
    return json_string(text.p);
}

/* `name` and `id`: what an answer, or another message, calls it by. */
static err encode(const char *op, const char *name, const char *id, const struct broker_session *s,
                  struct buf *out)
{
    AUTO_JSON m =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:b, s:o}", "op", op, name, id,
                  "tenant", s->tenant, "session", s->session, "provider", s->provider, "model",
                  s->model, "api", s->api ? s->api : "", "baseUrl", s->base_url ? s->base_url : "",
                  "custom", (int)s->custom, "sealed", sealed_json(s->sealed));
    if (m == NULL)
        return fail(E_INVALID, "a session with text that is not UTF-8");
    return broker_frame_encode(m, out);
}

void broker_open_session(struct broker_link *l, const struct broker_session *s)
{
    struct session_entry *entry = mem_alloc(sizeof *entry), *old;
    entry->token = mem_strdup(s->token);
    if (encode("session_open", "token", s->token, s, &entry->frame) != 0) {
        log_error("the session %s cannot be registered at the broker: %s", s->session, err_text());
        free_entry(entry);
        return;
    }
    {
        AUTO_LOCK(&l->lock);
        old = take_out(l, s->token);
        entry->next = l->sessions;
        l->sessions = entry;
        queue_frame(l, buf_str(&entry->frame));
    }
    if (old)
        free_entry(old);
}

void broker_close_session(struct broker_link *l, const char *token)
{
    struct session_entry *old;
    {
        AUTO_LOCK(&l->lock);
        old = take_out(l, token);
    }
    if (old)
        free_entry(old);
    send_message(l, json_pack("{s:s, s:s}", "op", "session_close", "token", token));
}

void broker_request_go(struct broker_link *l, const char *request, int64_t number)
{
    send_message(l, json_pack("{s:s, s:s, s:I}", "op", "request_go", "request", request, "number",
                              (json_int_t)number));
}

void broker_request_hold(struct broker_link *l, const char *request, int64_t ms)
{
    send_message(l, json_pack("{s:s, s:s, s:I}", "op", "request_hold", "request", request, "ms",
                              (json_int_t)ms));
}

void broker_request_refuse(struct broker_link *l, const char *request, int status, const char *code,
                           const char *detail)
{
    json_t *m = json_pack("{s:s, s:s, s:i, s:s}", "op", "request_refuse", "request", request,
                          "status", status, "code", code);
    json_set_str(m, "detail", str_of(detail));
    send_message(l, m);
}

void broker_request_cancel(struct broker_link *l, const char *session)
{
    send_message(l, json_pack("{s:s, s:s}", "op", "request_cancel", "session", session));
}

/* With the lock held. */
static void wait_for_verdict(struct broker_link *l, struct key_wait *w, int64_t timeout_ms)
{
    int64_t deadline_ms = clock_monotonic_ms(clock_real()) + timeout_ms, left_ms;
    while (!w->done && !l->ending && (left_ms = deadline_ms - clock_monotonic_ms(clock_real())) > 0)
        cond_wait_ms(&l->changed, &l->lock, left_ms);
}

static void take_out_wait(struct broker_link *l, struct key_wait *w)
{
    struct key_wait **at = &l->key_waits;
    while (*at != w)
        at = &(*at)->next;
    *at = w->next;
    l->key_wait_count--;
}

/* With the lock held. NULL: go on. */
static const char *refusal_of_check(const struct broker_link *l)
{
    if (l->checks_over)
        return "the service stops";
    if (l->fd < 0)
        return "the broker is starting: try again";
    return l->key_wait_count < KEY_WAITS_MAX ? NULL
                                             : "other keys are being tried: try again in a moment";
}

static void await_verdict(struct broker_link *l, struct key_wait *w, struct str frame,
                          int64_t timeout_ms)
{
    AUTO_LOCK(&l->lock);
    const char *refusal = refusal_of_check(l);
    if (refusal) {
        set_verdict(w->out, "unknown", refusal);
        return;
    }
    w->next = l->key_waits;
    l->key_waits = w;
    l->key_wait_count++;
    queue_frame(l, frame);
    wait_for_verdict(l, w, timeout_ms);
    take_out_wait(l, w);
}

void broker_check_key(struct broker_link *l, const struct broker_session *s, int64_t timeout_ms,
                      struct broker_verdict *out)
{
    AUTO_BUF frame = {0};
    struct key_wait *w = mem_alloc(sizeof *w);
    w->out = out;
    id_new("check", clock_wall_ms(clock_real()), w->id);
    set_verdict(out, "unknown", "the provider did not answer in time");
    if (encode("credential_check", "check", w->id, s, &frame) != 0)
        set_verdict(out, "unknown", err_text());
    else
        await_verdict(l, w, buf_str(&frame), timeout_ms);
    mem_free(w);
}

void broker_end_checks(struct broker_link *l)
{
    AUTO_LOCK(&l->lock);
    l->checks_over = true;
    end_key_waits(l, "the service stops");
}

bool broker_link_up(const struct broker_link *l)
{
    struct broker_link *mutable = (struct broker_link *)(uintptr_t)l;
    AUTO_LOCK(&mutable->lock);
    return l->up;
}

void broker_link_free(struct broker_link *l)
{
    if (l == NULL)
        return;
    {
        AUTO_LOCK(&l->lock);
        l->ending = true;
        if (l->fd >= 0)
            shutdown(l->fd, SHUT_RDWR);
        pthread_cond_broadcast(&l->changed);
    }
    pthread_join(l->reader, NULL);
    pthread_join(l->writer, NULL);
    fd_close(&l->next_fd);
    while (l->sessions) {
        struct session_entry *s = l->sessions;
        l->sessions = s->next;
        free_entry(s);
    }
    buf_done(&l->queue);
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->changed);
    mem_free(l);
}
