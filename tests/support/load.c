/* A load generator for tests/bench/api.mjs: keeps connections busy with one request, each as soon
   as the one before was answered. Usage: load PORT CONNECTIONS MILLISECONDS < REQUEST; "%%%%%%%%"
   in the request becomes a number of its own each time. Prints JSON:
   {"requests","perSecond","p50Ms","p99Ms","errors"}; errors are replies other than 2xx. With HOLD
   as the time: sends the request once on each connection, prints "open" when all have an answer's
   head, and keeps them until its standard input ends. */
#include "loopback.h"

#include <netinet/tcp.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <unistd.h>

#define REQUEST_MAX 65536
#define REPLY_MAX (1 << 20)
#define SAMPLES_MAX 4000000
#define MARK "%%%%%%%%"

struct connection {
    int fd;
    char *reply;
    size_t n;
    double began_ms;
};

static char request[REQUEST_MAX];
static size_t request_bytes;
static float *samples;
static long done, errors;

static void say(struct connection *c)
{
    static unsigned long number;
    char *mark = memmem(request, request_bytes, MARK, sizeof MARK - 1);
    static char *at;
    if (at == NULL)
        at = mark;
    if (at) {
        char digits[sizeof MARK];
        snprintf(digits, sizeof digits, "%08lu", number++ % 100000000);
        memcpy(at, digits, sizeof MARK - 1);
    }
    c->n = 0;
    c->began_ms = now_ms();
    must(send(c->fd, request, request_bytes, MSG_NOSIGNAL) == (ssize_t)request_bytes, "send");
}

/* The length of a whole reply in the buffer; 0: not whole yet. */
static size_t whole(const struct connection *c)
{
    const char *end = memmem(c->reply, c->n, "\r\n\r\n", 4);
    if (end == NULL)
        return 0;
    size_t head = (size_t)(end - c->reply) + 4, body = 0;
    for (const char *p = c->reply; p < end; p = strchr(p, '\n') + 1) {
        if (strncasecmp(p, "content-length:", 15) == 0)
            body = strtoul(p + 15, NULL, 10);
    }
    return c->n >= head + body ? head + body : 0;
}

static void take(struct connection *c)
{
    ssize_t got = recv(c->fd, c->reply + c->n, REPLY_MAX - 1 - c->n, 0);
    must(got > 0, "recv");
    c->n += (size_t)got;
    c->reply[c->n] = 0;
    if (whole(c) == 0)
        return;
    if (done < SAMPLES_MAX)
        samples[done] = (float)(now_ms() - c->began_ms);
    done++;
    errors += c->reply[9] != '2';
    say(c);
}

static int compare(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void report(double ms)
{
    size_t n = done < SAMPLES_MAX ? (size_t)done : SAMPLES_MAX;
    qsort(samples, n, sizeof *samples, compare);
    must(n > 0, "no reply at all");
    printf("{\"requests\":%ld,\"perSecond\":%.1f,\"p50Ms\":%.3f,\"p99Ms\":%.3f,\"errors\":%ld}\n",
           done, (double)done * 1e3 / ms, (double)samples[n / 2], (double)samples[n * 99 / 100],
           errors);
}

static void hold(struct connection *all, int count)
{
    for (int i = 0; i < count; i++) {
        say(&all[i]);
        while (memmem(all[i].reply, all[i].n, "\r\n\r\n", 4) == NULL) {
            ssize_t got = recv(all[i].fd, all[i].reply + all[i].n, 4096, 0);
            must(got > 0, "recv");
            all[i].n += (size_t)got;
        }
        must(all[i].reply[9] == '2', "a reply other than 2xx");
    }
    printf("open\n");
    fflush(stdout);
    for (;;) /* until it is ended */
        pause();
}

int main(int argc, char **argv)
{
    must(argc == 4, "usage: load PORT CONNECTIONS MILLISECONDS|hold < REQUEST");
    uint16_t port = (uint16_t)strtoul(argv[1], NULL, 10);
    int count = (int)strtol(argv[2], NULL, 10), poll_fd = epoll_create1(EPOLL_CLOEXEC);
    int holding = strcmp(argv[3], "hold") == 0;
    double limit_ms = strtod(argv[3], NULL);
    int one = 1;
    allow_files();
    request_bytes = fread(request, 1, sizeof request - 1, stdin);
    samples = calloc(SAMPLES_MAX, sizeof *samples);
    struct connection *all = calloc((size_t)count, sizeof *all);
    must(samples && all && count > 0, "memory");
    for (int i = 0; i < count; i++) {
        all[i].fd = dial(port);
        setsockopt(all[i].fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        all[i].reply = malloc(holding ? 8192 : REPLY_MAX);
        epoll_ctl(poll_fd, EPOLL_CTL_ADD, all[i].fd,
                  &(struct epoll_event){.events = EPOLLIN, .data.ptr = &all[i]});
    }
    if (holding)
        hold(all, count);
    double began = now_ms();
    for (int i = 0; i < count; i++)
        say(&all[i]);
    while (now_ms() - began < limit_ms) {
        struct epoll_event events[64];
        int n = epoll_wait(poll_fd, events, 64, 10000);
        must(n > 0, "no reply for ten seconds");
        for (int i = 0; i < n; i++)
            take(events[i].data.ptr);
    }
    report(now_ms() - began);
    return 0;
}
