/* For programs that load a server on this machine: connections to it, time, and giving up. Header
   only. */
#ifndef TESTS_SUPPORT_LOOPBACK_H
#define TESTS_SUPPORT_LOOPBACK_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>

static inline void must(bool ok, const char *what)
{
    if (ok)
        return;
    perror(what);
    exit(1);
}

static inline double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static inline int dial(uint16_t port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(port)};
    must(fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) == 0, "connect");
    return fd;
}

/* As many open files as this process may have; returns the number. */
static inline rlim_t allow_files(void)
{
    struct rlimit files;
    must(getrlimit(RLIMIT_NOFILE, &files) == 0, "getrlimit");
    files.rlim_cur = files.rlim_max;
    must(setrlimit(RLIMIT_NOFILE, &files) == 0, "setrlimit");
    return files.rlim_cur;
}

#endif
