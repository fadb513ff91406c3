#include "broker/dial.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>

#define URL_MAX 8192
#define HOST_MAX 253
#define CODE_REFUSED "address_not_allowed"

struct range {
    const char *prefix;
    int bits;
};

/* What no guarded request may reach, with why it is easily forgotten where that is not plain. */
static const struct range ipv4_deny[] = {
    {"0.0.0.0", 8},                             /* reaches localhost on Linux */
    {"10.0.0.0", 8},     {"100.64.0.0", 10},    /* carrier NAT; Alibaba's metadata */
    {"127.0.0.0", 8},    {"168.63.129.16", 32}, /* Azure's WireServer: a public address */
    {"169.254.0.0", 16},                        /* link-local; most clouds' metadata */
    {"172.16.0.0", 12},  {"192.0.0.0", 24},     /* IETF; Oracle's old metadata */
    {"192.0.2.0", 24},   {"192.88.99.0", 24},   /* 6to4 relays */
    {"192.168.0.0", 16}, {"198.18.0.0", 15},    {"198.51.100.0", 24},
    {"203.0.113.0", 24}, {"224.0.0.0", 4},      {"240.0.0.0", 4}, /* with the broadcast address */
};

/* IPv6 is denied by default: only global unicast is let through, without these parts of it. */
static const struct range ipv6_allow = {"2000::", 3};
static const struct range ipv6_deny[] = {
    {"2001::", 23},     /* Teredo, benchmarking, ORCHID */
    {"2001:db8::", 32}, /* documentation */
    {"2002::", 16},     /* 6to4 */
    {"3fff::", 20},     /* documentation */
};
/* Forms that carry an IPv4 address in their last four bytes: that one is judged. */
static const struct range ipv6_wraps_ipv4[] = {
    {"::ffff:0:0", 96},
    {"64:ff9b::", 96},
};

static const char *const names_deny[] = {
    "localhost",  "localhost.localdomain",    "ip6-localhost",      "ip6-loopback",
    "metadata",   "metadata.google.internal", "instance-data",      "host.docker.internal",
    "kubernetes", "gateway.docker.internal",  "kubernetes.default",
};
static const char *const suffixes_deny[] = {
    ".localhost", ".local", ".internal", ".localdomain", ".home.arpa", ".lan",
    ".intranet",  ".corp",  ".private",  ".onion",       ".svc",       ".cluster.local",
};
#define COUNT(array) (sizeof(array) / sizeof *(array))

typedef int (*resolve_fn)(const char *host, const char *port, const struct addrinfo *hints,
                          struct addrinfo **out);

struct allowed {
    char host[HOST_MAX + 1];
    int port; /* 0: every port */
};

struct dial_guard {
    struct allowed *allowed;
    size_t count;
    resolve_fn resolve; /* getaddrinfo; unit tests bring their own answers */
};

/* Parsing */

static err refuse(struct str url, const char *why)
{
    size_t n = str_is_utf8(url) ? str_utf8_floor(url, url.n < 120 ? url.n : 120) : 0;
    return fail_as(E_INVALID, "invalid_url", "the address \"%.*s\" is not accepted: %s", (int)n,
                   url.p, why);
}

static err check_bytes(struct str url)
{
    if (url.n > URL_MAX)
        return refuse(url, "it is too long");
    for (size_t i = 0; i < url.n; i++) {
        unsigned char c = (unsigned char)url.p[i];
        if (c <= ' ' || c == 0x7f)
            return refuse(url, "it holds a blank or a control character");
        if (c == '\\')
            return refuse(url, "it holds a backslash");
        if (c >= 0x80)
            return refuse(url, "it holds characters beyond ASCII (write the host as xn--…)");
    }
    return 0;
}

static err take_scheme(struct str url, struct str *rest, struct dial_url *out)
{
    static const struct {
        const char *text, *scheme;
        int port;
    } schemes[] = {{"https://", "https", 443}, {"http://", "http", 80}};
    for (size_t i = 0; i < COUNT(schemes); i++) {
        size_t n = strlen(schemes[i].text);
        if (url.n < n || strncasecmp(url.p, schemes[i].text, n) != 0)
            continue;
        out->scheme = schemes[i].scheme;
        out->port = schemes[i].port;
        *rest = (struct str){url.p + n, url.n - n};
        return 0;
    }
    return refuse(url, "it must begin with https:// or http://");
}

static bool parse_port(struct str text, int *out)
{
    uint64_t n;
    if (text.n == 0 || text.n > 5 || !str_to_u64(text, &n) || n == 0 || n > 65535)
        return false;
    *out = (int)n;
    return true;
}

/* Splits host[:port]; brackets around an IPv6 literal go away and are reported. */
static bool split_port(struct str authority, struct str *host, struct str *port, bool *bracketed)
{
    *port = (struct str){0};
    *bracketed = authority.n > 0 && authority.p[0] == '[';
    if (*bracketed) {
        const char *end = memchr(authority.p, ']', authority.n);
        if (end == NULL)
            return false;
        *host = (struct str){authority.p + 1, (size_t)(end - authority.p) - 1};
        struct str after = {end + 1, authority.n - host->n - 2};
        if (after.n && after.p[0] != ':')
            return false;
        if (after.n)
            *port = (struct str){after.p + 1, after.n - 1};
        return true;
    }
    const char *colon = memchr(authority.p ? authority.p : "", ':', authority.n);
    *host = authority;
    if (colon) {
        host->n = (size_t)(colon - authority.p);
        *port = (struct str){colon + 1, authority.n - host->n - 1};
    }
    return true;
}

static bool label_ok(struct str label)
{
    if (label.n == 0 || label.n > 63 || label.p[0] == '-' || label.p[label.n - 1] == '-')
        return false;
    for (size_t i = 0; i < label.n; i++)
        if (!isalnum((unsigned char)label.p[i]) && label.p[i] != '-' && label.p[i] != '_')
            return false;
    return true;
}

/* A last label that is a number is an IPv4 address to some parsers: only the plain dotted form
 * passes. */
static bool looks_numeric(struct str label)
{
    if (label.n > 1 && label.p[0] == '0' && (label.p[1] | 32) == 'x')
        return true;
    for (size_t i = 0; i < label.n; i++)
        if (!isdigit((unsigned char)label.p[i]))
            return false;
    return true;
}

static err check_name(struct str url, const char *host)
{
    struct in_addr v4;
    struct str rest = str_of(host), label = {0};
    if (rest.n == 0 || rest.n > HOST_MAX)
        return refuse(url, "it has no host, or one that is too long");
    while (str_split(&rest, '.', &label))
        if (!label_ok(label))
            return refuse(url, "its host is not a valid name");
    if (looks_numeric(label) && inet_pton(AF_INET, host, &v4) != 1)
        return refuse(url, "its host is a number; write an IPv4 address as four decimal parts");
    return 0;
}

static err check_literal6(struct str url, const char *host)
{
    struct in6_addr v6;
    if (inet_pton(AF_INET6, host, &v6) != 1)
        return refuse(url, "its host is not a valid IPv6 address");
    return 0;
}

static err take_authority(struct str url, struct str authority, struct arena *a,
                          struct dial_url *out)
{
    struct str host, port;
    bool bracketed;
    if (authority.n && memchr(authority.p, '@', authority.n))
        return refuse(url, "it holds a user name or password");
    if (authority.n && memchr(authority.p, '%', authority.n))
        return refuse(url, "its host holds a percent sign");
    if (!split_port(authority, &host, &port, &bracketed))
        return refuse(url, "its host is not complete");
    if (port.p && !parse_port(port, &out->port))
        return refuse(url, "its port is not a number from 1 to 65535");
    char *lower = arena_alloc(a, host.n + 1);
    for (size_t i = 0; i < host.n; i++)
        lower[i] = (char)tolower((unsigned char)host.p[i]);
    out->host = lower;
    return bracketed ? check_literal6(url, lower) : check_name(url, lower);
}

err dial_parse(struct str url, struct arena *a, struct dial_url *out)
{
    struct str rest = {0};
    struct dial_url u = {0};
    TRY(check_bytes(url));
    TRY(take_scheme(url, &rest, &u));
    size_t n = 0;
    while (n < rest.n && rest.p[n] != '/' && rest.p[n] != '?' && rest.p[n] != '#')
        n++;
    TRY(take_authority(url, (struct str){rest.p, n}, a, &u));
    struct str path = {rest.p + n, rest.n - n};
    const char *fragment = path.n ? memchr(path.p, '#', path.n) : NULL;
    if (fragment)
        path.n = (size_t)(fragment - path.p);
    u.path = arena_printf(a, "%s%.*s", path.n && path.p[0] == '/' ? "" : "/", STR_ARG(path));
    *out = u;
    return 0;
}

bool dial_same_origin(const struct dial_url *a, const struct dial_url *b)
{
    return strcmp(a->scheme, b->scheme) == 0 && strcmp(a->host, b->host) == 0 && a->port == b->port;
}

/* The list of exceptions */

static err add_allowed(struct dial_guard *g, struct str entry)
{
    struct str host, port;
    bool bracketed;
    struct allowed item = {0};
    if (!split_port(entry, &host, &port, &bracketed) || host.n == 0 || host.n > HOST_MAX ||
        (port.p && !parse_port(port, &item.port)))
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
    g->resolve = getaddrinfo;
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

static bool is_allowed_private(const struct dial_guard *g, const struct dial_url *url)
{
    for (size_t i = 0; i < g->count; i++)
        if (strcmp(g->allowed[i].host, url->host) == 0 &&
            (g->allowed[i].port == 0 || g->allowed[i].port == url->port))
            return true;
    return false;
}

/* Judging */

static bool in_range(int family, const void *address, struct range range)
{
    unsigned char prefix[16];
    inet_pton(family, range.prefix, prefix);
    const unsigned char *a = address;
    int whole = range.bits / 8, left = range.bits % 8;
    if (memcmp(a, prefix, (size_t)whole) != 0)
        return false;
    return left == 0 || ((a[whole] ^ prefix[whole]) >> (8 - left)) == 0;
}

static bool denied_v4(const void *address)
{
    for (size_t i = 0; i < COUNT(ipv4_deny); i++)
        if (in_range(AF_INET, address, ipv4_deny[i]))
            return true;
    return false;
}

static bool denied_v6(const unsigned char *address)
{
    for (size_t i = 0; i < COUNT(ipv6_wraps_ipv4); i++)
        if (in_range(AF_INET6, address, ipv6_wraps_ipv4[i]))
            return denied_v4(address + 12);
    if (!in_range(AF_INET6, address, ipv6_allow))
        return true;
    for (size_t i = 0; i < COUNT(ipv6_deny); i++)
        if (in_range(AF_INET6, address, ipv6_deny[i]))
            return true;
    return false;
}

static bool denied_address(const struct sockaddr *sa)
{
    if (sa->sa_family == AF_INET)
        return denied_v4(&((const struct sockaddr_in *)(const void *)sa)->sin_addr);
    if (sa->sa_family == AF_INET6)
        return denied_v6(((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr.s6_addr);
    return true;
}

static bool denied_name(const char *host)
{
    for (size_t i = 0; i < COUNT(names_deny); i++)
        if (strcmp(host, names_deny[i]) == 0)
            return true;
    for (size_t i = 0; i < COUNT(suffixes_deny); i++)
        if (str_ends(str_of(host), str_of(suffixes_deny[i])))
            return true;
    return false;
}

static bool is_literal(const char *host)
{
    unsigned char address[16];
    return inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1;
}

static err check_policy(enum dial_policy policy, const struct dial_url *url)
{
    bool https = strcmp(url->scheme, "https") == 0;
    if (policy != DIAL_FETCH && !https)
        return fail_as(E_FORBIDDEN, CODE_REFUSED,
                       "%s: only https is allowed here (plain http needs --allow-private %s:%d)",
                       url->host, url->host, url->port);
    if (policy == DIAL_WEBHOOK && (url->port != 443 || is_literal(url->host)))
        return fail_as(E_FORBIDDEN, CODE_REFUSED, "%s: a webhook needs a host name and port 443",
                       url->host);
    if (denied_name(url->host))
        return fail_as(E_FORBIDDEN, CODE_REFUSED,
                       "%s is a name of private networks; an operator can allow it with "
                       "--allow-private %s:%d",
                       url->host, url->host, url->port);
    return 0;
}

static err check_answers(const struct dial_url *url, const struct addrinfo *answers)
{
    for (const struct addrinfo *a = answers; a; a = a->ai_next)
        if (denied_address(a->ai_addr))
            return fail_as(E_FORBIDDEN, CODE_REFUSED,
                           "%s leads to a private or reserved address; an operator can allow it "
                           "with --allow-private %s:%d",
                           url->host, url->host, url->port);
    return 0;
}

static err resolve(const struct dial_guard *g, const struct dial_url *url, struct addrinfo **out)
{
    char port[8];
    snprintf(port, sizeof port, "%d", url->port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = is_literal(url->host) ? AI_NUMERICHOST : AI_ADDRCONFIG};
    int rc = g->resolve(url->host, port, &hints, out);
    if (rc != 0)
        return fail(E_UNAVAILABLE, "the name %s could not be resolved (%s)", url->host,
                    gai_strerror(rc));
    return 0;
}

/* Everything there is to say against a URL, before connecting. *out is for freeaddrinfo. */
static err judge(const struct dial_guard *g, enum dial_policy policy, const struct dial_url *url,
                 struct addrinfo **out)
{
    bool exempt = is_allowed_private(g, url);
    if (!exempt)
        TRY(check_policy(policy, url));
    struct addrinfo *answers;
    TRY(resolve(g, url, &answers));
    err e = exempt ? 0 : check_answers(url, answers);
    if (e) {
        freeaddrinfo(answers);
        return e;
    }
    *out = answers;
    return 0;
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

static err connect_one(const struct addrinfo *a, int64_t deadline_ms, int wake_fd, int *out_fd,
                       int *out_error)
{
    AUTO_FD fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        *out_error = errno;
        return 0;
    }
    *out_error = 0;
    if (connect(fd, a->ai_addr, a->ai_addrlen) < 0) {
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

static err connect_any(const struct dial_url *url, const struct addrinfo *answers,
                       int64_t timeout_ms, int wake_fd, int *out_fd)
{
    int error = 0, fd = -1;
    int64_t deadline_ms = clock_monotonic_ms(clock_real()) + timeout_ms;
    for (const struct addrinfo *a = answers; a && fd < 0; a = a->ai_next) {
        /* An address that swallows packets must leave time for the next one. */
        int64_t now_ms = clock_monotonic_ms(clock_real());
        int64_t until_ms = a->ai_next ? now_ms + (deadline_ms - now_ms) / 2 : deadline_ms;
        TRY(connect_one(a, until_ms, wake_fd, &fd, &error));
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
    struct addrinfo *answers;
    TRY(judge(g, policy, url, &answers));
    err e = connect_any(url, answers, timeout_ms, wake_fd, out_fd);
    freeaddrinfo(answers);
    return e;
}
