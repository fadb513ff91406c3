/* The model gateway end to end: a host's connection, the real link between control and the broker,
   a scripted provider on TCP, a parent that opens boxes. Everything but the parent's process is the
   real thing. */
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
    const char *reply; /* sent at once */
    size_t flood;      /* then so many bytes of body in one chunked stream */
    bool hold;         /* then wait for the gateway to close */
    struct buf request;
    int requests;
    size_t flooded;
    bool saw_close, ending;
};

static bool request_complete(const struct buf *b)
{
    const char *end = b->p ? strstr(b->p, "\r\n\r\n") : NULL;
    const char *length = b->p ? strcasestr(b->p, "content-length:") : NULL;
    if (end == NULL)
        return false;
    size_t body = length && length < end ? (size_t)strtoul(length + 15, NULL, 10) : 0;
    return b->n >= (size_t)(end + 4 - b->p) + body;
}

static bool read_request(struct provider *p, int fd)
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

static void flood(struct provider *p, int fd)
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

static void serve_one(struct provider *p, int fd)
{
    if (!read_request(p, fd))
        return;
    if (p->reply)
        fd_write_full(fd, p->reply, strlen(p->reply));
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

static void *serve(void *arg)
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

static void provider_start(struct provider *p)
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

static void provider_stop(struct provider *p)
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
static bool wait_true(pthread_mutex_t *m, pthread_cond_t *c, const bool *flag)
{
    AUTO_LOCK(m);
    while (!*flag)
        if (!cond_wait_ms(c, m, WAIT_MS))
            return false;
    return true;
}

static bool wait_requests(struct provider *p, int count)
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
    int begins, lost;
    bool begun, ended, link_lost;
    json_t *end; /* the last request_end */
};

static err open_box(void *arg, const char *session, struct str sealed, struct secret **out)
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

static void on_begin(void *arg, const char *session, const char *request, int64_t bytes)
{
    struct stage *s = arg;
    assert_string_equal(session, SESSION);
    assert_true(bytes >= 0);
    enum verdict verdict;
    {
        AUTO_LOCK(&s->m);
        s->begins++;
        s->begun = true;
        verdict = s->verdict;
        pthread_cond_broadcast(&s->c);
    }
    if (verdict == LET_GO)
        broker_request_go(s->link, request, 1);
    if (verdict == REFUSE)
        broker_request_refuse(s->link, request, s->refuse_status, "budget_exhausted",
                              "the budget of this session is used up");
}

static void on_end(void *arg, const char *session, const char *request, const json_t *end)
{
    struct stage *s = arg;
    assert_string_equal(session, SESSION);
    assert_true(id_valid(str_of(request), "req"));
    AUTO_LOCK(&s->m);
    json_decref(s->end);
    s->end = json_deep_copy(end);
    s->ended = true;
    pthread_cond_broadcast(&s->c);
}

static void on_lost(void *arg)
{
    struct stage *s = arg;
    AUTO_LOCK(&s->m);
    s->lost++;
    s->link_lost = true;
    pthread_cond_broadcast(&s->c);
}

static int listen_unix(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 16), 0);
    return fd;
}

static void attach(struct stage *s)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    fd_close(&s->link_copy);
    s->link_copy = dup(pair[0]);
    control_attach(s->env.control, pair[0]);
    broker_link_attach(s->link, pair[1]);
}

static void write_catalog(struct stage *s)
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

static struct stage *stage_new(void)
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

static void stage_free(struct stage *s)
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
    unlink(s->socket);
    unlink(s->foreign_socket);
    rmdir(s->dir);
    pthread_mutex_destroy(&s->m);
    pthread_cond_destroy(&s->c);
    mem_free(s);
}

static void wait_registered(struct stage *s, size_t count)
{
    for (int i = 0; registry_count(s->env.registry) != count; i++) {
        assert_true(i < WAIT_MS);
        usleep(1000); /* the link is asynchronous by design; bounded above */
    }
}

static void open_session(struct stage *s, const char *api, const char *base_url, bool sealed)
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

static void open_catalog_session(struct stage *s, const char *model, bool sealed)
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

static int connect_host(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

static void send_request(int fd, const char *target, const char *headers, struct str body)
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
static void read_all(int fd, struct buf *out)
{
    char part[65536];
    for (ssize_t n; (n = read(fd, part, sizeof part)) > 0;)
        buf_add(out, part, (size_t)n);
}

/* The body of a whole answer, chunks joined; "" with *broken when it was cut off. */
static void body_of(const struct buf *answer, struct buf *out, bool *broken)
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

static int status_of(const struct buf *answer)
{
    return answer->n > 12 ? atoi(answer->p + 9) : 0;
}

static void ask(struct stage *s, const char *target, const char *headers, struct str body,
                struct buf *answer)
{
    AUTO_FD fd = connect_host(s->socket);
    send_request(fd, target, headers, body);
    read_all(fd, answer);
}

static const json_t *await_end(struct stage *s)
{
    assert_true(wait_true(&s->m, &s->c, &s->ended));
    return s->end;
}

static const char *error_code_of(const json_t *end)
{
    const char *code = json_get_c(json_object_get(end, "error"), "code");
    return code ? code : "";
}

/* Happy paths */

#define SSE_HEAD                                                                                   \
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Request-Id: up-1\r\n"                 \
    "Date: Mon, 30 Nov 2026 01:02:03 GMT\r\n"                                                      \
    "Keep-Alive: timeout=5\r\nX-Hop: 1\r\nConnection: x-hop\r\nTransfer-Encoding: chunked\r\n\r\n"

static const struct happy {
    const char *api, *target, *body;
    const char *auth; /* as the provider must see it */
    int64_t input, output, cache_read, cache_write;
} happy[] = {
    {"openai-completions", "/chat/completions",
     "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}],\"usage\":null}\n\n"
     "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
     "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":5,"
     "\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\ndata: [DONE]\n\n",
     "Authorization: Bearer the-key\r\n", 6, 5, 4, 0},
    {"anthropic-messages", "/v1/messages?beta=true",
     "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{"
     "\"input_tokens\":7,\"output_tokens\":1,\"cache_read_input_tokens\":3,"
     "\"cache_creation_input_tokens\":2}}}\n\n"
     "event: content_block_delta\ndata: "
     "{\"type\":\"content_block_delta\",\"delta\":{\"text\":\"hi\"}}\n\n"
     "event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":9}}\n\n"
     "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
     "x-api-key: the-key\r\n", 7, 9, 3, 2},
    {"openai-responses", "/responses",
     "event: response.output_text.delta\n"
     "data: {\"type\":\"response.output_text.delta\",\"delta\":\"hi\"}\n\n"
     "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"usage\":{"
     "\"input_tokens\":20,\"output_tokens\":8,\"input_tokens_details\":{\"cached_tokens\":5}}}}"
     "\n\n",
     "Authorization: Bearer the-key\r\n", 15, 8, 5, 0},
    {"google-generative-ai", "/models/m:streamGenerateContent?alt=sse",
     "data: "
     "{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"hi\"}]},\"finishReason\":\"STOP\"}],"
     "\"usageMetadata\":{\"promptTokenCount\":12,\"candidatesTokenCount\":3,"
     "\"thoughtsTokenCount\":2,\"cachedContentTokenCount\":2}}\r\n\r\n",
     "x-goog-api-key: the-key\r\n", 10, 5, 2, 0},
};

static void reply_with(struct stage *s, struct arena *a, const char *head, const char *body)
{
    s->provider.reply = arena_printf(a, "%s%zx\r\n%s\r\n0\r\n\r\n", head, strlen(body), body);
}

static const char *box_for(struct stage *s, struct arena *a, const char *members)
{
    return s->box = arena_printf(a,
                                 "{\"tenant\":\"" TENANT "\",\"id\":\"cred_1\",\"kind\":"
                                 "\"model_provider_key\",%s,\"secret\":\"the-key\"}",
                                 members);
}

static const char *origin_of(struct stage *s, struct arena *a)
{
    return arena_printf(a, "\"origin\":\"http://127.0.0.1:%d\"", s->provider.port);
}

static void check_happy(const struct happy *h)
{
    AUTO_ARENA a = arena_new();
    struct stage *s = stage_new();
    reply_with(s, a, SSE_HEAD, h->body);
    box_for(s, a, origin_of(s, a));
    open_session(s, h->api, s->base_url, true);
    AUTO_BUF answer = {0}, body = {0};
    ask(s, h->target,
        WITH_TOKEN "Authorization: Bearer placeholder\r\nx-api-key: placeholder\r\n"
                   "x-goog-api-key: placeholder\r\nX-Custom: kept\r\nAccept-Encoding: gzip\r\n"
                   "Keep-Alive: 3\r\n",
        BODY, &answer);
    bool broken;
    body_of(&answer, &body, &broken);
    assert_int_equal(status_of(&answer), 200);
    assert_false(broken);
    assert_string_equal(body.p, h->body); /* byte for byte */
    assert_non_null(strstr(answer.p, "X-Request-Id: up-1\r\n"));
    const char *date = strcasestr(answer.p, "\r\nDate: ");
    assert_non_null(date);
    assert_non_null(strstr(answer.p, "Date: Mon, 30 Nov 2026 01:02:03 GMT\r\n"));
    assert_null(strcasestr(date + 2, "\r\nDate: ")); /* the provider's, once */
    assert_null(strcasestr(answer.p, "x-hop"));
    assert_null(strcasestr(answer.p, "keep-alive"));

    const char *seen = s->provider.request.p;
    char *line = arena_printf(a, "POST /v1%s HTTP/1.1\r\n", h->target);
    assert_memory_equal(seen, line, strlen(line));
    assert_non_null(strstr(seen, h->auth));
    assert_non_null(strstr(seen, "X-Custom: kept\r\n"));
    assert_non_null(strstr(seen, "\r\n\r\n{\"model\":\"m\"}"));
    assert_non_null(strstr(seen, arena_printf(a, "Host: 127.0.0.1:%d\r\n", s->provider.port)));
    static const char *const never[] = {"placeholder", "x-pi-session", TOKEN,
                                        "gzip",        "Keep-Alive",   "Expect:"};
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        assert_null(strcasestr(seen, never[i]));

    const json_t *end = await_end(s), *usage = json_object_get(end, "usage");
    assert_int_equal(json_get_int(end, "status", 0), 200);
    assert_true(json_is_null(json_object_get(end, "error")));
    assert_true(json_is_integer(json_object_get(end, "ttftMs")));
    assert_false(json_get_bool(end, "aborted", true));
    assert_int_equal(json_get_int(usage, "inputTokens", -1), h->input);
    assert_int_equal(json_get_int(usage, "outputTokens", -1), h->output);
    assert_int_equal(json_get_int(usage, "cacheReadInputTokens", -1), h->cache_read);
    assert_int_equal(json_get_int(usage, "cacheCreationInputTokens", -1), h->cache_write);
    assert_null(json_object_get(usage, "estimated"));
    stage_free(s);
}

static void every_wire_api_is_relayed_byte_for_byte(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof happy / sizeof *happy; i++)
        check_happy(&happy[i]);
}

static void the_path_of_the_real_address_may_be_repeated(void **state)
{
    (void)state;
    AUTO_ARENA a = arena_new();
    struct stage *s = stage_new();
    reply_with(s, a, SSE_HEAD, happy[0].body);
    open_session(s, "openai-completions", s->base_url, false);
    AUTO_BUF answer = {0};
    ask(s, "/v1/chat/completions", WITH_TOKEN, BODY, &answer);
    assert_int_equal(status_of(&answer), 200);
    assert_memory_equal(s->provider.request.p, "POST /v1/chat/completions ", 26);
    stage_free(s);
}

static void two_requests_on_one_connection_open_the_box_once(void **state)
{
    (void)state;
    AUTO_ARENA a = arena_new();
    struct stage *s = stage_new();
    s->provider.reply = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                        "Content-Length: 14\r\n\r\ndata: [DONE]\n\n";
    box_for(s, a, origin_of(s, a));
    open_session(s, "openai-completions", s->base_url, true);
    AUTO_FD fd = connect_host(s->socket);
    for (int i = 0; i < 2; i++) {
        send_request(fd, "/chat/completions", "x-pi-session: " TOKEN "\r\n", BODY);
        AUTO_BUF answer = {0};
        char part[4096];
        while (answer.p == NULL || strstr(answer.p, "[DONE]\n\n") == NULL) {
            ssize_t n = read(fd, part, sizeof part);
            assert_true(n > 0);
            buf_add(&answer, part, (size_t)n);
        }
        assert_non_null(strstr(answer.p, "Content-Length: 14\r\n"));
    }
    assert_int_equal(s->provider.requests, 2);
    assert_int_equal(s->opened, 1);
    stage_free(s);
}

/* Refusals */

static void expect_error(struct stage *s, const struct buf *answer, int status, const char *code)
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

static void an_unknown_token_gets_401(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    open_session(s, "openai-completions", s->base_url, false);
    static const char *const headers[] = {
        "Connection: close\r\n",
        "Connection: close\r\nx-pi-session: x\r\n",
        "Connection: close\r\nx-pi-session: "
        "10112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\r\n",
    };
    for (size_t i = 0; i < 3; i++) {
        AUTO_BUF answer = {0};
        ask(s, "/chat/completions", headers[i], BODY, &answer);
        expect_error(s, &answer, 401, "unknown_token");
    }
    assert_int_equal(s->begins, 0);
    assert_int_equal(s->provider.requests, 0);
    stage_free(s);
}

static void a_token_on_another_tenants_socket_gets_401(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    open_session(s, "openai-completions", s->base_url, false);
    AUTO_FD fd = connect_host(s->foreign_socket);
    send_request(fd, "/chat/completions", WITH_TOKEN, BODY);
    AUTO_BUF answer = {0};
    read_all(fd, &answer);
    expect_error(s, &answer, 401, "unknown_token");
    assert_int_equal(s->begins, 0);
    stage_free(s);
}

static void a_closed_session_gets_401(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    open_session(s, "openai-completions", s->base_url, false);
    broker_close_session(s->link, TOKEN);
    wait_registered(s, 0);
    AUTO_BUF answer = {0};
    ask(s, "/chat/completions", WITH_TOKEN, BODY, &answer);
    expect_error(s, &answer, 401, "unknown_token");
    stage_free(s);
}

static void other_targets_and_methods_are_refused(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    open_session(s, "openai-completions", s->base_url, false);
    static const char *const targets[] = {"/models",
                                          "/chat/completions/x",
                                          "/chat/completions?a=b",
                                          "/v1/../chat/completions",
                                          "//chat/completions",
                                          "/responses",
                                          "/v2/chat/completions",
                                          "/chat%2fcompletions"};
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        AUTO_BUF answer = {0};
        ask(s, targets[i], WITH_TOKEN, BODY, &answer);
        expect_error(s, &answer, 404, "not_a_model_request");
    }
    assert_int_equal(s->provider.requests, 0);
    stage_free(s);
}

static void only_the_sessions_model_can_be_asked(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    open_session(s, "openai-completions", s->base_url, false);
    static const char *const bodies[] = {"", "{}", "{\"model\":\"dearer\"}",
                                         "{\"model\":\"m\",\"model\":\"dearer\"}"};
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        AUTO_BUF answer = {0};
        ask(s, "/chat/completions", WITH_TOKEN, str_of(bodies[i]), &answer);
        expect_error(s, &answer, 400, "model_bad_request");
    }
    assert_int_equal(s->begins, 0);
    stage_free(s);
}

static void control_can_refuse(void **state)
{
    (void)state;
    static const int statuses[] = {402, 403};
    for (size_t i = 0; i < 2; i++) {
        struct stage *s = stage_new();
        s->verdict = REFUSE;
        s->refuse_status = statuses[i];
        open_session(s, "openai-completions", s->base_url, false);
        AUTO_BUF answer = {0};
        ask(s, "/chat/completions", WITH_TOKEN, BODY, &answer);
        expect_error(s, &answer, statuses[i], "budget_exhausted");
        assert_int_equal(s->provider.requests, 0);
        assert_true(json_is_null(json_object_get(await_end(s), "usage")));
        stage_free(s);
    }
}

static void control_that_stays_silent_is_not_waited_for_without_end(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    s->verdict = STAY_SILENT;
    s->env.go_timeout_ms = 50;
    open_session(s, "openai-completions", s->base_url, false);
    AUTO_BUF answer = {0};
    ask(s, "/chat/completions", WITH_TOKEN, BODY, &answer);
    expect_error(s, &answer, 424, "model_unreachable");
    assert_int_equal(s->provider.requests, 0);
    stage_free(s);
}

static void refused_credentials(struct stage *s, struct str body, const char *code)
{
    AUTO_BUF answer = {0};
    ask(s, "/chat/completions", WITH_TOKEN, body, &answer);
    expect_error(s, &answer, 403, code);
    assert_string_equal(error_code_of(await_end(s)), code);
    assert_true(json_get_bool(json_object_get(s->end, "error"), "unrecoverable", false));
    assert_int_equal(s->provider.requests, 0);
}

static void a_credential_for_another_use_is_refused(void **state)
{
    (void)state;
    static const char *const boxes[] = {
        NULL, /* cannot be opened */
        "not json",
        "{\"tenant\":\"tenant_b\",\"kind\":\"model_provider_key\",\"origin\":\"ORIGIN\",\"secret\":"
        "\"k\"}",
        "{\"tenant\":\"tenant_a\",\"kind\":\"git\",\"origin\":\"ORIGIN\",\"secret\":\"k\"}",
        "{\"tenant\":\"tenant_a\",\"kind\":\"model_provider_key\",\"origin\":\"ORIGIN\",\"secret\":"
        "\"\"}",
        "{\"tenant\":\"tenant_a\",\"kind\":\"model_provider_key\",\"origin\":\"ORIGIN\",\"secret\":"
        "\"k\\r\\nX: y\"}",
        "{\"tenant\":\"tenant_a\",\"kind\":\"model_provider_key\",\"provider\":\"custom-x\","
        "\"secret\":\"k\"}",
        "{\"tenant\":\"tenant_a\",\"kind\":\"model_provider_key\",\"provider\":\"acme\",\"secret\":"
        "\"k\"}",
        "{\"tenant\":\"tenant_a\",\"kind\":\"model_provider_key\",\"origin\":\"http://"
        "127.0.0.1\",\"secret\":\"k\"}",
        "{\"tenant\":\"tenant_a\",\"kind\":\"model_provider_key\",\"origin\":\"https://"
        "ORIGIN\",\"secret\":\"k\"}",
        "{\"tenant\":\"tenant_a\",\"kind\":\"model_provider_key\",\"origin\":\"http://"
        "localhost\",\"secret\":\"k\"}",
    };
    for (size_t i = 0; i < sizeof boxes / sizeof *boxes; i++) {
        AUTO_ARENA a = arena_new();
        struct stage *s = stage_new();
        const char *hole = boxes[i] ? strstr(boxes[i], "ORIGIN") : NULL;
        s->box = boxes[i];
        if (hole)
            s->box = arena_printf(a, "%.*shttp://127.0.0.1:%d%s", (int)(hole - boxes[i]), boxes[i],
                                  s->provider.port, hole + 6);
        open_session(s, "openai-completions", s->base_url, true);
        refused_credentials(s, BODY, "credential_refused");
        stage_free(s);
    }
}

static void a_catalogue_key_goes_to_the_catalogues_address_only(void **state)
{
    (void)state;
    AUTO_ARENA a = arena_new();
    struct stage *s = stage_new();
    reply_with(s, a, SSE_HEAD, happy[0].body);
    box_for(s, a, "\"provider\":\"acme\"");
    open_catalog_session(s, "large", true);
    AUTO_BUF answer = {0};
    ask(s, "/chat/completions", WITH_TOKEN, BODY_LARGE, &answer);
    assert_int_equal(status_of(&answer), 200);
    assert_non_null(strstr(s->provider.request.p, "Bearer the-key\r\n"));
    stage_free(s);
}

static void a_catalogue_session_needs_its_own_providers_key(void **state)
{
    (void)state;
    AUTO_ARENA a = arena_new();
    struct stage *s = stage_new();
    box_for(s, a, "\"provider\":\"other\"");
    open_catalog_session(s, "large", true);
    refused_credentials(s, BODY_LARGE, "credential_refused");
    stage_free(s);
    s = stage_new();
    open_catalog_session(s, "large", false);
    refused_credentials(s, BODY_LARGE, "credential_missing");
    stage_free(s);
}

static void an_unusable_model_is_not_found(void **state)
{
    (void)state;
    static const char *const models[] = {"odd", "nonesuch"};
    for (size_t i = 0; i < 2; i++) {
        struct stage *s = stage_new();
        open_catalog_session(s, models[i], true);
        AUTO_BUF answer = {0};
        ask(s, "/chat/completions", WITH_TOKEN, BODY, &answer);
        expect_error(s, &answer, 404, "model_not_found");
        stage_free(s);
    }
}

static void a_private_address_is_not_dialled_unless_allowed(void **state)
{
    (void)state;
    static const char *const urls[] = {"http://127.0.0.1:9/v1",           "https://127.0.0.1:9/v1",
                                       "https://169.254.169.254/v1",      "https://localhost/v1",
                                       "http://127.0.0.1@example.com/v1", "ftp://example.com"};
    for (size_t i = 0; i < sizeof urls / sizeof *urls; i++) {
        struct stage *s = stage_new();
        open_session(s, "openai-completions", urls[i], false);
        AUTO_BUF answer = {0};
        ask(s, "/chat/completions", WITH_TOKEN, BODY, &answer);
        expect_error(s, &answer, 403, "address_not_allowed");
        assert_string_equal(error_code_of(await_end(s)), "address_not_allowed");
        stage_free(s);
    }
}

static void a_provider_that_is_not_there_is_unreachable(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    /* A port that was free a moment ago and that the guard lets through. */
    struct provider gone = {0};
    provider_start(&gone);
    provider_stop(&gone);
    char allow[64], url[64];
    snprintf(allow, sizeof allow, "127.0.0.1:%d", gone.port);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/v1", gone.port);
    dial_guard_free(s->guard);
    assert_int_equal(dial_guard_new(allow, &s->guard), 0);
    s->env.guard = s->guard;
    open_session(s, "openai-completions", url, false);
    AUTO_BUF answer = {0};
    ask(s, "/chat/completions", WITH_TOKEN, BODY, &answer);
    expect_error(s, &answer, 424, "model_unreachable");
    assert_non_null(strstr(answer.p, "nothing listens there"));
    assert_true(json_is_null(json_object_get(await_end(s), "usage")));
    stage_free(s);
}

static void a_provider_that_hangs_up_is_unreachable(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    open_session(s, "openai-completions", s->base_url, false);
    AUTO_BUF answer = {0};
    ask(s, "/chat/completions", WITH_TOKEN, BODY, &answer);
    expect_error(s, &answer, 424, "model_unreachable");
    stage_free(s);
}

static void a_provider_that_is_silent_for_too_long_is_unreachable(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    s->env.idle_ms = 100;
    s->provider.hold = true;
    open_session(s, "openai-completions", s->base_url, false);
    AUTO_BUF answer = {0};
    ask(s, "/chat/completions", WITH_TOKEN, BODY, &answer);
    expect_error(s, &answer, 424, "model_unreachable");
    stage_free(s);
}

static const struct upstream_failure {
    int status;
    const char *code;
    bool unrecoverable;
} upstream_failures[] = {
    {400, "model_bad_request", true},   {401, "model_rejected_key", true},
    {403, "model_rejected_key", true},  {404, "model_not_found", true},
    {429, "model_rate_limited", false}, {500, "model_overloaded", false},
    {529, "model_overloaded", false},   {302, "model_bad_request", true},
};

static void the_providers_own_errors_are_relayed_and_classified(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof upstream_failures / sizeof *upstream_failures; i++) {
        const struct upstream_failure *f = &upstream_failures[i];
        AUTO_ARENA a = arena_new();
        struct stage *s = stage_new();
        const char *body = "{\"error\":{\"message\":\"no luck with the-key today\"}}";
        s->provider.reply = arena_printf(
            a,
            "HTTP/1.1 %d Odd\r\nContent-Type: application/json\r\nLocation: http://x.test/\r\n"
            "Content-Length: %zu\r\nConnection: close\r\n\r\n%s",
            f->status, strlen(body), body);
        box_for(s, a, origin_of(s, a));
        open_session(s, "openai-completions", s->base_url, true);
        AUTO_BUF answer = {0};
        ask(s, "/chat/completions", WITH_TOKEN, BODY, &answer);
        assert_int_equal(status_of(&answer), f->status);
        assert_non_null(strstr(answer.p, body));
        const json_t *end = await_end(s), *error = json_object_get(end, "error");
        assert_int_equal(json_get_int(end, "status", 0), f->status);
        assert_string_equal(error_code_of(end), f->code);
        assert_string_equal(json_get_c(error, "message"), "no luck with ******* today");
        assert_int_equal(json_get_bool(error, "unrecoverable", false), f->unrecoverable);
        assert_true(json_is_null(json_object_get(end, "usage")));
        assert_int_equal(s->provider.requests, 1);
        stage_free(s);
    }
}

static void an_answer_without_a_body_is_complete(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    s->provider.reply = "HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n";
    open_session(s, "openai-completions", s->base_url, false);
    AUTO_BUF answer = {0};
    ask(s, "/chat/completions", WITH_TOKEN, BODY, &answer);
    assert_int_equal(status_of(&answer), 503);
    assert_non_null(strstr(answer.p, "Retry-After: 7\r\n"));
    const json_t *end = await_end(s);
    assert_false(json_get_bool(end, "aborted", true));
    assert_string_equal(error_code_of(end), "model_overloaded");
    stage_free(s);
}

static void an_error_inside_a_stream_is_classified(void **state)
{
    (void)state;
    AUTO_ARENA a = arena_new();
    struct stage *s = stage_new();
    reply_with(s, a, SSE_HEAD,
               "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\","
               "\"message\":\"Overloaded\"}}\n\n");
    open_session(s, "anthropic-messages", s->base_url, false);
    AUTO_BUF answer = {0};
    ask(s, "/v1/messages?beta=true", WITH_TOKEN, BODY, &answer);
    assert_int_equal(status_of(&answer), 200);
    assert_string_equal(error_code_of(await_end(s)), "model_overloaded");
    stage_free(s);
}

/* Streams that end before their time */

static void a_stream_that_ends_early_is_broken_and_estimated(void **state)
{
    (void)state;
    AUTO_ARENA a = arena_new();
    struct stage *s = stage_new();
    reply_with(s, a, SSE_HEAD,
               "data: {\"choices\":[{\"delta\":{\"content\":\"forty characters of text make ten "
               "tokens\"}}]}\n\n");
    open_session(s, "openai-completions", s->base_url, false);
    AUTO_BUF answer = {0};
    ask(s, "/chat/completions", WITH_TOKEN, STR("{\"model\":\"m\",\"messages\":[]}"), &answer);
    const json_t *end = await_end(s), *usage = json_object_get(end, "usage");
    assert_string_equal(error_code_of(end), "model_stream_broken");
    assert_true(json_get_bool(usage, "estimated", false));
    assert_int_equal(json_get_int(usage, "outputTokens", 0), 10);
    assert_int_equal(json_get_int(usage, "inputTokens", 0), 7);
    stage_free(s);
}

/* The meter gives an event up beyond 8 MiB; the host gets it, and the answer is not called broken
 * for that. */
static void an_event_beyond_the_meters_limit_is_relayed_and_estimated(void **state)
{
    (void)state;
    AUTO_ARENA a = arena_new();
    struct stage *s = stage_new();
    size_t n = 9u << 20;
    char *event = arena_alloc(a, n + 1);
    memset(event, 'x', n);
    memcpy(event, "data: ", 6);
    memcpy(event + n - 2, "\n\n", 2);
    reply_with(s, a, SSE_HEAD, event);
    open_session(s, "openai-responses", s->base_url, false);
    AUTO_BUF answer = {0}, body = {0};
    ask(s, "/responses", WITH_TOKEN, BODY, &answer);
    bool broken;
    body_of(&answer, &body, &broken);
    assert_false(broken);
    assert_int_equal(body.n, n);
    const json_t *end = await_end(s);
    assert_true(json_is_null(json_object_get(end, "error")));
    assert_true(json_get_bool(json_object_get(end, "usage"), "estimated", false));
    stage_free(s);
}

static void a_cut_connection_breaks_the_answer_to_the_host(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    s->provider.reply = SSE_HEAD "40\r\ndata: {\"choices\"";
    open_session(s, "openai-completions", s->base_url, false);
    AUTO_BUF answer = {0}, body = {0};
    ask(s, "/chat/completions", WITH_TOKEN, BODY, &answer);
    bool broken;
    body_of(&answer, &body, &broken);
    assert_int_equal(status_of(&answer), 200);
    assert_true(broken); /* no terminating chunk */
    assert_string_equal(error_code_of(await_end(s)), "model_stream_broken");
    stage_free(s);
}

#define FIRST_EVENT                                                                                \
    SSE_HEAD "45\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"four characters per "            \
             "tok\"}}]}\n\n\r\n"

/* A host with an answer under way. */
static int host_in_mid_answer(struct stage *s)
{
    s->provider.reply = FIRST_EVENT;
    s->provider.hold = true;
    open_session(s, "openai-completions", s->base_url, false);
    int fd = connect_host(s->socket);
    send_request(fd, "/chat/completions", WITH_TOKEN, BODY);
    AUTO_BUF answer = {0};
    char part[4096];
    while (answer.p == NULL || strstr(answer.p, "per tok") == NULL) {
        ssize_t n = read(fd, part, sizeof part);
        assert_true(n > 0);
        buf_add(&answer, part, (size_t)n);
    }
    return fd;
}

static void expect_aborted(struct stage *s)
{
    const json_t *end = await_end(s), *usage = json_object_get(end, "usage");
    assert_true(json_get_bool(end, "aborted", false));
    assert_true(json_is_null(json_object_get(end, "error")));
    assert_true(json_get_bool(usage, "estimated", false));
    assert_int_equal(json_get_int(usage, "outputTokens", 0), 6);
}

static void a_host_that_hangs_up_closes_the_upstream(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    int fd = host_in_mid_answer(s);
    close(fd);
    assert_true(wait_true(&s->provider.m, &s->provider.c, &s->provider.saw_close));
    expect_aborted(s);
    stage_free(s);
}

static void a_cancel_closes_the_upstream_at_once(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    AUTO_FD fd = host_in_mid_answer(s);
    int64_t from_ms = clock_monotonic_ms(clock_real());
    broker_request_cancel(s->link, SESSION);
    assert_true(wait_true(&s->provider.m, &s->provider.c, &s->provider.saw_close));
    /* well before the second that a look at the host's socket takes; CI machines are slow */
    assert_true(clock_monotonic_ms(clock_real()) - from_ms < 900);
    AUTO_BUF rest = {0};
    read_all(fd, &rest); /* the gateway ends it */
    expect_aborted(s);
    stage_free(s);
}

static void a_cancel_before_the_first_byte_reaches_the_waiting_host(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    s->provider.hold = true;
    open_session(s, "openai-completions", s->base_url, false);
    AUTO_FD fd = connect_host(s->socket);
    send_request(fd, "/chat/completions", WITH_TOKEN, BODY);
    assert_true(wait_requests(&s->provider, 1));
    broker_request_cancel(s->link, SESSION);
    AUTO_BUF answer = {0};
    read_all(fd, &answer);
    expect_error(s, &answer, 424, "cancelled");
    assert_true(json_get_bool(await_end(s), "aborted", false));
    stage_free(s);
}

static void a_host_that_hangs_up_while_control_thinks_is_let_go(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    s->verdict = STAY_SILENT;
    open_session(s, "openai-completions", s->base_url, false);
    int fd = connect_host(s->socket);
    send_request(fd, "/chat/completions", WITH_TOKEN, BODY);
    assert_true(wait_true(&s->m, &s->c, &s->begun));
    close(fd);
    assert_true(json_get_bool(await_end(s), "aborted", false));
    assert_int_equal(s->provider.requests, 0);
    stage_free(s);
}

static void an_ended_host_ends_its_requests(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    AUTO_FD fd = host_in_mid_answer(s);
    gateways_close(s->gateways, 1);
    assert_true(wait_true(&s->provider.m, &s->provider.c, &s->provider.saw_close));
    expect_aborted(s);
    stage_free(s);
}

/* Size */

static void a_big_body_goes_through(void **state)
{
    (void)state;
    AUTO_ARENA a = arena_new();
    struct stage *s = stage_new();
    reply_with(s, a, SSE_HEAD, happy[0].body);
    open_session(s, "openai-completions", s->base_url, false);
    size_t n = 20u << 20;
    char *big = mem_alloc(n);
    for (size_t i = 0; i < n; i++)
        big[i] = (char)('a' + i % 23);
    static const char start[] = "{\"model\":\"m\",\"x\":\"";
    memcpy(big, start, sizeof start - 1);
    memcpy(big + n - 2, "\"}", 2);
    AUTO_BUF answer = {0};
    ask(s, "/chat/completions", WITH_TOKEN, (struct str){big, n}, &answer);
    assert_int_equal(status_of(&answer), 200);
    assert_memory_equal(strstr(s->provider.request.p, "\r\n\r\n") + 4, big, n);
    mem_free(big);
    stage_free(s);
}

static void a_body_beyond_the_limit_gets_413(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    open_session(s, "openai-completions", s->base_url, false);
    AUTO_FD fd = connect_host(s->socket);
    size_t n = EXCHANGE_BODY_MAX + 1;
    AUTO_BUF head = {0}, answer = {0};
    buf_printf(&head,
               "POST /chat/completions HTTP/1.1\r\nHost: g\r\n" WITH_TOKEN
               "Content-Length: %zu\r\n\r\n",
               n);
    assert_int_equal(fd_write_full(fd, head.p, head.n), 0);
    static char part[1u << 20];
    for (size_t left = n; left;) {
        size_t now = left < sizeof part ? left : sizeof part;
        assert_int_equal(fd_write_full(fd, part, now), 0);
        left -= now;
    }
    read_all(fd, &answer);
    expect_error(s, &answer, 413, "model_bad_request");
    assert_int_equal(s->begins, 0);
    stage_free(s);
}

/* The provider must be stopped by a host that does not read: what it could send is what the sockets
   and our one buffer hold, however long we wait. */
static void a_slow_host_slows_the_provider(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    s->provider.reply = SSE_HEAD;
    s->provider.flood = 256u << 20;
    open_session(s, "openai-completions", s->base_url, false);
    AUTO_FD fd = connect_host(s->socket);
    send_request(fd, "/chat/completions", WITH_TOKEN, BODY);
    size_t before = 0, now = 1;
    while (before != now) { /* until the provider stands still for half a second */
        before = now;
        AUTO_LOCK(&s->provider.m);
        for (int64_t end = clock_monotonic_ms(clock_real()) + 500;
             clock_monotonic_ms(clock_real()) < end;)
            cond_wait_ms(&s->provider.c, &s->provider.m, 100);
        now = s->provider.flooded;
    }
    assert_true(now > 0);
    assert_true(now < 32u << 20); /* kernel buffers; 256 MiB were offered */
    AUTO_BUF some = {0};
    buf_reserve(&some, 8u << 20);
    assert_int_equal(fd_read_full(fd, some.p, 8u << 20), 0); /* and it goes on when read */
    close(fd_take(&fd));
    assert_true(json_get_bool(await_end(s), "aborted", false));
    stage_free(s);
}

/* The link */

static void sessions_are_registered_again_at_a_new_broker(void **state)
{
    (void)state;
    AUTO_ARENA a = arena_new();
    struct stage *s = stage_new();
    reply_with(s, a, SSE_HEAD, happy[0].body);
    open_session(s, "openai-completions", s->base_url, false);
    shutdown(s->link_copy, SHUT_RDWR);
    assert_true(wait_true(&s->m, &s->c, &s->link_lost));
    assert_false(broker_link_up(s->link));
    wait_registered(s, 0); /* as a new broker begins */
    attach(s);
    wait_registered(s, 1);
    assert_true(broker_link_up(s->link));
    AUTO_BUF answer = {0};
    ask(s, "/chat/completions", WITH_TOKEN, BODY, &answer);
    assert_int_equal(status_of(&answer), 200);
    {
        AUTO_LOCK(&s->m);
        assert_int_equal(s->lost, 1);
    }
    stage_free(s);
}

static void a_lost_link_ends_requests_and_forgets_tokens(void **state)
{
    (void)state;
    struct stage *s = stage_new();
    AUTO_FD fd = host_in_mid_answer(s);
    shutdown(s->link_copy, SHUT_RDWR);
    assert_true(wait_true(&s->provider.m, &s->provider.c, &s->provider.saw_close));
    AUTO_BUF rest = {0};
    read_all(fd, &rest);
    wait_registered(s, 0);
    stage_free(s);
}

static int once(void **state)
{
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    return sodium_init() < 0 || curl_global_init(CURL_GLOBAL_DEFAULT) != 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_wire_api_is_relayed_byte_for_byte),
        cmocka_unit_test(the_path_of_the_real_address_may_be_repeated),
        cmocka_unit_test(two_requests_on_one_connection_open_the_box_once),
        cmocka_unit_test(an_unknown_token_gets_401),
        cmocka_unit_test(a_token_on_another_tenants_socket_gets_401),
        cmocka_unit_test(a_closed_session_gets_401),
        cmocka_unit_test(other_targets_and_methods_are_refused),
        cmocka_unit_test(only_the_sessions_model_can_be_asked),
        cmocka_unit_test(control_can_refuse),
        cmocka_unit_test(control_that_stays_silent_is_not_waited_for_without_end),
        cmocka_unit_test(a_credential_for_another_use_is_refused),
        cmocka_unit_test(a_catalogue_key_goes_to_the_catalogues_address_only),
        cmocka_unit_test(a_catalogue_session_needs_its_own_providers_key),
        cmocka_unit_test(an_unusable_model_is_not_found),
        cmocka_unit_test(a_private_address_is_not_dialled_unless_allowed),
        cmocka_unit_test(a_provider_that_is_not_there_is_unreachable),
        cmocka_unit_test(a_provider_that_hangs_up_is_unreachable),
        cmocka_unit_test(a_provider_that_is_silent_for_too_long_is_unreachable),
        cmocka_unit_test(the_providers_own_errors_are_relayed_and_classified),
        cmocka_unit_test(an_answer_without_a_body_is_complete),
        cmocka_unit_test(an_error_inside_a_stream_is_classified),
        cmocka_unit_test(a_stream_that_ends_early_is_broken_and_estimated),
        cmocka_unit_test(an_event_beyond_the_meters_limit_is_relayed_and_estimated),
        cmocka_unit_test(a_cut_connection_breaks_the_answer_to_the_host),
        cmocka_unit_test(a_host_that_hangs_up_closes_the_upstream),
        cmocka_unit_test(a_cancel_closes_the_upstream_at_once),
        cmocka_unit_test(a_cancel_before_the_first_byte_reaches_the_waiting_host),
        cmocka_unit_test(a_host_that_hangs_up_while_control_thinks_is_let_go),
        cmocka_unit_test(an_ended_host_ends_its_requests),
        cmocka_unit_test(a_big_body_goes_through),
        cmocka_unit_test(a_body_beyond_the_limit_gets_413),
        cmocka_unit_test(a_slow_host_slows_the_provider),
        cmocka_unit_test(sessions_are_registered_again_at_a_new_broker),
        cmocka_unit_test(a_lost_link_ends_requests_and_forgets_tokens),
    };
    return cmocka_run_group_tests(tests, once, NULL);
}
