/* The HTTP server against itself in one run: a route answered on the loop and one that hops to a
   worker (requests a second over keep-alive connections, one client thread), then idle event
   streams: memory for each and how long a broadcast takes until the last client has it. Usage: http
   [STREAMS] */
#include "../support/loopback.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/lock.h"
#include "http/sse.h"

#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define CONNECTIONS 64
#define RUN_MS 2000
#define STREAMS_MAX 20000
#define BROADCASTS 10

static uint16_t port;
static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sse *streams[STREAMS_MAX];
static int stream_count;

static err answer(struct ctx *ctx)
{
    json_t *body = json_object();
    json_set_str(body, "id", STR("agent_01MCC5RM008WXF1W76TSSHS283"));
    json_set_str(body, "name", STR("an agent of the size that agents have"));
    json_set_time(body, "createdAt", 1800000000000);
    return reply_json(ctx, 200, body);
}

static err watch(struct ctx *ctx)
{
    struct sse *s = sse_new(&(struct sse_options){0});
    AUTO_LOCK(&streams_lock);
    streams[stream_count++] = s;
    return sse_reply(ctx, s);
}

static const struct route table[] = {
    {GET, "/inline", answer, .scope = SCOPE_NONE, .where = HTTP_INLINE},
    {GET, "/worker", answer, .scope = SCOPE_NONE},
    {GET, "/watch", watch, .scope = SCOPE_NONE, .where = HTTP_INLINE},
    {0},
};
static const struct route *const tables[] = {table, NULL};

static int listen_on_loopback(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    must(bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && listen(fd, 4096) == 0, "listen");
    getsockname(fd, (struct sockaddr *)&a, &n);
    port = ntohs(a.sin_port);
    return fd;
}

static void say(int fd, const char *path)
{
    char text[128];
    int n = snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path);
    must(send(fd, text, (size_t)n, MSG_NOSIGNAL) == n, "send");
}

/* Each connection asks again as soon as it was answered; a reply fits into one packet. */
static double requests_per_second(const char *path)
{
    int poll_fd = epoll_create1(EPOLL_CLOEXEC), fds[CONNECTIONS];
    for (int i = 0; i < CONNECTIONS; i++) {
        fds[i] = dial(port);
        epoll_ctl(poll_fd, EPOLL_CTL_ADD, fds[i],
                  &(struct epoll_event){.events = EPOLLIN, .data.fd = fds[i]});
        say(fds[i], path);
    }
    double began = now_ms();
    long done = 0;
    while (now_ms() - began < RUN_MS) {
        struct epoll_event events[CONNECTIONS];
        int n = epoll_wait(poll_fd, events, CONNECTIONS, 1000);
        must(n > 0, "no reply for a second");
        for (int i = 0; i < n; i++) {
            char reply[4096];
            must(recv(events[i].data.fd, reply, sizeof reply, 0) > 0, "recv");
            done++;
            say(events[i].data.fd, path);
        }
    }
    double rate = (double)done * 1e3 / (now_ms() - began);
    for (int i = 0; i < CONNECTIONS; i++)
        close(fds[i]);
    close(poll_fd);
    return rate;
}

static long resident_kb(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    must(f != NULL && fscanf(f, "%*d %ld", &pages) == 1, "statm");
    fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void read_until(int fd, const char *mark)
{
    char text[8192] = "";
    size_t n = 0;
    while (strstr(text, mark) == NULL) {
        ssize_t got = recv(fd, text + n, sizeof text - 1 - n, 0);
        must(got > 0, "stream");
        n += (size_t)got;
        text[n] = 0;
    }
}

static void bench_streams(int count)
{
    static int fds[STREAMS_MAX];
    long before = resident_kb();
    for (int i = 0; i < count; i++) {
        fds[i] = dial(port);
        say(fds[i], "/watch");
        read_until(fds[i], "retry: 3000");
    }
    printf("idle streams           %d, %.1f KB each\n", count,
           (double)(resident_kb() - before) / count);
    double best = 1e9;
    for (int round = 0; round < BROADCASTS; round++) {
        AUTO_BUF frame = {0};
        char mark[32];
        snprintf(mark, sizeof mark, "round-%d.", round);
        sse_format(&frame, round + 1, "agent.message", str_of(mark));
        double began = now_ms();
        for (int i = 0; i < count; i++)
            sse_push(streams[i], buf_str(&frame), SSE_KEEP);
        for (int i = 0; i < count; i++)
            read_until(fds[i], mark);
        double ms = now_ms() - began;
        best = ms < best ? ms : best;
    }
    printf("broadcast to all       %.1f ms, best of %d\n", best, BROADCASTS);
    for (int i = 0; i < count; i++)
        close(fds[i]);
}

int main(int argc, char **argv)
{
    int count = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 1000;
    must(count >= 1 && count <= STREAMS_MAX, "STREAMS");
    must((rlim_t)count * 2 + 100 < allow_files(), "STREAMS against the limit of open files");
    struct http_options o = {
        .listen_fd = listen_on_loopback(), .tables = tables, .clock = clock_real()};
    struct http_server *server;
    must(http_start(&o, &server) == 0, "http_start");
    double on_loop = requests_per_second("/inline"), hopping = requests_per_second("/worker");
    printf("GET on the loop        %.0f/s\n", on_loop);
    printf("GET on a worker        %.0f/s, %.2f of it\n", hopping, hopping / on_loop);
    bench_streams(count);
    http_stop(server, 1000);
    for (int i = 0; i < stream_count; i++)
        sse_unref(streams[i]);
    return 0;
}
