#include "broker/upstream.h"

#include "base/arena.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "broker/requests.h"
#include "broker/upstream_pool.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>

#define IDLE_MS 600000
#define HANDSHAKE_MS 20000
/* A busy connection is not kept beyond this: names change what they stand for. */
#define CONNECTION_LIFE_S 300
#define BUFFER_MAX (64u << 10)
#define HEADERS_MAX 200
#define HEADER_BYTES_MAX (128u << 10)
/* How often the host's socket is looked at where its hang-up does not wake us (it only stopped
 * sending). */
#define TICK_MS 5000

struct upstream {
    struct upstream_options options;
    struct arena *arena; /* the answer's headers */
    CURLM *multi;
    CURL *easy;
    struct curl_slist *sent_headers, *resolve;
    int fd;                     /* until curl takes it; then curl closes it */
    int kept_fd;                /* curl's, of a connection that was kept; -1: a new one */
    struct err_slot dial_error; /* .e: why the one in its place could not be made */
    char error[CURL_ERROR_SIZE];

    struct buf body; /* received, not yet read; from `at` on */
    size_t at;
    bool paused;

    struct upstream_header headers[HEADERS_MAX];
    size_t header_count, header_bytes;
    const char *connection; /* its Connection header */
    int status;
    bool head_complete;
    bool done; /* the transfer is over, with `result` */
    CURLcode result;
    int64_t active_ms; /* when the provider last said something */
};

static const char *const hop_by_hop[] = {
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
};

static bool listed(const char *list, const char *name)
{
    struct str rest = str_of(list), item;
    while (str_split(&rest, ',', &item)) {
        while (item.n && (*item.p == ' ' || *item.p == '\t'))
            item = (struct str){item.p + 1, item.n - 1};
        while (item.n && (item.p[item.n - 1] == ' ' || item.p[item.n - 1] == '\t'))
            item.n--;
        if (item.n == strlen(name) && strncasecmp(item.p, name, item.n) == 0)
            return true;
    }
    return false;
}

bool header_is_hop_by_hop(const char *name, const char *connection)
{
    for (size_t i = 0; i < sizeof hop_by_hop / sizeof *hop_by_hop; i++)
        if (strcasecmp(name, hop_by_hop[i]) == 0)
            return true;
    return connection && listed(connection, name);
}

/* What curl calls back */

static size_t on_body(char *p, size_t size, size_t n, void *arg)
{
    struct upstream *u = arg;
    if (u->body.n - u->at >= BUFFER_MAX) {
        u->paused = true;
        return CURL_WRITEFUNC_PAUSE;
    }
    u->head_complete = true;
    u->active_ms = clock_monotonic_ms(clock_real());
    buf_add(&u->body, p, size * n);
    return size * n;
}

static void begin_head(struct upstream *u)
{
    u->header_count = u->header_bytes = 0;
    u->connection = NULL;
}

static bool keep_header(struct upstream *u, struct str line)
{
    const char *colon = memchr(line.p, ':', line.n);
    if (colon == NULL || colon == line.p)
        return true; /* the status line, or nothing we could pass on */
    struct str name = {line.p, (size_t)(colon - line.p)};
    struct str value = {colon + 1, line.n - name.n - 1};
    while (value.n && (*value.p == ' ' || *value.p == '\t'))
        value = (struct str){value.p + 1, value.n - 1};
    u->header_bytes += line.n;
    if (u->header_count == HEADERS_MAX || u->header_bytes > HEADER_BYTES_MAX)
        return false;
    struct upstream_header h = {arena_str(u->arena, name).p, arena_str(u->arena, value).p};
    if (strcasecmp(h.name, "connection") == 0)
        u->connection = h.value;
    u->headers[u->header_count++] = h;
    return true;
}

static size_t on_header(char *p, size_t size, size_t n, void *arg)
{
    struct upstream *u = arg;
    struct str line = {p, size * n};
    u->active_ms = clock_monotonic_ms(clock_real());
    if (u->head_complete)
        return size * n; /* trailers */
    while (line.n && (line.p[line.n - 1] == '\r' || line.p[line.n - 1] == '\n'))
        line.n--;
    if (str_starts(line, STR("HTTP/")))
        begin_head(u);
    if (line.n == 0) {
        long status = 0;
        curl_easy_getinfo(u->easy, CURLINFO_RESPONSE_CODE, &status);
        u->status = (int)status;
        u->head_complete = status >= 200; /* a 1xx is followed by the real one */
        return size * n;
    }
    return keep_header(u, line) ? size * n : 0;
}

/* For a kept connection curl asks only when it finds it closed. */
static curl_socket_t on_open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct upstream *u = arg;
    (void)purpose;
    (void)address;
    if (u->fd < 0 && u->kept_fd >= 0) {
        u->kept_fd = -1;
        if (u->options.dial(u->options.dial_arg, &u->fd) != 0) {
            err_save(&u->dial_error);
            return CURL_SOCKET_BAD;
        }
    }
    return u->fd < 0 ? CURL_SOCKET_BAD : fd_take(&u->fd);
}

/* curl (7.88) calls connect(2) all the same; the kernel refuses it on a connected socket. */
static int on_socket_made(void *arg, curl_socket_t fd, curlsocktype purpose)
{
    (void)arg;
    (void)fd;
    (void)purpose;
    return CURL_SOCKOPT_ALREADY_CONNECTED;
}

/* Setting up */

static void add_header(struct upstream *u, const char *text)
{
    struct curl_slist *list = curl_slist_append(u->sent_headers, text);
    if (list == NULL)
        abort();
    u->sent_headers = list;
}

static void add_auth_header(struct upstream *u)
{
    const struct upstream_options *o = &u->options;
    if (o->key == NULL)
        return;
    struct str key = secret_bytes(o->key);
    AUTO_BUF line = {0};
    buf_reserve(&line, key.n + 128); /* so that no copy is left behind by growing */
    buf_printf(&line, "%s: %s", o->auth_header, o->auth_prefix);
    buf_add_str(&line, key);
    add_header(u, line.p);
    secret_wipe(line.p, line.cap);
}

static void build_headers(struct upstream *u)
{
    /* What curl would add by itself, unless the host sent it. */
    static const char *const quiet[] = {"Accept:", "Content-Type:", "User-Agent:", "Expect:"};
    for (size_t i = 0; i < sizeof quiet / sizeof *quiet; i++) {
        bool sent = false;
        for (size_t j = 0; j < u->options.header_count && !sent; j++)
            sent = strncasecmp(u->options.headers[j].name, quiet[i], strlen(quiet[i]) - 1) == 0;
        if (!sent)
            add_header(u, quiet[i]);
    }
    for (size_t i = 0; i < u->options.header_count; i++) {
        const struct upstream_header *h = &u->options.headers[i];
        /* curl's way to send a header without a value is a semicolon. */
        add_header(u, arena_printf(u->arena, *h->value ? "%s: %s" : "%s;", h->name, h->value));
    }
    add_auth_header(u);
}

/* curl resolves names before it asks for a socket; the address it gets here is only written in its
 * notes. */
static void pin_address(struct upstream *u)
{
    const struct dial_url *url = &u->options.url;
    bool v6 = strchr(url->host, ':') != NULL;
    if (!v6)
        u->resolve = curl_slist_append(
            NULL, arena_printf(u->arena, "%s:%d:127.0.0.1", url->host, url->port));
    curl_easy_setopt(u->easy, CURLOPT_RESOLVE, u->resolve);
    curl_easy_setopt(u->easy, CURLOPT_URL,
                     arena_printf(u->arena, v6 ? "%s://[%s]:%d%s" : "%s://%s:%d%s", url->scheme,
                                  url->host, url->port, url->path));
}

static void set_options(struct upstream *u)
{
    CURL *c = u->easy;
    pin_address(u);
    build_headers(u);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, u->sent_headers);
    curl_easy_setopt(c, u->options.get ? CURLOPT_HTTPGET : CURLOPT_POST, 1L);
    if (!u->options.get) {
        curl_easy_setopt(c, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)u->options.body.n);
        curl_easy_setopt(c, CURLOPT_POSTFIELDS, u->options.body.p ? u->options.body.p : "");
    }
    curl_easy_setopt(c, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c, CURLOPT_PROXY, "");
    curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(c, CURLOPT_PATH_AS_IS, 1L);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_FORBID_REUSE, u->options.pool ? 0L : 1L);
    curl_easy_setopt(c, CURLOPT_MAXLIFETIME_CONN, (long)CONNECTION_LIFE_S);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS, (long)HANDSHAKE_MS);
    if (u->options.ca_file)
        curl_easy_setopt(c, CURLOPT_CAINFO, u->options.ca_file);
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, u->error);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, u);
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, u);
    curl_easy_setopt(c, CURLOPT_OPENSOCKETFUNCTION, on_open_socket);
    curl_easy_setopt(c, CURLOPT_OPENSOCKETDATA, u);
    curl_easy_setopt(c, CURLOPT_SOCKOPTFUNCTION, on_socket_made);
}

static struct upstream *new_upstream(const struct upstream_options *options, CURLM *take_multi)
{
    struct upstream *u = mem_alloc(sizeof *u);
    u->options = *options;
    if (u->options.idle_ms <= 0)
        u->options.idle_ms = IDLE_MS;
    u->fd = u->kept_fd = -1;
    u->arena = arena_new();
    u->multi = take_multi;
    u->easy = curl_easy_init();
    u->active_ms = clock_monotonic_ms(clock_real());
    return u;
}

static void begin(struct upstream *u)
{
    set_options(u);
    curl_multi_add_handle(u->multi, u->easy);
}

err upstream_open(const struct upstream_options *options, int take_fd, struct upstream **out)
{
    struct upstream *u = new_upstream(options, curl_multi_init());
    u->fd = take_fd;
    if (u->multi == NULL || u->easy == NULL) {
        upstream_close(u);
        return fail(E_INTERNAL, "the HTTP client could not be set up");
    }
    curl_multi_setopt(u->multi, CURLMOPT_MAXCONNECTS, 1L);
    begin(u);
    *out = u;
    return 0;
}

/* What may share a connection: TLS was set up for the host, nobody else's requests went over it. */
static const char *pool_key(const struct upstream_options *o, struct arena *a)
{
    return arena_printf(a, "%s %s://%s:%d", o->owner, o->url.scheme, o->url.host, o->url.port);
}

struct upstream *upstream_reopen(const struct upstream_options *options)
{
    AUTO_ARENA a = arena_new();
    int fd = -1;
    CURLM *multi =
        options->pool ? upstream_pool_take(options->pool, pool_key(options, a), &fd) : NULL;
    if (multi == NULL)
        return NULL;
    struct upstream *u = new_upstream(options, multi);
    u->kept_fd = fd;
    if (u->easy == NULL) {
        upstream_close(u);
        return NULL;
    }
    begin(u);
    return u;
}

int upstream_fd(const struct upstream *u)
{
    return u->kept_fd;
}

/* The connection of an answer that is over, if curl would use it again; else -1. */
static int connection_left(const struct upstream *u)
{
    curl_socket_t fd = CURL_SOCKET_BAD;
    if (u->options.pool == NULL || !u->done || u->result != CURLE_OK ||
        curl_easy_getinfo(u->easy, CURLINFO_ACTIVESOCKET, &fd) != CURLE_OK)
        return -1;
    return fd;
}

static void free_transfer(struct upstream *u)
{
    int fd = u->multi && u->easy ? connection_left(u) : -1;
    if (u->multi && u->easy)
        curl_multi_remove_handle(u->multi, u->easy);
    curl_easy_cleanup(u->easy);
    if (fd >= 0)
        upstream_pool_give(u->options.pool, pool_key(&u->options, u->arena), u->multi, fd);
    else
        curl_multi_cleanup(u->multi);
}

void upstream_close(struct upstream *u)
{
    if (u == NULL)
        return;
    free_transfer(u);
    for (struct curl_slist *h = u->sent_headers; h; h = h->next)
        secret_wipe(h->data, strlen(h->data));
    curl_slist_free_all(u->sent_headers);
    curl_slist_free_all(u->resolve);
    fd_close(&u->fd);
    buf_done(&u->body);
    arena_free(u->arena);
    mem_free(u);
}

/* Driving */

/* Worded for people, and so that Pi does not take them for something to try again by itself: its
   own pattern knows curl's usual texts. */
static err transfer_failed(struct upstream *u)
{
    const char *host = u->options.url.host;
    if (u->dial_error.e)
        return err_restore(&u->dial_error);
    if (u->head_complete)
        return fail_as(E_UNAVAILABLE, "model_stream_broken", "%s broke off its answer", host);
    switch (u->result) {
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_CACERT_BADFILE:
        return fail_as(E_UNAVAILABLE, "model_unreachable",
                       "the TLS certificate of %s could not be verified", host);
    case CURLE_SSL_CONNECT_ERROR:
        return fail_as(E_UNAVAILABLE, "model_unreachable", "%s does not speak TLS as expected",
                       host);
    case CURLE_OPERATION_TIMEDOUT:
        return fail_as(E_UNAVAILABLE, "model_unreachable", "%s does not answer", host);
    case CURLE_WRITE_ERROR:
        return fail_as(E_UNAVAILABLE, "model_unreachable", "%s answered with too many headers",
                       host);
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_WEIRD_SERVER_REPLY:
        return fail_as(E_UNAVAILABLE, "model_unreachable", "%s does not answer with HTTP", host);
    default:
        return fail_as(E_UNAVAILABLE, "model_unreachable",
                       "%s hung up without an answer (curl error %d)", host, (int)u->result);
    }
}

static void collect_result(struct upstream *u)
{
    int left;
    for (CURLMsg *m; (m = curl_multi_info_read(u->multi, &left)) != NULL;) {
        if (m->msg != CURLMSG_DONE)
            continue;
        u->done = true;
        u->result = m->data.result;
        u->head_complete |= u->result == CURLE_OK;
    }
}

static err check_others(struct upstream *u)
{
    struct pollfd wake = {.fd = u->options.wake_fd, .events = POLLIN};
    int64_t now_ms = clock_monotonic_ms(clock_real());
    bool late = u->options.deadline_ms && now_ms > u->options.deadline_ms;
    if (poll(&wake, 1, 0) > 0)
        return fail_as(E_CLOSED, "cancelled", "the request was interrupted");
    if (socket_hung_up(u->options.host_fd))
        return fail_as(E_CLOSED, "host_gone", "the caller hung up");
    if (late || now_ms - u->active_ms > u->options.idle_ms) {
        u->result = CURLE_OPERATION_TIMEDOUT;
        return transfer_failed(u);
    }
    return 0;
}

static int wait_ms(const struct upstream *u)
{
    int64_t ms = u->options.idle_ms < TICK_MS ? u->options.idle_ms : TICK_MS;
    int64_t left = u->options.deadline_ms - clock_monotonic_ms(clock_real()) + 1;
    if (u->options.deadline_ms && left < ms)
        ms = left > 0 ? left : 0;
    return (int)ms;
}

/* Lets curl work until something new is known, or a moment has passed. */
static err step(struct upstream *u, bool wait)
{
    int running;
    struct curl_waitfd others[2] = {{.fd = u->options.wake_fd, .events = CURL_WAIT_POLLIN},
                                    /* without events: a hang-up is told anyway */
                                    {.fd = u->options.host_fd}};
    if (wait)
        curl_multi_poll(u->multi, others, 2, wait_ms(u), NULL);
    TRY(check_others(u));
    curl_multi_perform(u->multi, &running);
    collect_result(u);
    return 0;
}

err upstream_head(struct upstream *u, int *out_status)
{
    for (bool wait = false; !u->head_complete && !u->done; wait = true)
        TRY(step(u, wait));
    if (!u->head_complete || u->status == 0)
        return transfer_failed(u);
    *out_status = u->status;
    return 0;
}

const struct upstream_header *upstream_headers(const struct upstream *u, size_t *out_count)
{
    *out_count = u->header_count;
    return u->headers;
}

const char *upstream_header(const struct upstream *u, const char *name)
{
    for (size_t i = 0; i < u->header_count; i++)
        if (strcasecmp(u->headers[i].name, name) == 0)
            return u->headers[i].value;
    return NULL;
}

void upstream_limit_idle(struct upstream *u, int64_t idle_ms)
{
    u->options.idle_ms = idle_ms;
    u->active_ms = clock_monotonic_ms(clock_real());
}

bool upstream_sent_body(const struct upstream *u)
{
    curl_off_t sent = 0;
    curl_easy_getinfo(u->easy, CURLINFO_SIZE_UPLOAD_T, &sent);
    return (size_t)sent >= u->options.body.n;
}

static size_t take_body(struct upstream *u, char *p, size_t cap)
{
    size_t n = u->body.n - u->at;
    if (n > cap)
        n = cap;
    memcpy(p, u->body.p + u->at, n);
    u->at += n;
    if (u->at == u->body.n) {
        buf_clear(&u->body);
        u->at = 0;
    }
    return n;
}

err upstream_read(struct upstream *u, char *p, size_t cap, size_t *out_n)
{
    for (bool wait = false; u->body.n == u->at && !u->done; wait = true) {
        if (u->paused) {
            u->paused = false;
            curl_easy_pause(u->easy, CURLPAUSE_CONT); /* may call on_body at once */
            wait = false;
            if (u->body.n > u->at)
                break;
        }
        TRY(step(u, wait));
    }
    if (u->body.n == u->at && u->result != CURLE_OK)
        return transfer_failed(u);
    *out_n = u->body.n > u->at ? take_body(u, p, cap) : 0;
    return 0;
}
