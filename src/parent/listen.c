#include "parent/listen.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/str.h"

#define BACKLOG 1024

union any_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static err parse_address(const char *text, union any_address *out)
{
    const char *colon = strrchr(text, ':');
    uint64_t port;
    char host[INET6_ADDRSTRLEN + 2];
    if (colon == NULL || !str_to_u64(str_of(colon + 1), &port) || port > 65535 ||
        (size_t)(colon - text) >= sizeof host)
        return fail(E_INVALID, "--listen %s: give an address and a port, like 127.0.0.1:7433",
                    text);
    snprintf(host, sizeof host, "%.*s", (int)(colon - text), text);
    size_t n = strlen(host);
    union any_address a = {0};
    if (strcmp(host, "localhost") == 0)
        snprintf(host, sizeof host, "127.0.0.1");
    if (inet_pton(AF_INET, host, &a.v4.sin_addr) == 1) {
        a.v4.sin_family = AF_INET;
        a.v4.sin_port = htons((uint16_t)port);
    } else if (n > 2 && host[0] == '[' && host[n - 1] == ']' &&
               (host[n - 1] = 0, inet_pton(AF_INET6, host + 1, &a.v6.sin6_addr)) == 1) {
        a.v6.sin6_family = AF_INET6;
        a.v6.sin6_port = htons((uint16_t)port);
    } else {
        return fail(E_INVALID,
                    "--listen %s: the host must be an IPv4 address, an IPv6 address in "
                    "brackets, or localhost",
                    text);
    }
    *out = a;
    return 0;
}

static bool is_loopback(const union any_address *a)
{
    if (a->any.sa_family == AF_INET)
        return ntohl(a->v4.sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr);
}

static void write_url(const union any_address *a, bool tls, char *out, size_t cap)
{
    char host[INET6_ADDRSTRLEN];
    const char *scheme = tls ? "https" : "http";
    if (a->any.sa_family == AF_INET) {
        inet_ntop(AF_INET, &a->v4.sin_addr, host, sizeof host);
        snprintf(out, cap, "%s://%s:%u", scheme, host, ntohs(a->v4.sin_port));
    } else {
        inet_ntop(AF_INET6, &a->v6.sin6_addr, host, sizeof host);
        snprintf(out, cap, "%s://[%s]:%u", scheme, host, ntohs(a->v6.sin6_port));
    }
}

static err check_address(const char *address, bool tls, bool insecure, union any_address *out)
{
    TRY(parse_address(address, out));
    if (!is_loopback(out) && !tls && !insecure)
        return fail(E_FORBIDDEN,
                    "--listen %s is reachable from other machines and would send API keys "
                    "in clear text. Give --tls-cert and --tls-key, or --insecure behind a "
                    "TLS proxy",
                    address);
    return 0;
}

err listen_check(const char *address, bool tls, bool insecure)
{
    union any_address a;
    return check_address(address, tls, insecure, &a);
}

err listen_open(const char *address, bool tls, bool insecure, int *out_fd, char *out_url,
                size_t cap)
{
    union any_address a;
    TRY(check_address(address, tls, insecure, &a));
    socklen_t n = a.any.sa_family == AF_INET ? sizeof a.v4 : sizeof a.v6;
    AUTO_FD fd = socket(a.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return fail_errno("socket");
    int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (a.any.sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (bind(fd, &a.any, n) < 0)
        return fail_errno("--listen %s", address);
    if (listen(fd, BACKLOG) < 0 || getsockname(fd, &a.any, &n) < 0)
        return fail_errno("listen on %s", address);
    write_url(&a, tls, out_url, cap);
    *out_fd = fd_take(&fd);
    return 0;
}
