#include "broker/dial.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "broker/dial_ranges.h"

#include <ctype.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>

#define CODE_REFUSED "address_not_allowed"

struct allowed {
    char host[DIAL_HOST_MAX + 1];
    int port; /* 0: every port */
};

struct dial_guard {
    struct allowed *allowed;
    size_t count;
    dial_resolver resolver; /* NULL: the system's */
    void *resolver_arg;
};

/* The list of exceptions */

static err add_allowed(struct dial_guard *g, struct str entry)
{
    struct str host;
    struct allowed item = {0};
    if (!dial_split_host(entry, &host, &item.port))
        return fail(E_INVALID, "--allow-private: \"%.*s\" is not HOST or HOST:PORT",
                    STR_ARG(entry));
    for (size_t i = 0; i < host.n; i++)
        item.host[i] = (char)tolower((unsigned char)host.p[i]);
    g->allowed = mem_realloc(g->allowed, size_mul(g->count + 1, sizeof item));
    g->allowed[g->count++] = item;
    return 0;
}

static struct str trimmed(struct str s)
{
    while (s.n && s.p[0] == ' ')
        s = (struct str){s.p + 1, s.n - 1};
    while (s.n && s.p[s.n - 1] == ' ')
        s.n--;
    return s;
}

err dial_guard_new(const char *allow_private, struct dial_guard **out)
{
    struct dial_guard *g = mem_alloc(sizeof *g);
    struct str rest = str_of(allow_private), entry;
    while (str_split(&rest, ',', &entry)) {
        entry = trimmed(entry);
        err e = entry.n ? add_allowed(g, entry) : 0;
        if (e) {
            dial_guard_free(g);
            return e;
        }
    }
    *out = g;
    return 0;
}

void dial_guard_free(struct dial_guard *g)
{
    if (g == NULL)
        return;
    mem_free(g->allowed);
    mem_free(g);
}

void dial_guard_set_resolver(struct dial_guard *g, dial_resolver resolver, void *arg)
{
    g->resolver = resolver;
    g->resolver_arg = arg;
}

bool dial_exempt(const struct dial_guard *g, const struct dial_url *url)
{
    for (size_t i = 0; i < g->count; i++)
        if (strcmp(g->allowed[i].host, url->host) == 0 &&
            (g->allowed[i].port == 0 || g->allowed[i].port == url->port))
            return true;
    return false;
}

static err check_policy(enum dial_policy policy, const struct dial_url *url)
{
    bool https = strcmp(url->scheme, "https") == 0;
    if (policy != DIAL_FETCH && !https)
        return fail_as(E_FORBIDDEN, CODE_REFUSED,
                       "%s: only https is allowed here (plain http needs --allow-private %s:%d)",
                       url->host, url->host, url->port);
    if (policy == DIAL_WEBHOOK && (url->port != 443 || dial_is_literal(url->host)))
        return fail_as(E_FORBIDDEN, CODE_REFUSED, "%s: a webhook needs a host name and port 443",
                       url->host);
    if (dial_name_denied(url->host))
        return fail_as(E_FORBIDDEN, CODE_REFUSED,
                       "%s is a name of private networks; an operator can allow it with "
                       "--allow-private %s:%d",
                       url->host, url->host, url->port);
    return 0;
}

static err check_answers(const struct dial_url *url, const struct dial_answers *answers)
{
    for (size_t i = 0; i < answers->count; i++)
        if (dial_address_denied((const struct sockaddr *)&answers->list[i].sa, NULL))
            return fail_as(E_FORBIDDEN, CODE_REFUSED,
                           "%s leads to a private or reserved address; an operator can allow it "
                           "with --allow-private %s:%d",
                           url->host, url->host, url->port);
    return 0;
}

err dial_judge(const struct dial_guard *g, enum dial_policy policy, const struct dial_url *url,
               int64_t timeout_ms, int wake_fd, struct dial_answers *out)
{
    struct dial_answers answers;
    bool exempt = dial_exempt(g, url);
    if (!exempt)
        TRY(check_policy(policy, url));
    if (g->resolver && !dial_is_literal(url->host))
        TRY(g->resolver(g->resolver_arg, url->host, url->port, &answers));
    else
        TRY(dial_resolve(url->host, url->port, timeout_ms, wake_fd, &answers));
    if (!exempt)
        TRY(check_answers(url, &answers));
    *out = answers;
    return 0;
}

bool dial_peer_allowed(const struct dial_guard *g, enum dial_policy policy,
                       const struct dial_url *url, int fd)
{
    struct sockaddr_storage peer;
    socklen_t n = sizeof peer;
    if (getpeername(fd, (struct sockaddr *)&peer, &n) < 0)
        return false;
    return dial_exempt(g, url) ||
           (check_policy(policy, url) == 0 && !dial_address_denied((struct sockaddr *)&peer, NULL));
}

/* Connecting */

/* Worded for people, and so that Pi does not take them for something to try again by itself. */
static const char *connect_error(int error)
{
    switch (error) {
    case ECONNREFUSED:
        return "nothing listens there";
    case ETIMEDOUT:
        return "it does not answer";
    case ENETUNREACH:
    case EHOSTUNREACH:
        return "there is no route to it";
    default:
        return "the attempt failed";
    }
}

static err wait_connected(int fd, int64_t deadline_ms, int wake_fd, int *out_error)
{
    struct pollfd fds[2] = {{.fd = fd, .events = POLLOUT}, {.fd = wake_fd, .events = POLLIN}};
    for (;;) {
        int64_t left = deadline_ms - clock_monotonic_ms(clock_real());
        int n = left > 0 ? poll(fds, 2, (int)left) : 0;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail_errno("poll");
        *out_error = n == 0 ? ETIMEDOUT : 0;
        if (n == 0)
            return 0;
        if (fds[1].revents)
            return fail(E_CLOSED, "the request was given up while connecting");
        socklen_t len = sizeof *out_error;
        getsockopt(fd, SOL_SOCKET, SO_ERROR, out_error, &len);
        return 0;
    }
}

static err connect_one(const struct dial_address *a, int64_t deadline_ms, int wake_fd, int *out_fd,
                       int *out_error)
{
    AUTO_FD fd = socket(a->sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        *out_error = errno;
        return 0;
    }
    *out_error = 0;
    if (connect(fd, (const struct sockaddr *)&a->sa, a->n) < 0) {
        if (errno != EINPROGRESS) {
            *out_error = errno;
            return 0;
        }
        TRY(wait_connected(fd, deadline_ms, wake_fd, out_error));
    }
    if (*out_error)
        return 0;
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    *out_fd = fd_take(&fd);
    return 0;
}

static err connect_any(const struct dial_url *url, const struct dial_answers *answers,
                       int64_t deadline_ms, int wake_fd, int *out_fd)
{
    int error = 0, fd = -1;
    for (size_t i = 0; i < answers->count && fd < 0; i++) {
        /* An address that swallows packets must leave time for the next one. */
        int64_t now_ms = clock_monotonic_ms(clock_real());
        bool more = i + 1 < answers->count;
        int64_t until_ms = more ? now_ms + (deadline_ms - now_ms) / 2 : deadline_ms;
        TRY(connect_one(&answers->list[i], until_ms, wake_fd, &fd, &error));
    }
    if (fd < 0)
        return fail(E_UNAVAILABLE, "%s port %d cannot be reached: %s", url->host, url->port,
                    connect_error(error));
    *out_fd = fd;
    return 0;
}

err dial_connect(const struct dial_guard *g, enum dial_policy policy, const struct dial_url *url,
                 int64_t timeout_ms, int wake_fd, int *out_fd)
{
    struct dial_answers answers;
    int64_t deadline_ms = clock_monotonic_ms(clock_real()) + timeout_ms;
    TRY(dial_judge(g, policy, url, timeout_ms, wake_fd, &answers));
    return connect_any(url, &answers, deadline_ms, wake_fd, out_fd);
}
