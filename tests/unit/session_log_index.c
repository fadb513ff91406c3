/* src/session/log_index.c under history.c: with places noted every few lines each page is the same
   as without. Logs: the golden vectors and played turns. */
#include "session/log_index.h"

#include "../support/turn_world.h"
#include "base/fd.h"
#include "base/lock.h"
#include "session/history.h"
#include "session/log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define VECTORS "tests/vectors/projection"
#define NEVER (INT64_MAX / 4)

struct fixture {
    char dir[64];
};

static int set_up(void **state)
{
    struct fixture *f = mem_alloc(sizeof *f);
    snprintf(f->dir, sizeof f->dir, "/tmp/pm-index-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    char folder[128];
    snprintf(folder, sizeof folder, "%s/t", f->dir);
    assert_int_equal(mkdir(folder, 0700), 0);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    char folder[128];
    snprintf(folder, sizeof folder, "%s/t", f->dir);
    rmdir(folder);
    assert_int_equal(rmdir(f->dir), 0);
    mem_free(f);
    log_index_set_interval(256 << 10);
    return 0;
}

static void write_log(struct fixture *f, const char *session, struct str content)
{
    char path[256];
    snprintf(path, sizeof path, "%s/t/%s.jsonl", f->dir, session);
    AUTO_FD fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && fd_write_full(fd, content.p, content.n) == 0);
}

static json_t *page(struct fixture *f, const char *session, bool events, struct history_query q)
{
    json_t *rows = NULL;
    assert_int_equal((events ? history_events : history_entries)(f->dir, "t", session, &q, &rows),
                     0);
    return rows;
}

static int64_t row_number(const json_t *row)
{
    return json_get_int(row, "seq", json_get_int(row, "position", -1));
}

/* What the page must be, from all rows in order. */
static json_t *slice(const json_t *all, struct history_query q)
{
    json_t *out = json_array();
    size_t n = json_array_size(all);
    for (size_t i = 0; i < n && json_array_size(out) < q.limit; i++) {
        json_t *row = json_array_get(all, q.ascending ? i : n - 1 - i);
        int64_t number = row_number(row);
        if (q.has_after && (q.ascending ? number <= q.after : number >= q.after))
            continue;
        if (q.type == NULL || str_is(json_get_str(row, "type"), q.type))
            json_array_append(out, row);
    }
    return out;
}

static void compare_pages(struct fixture *f, const char *session, bool events, const json_t *all)
{
    static const char *const types[] = {NULL, "user.message", "nothing"};
    static const uint32_t limits[] = {1, 4, 1000};
    int64_t end = (int64_t)json_array_size(all) + 3;
    for (int64_t after = -1; after <= end; after += 2) {
        for (size_t k = 0; k < 2 * 3 * (events ? 3 : 1); k++) {
            struct history_query q = {.has_after = after >= 0,
                                      .after = after,
                                      .ascending = k & 1,
                                      .limit = limits[k / 2 % 3],
                                      .type = types[k / 6]};
            AUTO_JSON got = page(f, session, events, q);
            AUTO_JSON expected = slice(all, q);
            if (!json_equal(got, expected))
                fail_msg("after %lld, ascending %d, limit %u, type %s: %zu rows, expected %zu",
                         (long long)after, q.ascending, q.limit, q.type ? q.type : "any",
                         json_array_size(got), json_array_size(expected));
        }
    }
}

static bool note_seq(void *arg, int64_t seq, const json_t *event)
{
    (void)event;
    ++*(int64_t *)arg;
    return seq > 0;
}

static void compare_replays(struct fixture *f, const char *session, int64_t events)
{
    for (int64_t after = 0; after <= events; after++) {
        int64_t n = 0, last = 0;
        assert_int_equal(history_replay(f->dir, "t", session, after, note_seq, &n, &last), 0);
        assert_int_equal(n, events - after);
        assert_int_equal(last, events);
    }
}

/* The log of `lines` under both names; every page of one against the rows of the other. */
static void compare_log(struct fixture *f, struct str content)
{
    const struct history_query whole = {.ascending = true, .limit = 100000};
    write_log(f, SCRIPT_SESSION, content);
    log_index_set_interval(NEVER);
    AUTO_JSON events = page(f, SCRIPT_SESSION, true, whole);
    AUTO_JSON entries = page(f, SCRIPT_SESSION, false, whole);
    static const int64_t intervals[] = {1, 700};
    for (size_t i = 0; i < 2; i++) {
        log_index_set_interval(intervals[i]);
        compare_pages(f, SCRIPT_SESSION, true, events);
        compare_pages(f, SCRIPT_SESSION, false, entries);
        compare_replays(f, SCRIPT_SESSION, (int64_t)json_array_size(events));
        assert_int_equal(log_remove(f->dir, "t", SCRIPT_SESSION), 0);
        write_log(f, SCRIPT_SESSION, content);
    }
    assert_int_equal(log_remove(f->dir, "t", SCRIPT_SESSION), 0);
}

static void pages_of_the_vectors_are_the_same(void **state)
{
    struct fixture *f = *state;
    static const char *const names[] = {"turn-with-tools", "queue", "aborted", "fork", "damaged"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[200];
        AUTO_BUF content = {0};
        snprintf(path, sizeof path, VECTORS "/%s.jsonl", names[i]);
        assert_int_equal(fd_read_file(path, 1 << 20, &content), 0);
        compare_log(f, buf_str(&content));
    }
}

static void pages_of_played_turns_are_the_same(void **state)
{
    static const struct client_action actions[] = {
        {1, CLIENT_POST, "m1", "tools 2"},  {4, CLIENT_POST, "m2", "deep 2"},
        {9, CLIENT_STEER, "m3", "three"},   {12, CLIENT_WITHDRAW, NULL, "m2"},
        {30, CLIENT_POST, "m4", "tools 3"}, {40, CLIENT_INTERRUPT, "i1", NULL},
        {45, CLIENT_POST, "m5", "five"},    {0}};
    struct world *w = world_new(5, actions);
    world_play(w);
    AUTO_BUF content = {0};
    for (size_t i = 0; i < w->s->n; i++) {
        buf_add_str(&content, w->s->lines[i]);
        buf_add_char(&content, '\n');
    }
    compare_log(*state, buf_str(&content));
    world_free(w);
}

/* A log whose end was cut back after readers had seen it, and which grew again. */
static void places_that_no_longer_fit_are_dropped(void **state)
{
    struct fixture *f = *state;
    log_index_set_interval(1);
    AUTO_BUF content = {0};
    for (int round = 0; round < 3; round++) {
        buf_clear(&content);
        for (int i = 0; i < 40 - round; i++)
            buf_printf(&content,
                       "{\"type\":\"message\",\"id\":\"%d-%d\",\"message\":{\"role\":\"user\","
                       "\"content\":\"%s\"}}\n",
                       i > 20 ? round : 0, i, i % 2 ? "longer text" : "x");
        write_log(f, SCRIPT_SESSION, buf_str(&content));
        AUTO_JSON rows =
            page(f, SCRIPT_SESSION, true, (struct history_query){.limit = 3, .has_after = false});
        assert_int_equal(json_array_size(rows), 3);
        assert_int_equal(row_number(json_array_get(rows, 0)), 40 - round);
        AUTO_JSON again = page(f, SCRIPT_SESSION, false, (struct history_query){.limit = 3});
        assert_int_equal(row_number(json_array_get(again, 0)), 40 - round);
        const json_t *entry = json_object_get(json_array_get(again, 0), "entry");
        char id[20];
        snprintf(id, sizeof id, "%d-%d", round, 39 - round);
        assert_string_equal(json_get_c(entry, "id"), id);
    }
    assert_int_equal(log_remove(f->dir, "t", SCRIPT_SESSION), 0);
    AUTO_JSON rows = page(f, SCRIPT_SESSION, true, (struct history_query){.limit = 3});
    assert_int_equal(json_array_size(rows), 0);
}

static void many_logs_are_read_and_the_oldest_forgotten(void **state)
{
    struct fixture *f = *state;
    log_index_set_interval(1);
    char name[32];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 300; i++) {
            snprintf(name, sizeof name, "s%d", i);
            if (round == 0)
                write_log(f, name,
                          STR("{\"type\":\"message\",\"id\":\"a\",\"message\":{\"role\":"
                              "\"user\",\"content\":\"x\"}}\n{}\n"));
            AUTO_JSON rows = page(f, name, true, (struct history_query){.limit = 3});
            assert_int_equal(json_array_size(rows), 1);
            if (round == 1)
                assert_int_equal(log_remove(f->dir, "t", name), 0);
        }
    }
}

/* ---- what a new process knows ---- */

static void lines_of(int n, struct buf *out)
{
    for (int i = 0; i < n; i++)
        buf_printf(out,
                   "{\"type\":\"message\",\"id\":\"%08d\",\"message\":{\"role\":\"user\","
                   "\"content\":\"number %d\"}}\n",
                   i, i);
}

static void places_file(struct fixture *f, char out[256])
{
    snprintf(out, 256, "%s/t/%s.places", f->dir, SCRIPT_SESSION);
}

static void expect_last(struct fixture *f, int64_t n)
{
    for (int events = 0; events < 2; events++) {
        AUTO_JSON rows = page(f, SCRIPT_SESSION, events, (struct history_query){.limit = 3});
        assert_int_equal(json_array_size(rows), 3);
        for (int64_t i = 0; i < 3; i++)
            assert_int_equal(row_number(json_array_get(rows, (size_t)i)), n - i);
    }
}

/* The beginning becomes unreadable: who still knows the numbers of the end has not read it. */
static void a_new_process_need_not_read_everything(void **state)
{
    struct fixture *f = *state;
    char file[256];
    places_file(f, file);
    AUTO_BUF content = {0};
    lines_of(400, &content);
    log_index_set_interval(1000);
    write_log(f, SCRIPT_SESSION, buf_str(&content));
    expect_last(f, 400);
    assert_int_equal(access(file, F_OK), 0);
    for (size_t i = 0; i < content.n / 2; i++)
        if (content.p[i] == '\n')
            content.p[i] = ' ';
    write_log(f, SCRIPT_SESSION, buf_str(&content));
    log_index_forget_all();
    expect_last(f, 400);
    assert_int_equal(unlink(file), 0); /* without it everything is read, and counted anew */
    log_index_forget_all();
    AUTO_JSON rows = page(f, SCRIPT_SESSION, true, (struct history_query){.limit = 1});
    assert_true(row_number(json_array_get(rows, 0)) < 300);
    assert_int_equal(log_remove(f->dir, "t", SCRIPT_SESSION), 0);
    assert_int_not_equal(access(file, F_OK), 0);
}

static void write_places(struct fixture *f, struct str content)
{
    char file[256];
    places_file(f, file);
    AUTO_FD fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && fd_write_full(fd, content.p, content.n) == 0);
}

/* Whatever lies in the file, the pages are right. */
static void a_file_of_places_is_only_a_help(void **state)
{
    static const char *const bad[] = {
        "",
        "x",
        "{}\n[]\nnull\n",
        "{\"offset\":5,\"number\":1,\"tail\":\"zz\",\"projection\":{}}\n",
        "{\"offset\":1000,\"number\":99,\"tail\":\"0a\",\"projection\":{\"version\":99}}\n",
        "{\"offset\":1000,\"number\":99,\"tail\":\"610a\",\"projection\":{\"version\":1,\"seq\":7,"
        "\"messages\":{},\"given\":{},\"startLine\":\"\"}}\n",
        "{\"offset\":9999999,\"number\":99,\"tail\":\"610a\",\"projection\":{\"version\":1,\"seq\":"
        "7,"
        "\"messages\":{},\"given\":{},\"startLine\":\"\"}}\n",
    };
    struct fixture *f = *state;
    AUTO_BUF content = {0};
    lines_of(100, &content);
    log_index_set_interval(1000);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_log(f, SCRIPT_SESSION, buf_str(&content));
        write_places(f, str_of(bad[i]));
        log_index_forget_all();
        expect_last(f, 100);
        log_index_forget_all();
        expect_last(f, 100);
        assert_int_equal(log_remove(f->dir, "t", SCRIPT_SESSION), 0);
    }
}

/* ---- side by side (run it under ThreadSanitizer) ---- */

static void *read_pages(void *arg)
{
    struct fixture *f = arg;
    for (int64_t i = 0; i < 200; i++) {
        struct history_query q = {.limit = 5, .has_after = true, .after = 300 - i};
        json_t *rows = NULL;
        if (history_events(f->dir, "t", SCRIPT_SESSION, &q, &rows) || json_array_size(rows) != 5 ||
            row_number(json_array_get(rows, 0)) != 299 - i)
            abort();
        json_decref(rows);
        if (history_entries(f->dir, "t", SCRIPT_SESSION, &q, &rows))
            abort();
        json_decref(rows);
    }
    return NULL;
}

static void readers_share_the_places(void **state)
{
    struct fixture *f = *state;
    AUTO_BUF content = {0};
    for (int i = 0; i < 300; i++)
        buf_printf(&content,
                   "{\"type\":\"message\",\"id\":\"%d\",\"message\":{\"role\":\"user\","
                   "\"content\":\"x\"}}\n",
                   i);
    write_log(f, SCRIPT_SESSION, buf_str(&content));
    log_index_set_interval(500);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        threads[i] = thread_start("reader", read_pages, f);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(log_remove(f->dir, "t", SCRIPT_SESSION), 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(pages_of_the_vectors_are_the_same),
        TEST(pages_of_played_turns_are_the_same),
        TEST(places_that_no_longer_fit_are_dropped),
        TEST(many_logs_are_read_and_the_oldest_forgotten),
        TEST(a_new_process_need_not_read_everything),
        TEST(a_file_of_places_is_only_a_help),
        TEST(readers_share_the_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
