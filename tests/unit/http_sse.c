/* Event streams: frames and queue by themselves, then over real sockets. */
#include "http_raw.h"

#include "base/lock.h"
#include "base/mem.h"
#include "http/sse.c"

#define CLIENTS 300
#define WAIT_MS 20000
#define GRACE_MS 60000

static uint16_t port;
static struct http_server *server;
static unsigned queue_bytes; /* of the streams opened next */

/* What the server side knows of its streams. */
static pthread_mutex_t watch_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static struct sse *streams[CLIENTS + 8];
static unsigned opened, closed, freed, hungry_calls;

static void note(unsigned *counter)
{
    AUTO_LOCK(&watch_lock);
    (*counter)++;
    pthread_cond_broadcast(&changed);
}

static void wait_until(const unsigned *counter, unsigned at_least)
{
    AUTO_LOCK(&watch_lock);
    while (*counter < at_least)
        if (!cond_wait_ms(&changed, &watch_lock, WAIT_MS))
            test_fail("%u of %u after %d ms\n", *counter, at_least, WAIT_MS);
}

static void on_hungry(void *arg)
{
    (void)arg;
    note(&hungry_calls);
}

static void on_client_closed(void *arg)
{
    (void)arg;
    note(&closed);
}

static void on_client_freed(void *arg)
{
    (void)arg;
    note(&freed);
}

static err watch(struct ctx *ctx)
{
    struct sse *s = sse_new(&(struct sse_options){.bytes_max = queue_bytes,
                                                  .hungry = on_hungry,
                                                  .closed = on_client_closed,
                                                  .freed = on_client_freed});
    TRY(sse_reply(ctx, s));
    AUTO_LOCK(&watch_lock);
    streams[opened++] = s;
    pthread_cond_broadcast(&changed);
    return 0;
}

/* A replay in parts: each time the client took everything, the next part. */
#define REPLAY_FRAMES 5000
struct replay {
    struct sse *sse;
    int next;
};

static void replay_part(void *arg)
{
    struct replay *r = arg;
    for (int i = 0; i < 100 && r->next <= REPLAY_FRAMES; i++, r->next++) {
        AUTO_BUF b = {0};
        sse_format(&b, r->next, "agent.message", STR("{\"text\":\"from the log\"}"));
        sse_push(r->sse, buf_str(&b), SSE_KEEP);
    }
    if (r->next > REPLAY_FRAMES)
        sse_end(r->sse);
}

static err replay(struct ctx *ctx)
{
    struct replay *r = mem_alloc(sizeof *r);
    r->next = 1;
    r->sse = sse_new(&(struct sse_options){
        .bytes_max = 16 * KB, .hungry = replay_part, .freed = mem_free, .arg = r});
    err e = sse_reply(ctx, r->sse);
    sse_unref(r->sse);
    return e;
}

/* A source that is woken after it found nothing and before its connection sleeps. */
static struct late {
    struct http_stream *stream;
    int reads;
} late;

static void *wake_late(void *arg)
{
    (void)arg;
    http_stream_wake(late.stream);
    return NULL;
}

static ssize_t late_read(void *state, char *out, size_t cap)
{
    struct late *l = state;
    assert_true(cap >= 4);
    switch (++l->reads) {
    case 1:
        pthread_join(thread_start("waker", wake_late, NULL), NULL);
        return 0;
    case 2:
        memcpy(out, "late", 4);
        return 4;
    default:
        return -1;
    }
}

static void late_closed(void *state)
{
    (void)state;
    note(&closed);
}

static err watch_late(struct ctx *ctx)
{
    late.reads = 0;
    struct http_source source = {.read = late_read, .closed = late_closed, .state = &late};
    return reply_stream(ctx, "text/event-stream", source, &late.stream);
}

static const struct route table[] = {
    {GET, "/late", watch_late, .scope = SCOPE_NONE, .where = HTTP_INLINE},
    {GET, "/watch", watch, .scope = SCOPE_NONE},
    {GET, "/watch-inline", watch, .scope = SCOPE_NONE, .where = HTTP_INLINE},
    {GET, "/replay", replay, .scope = SCOPE_NONE},
    {0},
};
static const struct route *const tables[] = {table, NULL};

static void start_server(unsigned heartbeat_ms)
{
    opened = closed = freed = hungry_calls = 0;
    queue_bytes = 0;
    struct http_options o = {.listen_fd = raw_listen(&port),
                             .tables = tables,
                             .clock = clock_real(),
                             .workers = 2,
                             .heartbeat_ms = heartbeat_ms};
    assert_int_equal(http_start(&o, &server), 0);
}

static void stop_server(void)
{
    http_stop(server, GRACE_MS);
    for (unsigned i = 0; i < opened; i++)
        sse_unref(streams[i]);
    assert_int_equal(closed, opened);
    assert_int_equal(freed, opened);
}

static struct raw_client open_stream(const char *path)
{
    struct raw_client c = raw_connect(port);
    char text[128];
    snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path);
    raw_say(&c, text);
    assert_true(raw_wait_for(&c, ": connected\nretry: 3000\n\n"));
    return c;
}

static void push_all(unsigned from, unsigned to, const char *data, enum sse_kind kind)
{
    AUTO_BUF b = {0};
    sse_format(&b, 7, "test.event", str_of(data));
    for (unsigned i = from; i < to; i++)
        sse_push(streams[i], buf_str(&b), kind);
}

/* The body of a chunked reply received so far; *out_ended tells whether the last chunk was there.
 */
static void dechunk(const struct buf *in, struct buf *out, bool *out_ended)
{
    *out_ended = false;
    const char *p = raw_find(in, "\r\n\r\n") + 4, *end = in->p + in->n;
    while (p < end) {
        char *line_end;
        unsigned long n = strtoul(p, &line_end, 16);
        assert_int_equal(strncmp(line_end, "\r\n", 2), 0);
        *out_ended = n == 0;
        if (n == 0)
            return;
        p = line_end + 2;
        assert_true(p + n + 2 <= end);
        buf_add(out, p, n);
        p += n + 2;
    }
}

/* ---- frames and queue ---- */

static void a_frame_has_id_event_and_one_data_line(void **state)
{
    (void)state;
    static const struct {
        int64_t id;
        const char *type, *data, *expected;
    } cases[] = {
        {3, "a.b", "{}", "id: 3\nevent: a.b\ndata: {}\n\n"},
        {0, "delta", "{}", "event: delta\ndata: {}\n\n"},
        {0, NULL, "", "data: \n\n"},
        {0, NULL, "a\nb\r\nc\rd", "data: a\ndata: b\ndata: c\ndata: d\n\n"},
        {0, NULL, "a\n", "data: a\ndata: \n\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        AUTO_BUF b = {0};
        sse_format(&b, cases[i].id, cases[i].type, str_of(cases[i].data));
        assert_string_equal(b.p, cases[i].expected);
    }
}

static void read_everything(struct sse *s, struct buf *out)
{
    char part[7]; /* frames are cut anywhere */
    ssize_t n;
    while ((n = on_read(s, part, sizeof part)) > 0)
        buf_add(out, part, (size_t)n);
}

static void deltas_go_first_when_the_queue_is_full(void **state)
{
    (void)state;
    struct sse *s = sse_new(&(struct sse_options){.bytes_max = 30});
    AUTO_BUF out = {0};
    read_everything(s, &out);
    buf_clear(&out);
    assert_true(sse_push(s, STR("dddddddddd"), SSE_DROPPABLE));
    assert_true(sse_push(s, STR("kkkkkkkkkk"), SSE_KEEP));
    assert_true(sse_push(s, STR("eeeeeeeeee"), SSE_DROPPABLE));
    assert_int_equal(sse_room(s), 0);
    assert_true(sse_push(s, STR("ffffffffff"), SSE_DROPPABLE)); /* this one is left out itself */
    assert_true(sse_push(s, STR("KKKKKKKKKK"), SSE_KEEP));      /* takes the place of the d */
    assert_true(sse_push(s, STR("LLLLLLLLLL"), SSE_KEEP));      /* and of the e */
    read_everything(s, &out);
    assert_string_equal(out.p, "kkkkkkkkkkKKKKKKKKKKLLLLLLLLLL");
    sse_unref(s);
}

static void a_delta_half_sent_is_finished(void **state)
{
    (void)state;
    struct sse *s = sse_new(&(struct sse_options){.bytes_max = 20});
    AUTO_BUF out = {0};
    read_everything(s, &out);
    assert_true(sse_push(s, STR("dddddddddd"), SSE_DROPPABLE));
    char part[4];
    assert_int_equal(on_read(s, part, sizeof part), 4);
    assert_true(sse_push(s, STR("kkkkkkkkkk"), SSE_KEEP));
    assert_false(sse_push(s, STR("KKKKKKKKKK"), SSE_KEEP)); /* only the rest of d could make room */
    assert_int_equal(on_read(s, part, sizeof part), -1);
    sse_unref(s);
}

static void a_frame_larger_than_the_queue_goes_alone(void **state)
{
    (void)state;
    struct sse *s = sse_new(&(struct sse_options){.bytes_max = 8});
    AUTO_BUF out = {0};
    read_everything(s, &out);
    buf_clear(&out);
    assert_true(sse_push(s, STR("longer than eight"), SSE_KEEP));
    read_everything(s, &out);
    assert_string_equal(out.p, "longer than eight");
    assert_true(sse_push(s, STR("longer than eight"), SSE_KEEP));
    assert_false(sse_push(s, STR("x"), SSE_KEEP));
    assert_false(sse_push(s, STR("x"), SSE_DROPPABLE));
    sse_unref(s);
}

static void an_ended_queue_is_drained_first(void **state)
{
    (void)state;
    struct sse *s = sse_new(&(struct sse_options){0});
    sse_push(s, STR("last"), SSE_KEEP);
    sse_end(s);
    assert_false(sse_push(s, STR("too late"), SSE_KEEP));
    char all[64];
    ssize_t n = on_read(s, all, sizeof all);
    assert_int_equal(n, strlen(FIRST_WORDS "last"));
    assert_int_equal(on_read(s, all, sizeof all), -1);
    sse_unref(s);
}

/* ---- over sockets ---- */

static void a_stream_opens_with_its_headers_and_a_comment(void **state)
{
    (void)state;
    start_server(0);
    static const char *const paths[] = {"/watch", "/watch-inline"};
    for (size_t i = 0; i < 2; i++) {
        struct raw_client c = open_stream(paths[i]);
        assert_non_null(raw_find(&c.in, "Content-Type: text/event-stream\r\n"));
        assert_non_null(raw_find(&c.in, "Cache-Control: no-cache, no-transform\r\n"));
        assert_non_null(raw_find(&c.in, "X-Accel-Buffering: no\r\n"));
        assert_non_null(raw_find(&c.in, "Transfer-Encoding: chunked\r\n"));
        assert_non_null(raw_find(&c.in, "X-Request-Id: req_"));
        raw_close(&c);
    }
    stop_server();
}

static void head_of_a_stream_has_no_body_and_leaves_nothing(void **state)
{
    (void)state;
    start_server(0);
    struct raw_reply r = raw_askf(port, "HEAD /watch HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_int_equal(r.status, 200);
    raw_reply_done(&r);
    wait_until(&closed, 1);
    stop_server();
}

static void three_hundred_clients_get_a_broadcast(void **state)
{
    (void)state;
    start_server(0);
    static struct raw_client clients[CLIENTS];
    for (unsigned i = 0; i < CLIENTS; i++)
        clients[i] = open_stream("/watch");
    wait_until(&opened, CLIENTS);
    push_all(0, CLIENTS, "{\"n\":1}", SSE_KEEP);
    for (unsigned i = 0; i < CLIENTS; i++) {
        assert_true(raw_wait_for(&clients[i], "id: 7\nevent: test.event\ndata: {\"n\":1}\n\n"));
        raw_close(&clients[i]);
    }
    stop_server();
}

struct pusher {
    unsigned from;
    int rounds;
};

static void *push_many(void *arg)
{
    struct pusher *p = arg;
    for (int i = 0; i < p->rounds; i++)
        push_all(p->from, p->from + 20, "{}", SSE_KEEP);
    return NULL;
}

static void heartbeats_come_between_frames_only(void **state)
{
    (void)state;
    start_server(1);
    struct raw_client clients[20];
    for (unsigned i = 0; i < 20; i++)
        clients[i] = open_stream("/watch");
    wait_until(&opened, 20);
    struct pusher work = {.from = 0, .rounds = 200};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        threads[i] = thread_start("pusher", push_many, &work);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < 20; i++) {
        sse_end(streams[i]);
        assert_true(raw_wait_for(&clients[i], "\r\n0\r\n\r\n"));
        AUTO_BUF body = {0};
        bool ended;
        dechunk(&clients[i].in, &body, &ended);
        unsigned frames = 0;
        struct str rest = buf_str(&body), line;
        while (str_split(&rest, '\n', &line)) {
            if (str_is(line, "data: {}"))
                frames++;
            else if (!(line.n == 0 || str_is(line, "id: 7") || str_is(line, ": hb") ||
                       str_is(line, "event: test.event") || str_is(line, ": connected") ||
                       str_is(line, "retry: 3000")))
                test_fail("a broken frame: %.*s\n", STR_ARG(line));
        }
        assert_int_equal(frames, 800);
        raw_close(&clients[i]);
    }
    stop_server();
}

static void a_wake_between_read_and_sleep_is_not_lost(void **state)
{
    (void)state;
    start_server(600000);
    struct raw_client c = raw_connect(port);
    raw_say(&c, "GET /late HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(raw_wait_for(&c, "late"));
    assert_true(raw_wait_for(&c, "\r\n0\r\n\r\n"));
    wait_until(&closed, 1);
    raw_close(&c);
    http_stop(server, 1000);
}

/* The next event comes just when the streams fall asleep after the one before. */
static void no_wake_is_lost_while_a_stream_falls_asleep(void **state)
{
    (void)state;
    start_server(600000);
    struct raw_client clients[10];
    for (unsigned i = 0; i < 10; i++)
        clients[i] = open_stream("/watch");
    wait_until(&opened, 10);
    for (int round = 0; round < 200; round++) {
        char data[32];
        snprintf(data, sizeof data, "round-%d.", round);
        push_all(0, 10, data, SSE_KEEP);
        for (unsigned i = 0; i < 10; i++) {
            assert_true(raw_wait_for(&clients[i], data));
            buf_clear(&clients[i].in);
        }
    }
    for (unsigned i = 0; i < 10; i++)
        raw_close(&clients[i]);
    stop_server();
}

static void a_slow_reader_is_hung_up_on(void **state)
{
    (void)state;
    start_server(0);
    queue_bytes = 64 * KB;
    struct raw_client c = open_stream("/watch");
    wait_until(&opened, 1);
    AUTO_BUF big = {0};
    for (int i = 0; i < 10000; i++)
        buf_add_char(&big, 'x');
    AUTO_BUF frame = {0};
    sse_format(&frame, 1, "e", buf_str(&big));
    bool taken = true;
    for (int i = 0; i < 100000 && taken; i++) /* 1 GB: more than any socket buffer */
        taken = sse_push(streams[0], buf_str(&frame), SSE_KEEP);
    assert_false(taken);
    wait_until(&closed, 1); /* at once, not after a timeout */
    while (raw_more(&c))
        ;
    raw_close(&c);
    stop_server();
}

static void dead_clients_are_noticed_by_the_heartbeat(void **state)
{
    (void)state;
    start_server(30);
    struct raw_client clients[50];
    for (unsigned i = 0; i < 50; i++)
        clients[i] = open_stream("/watch");
    assert_true(raw_wait_for(&clients[0], ": hb\n\n"));
    for (unsigned i = 0; i < 50; i++)
        raw_close(&clients[i]);
    wait_until(&closed, 50);
    stop_server();
}

static void a_long_replay_passes_a_small_queue(void **state)
{
    (void)state;
    start_server(0);
    struct raw_client c = raw_connect(port);
    raw_say(&c, "GET /replay HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    while (raw_more(&c))
        ;
    AUTO_BUF body = {0};
    bool ended;
    dechunk(&c.in, &body, &ended);
    assert_true(ended);
    for (int i = 1; i <= REPLAY_FRAMES; i++) {
        char id[32];
        snprintf(id, sizeof id, "\nid: %d\n", i);
        if (raw_find(&body, id) == NULL)
            test_fail("frame %d is missing\n", i);
    }
    raw_close(&c);
    stop_server();
}

static void stopping_ends_open_streams_properly(void **state)
{
    (void)state;
    start_server(0);
    struct raw_client clients[30];
    for (unsigned i = 0; i < 30; i++)
        clients[i] = open_stream("/watch");
    wait_until(&opened, 30);
    int64_t before = clock_monotonic_ms(clock_real());
    stop_server();
    assert_true(clock_monotonic_ms(clock_real()) - before <
                GRACE_MS / 2); /* it was not waited out */
    for (unsigned i = 0; i < 30; i++) {
        while (raw_more(&clients[i]))
            ;
        AUTO_BUF body = {0};
        bool ended;
        dechunk(&clients[i].in, &body, &ended);
        assert_true(ended);
        raw_close(&clients[i]);
    }
}

static void stopping_does_not_wait_for_a_stuck_reader(void **state)
{
    (void)state;
    start_server(0);
    queue_bytes = 64 * MB;
    struct raw_client c = open_stream("/watch");
    wait_until(&opened, 1);
    AUTO_BUF big = {0};
    for (int i = 0; i < 16 * 1000 * 1000; i++)
        buf_add_char(&big, 'x');
    assert_true(sse_push(streams[0], buf_str(&big), SSE_KEEP));
    http_stop(server, 200);
    sse_unref(streams[0]);
    assert_int_equal(freed, 1);
    raw_close(&c);
}

int main(void)
{
    cond_init(&changed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_frame_has_id_event_and_one_data_line),
        cmocka_unit_test(deltas_go_first_when_the_queue_is_full),
        cmocka_unit_test(a_delta_half_sent_is_finished),
        cmocka_unit_test(a_frame_larger_than_the_queue_goes_alone),
        cmocka_unit_test(an_ended_queue_is_drained_first),
        cmocka_unit_test(a_stream_opens_with_its_headers_and_a_comment),
        cmocka_unit_test(head_of_a_stream_has_no_body_and_leaves_nothing),
        cmocka_unit_test(three_hundred_clients_get_a_broadcast),
        cmocka_unit_test(a_wake_between_read_and_sleep_is_not_lost),
        cmocka_unit_test(no_wake_is_lost_while_a_stream_falls_asleep),
        cmocka_unit_test(heartbeats_come_between_frames_only),
        cmocka_unit_test(a_slow_reader_is_hung_up_on),
        cmocka_unit_test(dead_clients_are_noticed_by_the_heartbeat),
        cmocka_unit_test(a_long_replay_passes_a_small_queue),
        cmocka_unit_test(stopping_ends_open_streams_properly),
        cmocka_unit_test(stopping_does_not_wait_for_a_stuck_reader),
    };
    return cmocka_run_group_tests_name("http_sse", tests, NULL, NULL);
}
