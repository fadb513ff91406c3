#include "broker/egress.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"

#define CONNECTIONS_MAX 64
#define HEAD_WAIT_MS 30000
#define CONNECT_MS 30000
#define IDLE_MS 300000 /* a package script may build for minutes between two bytes */
#define PIECE 65536

struct egress {
    const struct egress_rules *rules;
    int listener, lifeline;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t ended;
    unsigned connections;
};

struct connection {
    struct egress *e;
    int client;
};

/* ---- the request ---- */

size_t egress_head_length(struct str bytes)
{
    const char *end = memmem(bytes.p, bytes.n, "\r\n\r\n", 4);
    return end ? (size_t)(end - bytes.p) + 4 : 0;
}

bool egress_allows(const char *hosts, const char *host, int port)
{
    struct str rest = str_of(hosts), entry, name;
    while (rest.n > 0) {
        uint64_t wanted = 0;
        str_split(&rest, ',', &entry);
        str_split(&entry, ':', &name);
        bool fits = entry.n > 0 ? str_to_u64(entry, &wanted) && (int64_t)wanted == port
                                : port == 80 || port == 443;
        bool below = str_starts(name, STR("*."));
        if (below)
            name = (struct str){name.p + 1, name.n - 1};
        if (fits && (below ? str_ends(str_of(host), name) : str_is(name, host)))
            return true;
    }
    return false;
}

/* Takes one line off the front, without its CRLF. */
static struct str take_line(struct str *head)
{
    const char *end = memmem(head->p, head->n, "\r\n", 2);
    size_t n = end ? (size_t)(end - head->p) : head->n;
    struct str line = {head->p, n};
    head->p += end ? n + 2 : n;
    head->n -= end ? n + 2 : n;
    return line;
}

static bool is_token(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (!(c >= 'A' && c <= 'Z') && !(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') &&
            !(c && strchr("!#$%&'*+-.^_`|~", c)))
            return false;
    }
    return s.n > 0;
}

/* Of the connection to us, or what we say ourselves. */
static bool is_ours(struct str name)
{
    static const char *const ours[] = {
        "connection",       "keep-alive",         "host", "te", "upgrade",
        "proxy-connection", "proxy-authorization"};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        if (name.n == strlen(ours[i]) && strncasecmp(name.p, ours[i], name.n) == 0)
            return true;
    }
    return false;
}

static err copy_fields(struct str fields, struct buf *out)
{
    while (fields.n > 0) {
        struct str line = take_line(&fields), name, value = line;
        if (line.n == 0)
            return 0;
        str_split(&value, ':', &name);
        if (name.n == line.n || !is_token(name))
            return fail(E_INVALID, "a header field cannot be read");
        for (size_t i = 0; i < line.n; i++) {
            if ((unsigned char)line.p[i] < ' ' && line.p[i] != '\t')
                return fail(E_INVALID, "a header field holds a control character");
        }
        if (!is_ours(name))
            buf_printf(out, "%.*s\r\n", STR_ARG(line));
    }
    return 0;
}

static err parse_tunnel(struct str target, struct arena *a, struct egress_request *out)
{
    AUTO_BUF url = {0};
    buf_printf(&url, "https://%.*s", STR_ARG(target));
    TRY(dial_parse(buf_str(&url), a, &out->url));
    return strcmp(out->url.path, "/") == 0 && memchr(target.p, '/', target.n) == NULL
               ? 0
               : fail(E_INVALID, "CONNECT needs HOST:PORT");
}

static err parse_plain(struct str method, struct str target, struct str fields, struct arena *a,
                       struct egress_request *out)
{
    AUTO_BUF head = {0};
    TRY(dial_parse(target, a, &out->url));
    if (strcmp(out->url.scheme, "http") != 0)
        return fail(E_INVALID, "https goes by CONNECT");
    bool literal6 = strchr(out->url.host, ':') != NULL;
    buf_printf(&head, "%.*s %s HTTP/1.1\r\nHost: %s%s%s", STR_ARG(method), out->url.path,
               literal6 ? "[" : "", out->url.host, literal6 ? "]" : "");
    if (out->url.port != 80)
        buf_printf(&head, ":%d", out->url.port);
    buf_add_c(&head, "\r\nConnection: close\r\n");
    TRY(copy_fields(fields, &head));
    buf_add_c(&head, "\r\n");
    out->head = arena_str(a, buf_str(&head));
    return 0;
}

err egress_parse(struct str head, struct arena *a, struct egress_request *out)
{
    struct str line = take_line(&head), method = {0}, target = {0};
    struct egress_request r = {0};
    str_split(&line, ' ', &method);
    str_split(&line, ' ', &target);
    if (!is_token(method) || target.n == 0 ||
        !(str_is(line, "HTTP/1.1") || str_is(line, "HTTP/1.0")))
        return fail(E_INVALID, "this is no request to a proxy");
    r.tunnel = str_is(method, "CONNECT");
    TRY(r.tunnel ? parse_tunnel(target, a, &r) : parse_plain(method, target, head, a, &r));
    *out = r;
    return 0;
}

/* ---- relaying ---- */

/* One direction. */
struct pipe_half {
    int from, to;
    size_t at, n;
    bool ended; /* from said its last, and all of it was passed on */
    char bytes[PIECE];
};

static bool would_block(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

/* False when the connection broke. */
static bool move(struct pipe_half *h)
{
    if (h->n == 0) {
        ssize_t n = recv(h->from, h->bytes, sizeof h->bytes, MSG_DONTWAIT);
        if (n < 0)
            return would_block();
        if (n == 0) {
            h->ended = true;
            shutdown(h->to, SHUT_WR);
            return true;
        }
        h->at = 0;
        h->n = (size_t)n;
    }
    ssize_t n = send(h->to, h->bytes + h->at, h->n, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0)
        return would_block();
    h->at += (size_t)n;
    h->n -= (size_t)n;
    return true;
}

static void relay(const struct egress *e, struct pipe_half half[2])
{
    while (!half[0].ended || !half[1].ended) {
        struct pollfd fds[3] = {{.fd = e->lifeline}};
        for (int i = 0; i < 2; i++) {
            const struct pipe_half *h = &half[i];
            fds[1 + i].fd = h->ended ? -1 : h->n > 0 ? h->to : h->from;
            fds[1 + i].events = h->n > 0 ? POLLOUT : POLLIN;
        }
        int n = poll(fds, 3, IDLE_MS);
        if (n == 0 || (n < 0 && errno != EINTR) || fds[0].revents)
            return;
        for (int i = 0; i < 2; i++) {
            if (fds[1 + i].revents && !move(&half[i]))
                return;
        }
    }
}

/* The reason phrase is what package managers show. */
static void say(int client, int status, const char *text)
{
    AUTO_BUF reply = {0};
    buf_printf(&reply, "HTTP/1.1 %d %s\r\n", status, text);
    for (size_t i = 0; i < reply.n - 2; i++) {
        if ((unsigned char)reply.p[i] < ' ')
            reply.p[i] = ' ';
    }
    buf_printf(&reply,
               "Content-Type: text/plain\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n%s\n",
               strlen(text) + 1, text);
    log_info("the proxy for builds answers %d: %s", status, text);
    fd_write_full(client, reply.p, reply.n);
}

/* What came behind the head goes to the server first. */
static void exchange(struct egress *e, int client, const struct egress_request *r, struct str more)
{
    static const char established[] = "HTTP/1.1 200 Connection established\r\n\r\n";
    AUTO_FD server = -1;
    if (!egress_allows(e->rules->hosts, r->url.host, r->url.port)) {
        fail(E_FORBIDDEN,
             "%s port %d is not among the hosts packages may come from "
             "(--package-hosts)",
             r->url.host, r->url.port);
        say(client, 403, err_text());
        return;
    }
    if (dial_connect(e->rules->guard, DIAL_FETCH, &r->url, CONNECT_MS, e->lifeline, &server)) {
        say(client, 502, err_text());
        return;
    }
    struct pipe_half *half = mem_alloc(2 * sizeof *half);
    half[0].from = half[1].to = client;
    half[0].to = half[1].from = server;
    struct str first = r->tunnel ? more : r->head;
    bool sent = !r->tunnel || fd_write_full(client, established, sizeof established - 1) == 0;
    AUTO_BUF begin = {0};
    buf_add_str(&begin, first);
    if (!r->tunnel)
        buf_add_str(&begin, more);
    if (begin.n <= sizeof half->bytes) {
        if (begin.n > 0)
            memcpy(half[0].bytes, begin.p, begin.n);
        half[0].n = begin.n;
        if (sent)
            relay(e, half);
    }
    mem_free(half);
}

/* ---- connections ---- */

/* E_CLOSED at the end, also of the lifeline. */
static err read_head(const struct egress *e, int client, struct buf *out, size_t *out_n)
{
    int64_t end = clock_monotonic_ms(clock_real()) + HEAD_WAIT_MS;
    while ((*out_n = egress_head_length(buf_str(out))) == 0) {
        char piece[4096];
        struct pollfd fds[2] = {{.fd = client, .events = POLLIN}, {.fd = e->lifeline}};
        int64_t left = end - clock_monotonic_ms(clock_real());
        if (out->n > EGRESS_HEAD_MAX)
            return fail(E_TOO_LARGE, "the request's head is longer than %d bytes", EGRESS_HEAD_MAX);
        int n = poll(fds, 2, left > 0 ? (int)left : 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0 || fds[1].revents)
            return fail(E_CLOSED, "no request came");
        ssize_t got = recv(client, piece, sizeof piece, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && !would_block()))
            return fail(E_CLOSED, "the client hung up");
        if (got > 0)
            buf_add(out, piece, (size_t)got);
    }
    return 0;
}

static void serve_client(struct egress *e, int client)
{
    AUTO_BUF head = {0};
    struct arena *arena = arena_new();
    struct egress_request r;
    size_t n;
    err failed = read_head(e, client, &head, &n);
    if (!failed)
        failed = egress_parse((struct str){buf_str(&head).p, n}, arena, &r);
    if (!failed)
        exchange(e, client, &r, (struct str){head.p + n, head.n - n});
    else if (failed != E_CLOSED)
        say(client, 400, err_text());
    arena_free(arena);
}

static void *connection_thread(void *arg)
{
    struct connection *c = arg;
    struct egress *e = c->e;
    serve_client(e, c->client);
    fd_close(&c->client);
    mem_free(c);
    AUTO_LOCK(&e->lock);
    e->connections--;
    pthread_cond_signal(&e->ended);
    return NULL;
}

static bool has_room(struct egress *e)
{
    AUTO_LOCK(&e->lock);
    return e->connections < CONNECTIONS_MAX;
}

static void start_connection(struct egress *e, int client)
{
    struct connection *c = mem_alloc(sizeof *c);
    *c = (struct connection){.e = e, .client = client};
    {
        AUTO_LOCK(&e->lock);
        e->connections++;
    }
    thread_start_detached("egress", connection_thread, c);
}

static void wait_for_connections(struct egress *e, unsigned at_most)
{
    AUTO_LOCK(&e->lock);
    while (e->connections > at_most)
        cond_wait_ms(&e->ended, &e->lock, 1000);
}

static void *accept_thread(void *arg)
{
    struct egress *e = arg;
    for (;;) {
        struct pollfd fds[2] = {{.fd = e->listener, .events = POLLIN}, {.fd = e->lifeline}};
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            break;
        if (fds[1].revents || (fds[0].revents & ~POLLIN))
            break;
        int client = fds[0].revents ? accept4(e->listener, NULL, NULL, SOCK_CLOEXEC) : -1;
        if (client >= 0)
            start_connection(e, client);
        if (!has_room(e))
            wait_for_connections(e, CONNECTIONS_MAX - 1);
    }
    fd_close(&e->listener);
    wait_for_connections(e, 0); /* the lifeline ends them */
    fd_close(&e->lifeline);
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->ended);
    mem_free(e);
    return NULL;
}

err egress_serve(const struct egress_rules *rules, int take_listener, int take_lifeline)
{
    struct egress *e = mem_alloc(sizeof *e);
    *e = (struct egress){.rules = rules, .listener = take_listener, .lifeline = take_lifeline};
    pthread_mutex_init(&e->lock, NULL);
    cond_init(&e->ended);
    /* Somebody may hang up between poll and accept. */
    if (fcntl(take_listener, F_SETFL, O_NONBLOCK) < 0)
        log_warn("a listening socket cannot be set up: %s", strerror(errno));
    thread_start_detached("egress-accept", accept_thread, e);
    return 0;
}
