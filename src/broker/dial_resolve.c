#include "broker/dial_resolve.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/lock.h"
#include "base/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Different names; those left behind by whoever gave up count too, for as long as the system's
   resolver tries. */
#define LOOKUPS_MAX 64

/* Shared by the thread and all who want to know this now: whoever leaves last frees it. */
struct lookup {
    char *host; /* these three are constant */
    int port, done_fd;

    /* guarded by lookups_lock */
    struct lookup *next;
    unsigned owners;
    int rc; /* of getaddrinfo; it and the answers are set before done_fd (an eventfd) is written */
    bool too_many;
    struct dial_answers answers;
};

static pthread_mutex_t lookups_lock = PTHREAD_MUTEX_INITIALIZER;
static struct lookup *lookups; /* those under way */
static unsigned lookups_count;

static void leave(struct lookup *l)
{
    {
        AUTO_LOCK(&lookups_lock);
        if (--l->owners > 0)
            return;
    }
    fd_close(&l->done_fd);
    mem_free(l->host);
    mem_free(l);
}

/* With the lock held. */
static void keep_answers(struct lookup *l, const struct addrinfo *list)
{
    for (; list; list = list->ai_next) {
        if (l->answers.count == DIAL_ANSWERS_MAX) {
            l->too_many = true;
            return;
        }
        struct dial_address *a = &l->answers.list[l->answers.count++];
        memcpy(&a->sa, list->ai_addr, list->ai_addrlen);
        a->n = list->ai_addrlen;
    }
}

/* From now on the name is asked anew. */
static void finish(struct lookup *l, int rc, const struct addrinfo *list)
{
    AUTO_LOCK(&lookups_lock);
    struct lookup **at = &lookups;
    while (*at != l)
        at = &(*at)->next;
    *at = l->next;
    lookups_count--;
    l->rc = rc;
    keep_answers(l, list);
    uint64_t one = 1;
    ssize_t n = write(l->done_fd, &one, sizeof one);
    (void)n; /* an eventfd at 0 takes it */
}

static void *look_up(void *arg)
{
    struct lookup *l = arg;
    char port[8];
    snprintf(port, sizeof port, "%d", l->port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG}, *list = NULL;
    int rc = getaddrinfo(l->host, port, &hints, &list);
    finish(l, rc, rc == 0 ? list : NULL);
    if (rc == 0)
        freeaddrinfo(list);
    leave(l);
    return NULL;
}

/* With the lock held. */
static struct lookup *find(const char *host, int port)
{
    for (struct lookup *l = lookups; l; l = l->next)
        if (l->port == port && strcmp(l->host, host) == 0)
            return l;
    return NULL;
}

/* Many want the same name at once, such as a provider's after a pause: they share one lookup. */
static err join(const char *host, int port, struct lookup **out)
{
    AUTO_FD done = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (done < 0)
        return fail_errno("eventfd");
    AUTO_LOCK(&lookups_lock);
    struct lookup *l = find(host, port);
    if (l) {
        l->owners++;
        *out = l;
        return 0;
    }
    if (lookups_count >= LOOKUPS_MAX)
        return fail(E_UNAVAILABLE, "the name %s was not looked up: too many names are", host);
    l = mem_alloc(sizeof *l);
    *l = (struct lookup){.host = mem_strdup(host), .port = port, .owners = 2, .next = lookups};
    l->done_fd = fd_take(&done);
    lookups = l;
    lookups_count++;
    thread_start_detached("name-lookup", look_up, l);
    *out = l;
    return 0;
}

static err wait_done(const struct lookup *l, int64_t timeout_ms, int wake_fd)
{
    int64_t deadline_ms = clock_monotonic_ms(clock_real()) + timeout_ms;
    struct pollfd fds[2] = {{.fd = l->done_fd, .events = POLLIN},
                            {.fd = wake_fd, .events = POLLIN}};
    for (;;) {
        int64_t left_ms = deadline_ms - clock_monotonic_ms(clock_real());
        int n = left_ms > 0 ? poll(fds, 2, (int)left_ms) : 0;
        if (n < 0 && errno != EINTR)
            return fail_errno("poll");
        if (n == 0)
            return fail(E_UNAVAILABLE, "the name %s could not be resolved in time", l->host);
        if (n > 0 && fds[1].revents)
            return fail(E_CLOSED, "the request was given up while its host was looked up");
        if (n > 0)
            return 0;
    }
}

static err take_answers(const struct lookup *l, struct dial_answers *out)
{
    AUTO_LOCK(&lookups_lock);
    if (l->rc != 0)
        return fail(E_UNAVAILABLE, "the name %s could not be resolved (%s)", l->host,
                    gai_strerror(l->rc));
    if (l->too_many || l->answers.count == 0)
        return fail(E_UNAVAILABLE, "the name %s has %s addresses", l->host,
                    l->too_many ? "too many" : "no");
    *out = l->answers;
    return 0;
}

static bool take_literal(const char *host, int port, struct dial_answers *out)
{
    struct dial_address *a = &out->list[0];
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    *a = (struct dial_address){0};
    if (inet_pton(AF_INET, host, &v4.sin_addr) == 1)
        memcpy(&a->sa, &v4, a->n = sizeof v4);
    else if (inet_pton(AF_INET6, host, &v6.sin6_addr) == 1)
        memcpy(&a->sa, &v6, a->n = sizeof v6);
    out->count = a->n > 0;
    return a->n > 0;
}

err dial_resolve(const char *host, int port, int64_t timeout_ms, int wake_fd,
                 struct dial_answers *out)
{
    struct lookup *l = NULL;
    if (take_literal(host, port, out))
        return 0;
    TRY(join(host, port, &l));
    err e = wait_done(l, timeout_ms, wake_fd);
    if (!e)
        e = take_answers(l, out);
    leave(l);
    return e;
}
