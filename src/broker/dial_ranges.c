#include "broker/dial_ranges.h"

#include "base/str.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

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

/* The range of the table that holds the address, or NULL. */
static const struct range *find_range(const struct range *table, size_t n, int family,
                                      const void *address)
{
    for (size_t i = 0; i < n; i++)
        if (in_range(family, address, table[i]))
            return &table[i];
    return NULL;
}

static bool denied_by(const struct range *range, char *why)
{
    if (range && why)
        snprintf(why, DIAL_WHY_MAX, "%s/%d", range->prefix, range->bits);
    return range != NULL;
}

static bool denied_v4(const void *address, char *why)
{
    return denied_by(find_range(ipv4_deny, COUNT(ipv4_deny), AF_INET, address), why);
}

static bool denied_v6(const unsigned char *address, char *why)
{
    if (find_range(ipv6_wraps_ipv4, COUNT(ipv6_wraps_ipv4), AF_INET6, address))
        return denied_v4(address + 12, why);
    if (!in_range(AF_INET6, address, ipv6_allow)) {
        if (why)
            snprintf(why, DIAL_WHY_MAX, "outside %s/%d", ipv6_allow.prefix, ipv6_allow.bits);
        return true;
    }
    return denied_by(find_range(ipv6_deny, COUNT(ipv6_deny), AF_INET6, address), why);
}

bool dial_address_denied(const struct sockaddr *sa, char why[DIAL_WHY_MAX])
{
    if (sa->sa_family == AF_INET)
        return denied_v4(&((const struct sockaddr_in *)(const void *)sa)->sin_addr, why);
    if (sa->sa_family == AF_INET6)
        return denied_v6(((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr.s6_addr, why);
    if (why)
        snprintf(why, DIAL_WHY_MAX, "no internet address");
    return true;
}

const char *dial_name_denied(const char *host)
{
    for (size_t i = 0; i < COUNT(names_deny); i++)
        if (strcmp(host, names_deny[i]) == 0)
            return names_deny[i];
    for (size_t i = 0; i < COUNT(suffixes_deny); i++)
        if (str_ends(str_of(host), str_of(suffixes_deny[i])))
            return suffixes_deny[i];
    return NULL;
}

bool dial_is_literal(const char *host)
{
    unsigned char address[16];
    return inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1;
}
