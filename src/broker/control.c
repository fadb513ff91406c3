#include "broker/control.h"

#include "base/fd.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "broker/frames.h"
#include "broker/registry.h"
#include "broker/requests.h"

#include <stdio.h>
#include <sys/socket.h>

#define HOLD_MAX_MS 3600000

struct control {
    struct registry *registry;
    struct request_table *requests;
    void (*check)(void *arg, const json_t *message); /* NULL: nobody tries keys */
    void *check_arg;

    pthread_mutex_t send_lock; /* guards fd for writers, and keeps frames whole */
    int fd;                    /* -1 while there is no control */

    pthread_mutex_t attach_lock; /* one attach at a time */
    pthread_t reader;
    bool has_reader;
};

static void on_refuse(struct control *c, const json_t *m)
{
    struct request_refusal why = {.status = (int)json_get_int(m, "status", 403)};
    if (why.status < 400 || why.status > 599)
        why.status = 403;
    const char *code = json_get_c(m, "code"), *detail = json_get_c(m, "detail");
    snprintf(why.code, sizeof why.code, "%s", code ? code : "refused");
    struct str text = str_of(detail ? detail : "the service refused this model request");
    snprintf(
        why.detail, sizeof why.detail, "%.*s",
        (int)str_utf8_floor(text, text.n < REQUEST_DETAIL_MAX ? text.n : REQUEST_DETAIL_MAX - 1),
        text.p);
    requests_refuse(c->requests, json_get_c(m, "request"), &why);
}

static void on_message(struct control *c, const json_t *m)
{
    struct str op = json_get_str(m, "op");
    const char *token = json_get_c(m, "token"), *session = json_get_c(m, "session");
    if (str_is(op, "session_open")) {
        if (registry_open(c->registry, m) != 0)
            log_error("a session could not be registered: %s", err_text());
    } else if (str_is(op, "session_close") && token) {
        registry_close(c->registry, token);
    } else if (str_is(op, "request_go")) {
        requests_go(c->requests, json_get_c(m, "request"));
    } else if (str_is(op, "request_hold")) {
        int64_t ms = json_get_int(m, "ms", 0);
        requests_hold(c->requests, json_get_c(m, "request"), ms < HOLD_MAX_MS ? ms : HOLD_MAX_MS);
    } else if (str_is(op, "request_refuse")) {
        on_refuse(c, m);
    } else if (str_is(op, "request_cancel") && session) {
        requests_cancel(c->requests, session);
    } else if (str_is(op, "credential_check") && c->check) {
        c->check(c->check_arg, m);
    } else {
        log_warn("control sent a message that is not understood: %.*s", STR_ARG(op));
    }
}

/* Nothing of the old control's is good any more: whoever asks now gets 401 until it is registered
 * again. */
static void forget_everything(struct control *c)
{
    registry_clear(c->registry);
    requests_cancel(c->requests, NULL);
}

static void *read_link(void *arg)
{
    struct control *c = arg;
    int fd;
    {
        AUTO_LOCK(&c->send_lock);
        fd = c->fd;
    }
    AUTO_BUF scratch = {0};
    for (;;) {
        AUTO_JSON m = NULL;
        err e = broker_frame_read(fd, &scratch, &m);
        if (e && e != E_CLOSED)
            log_error("the link to control broke: %s", err_text());
        if (e) {
            m = NULL;
            break;
        }
        on_message(c, m);
    }
    {
        AUTO_LOCK(&c->send_lock);
        fd_close(&c->fd);
    }
    forget_everything(c);
    return NULL;
}

struct control *control_new(struct registry *registry, struct request_table *requests)
{
    struct control *c = mem_alloc(sizeof *c);
    *c = (struct control){.registry = registry, .requests = requests, .fd = -1};
    pthread_mutex_init(&c->send_lock, NULL);
    pthread_mutex_init(&c->attach_lock, NULL);
    return c;
}

void control_on_check(struct control *c, void (*check)(void *arg, const json_t *message), void *arg)
{
    c->check = check;
    c->check_arg = arg;
}

/* With attach_lock held. */
static void detach(struct control *c)
{
    if (!c->has_reader)
        return;
    {
        AUTO_LOCK(&c->send_lock);
        if (c->fd >= 0)
            shutdown(c->fd, SHUT_RDWR);
    }
    pthread_join(c->reader, NULL);
    c->has_reader = false;
}

void control_attach(struct control *c, int take_fd)
{
    AUTO_LOCK(&c->attach_lock);
    detach(c);
    {
        AUTO_LOCK(&c->send_lock);
        c->fd = take_fd;
    }
    c->reader = thread_start("control-link", read_link, c);
    c->has_reader = true;
    json_t *hello = json_pack("{s:s, s:s}", "op", "hello", "version", PM_VERSION);
    if (control_send(c, hello) != 0)
        log_warn("control went away at once: %s", err_text());
}

err control_send(struct control *c, json_t *take_message)
{
    AUTO_JSON message = take_message;
    AUTO_LOCK(&c->send_lock);
    if (c->fd < 0)
        return fail(E_UNAVAILABLE, "the control process is not connected");
    return broker_frame_write(c->fd, message);
}

void control_free(struct control *c)
{
    if (c == NULL)
        return;
    {
        AUTO_LOCK(&c->attach_lock);
        detach(c);
    }
    pthread_mutex_destroy(&c->send_lock);
    pthread_mutex_destroy(&c->attach_lock);
    mem_free(c);
}
