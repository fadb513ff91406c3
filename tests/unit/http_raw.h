/* A client that sends bytes as they are and reads replies one at a time, and a server on a free
   port of the loopback: for tests of src/http. Every wait has a limit; running into it fails the
   test. */
#ifndef TESTS_HTTP_RAW_H
#define TESTS_HTTP_RAW_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#undef fail /* ours is base/err.h */

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/json.h"
#include "http/http.h"

#define RAW_WAIT_MS 20000
#define test_fail(...) (print_error(__VA_ARGS__), _fail(__FILE__, __LINE__))

struct raw_client {
    int fd;
    struct buf in; /* received and not yet used */
};

struct raw_reply {
    int status; /* 0: the connection was closed without a reply */
    struct buf head, body;
};

static inline int raw_listen(uint16_t *out_port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 1024), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &n), 0);
    *out_port = ntohs(a.sin_port);
    return fd;
}

static inline struct raw_client raw_connect(uint16_t port)
{
    struct raw_client c = {.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    assert_int_equal(connect(c.fd, (struct sockaddr *)&a, sizeof a), 0);
    return c;
}

static inline void raw_close(struct raw_client *c)
{
    close(c->fd);
    c->fd = -1;
    buf_done(&c->in);
}

/* Stops early, without a word, when the server hung up. */
static inline void raw_send(struct raw_client *c, const void *p, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t sent = send(c->fd, (const char *)p + done, n - done, MSG_NOSIGNAL);
        if (sent <= 0)
            return;
        done += (size_t)sent;
    }
}

static inline void raw_say(struct raw_client *c, const char *text)
{
    raw_send(c, text, strlen(text));
}

/* Receives once; false at the end of the connection. */
static inline bool raw_more(struct raw_client *c)
{
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, RAW_WAIT_MS), 1); /* else the server fell silent */
    char chunk[16384];
    ssize_t n = recv(c->fd, chunk, sizeof chunk, 0);
    if (n <= 0)
        return false;
    buf_add(&c->in, chunk, (size_t)n);
    return true;
}

static inline const char *raw_find(const struct buf *b, const char *text)
{
    return b->n ? memmem(b->p, b->n, text, strlen(text)) : NULL;
}

/* Waits until `text` was received; false if the connection ended before. */
static inline bool raw_wait_for(struct raw_client *c, const char *text)
{
    while (raw_find(&c->in, text) == NULL)
        if (!raw_more(c))
            return false;
    return true;
}

/* The value of a header of the reply, "" if absent. Valid until the next call. */
static inline const char *raw_header(const struct raw_reply *r, const char *name)
{
    static _Thread_local char value[1024];
    size_t n = strlen(name);
    value[0] = 0;
    for (const char *line = r->head.p; line && *line; line = strstr(line, "\r\n")) {
        line += strncmp(line, "\r\n", 2) == 0 ? 2 : 0;
        if (strncasecmp(line, name, n) != 0 || line[n] != ':')
            continue;
        const char *v = line + n + 1 + strspn(line + n + 1, " ");
        snprintf(value, sizeof value, "%.*s", (int)strcspn(v, "\r\n"), v);
        break;
    }
    return value;
}

static inline void raw_reply_done(struct raw_reply *r)
{
    buf_done(&r->head);
    buf_done(&r->body);
}

/* Reads one whole reply with a Content-Length (or none for HEAD and 204). */
static inline struct raw_reply raw_read(struct raw_client *c, bool head_only)
{
    struct raw_reply r = {0};
    for (;;) {
        if (!raw_wait_for(c, "\r\n\r\n"))
            return r;
        size_t n = (size_t)(raw_find(&c->in, "\r\n\r\n") - c->in.p) + 4;
        buf_clear(&r.head);
        buf_add(&r.head, c->in.p, n);
        buf_drop(&c->in, n);
        r.status = atoi(r.head.p + strlen("HTTP/1.1 "));
        if (r.status != 100)
            break;
    }
    size_t length = head_only ? 0 : (size_t)atol(raw_header(&r, "Content-Length"));
    while (c->in.n < length)
        if (!raw_more(c))
            break;
    size_t n = c->in.n < length ? c->in.n : length;
    buf_add(&r.body, c->in.p ? c->in.p : "", n);
    buf_drop(&c->in, n);
    return r;
}

/* One request on a connection of its own. */
static inline struct raw_reply raw_ask(uint16_t port, const void *bytes, size_t n)
{
    struct raw_client c = raw_connect(port);
    raw_send(&c, bytes, n);
    struct raw_reply r = raw_read(&c, strncmp(bytes, "HEAD ", 5) == 0);
    raw_close(&c);
    return r;
}

static inline json_t *raw_json(const struct raw_reply *r)
{
    json_t *j = NULL;
    assert_int_equal(json_read(buf_str(&r->body), &j), 0);
    return j;
}

/* Formats and asks. */
__attribute__((format(printf, 2, 3))) static inline struct raw_reply raw_askf(uint16_t port,
                                                                              const char *fmt, ...)
{
    AUTO_BUF b = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&b, fmt, ap);
    va_end(ap);
    return raw_ask(port, b.p, b.n);
}

#endif
