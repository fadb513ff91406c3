#include "cli/tunnel.h"

#include <curl/curl.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/lock.h"
#include "base/mem.h"
#include "base/secret.h"

#define HEAD_MAX (32u << 10)
#define BODY_MAX (64u << 10)
#define PIECE (32u << 10)
#define QUEUE_MAX (256u << 10)
#define ANSWER_MS 120000 /* a sandbox may have to be started first */

struct tunnel {
    CURL *curl;
    curl_socket_t service;
    int ours, theirs; /* a socket pair; the thread has `theirs` */
    struct buf to_service, to_us;
    pthread_t thread;
};

/* ---- opening ---- */

static err lost(CURLcode rc)
{
    return fail(E_CLOSED, "the connection to the service was lost: %s", curl_easy_strerror(rc));
}

static err wait_for(struct tunnel *t, short events)
{
    struct pollfd p = {.fd = t->service, .events = events};
    int n;
    do
        n = poll(&p, 1, ANSWER_MS);
    while (n < 0 && errno == EINTR);
    return n > 0 ? 0 : fail(E_TIMEOUT, "the service does not answer");
}

static err send_all(struct tunnel *t, struct str bytes)
{
    while (bytes.n > 0) {
        size_t n = 0;
        CURLcode rc = curl_easy_send(t->curl, bytes.p, bytes.n, &n);
        if (rc == CURLE_AGAIN)
            TRY(wait_for(t, POLLOUT));
        else if (rc != CURLE_OK)
            return lost(rc);
        bytes = (struct str){bytes.p + n, bytes.n - n};
    }
    return 0;
}

/* Appends at least one byte. */
static err receive_some(struct tunnel *t, struct buf *out)
{
    for (;;) {
        size_t n = 0;
        buf_reserve(out, PIECE);
        CURLcode rc = curl_easy_recv(t->curl, out->p + out->n, PIECE, &n);
        if (rc == CURLE_AGAIN) {
            TRY(wait_for(t, POLLIN));
            continue;
        }
        if (rc != CURLE_OK || n == 0)
            return lost(rc != CURLE_OK ? rc : CURLE_GOT_NOTHING);
        out->n += n;
        out->p[out->n] = 0;
        return 0;
    }
}

static err send_head(struct tunnel *t, const struct http_client *c, const char *url,
                     const char *protocol)
{
    AUTO_BUF head = {0};
    const char *host = strstr(url, "://");
    host = host ? host + 3 : url;
    size_t host_n = strcspn(host, "/");
    buf_printf(&head,
               "POST %s HTTP/1.1\r\nHost: %.*s\r\nConnection: Upgrade\r\nUpgrade: %s\r\n"
               "Content-Length: 0\r\n",
               host + host_n, (int)host_n, host, protocol);
    if (http_client_authorization(c)[0])
        buf_printf(&head, "%s\r\n", http_client_authorization(c));
    buf_add_c(&head, "\r\n");
    err e = send_all(t, buf_str(&head));
    secret_wipe(head.p, head.n);
    return e;
}

/* Of an answer's head: its Content-Length, at most BODY_MAX. */
static size_t length_of(struct str head)
{
    struct str line;
    while (str_split(&head, '\n', &line))
        if (line.n > 15 && strncasecmp(line.p, "content-length:", 15) == 0) {
            unsigned long n = strtoul(line.p + 15, NULL, 10);
            return n < BODY_MAX ? n : BODY_MAX;
        }
    return 0;
}

static err refusal(struct tunnel *t, long status, struct str head, struct buf *rest)
{
    size_t n = length_of(head);
    while (rest->n < n)
        TRY(receive_some(t, rest));
    return http_client_refusal(status, rest);
}

/* What follows the head is the service's first word. */
static err read_answer(struct tunnel *t)
{
    AUTO_BUF answer = {0};
    const char *end = NULL;
    while (end == NULL) {
        TRY(receive_some(t, &answer));
        end = memmem(answer.p, answer.n, "\r\n\r\n", 4);
        if (end == NULL && answer.n > HEAD_MAX)
            return fail(E_INVALID, "the service's answer is not HTTP");
    }
    if (strncmp(answer.p, "HTTP/1.1 ", 9) != 0)
        return fail(E_INVALID, "the service's answer is not HTTP/1.1");
    long status = strtol(answer.p + 9, NULL, 10);
    struct str head = {answer.p, (size_t)(end - answer.p)};
    buf_add(&t->to_us, end + 4, answer.n - head.n - 4);
    return status == 101 ? 0 : refusal(t, status, head, &t->to_us);
}

/* ---- carrying ---- */

/* False when the service's side ended. */
static bool hear_service(struct tunnel *t)
{
    while (t->to_us.n < QUEUE_MAX) {
        size_t n = 0;
        buf_reserve(&t->to_us, PIECE);
        CURLcode rc = curl_easy_recv(t->curl, t->to_us.p + t->to_us.n, PIECE, &n);
        if (rc == CURLE_AGAIN)
            return true;
        if (rc != CURLE_OK || n == 0)
            return false;
        t->to_us.n += n;
    }
    return true;
}

static bool tell_service(struct tunnel *t)
{
    size_t n = 0;
    CURLcode rc = curl_easy_send(t->curl, t->to_service.p, t->to_service.n, &n);
    if (rc != CURLE_OK && rc != CURLE_AGAIN)
        return false;
    buf_drop(&t->to_service, n);
    return true;
}

static bool hear_us(struct tunnel *t)
{
    buf_reserve(&t->to_service, PIECE);
    ssize_t n = recv(t->theirs, t->to_service.p + t->to_service.n, PIECE, MSG_DONTWAIT);
    if (n > 0)
        t->to_service.n += (size_t)n;
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

static bool tell_us(struct tunnel *t)
{
    ssize_t n = send(t->theirs, t->to_us.p, t->to_us.n, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0)
        buf_drop(&t->to_us, (size_t)n);
    return n >= 0 || errno == EAGAIN || errno == EINTR;
}

static short wanted(const struct buf *heard, const struct buf *to_say)
{
    return (short)((heard->n < QUEUE_MAX ? POLLIN : 0) | (to_say->n ? POLLOUT : 0));
}

/* Until one side ends, and ours has been told all. */
static void *carry(void *arg)
{
    struct tunnel *t = arg;
    bool open = true, ours_open = true;
    while (ours_open && (open || t->to_us.n > 0)) {
        struct pollfd p[2] = {
            {.fd = open ? t->service : -1, .events = wanted(&t->to_us, &t->to_service)},
            {.fd = t->theirs, .events = wanted(&t->to_service, &t->to_us)},
        };
        if (poll(p, 2, -1) < 0)
            continue;
        if (p[0].revents & POLLOUT)
            open = tell_service(t);
        if (open && p[0].revents & (POLLIN | POLLHUP | POLLERR))
            open = hear_service(t);
        if (p[1].revents & POLLOUT)
            ours_open = tell_us(t);
        if (ours_open && p[1].revents & (POLLIN | POLLHUP | POLLERR))
            ours_open = hear_us(t);
    }
    fd_close(&t->theirs);
    return NULL;
}

static err connect_service(struct tunnel *t, struct http_client *c, const char *url)
{
    t->curl = http_client_connection(c, url);
    CURLcode rc = curl_easy_perform(t->curl);
    if (rc == CURLE_OK)
        rc = curl_easy_getinfo(t->curl, CURLINFO_ACTIVESOCKET, &t->service);
    return rc == CURLE_OK ? 0 : http_client_unreachable(c, rc);
}

static err open_tunnel(struct tunnel *t, struct http_client *c, const char *path,
                       const char *protocol)
{
    AUTO_BUF url = {0};
    int pair[2];
    buf_printf(&url, "%s%s", http_client_base(c), path);
    TRY(connect_service(t, c, url.p));
    TRY(send_head(t, c, url.p, protocol));
    TRY(read_answer(t));
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return fail_errno("make a socket pair");
    t->ours = pair[0];
    t->theirs = pair[1];
    t->thread = thread_start("tunnel", carry, t);
    return 0;
}

err tunnel_open(struct http_client *c, const char *path, const char *protocol, struct tunnel **out)
{
    struct tunnel *t = mem_alloc(sizeof *t);
    t->ours = t->theirs = -1;
    err e = open_tunnel(t, c, path, protocol);
    if (e) {
        tunnel_close(t);
        return e;
    }
    *out = t;
    return 0;
}

int tunnel_fd(const struct tunnel *t)
{
    return t->ours;
}

void tunnel_close(struct tunnel *t)
{
    if (t == NULL)
        return;
    bool running = t->ours >= 0;
    fd_close(&t->ours);
    if (running)
        pthread_join(t->thread, NULL);
    curl_easy_cleanup(t->curl);
    buf_done(&t->to_service);
    buf_done(&t->to_us);
    mem_free(t);
}
