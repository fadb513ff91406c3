/* src/session/history.c: pages of events and entries, and replays. */
#include "session/history.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "session/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#define TENANT "tenant_1"
#define SESSION "sess_01ARZ3NDEKTSV4RRFFQ69G5FAV"

struct fixture {
    char dir[64], path[256], folder[128];
    struct session_log *log;
    unsigned ids;
};

static int set_up(void **state)
{
    struct fixture *f = mem_alloc(sizeof *f);
    snprintf(f->dir, sizeof f->dir, "/tmp/pm-history-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->folder, sizeof f->folder, "%s/" TENANT, f->dir);
    snprintf(f->path, sizeof f->path, "%s/" SESSION ".jsonl", f->folder);
    assert_int_equal(log_open(f->dir, TENANT, SESSION, &f->log), 0);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    log_close(f->log);
    unlink(f->path);
    rmdir(f->folder);
    rmdir(f->dir);
    mem_free(f);
    return 0;
}

/* ---- lines ---- */

static void add(struct fixture *f, const char *line)
{
    log_append(f->log, str_of(line));
    assert_int_equal(log_sync(f->log), 0);
}

static void add_control(struct fixture *f, const char *kind, const char *data)
{
    AUTO_BUF line = {0};
    buf_printf(&line,
               "{\"type\":\"custom\",\"customType\":\"pi-managed:%s\",\"id\":\"c%u\",\"parentId\":"
               "null,\"timestamp\":\"2026-11-30T12:00:00.000Z\",\"data\":%s}",
               kind, ++f->ids, data);
    add(f, line.p);
}

static void add_post(struct fixture *f, const char *id)
{
    char data[200];
    snprintf(data, sizeof data,
             "{\"event\":{\"id\":\"%s\",\"type\":\"user.message\",\"content\":[]}}", id);
    add_control(f, "inbox", data);
}

static void add_processed(struct fixture *f, const char *id, bool withdrawn)
{
    char data[200];
    snprintf(data, sizeof data, "{\"eventId\":\"%s\",\"at\":\"2026-11-30T12:00:01.000Z\"%s}", id,
             withdrawn ? ",\"withdrawn\":true" : "");
    add_control(f, "processed", data);
}

static void add_event(struct fixture *f, const char *type)
{
    char data[200];
    snprintf(data, sizeof data, "{\"event\":{\"type\":\"%s\"}}", type);
    add_control(f, "event", data);
}

#define HEADER "{\"type\":\"session\",\"version\":3,\"id\":\"" SESSION "\"}"

/* Events 1..n, even ones of type b. */
static void add_events(struct fixture *f, int n)
{
    add(f, HEADER);
    for (int i = 1; i <= n; i++)
        add_event(f, i % 2 ? "session.a" : "session.b");
}

/* ---- answers ---- */

/* The seqs or positions of a page, e.g. "3 2 1". */
static const char *page_of(json_t *take_rows, const char *member)
{
    static char text[300];
    size_t n = 0, i;
    json_t *row;
    text[0] = 0;
    json_array_foreach(take_rows, i, row) n +=
        (size_t)snprintf(text + n, sizeof text - n, "%s%lld", i ? " " : "",
                         (long long)json_get_int(row, member, -1));
    json_decref(take_rows);
    return text;
}

static const char *events(struct fixture *f, struct history_query q)
{
    json_t *rows = NULL;
    assert_int_equal(history_events(f->dir, TENANT, SESSION, &q, &rows), 0);
    return page_of(rows, "seq");
}

static const char *entries(struct fixture *f, struct history_query q)
{
    json_t *rows = NULL;
    assert_int_equal(history_entries(f->dir, TENANT, SESSION, &q, &rows), 0);
    return page_of(rows, "position");
}

#define Q(...) ((struct history_query){__VA_ARGS__})
#define ASC .ascending = true
#define AFTER(n) .has_after = true, .after = (n)

static void a_session_without_a_log_has_no_past(void **state)
{
    struct fixture *f = *state;
    assert_string_equal(events(f, Q(.limit = 10)), "");
    assert_string_equal(entries(f, Q(.limit = 10, ASC)), "");
}

static void events_come_in_pages(void **state)
{
    static const struct {
        struct history_query q;
        const char *page;
    } cases[] = {
        {Q(ASC, .limit = 3), "1 2 3"},
        {Q(ASC, .limit = 3, AFTER(3)), "4 5 6"},
        {Q(ASC, .limit = 3, AFTER(5)), "6 7"},
        {Q(ASC, .limit = 3, AFTER(7)), ""},
        {Q(ASC, .limit = 3, AFTER(99)), ""},
        {Q(ASC, .limit = 100), "1 2 3 4 5 6 7"},
        {Q(.limit = 3), "7 6 5"},
        {Q(.limit = 3, AFTER(5)), "4 3 2"},
        {Q(.limit = 3, AFTER(2)), "1"},
        {Q(.limit = 3, AFTER(1)), ""},
        {Q(.limit = 3, AFTER(99)), "7 6 5"},
        {Q(.limit = 7), "7 6 5 4 3 2 1"},
        {Q(ASC, .limit = 2, .type = "session.b"), "2 4"},
        {Q(ASC, .limit = 2, .type = "session.b", AFTER(4)), "6"},
        {Q(.limit = 2, .type = "session.b"), "6 4"},
        {Q(.limit = 2, .type = "session.b", AFTER(4)), "2"},
        {Q(.limit = 2, .type = "session.c"), ""},
    };
    struct fixture *f = *state;
    add_events(f, 7);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(events(f, cases[i].q), cases[i].page);
}

static void entries_come_in_pages(void **state)
{
    static const struct {
        struct history_query q;
        const char *page;
    } cases[] = {
        {Q(ASC, .limit = 3), "1 2 3"},     {Q(ASC, .limit = 3, AFTER(3)), "4 5"},
        {Q(ASC, .limit = 9), "1 2 3 4 5"}, {Q(.limit = 2), "5 4"},
        {Q(.limit = 2, AFTER(4)), "3 2"},  {Q(.limit = 2, AFTER(1)), ""},
        {Q(.limit = 2, AFTER(99)), "5 4"}, {Q(.limit = 5), "5 4 3 2 1"},
    };
    struct fixture *f = *state;
    add_events(f, 4);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(entries(f, cases[i].q), cases[i].page);
}

static void an_entry_is_the_line_as_it_stands(void **state)
{
    struct fixture *f = *state;
    add(f, HEADER);
    add(f, "{\"type\":\"message\",\"id\":\"a\",\"n\":1,\"text\":\"a\\u0000b\"}");
    json_t *rows = NULL;
    struct history_query q = Q(ASC, .limit = 9);
    assert_int_equal(history_entries(f->dir, TENANT, SESSION, &q, &rows), 0);
    const json_t *entry = json_object_get(json_array_get(rows, 1), "entry");
    assert_true(str_eq(json_get_str(entry, "text"), STR("a\0b")));
    assert_true(json_is_integer(json_object_get(entry, "n")));
    json_decref(rows);
}

static void a_page_of_long_entries_ends_early(void **state)
{
    struct fixture *f = *state;
    static const char line[] = "{\"type\":\"x\",\"n\":1}";
    add(f, HEADER);
    for (size_t i = 0; i < 8; i++)
        add(f, line);
    const size_t three = 3 * strlen(line), one = 1;
    bool cut;
    static const struct {
        bool ascending, tiny;
        int64_t after;
        const char *page;
        bool cut;
    } cases[] = {
        {true, false, 1, "2 3 4", true},  {true, false, 6, "7 8 9", false},
        {true, true, 1, "2 3", true},     {false, false, 10, "9 8 7", true},
        {false, false, 5, "4 3 2", true}, {false, true, 5, "4 3", true},
        {true, false, 8, "9", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct history_query q =
            Q(.ascending = cases[i].ascending, AFTER(cases[i].after), .limit = 6,
              .bytes_max = cases[i].tiny ? one : three, .out_cut = &cut);
        assert_string_equal(entries(f, q), cases[i].page);
        assert_int_equal(cut, cases[i].cut);
    }
}

/* CASE 24. */
static void a_damaged_line_is_shown_and_hides_nothing(void **state)
{
    struct fixture *f = *state;
    add(f, HEADER);
    add_event(f, "session.a");
    add(f, "{\"type\":\"message\",\"text\":\"\xff\xfe");
    add_event(f, "session.b");
    assert_string_equal(events(f, Q(ASC, .limit = 9)), "1 2");
    json_t *rows = NULL;
    struct history_query q = Q(.limit = 2);
    assert_int_equal(history_entries(f->dir, TENANT, SESSION, &q, &rows), 0);
    const json_t *entry = json_object_get(json_array_get(rows, 1), "entry");
    assert_string_equal(json_get_c(entry, "type"), "unreadable");
    assert_string_equal(json_get_c(entry, "raw"),
                        "{\"type\":\"message\",\"text\":\"\xef\xbf\xbd\xef\xbf\xbd");
    json_decref(rows);
}

/* ---- R21: processedAt ---- */

static const char *processed_at(const json_t *rows, size_t i)
{
    const char *at = json_get_c(json_array_get(rows, i), "processedAt");
    return at ? at : "null";
}

static void a_later_line_says_when_an_event_was_processed(void **state)
{
    struct fixture *f = *state;
    add(f, HEADER);
    add_post(f, "evt_1");
    add_post(f, "evt_2");
    add_post(f, "evt_3");
    add_processed(f, "evt_1", false);
    add_event(f, "session.a");
    add_processed(f, "evt_3", true);
    struct history_query q = Q(ASC, .limit = 3); /* the page ends before the lines that tell */
    json_t *rows = NULL;
    assert_int_equal(history_events(f->dir, TENANT, SESSION, &q, &rows), 0);
    assert_string_equal(processed_at(rows, 0), "2026-11-30T12:00:01.000Z");
    assert_null(json_object_get(json_array_get(rows, 0), "withdrawn"));
    assert_string_equal(processed_at(rows, 1), "null");
    assert_string_equal(processed_at(rows, 2), "2026-11-30T12:00:01.000Z");
    assert_true(json_get_bool(json_array_get(rows, 2), "withdrawn", false));
    json_decref(rows);
}

static void a_fork_knows_when_copied_events_were_processed(void **state)
{
    struct fixture *f = *state;
    add(f,
        "{\"type\":\"session\",\"version\":3,\"id\":\"" SESSION "\",\"parentSession\":\"sess_x\"}");
    add_post(f, "evt_1");
    add_processed(f, "evt_1", false);
    add_control(f, "fork", "{\"fromSessionId\":\"sess_x\"}");
    add_post(f, "evt_2");
    add_processed(f, "evt_2", false);
    struct history_query q = Q(ASC, .limit = 9);
    json_t *rows = NULL;
    assert_int_equal(history_events(f->dir, TENANT, SESSION, &q, &rows), 0);
    assert_string_not_equal(json_get_c(json_array_get(rows, 0), "id"), "evt_1");
    assert_string_equal(processed_at(rows, 0), "2026-11-30T12:00:01.000Z");
    assert_string_equal(json_get_c(json_array_get(rows, 2), "id"), "evt_2");
    assert_string_equal(processed_at(rows, 2), "2026-11-30T12:00:01.000Z");
    json_decref(rows);
}

/* ---- replay ---- */

struct replayed {
    char text[300];
    int64_t stop_at;
};

static bool note_event(void *arg, int64_t seq, const json_t *event)
{
    struct replayed *r = arg;
    if (seq == r->stop_at)
        return false;
    assert_int_equal(json_get_int(event, "seq", 0), seq);
    size_t n = strlen(r->text);
    snprintf(r->text + n, sizeof r->text - n, "%lld ", (long long)seq);
    return true;
}

static void a_replay_goes_on_after_a_seq(void **state)
{
    struct fixture *f = *state;
    add_events(f, 5);
    struct replayed r = {.stop_at = -1};
    int64_t last = 0;
    assert_int_equal(history_replay(f->dir, TENANT, SESSION, 3, note_event, &r, &last), 0);
    assert_string_equal(r.text, "4 5 ");
    assert_int_equal(last, 5);
    r.text[0] = 0;
    assert_int_equal(history_replay(f->dir, TENANT, SESSION, 5, note_event, &r, &last), 0);
    assert_string_equal(r.text, "");
    assert_int_equal(last, 5);
    assert_int_equal(history_replay(f->dir, TENANT, SESSION, 99, note_event, &r, &last), 0);
    assert_int_equal(last, 99); /* R17: beyond the head */
    r.stop_at = 3;
    assert_int_equal(history_replay(f->dir, TENANT, SESSION, 0, note_event, &r, &last), 0);
    assert_string_equal(r.text, "1 2 ");
    assert_int_equal(last, 2);
    assert_int_equal(history_replay(f->dir, TENANT, "sess_none", 7, note_event, &r, &last), 0);
    assert_int_equal(last, 7);
}

/* An order of magnitude, for the day somebody makes it quadratic. */
static void pages_of_a_long_log_come_soon(void **state)
{
    struct fixture *f = *state;
    add(f, HEADER);
    for (int i = 0; i < 20000; i++) {
        char line[400];
        int n = snprintf(line, sizeof line,
                         "{\"type\":\"message\",\"id\":\"%08d\",\"timestamp\":"
                         "\"2026-11-30T12:00:00.000Z\",\"message\":{\"role\":\"user\",\"content\":"
                         "\"%0200d\"}}",
                         i, i);
        log_append(f->log, (struct str){line, (size_t)n});
    }
    assert_int_equal(log_sync(f->log), 0);
    int64_t before = clock_monotonic_ms(clock_real());
    assert_string_equal(events(f, Q(.limit = 2)), "20000 19999");
    assert_string_equal(events(f, Q(.limit = 2, ASC, AFTER(19998))), "19999 20000");
    int64_t middle = clock_monotonic_ms(clock_real());
    assert_string_equal(entries(f, Q(.limit = 2)), "20001 20000");
    int64_t after = clock_monotonic_ms(clock_real());
    if (getenv("HISTORY_TIMES"))
        print_message("events %lld ms, entries %lld ms\n", (long long)(middle - before) / 2,
                      (long long)(after - middle));
    assert_in_range(after - before, 0, 30000); /* also on a busy machine, sanitized */
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_session_without_a_log_has_no_past),
        TEST(events_come_in_pages),
        TEST(entries_come_in_pages),
        TEST(an_entry_is_the_line_as_it_stands),
        TEST(a_page_of_long_entries_ends_early),
        TEST(a_page_of_long_entries_ends_early),
        TEST(a_damaged_line_is_shown_and_hides_nothing),
        TEST(a_later_line_says_when_an_event_was_processed),
        TEST(a_fork_knows_when_copied_events_were_processed),
        TEST(a_replay_goes_on_after_a_seq),
        TEST(pages_of_a_long_log_come_soon),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
