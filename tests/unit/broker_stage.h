/* A stage for tests of the model gateway: a host's connection, the real link between control and
   the broker, a scripted provider on TCP, a parent that opens boxes. Everything but the parent's
   process is the real thing. Test files include it first. */
#ifndef TESTS_BROKER_STAGE_H
#define TESTS_BROKER_STAGE_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/lock.h"
#include "base/mem.h"
#include "broker/catalog.h"
#include "broker/control.h"
#include "broker/dial.h"
#include "broker/exchange.h"
#include "broker/gateway.h"
#include "broker/link.h"
#include "broker/registry.h"
#include "broker/requests.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <setjmp.h>
#include <signal.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>
#undef fail /* ours */

#define WAIT_MS 20000
#define TOKEN "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define TENANT "tenant_a"
#define SESSION "sess_one"

/* The provider: answers each connection with the bytes it was given. */

struct provider {
    pthread_mutex_t m;
    pthread_cond_t c;
    int listen_fd, port;
    pthread_t thread;
    const char *reply;          /* sent at once */
    const char *const *replies; /* to the first requests in place of `reply`; up to a NULL */
    size_t flood;               /* then so many bytes of body in one chunked stream */
    bool hold;                  /* then wait for the gateway to close */
    struct buf request;
    int requests;
    size_t flooded;
    bool saw_close, ending;
};

static inline bool request_complete(const struct buf *b)
{
    const char *end = b->p ? strstr(b->p, "\r\n\r\n") : NULL;
    const char *length = b->p ? strcasestr(b->p, "content-length:") : NULL;
    if (end == NULL)
        return false;
    size_t body = length && length < end ? (size_t)strtoul(length + 15, NULL, 10) : 0;
    return b->n >= (size_t)(end + 4 - b->p) + body;
}

static inline bool read_request(struct provider *p, int fd)
{
    AUTO_BUF got = {0};
    char part[65536];
    while (!request_complete(&got)) {
        ssize_t n = read(fd, part, sizeof part);
        if (n <= 0)
            return false;
        buf_add(&got, part, (size_t)n);
    }
    AUTO_LOCK(&p->m);
    buf_clear(&p->request);
    buf_add_str(&p->request, buf_str(&got));
    p->requests++;
    pthread_cond_broadcast(&p->c);
    return true;
}

static inline void flood(struct provider *p, int fd)
{
    char chunk[16 * 1024 + 16];
    int head = snprintf(chunk, sizeof chunk, "%x\r\n", 16 * 1024);
    memset(chunk + head, 'x', 16 * 1024);
    memcpy(chunk + head + 16 * 1024, "\r\n", 2);
    for (size_t sent = 0; sent < p->flood; sent += 16 * 1024) {
        if (fd_write_full(fd, chunk, (size_t)head + 16 * 1024 + 2) != 0)
            return;
        AUTO_LOCK(&p->m);
        p->flooded += 16 * 1024;
        pthread_cond_broadcast(&p->c);
    }
    fd_write_full(fd, "0\r\n\r\n", 5);
}

static inline const char *next_reply(struct provider *p)
{
    AUTO_LOCK(&p->m);
    return p->replies && *p->replies ? *p->replies++ : p->reply;
}

static inline void serve_one(struct provider *p, int fd)
{
    if (!read_request(p, fd))
        return;
    const char *reply = next_reply(p);
    if (reply)
        fd_write_full(fd, reply, strlen(reply));
    if (p->flood)
        flood(p, fd);
    if (!p->hold)
        return;
    char byte;
    while (read(fd, &byte, 1) > 0)
        ;
    AUTO_LOCK(&p->m);
    p->saw_close = true;
    pthread_cond_broadcast(&p->c);
}

static inline void *serve(void *arg)
{
    struct provider *p = arg;
    for (;;) {
        AUTO_FD fd = accept(p->listen_fd, NULL, NULL);
        {
            AUTO_LOCK(&p->m);
            if (p->ending)
                return NULL;
        }
        if (fd >= 0)
            serve_one(p, fd);
    }
}

static inline void provider_start(struct provider *p)
{
    pthread_mutex_init(&p->m, NULL);
    cond_init(&p->c);
    p->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(bind(p->listen_fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(p->listen_fd, 8), 0);
    socklen_t n = sizeof a;
    getsockname(p->listen_fd, (struct sockaddr *)&a, &n);
    p->port = ntohs(a.sin_port);
    p->thread = thread_start("provider", serve, p);
}

static inline void provider_stop(struct provider *p)
{
    {
        AUTO_LOCK(&p->m);
        p->ending = true;
    }
    shutdown(p->listen_fd, SHUT_RDWR);
    pthread_join(p->thread, NULL);
    fd_close(&p->listen_fd);
    buf_done(&p->request);
}

/* Waits until *flag (guarded by m) is true. */
static inline bool wait_true(pthread_mutex_t *m, pthread_cond_t *c, const bool *flag)
{
    AUTO_LOCK(m);
    while (!*flag)
        if (!cond_wait_ms(c, m, WAIT_MS))
            return false;
    return true;
}

static inline bool wait_requests(struct provider *p, int count)
{
    AUTO_LOCK(&p->m);
    while (p->requests < count)
        if (!cond_wait_ms(&p->c, &p->m, WAIT_MS))
            return false;
    return true;
}

/* One gateway with all around it. */

enum verdict {
    LET_GO,
    REFUSE,
    STAY_SILENT
};

struct stage {
    struct provider provider;
    struct exchange_env env;
    struct dial_guard *guard;
    struct catalog *catalog;
    struct gateways *gateways;
    struct broker_link *link;
    char dir[64], socket[96], foreign_socket[96], base_url[64];

    const char *box; /* what the parent finds in the sealed credential */
    int opened;
    int link_copy; /* to cut the link with */

    pthread_mutex_t m;
    pthread_cond_t c;
    enum verdict verdict;
    int refuse_status;
    int attempts_left; /* how many failed attempts get another one */
    int64_t hold_ms;   /* told to the broker before that */
    int begins, lost, held_count;
    int64_t said; /* of the last begin */
    json_t *held; /* the last request_end that leaves the request waiting */
    bool begun, ended, link_lost, was_held;
    bool ignore_held; /* control says nothing about them */
    json_t *end;      /* the last request_end */
};

static inline err open_box(void *arg, const char *session, struct str sealed, struct secret **out)
{
    struct stage *s = arg;
    assert_string_equal(session, SESSION);
    assert_true(str_is(sealed, "sealed"));
    AUTO_LOCK(&s->m);
    s->opened++;
    if (s->box == NULL)
        return fail(E_INVALID, "damaged");
    *out = secret_new(str_of(s->box));
    return 0;
}

static inline void on_begin(void *arg, const char *session, const char *request, int64_t bytes,
                            int64_t said)
{
    struct stage *s = arg;
    assert_string_equal(session, SESSION);
    assert_true(bytes >= 0);
    enum verdict verdict;
    {
        AUTO_LOCK(&s->m);
        s->begins++;
        s->begun = true;
        s->said = said;
        verdict = s->verdict;
        pthread_cond_broadcast(&s->c);
    }
    if (verdict == LET_GO)
        broker_request_go(s->link, request, 1);
    if (verdict == REFUSE)
        broker_request_refuse(s->link, request, s->refuse_status, "budget_exhausted",
                              "the budget of this session is used up");
}

static inline void on_held(struct stage *s, const char *request, const json_t *end)
{
    bool again;
    {
        AUTO_LOCK(&s->m);
        json_decref(s->held);
        s->held = json_deep_copy(end);
        s->held_count++;
        again = s->attempts_left-- > 0;
        s->was_held = true;
        pthread_cond_broadcast(&s->c);
    }
    if (s->ignore_held)
        return;
    if (s->hold_ms)
        broker_request_hold(s->link, request, s->hold_ms);
    if (again)
        broker_request_go(s->link, request, 1);
    else if (s->verdict == LET_GO)
        broker_request_refuse(s->link, request, 424, "retries_exhausted", "no luck, given up");
}

static inline void on_end(void *arg, const char *session, const char *request, const json_t *end)
{
    struct stage *s = arg;
    assert_string_equal(session, SESSION);
    assert_true(id_valid(str_of(request), "req"));
    if (json_get_bool(end, "holding", false)) {
        on_held(s, request, end);
        return;
    }
    AUTO_LOCK(&s->m);
    json_decref(s->end);
    s->end = json_deep_copy(end);
    s->ended = true;
    pthread_cond_broadcast(&s->c);
}

static inline void on_lost(void *arg)
{
    struct stage *s = arg;
    AUTO_LOCK(&s->m);
    s->lost++;
    s->link_lost = true;
    pthread_cond_broadcast(&s->c);
}

static inline int listen_unix(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 16), 0);
    return fd;
}

static inline void attach(struct stage *s)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    fd_close(&s->link_copy);
    s->link_copy = dup(pair[0]);
    control_attach(s->env.control, pair[0]);
    broker_link_attach(s->link, pair[1]);
}

static inline void write_catalog(struct stage *s)
{
    AUTO_BUF text = {0};
    char path[128];
    buf_printf(
        &text,
        "{\"version\":\"t\",\"models\":[\n"
        "[\"acme\",\"large\",\"Large\",\"openai-completions\",\"%s\",1,2,0,0,1000,100,4,[]],\n"
        "[\"acme\",\"odd\",\"Odd\",\"mistral-conversations\",\"%s\",1,2,0,0,1000,100,4,[]]\n"
        "]}\n",
        s->base_url, s->base_url);
    snprintf(path, sizeof path, "%s/catalog.json", s->dir);
    assert_int_equal(fd_write_file_atomic(path, buf_str(&text), 0600), 0);
    assert_int_equal(catalog_load(s->dir, &s->catalog), 0);
    unlink(path);
}

static inline struct stage *stage_new(void)
{
    struct stage *s = mem_alloc(sizeof *s);
    s->link_copy = -1;
    pthread_mutex_init(&s->m, NULL);
    cond_init(&s->c);
    snprintf(s->dir, sizeof s->dir, "/tmp/pm-gateway-XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    snprintf(s->socket, sizeof s->socket, "%s/a", s->dir);
    snprintf(s->foreign_socket, sizeof s->foreign_socket, "%s/b", s->dir);
    provider_start(&s->provider);
    snprintf(s->base_url, sizeof s->base_url, "http://127.0.0.1:%d/v1", s->provider.port);
    write_catalog(s);
    char allow[32];
    snprintf(allow, sizeof allow, "127.0.0.1:%d", s->provider.port);
    assert_int_equal(dial_guard_new(allow, &s->guard), 0);
    s->env.registry = registry_new();
    s->env.requests = request_table_new();
    s->env.control = control_new(s->env.registry, s->env.requests);
    s->env.guard = s->guard;
    s->env.credentials =
        (struct credential_source){.open = open_box, .arg = s, .catalog = s->catalog};
    s->gateways = gateways_new(&s->env);
    assert_int_equal(gateways_open(s->gateways, 1, TENANT, listen_unix(s->socket)), 0);
    assert_int_equal(gateways_open(s->gateways, 2, "tenant_b", listen_unix(s->foreign_socket)), 0);
    struct broker_events events = {on_begin, on_end, on_lost, s};
    s->link = broker_link_new(&events);
    attach(s);
    return s;
}

static inline void stage_free(struct stage *s)
{
    gateways_free(s->gateways);
    control_free(s->env.control);
    broker_link_free(s->link);
    fd_close(&s->link_copy);
    assert_int_equal(requests_count(s->env.requests), 0);
    request_table_free(s->env.requests);
    registry_free(s->env.registry);
    dial_guard_free(s->guard);
    catalog_free(s->catalog);
    provider_stop(&s->provider);
    json_decref(s->end);
    json_decref(s->held);
    unlink(s->socket);
    unlink(s->foreign_socket);
    rmdir(s->dir);
    pthread_mutex_destroy(&s->m);
    pthread_cond_destroy(&s->c);
    mem_free(s);
}

static inline void wait_registered(struct stage *s, size_t count)
{
    assert_true(registry_await_count(s->env.registry, count, WAIT_MS));
}

static inline void open_session(struct stage *s, const char *api, const char *base_url, bool sealed)
{
    struct broker_session session = {.token = TOKEN,
                                     .tenant = TENANT,
                                     .session = SESSION,
                                     .provider = "custom-x",
                                     .model = "m",
                                     .api = api,
                                     .base_url = base_url,
                                     .custom = true,
                                     .sealed = sealed ? STR("sealed") : (struct str){0}};
    broker_open_session(s->link, &session);
    wait_registered(s, 1);
}

static inline void open_catalog_session(struct stage *s, const char *model, bool sealed)
{
    struct broker_session session = {.token = TOKEN,
                                     .tenant = TENANT,
                                     .session = SESSION,
                                     .provider = "acme",
                                     .model = model,
                                     .api = "anthropic-messages", /* a lie: the catalogue counts */
                                     .base_url = "http://127.0.0.1:1/evil",
                                     .custom = false,
                                     .sealed = sealed ? STR("sealed") : (struct str){0}};
    broker_open_session(s->link, &session);
    wait_registered(s, 1);
}

/* The host. */

static inline int connect_host(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

static inline void send_request(int fd, const char *target, const char *headers, struct str body)
{
    AUTO_BUF b = {0};
    buf_printf(&b, "POST %s HTTP/1.1\r\nHost: gateway\r\n%sContent-Length: %zu\r\n\r\n", target,
               headers, body.n);
    buf_add_str(&b, body);
    assert_int_equal(fd_write_full(fd, b.p, b.n), 0);
}

#define BODY STR("{\"model\":\"m\"}")
#define BODY_LARGE STR("{\"model\":\"large\"}")
#define WITH_TOKEN "x-pi-session: " TOKEN "\r\nConnection: close\r\n"

/* Everything until the gateway closes. */
static inline void read_all(int fd, struct buf *out)
{
    char part[65536];
    for (ssize_t n; (n = read(fd, part, sizeof part)) > 0;)
        buf_add(out, part, (size_t)n);
}

/* The body of a whole answer, chunks joined; "" with *broken when it was cut off. */
static inline void body_of(const struct buf *answer, struct buf *out, bool *broken)
{
    const char *at = answer->p ? strstr(answer->p, "\r\n\r\n") : NULL;
    *broken = at == NULL;
    if (at == NULL)
        return;
    bool chunked = strcasestr(answer->p, "transfer-encoding: chunked") != NULL;
    at += 4;
    if (!chunked) {
        buf_add(out, at, (size_t)(answer->p + answer->n - at));
        return;
    }
    for (;;) {
        char *end;
        size_t n = strtoul(at, &end, 16);
        if (end == at || end + 2 + n > answer->p + answer->n) {
            *broken = true;
            return;
        }
        if (n == 0)
            return;
        buf_add(out, end + 2, n);
        at = end + 2 + n + 2;
    }
}

static inline int status_of(const struct buf *answer)
{
    return answer->n > 12 ? atoi(answer->p + 9) : 0;
}

static inline void ask(struct stage *s, const char *target, const char *headers, struct str body,
                       struct buf *answer)
{
    AUTO_FD fd = connect_host(s->socket);
    send_request(fd, target, headers, body);
    read_all(fd, answer);
}

static inline const json_t *await_end(struct stage *s)
{
    assert_true(wait_true(&s->m, &s->c, &s->ended));
    return s->end;
}

static inline const char *error_code_of(const json_t *end)
{
    const char *code = json_get_c(json_object_get(end, "error"), "code");
    return code ? code : "";
}

/* All that a model has to say. */
#define GOOD_STREAM                                                                                \
    "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"
#define SSE_HEAD                                                                                   \
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Request-Id: up-1\r\n"                 \
    "Date: Mon, 30 Nov 2026 01:02:03 GMT\r\n"                                                      \
    "Keep-Alive: timeout=5\r\nX-Hop: 1\r\nConnection: x-hop\r\nTransfer-Encoding: chunked\r\n\r\n"

static inline void reply_with(struct stage *s, struct arena *a, const char *head, const char *body)
{
    s->provider.reply = arena_printf(a, "%s%zx\r\n%s\r\n0\r\n\r\n", head, strlen(body), body);
}

static inline const char *box_for(struct stage *s, struct arena *a, const char *members)
{
    return s->box = arena_printf(a,
                                 "{\"tenant\":\"" TENANT "\",\"id\":\"cred_1\",\"kind\":"
                                 "\"model_provider_key\",%s,\"secret\":\"the-key\"}",
                                 members);
}

static inline const char *origin_of(struct stage *s, struct arena *a)
{
    return arena_printf(a, "\"origin\":\"http://127.0.0.1:%d\"", s->provider.port);
}

static inline void expect_error(struct stage *s, const struct buf *answer, int status,
                                const char *code)
{
    AUTO_BUF body = {0};
    bool broken;
    body_of(answer, &body, &broken);
    assert_false(broken);
    assert_int_equal(status_of(answer), status);
    AUTO_JSON j = NULL;
    assert_int_equal(json_read(buf_str(&body), &j), 0);
    assert_string_equal(json_get_c(json_object_get(j, "error"), "code"), code);
    assert_non_null(strstr(answer->p, "x-should-retry: false"));
    (void)s;
}

static inline int once(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    return sodium_init() < 0 || curl_global_init(CURL_GLOBAL_DEFAULT) != 0;
}

#endif
