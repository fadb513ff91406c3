/* Sockets outside, and the network. */
#include "attack.h"

#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>

static const char *connect_unix(const char *name, bool abstract)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    snprintf(to.sun_path + abstract, sizeof to.sun_path - 1, "%s", name);
    socklen_t n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + abstract + strlen(name));
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    return outcome(fd >= 0 && connect(fd, (struct sockaddr *)&to, n) == 0);
}

static const char *unix_by_path(void)
{
    return connect_unix(value_of("unix"), false);
}

static const char *unix_abstract(void)
{
    return connect_unix(value_of("abstract"), true);
}

/* Whether the kernel lists them here. */
static const char *unix_listed(void)
{
    char line[512];
    FILE *f = fopen("/proc/net/unix", "r");
    while (f && fgets(line, sizeof line, f)) {
        const char *path = strchr(line, '/');
        line[strcspn(line, "\n")] = 0;
        if (path && (strcmp(path, value_of("unix")) == 0 || strcmp(path, value_of("agent")) == 0))
            return NULL;
    }
    return "no socket of the host is listed";
}

static const char *open_socket(int family, int type, int protocol)
{
    return outcome(socket(family, type, protocol) >= 0);
}

static const char *socket_vm(void)
{
    return open_socket(AF_VSOCK, SOCK_STREAM, 0);
}

static const char *socket_packet(void)
{
    return open_socket(AF_PACKET, SOCK_RAW, 0);
}

static const char *socket_raw(void)
{
    return open_socket(AF_INET, SOCK_RAW, IPPROTO_ICMP);
}

static struct sockaddr_in host_loopback(const char *port)
{
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)number_of(port)),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static const char *tcp_to_host(void)
{
    struct sockaddr_in to = host_loopback("tcp");
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    return outcome(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
}

/* Succeeds when the answer comes. */
static const char *udp_to_host(void)
{
    char answer[16];
    struct sockaddr_in to = host_loopback("udp");
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    return outcome(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0 &&
                   send(fd, "x", 1, 0) == 1 && recv(fd, answer, sizeof answer, 0) > 0);
}

/* A look at the routes: nothing is sent. */
static const char *route_outside(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)};
    to.sin_addr.s_addr = htonl(0xc0000201); /* 192.0.2.1, for documentation */
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    return outcome(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
}

/* As they were. */
static const char *set_interface(void)
{
    struct ifreq lo = {.ifr_name = "lo"};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    return outcome(fd >= 0 && ioctl(fd, SIOCGIFFLAGS, &lo) == 0 &&
                   ioctl(fd, SIOCSIFFLAGS, &lo) == 0);
}

const struct attempt sockets_attempts[] = {
    {.name = "unix_by_path", .run = unix_by_path},
    {.name = "unix_abstract", .run = unix_abstract},
    {.name = "unix_listed", .run = unix_listed},
    {.name = "socket_vm", .run = socket_vm},
    {.name = "socket_packet", .run = socket_packet},
    {.name = "socket_raw", .run = socket_raw},
    {.name = "tcp_to_host", .run = tcp_to_host},
    {.name = "udp_to_host", .run = udp_to_host},
    {.name = "route_outside", .run = route_outside},
    {.name = "set_interface", .run = set_interface},
    {.name = NULL},
};
