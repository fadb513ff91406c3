/* src/session/projection.c: golden vectors, one pair of files for each kind of log in
   tests/vectors/projection. NAME.jsonl is a log, NAME.events.json what it must give, for ever: seq
   and ids are promises to clients. PROJECTION_REGENERATE=1 writes the events anew; then read the
   difference before you commit it. Run from the top of the repository. */
#include "session/projection.h"

#include "base/buf.h"
#include "base/id.h"
#include "base/lock.h"
#include "base/mem.h"
#include "session/log.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define VECTORS "tests/vectors/projection"
#define SESSION "sess_01ARZ3NDEKTSV4RRFFQ69G5FAV"

static void collect(void *arg, int64_t seq, json_t *event)
{
    assert_int_equal(seq, json_array_size(arg) + 1);
    json_array_append(arg, event);
}

static bool feed_line(void *arg, int64_t number, struct str line)
{
    (void)number;
    json_t *events = json_object_get(arg, "events");
    struct projection *p = (void *)(intptr_t)json_get_int(arg, "projection", 0);
    projection_feed(p, line, collect, events);
    return true;
}

/* {events, badLines} of a log. log_read wants DIR/TENANT/SESSION.jsonl. */
static json_t *project(const char *name)
{
    struct projection *p = projection_new(SESSION);
    json_t *out = json_pack("{s:[], s:I}", "events", "projection", (json_int_t)(intptr_t)p);
    assert_int_equal(log_read("tests/vectors", "projection", name, feed_line, out), 0);
    json_object_del(out, "projection");
    json_object_set_new(out, "badLines", json_integer(projection_bad_lines(p)));
    assert_int_equal(projection_seq(p), json_array_size(json_object_get(out, "events")));
    projection_free(p);
    return out;
}

static void compare(const char *name)
{
    char path[300];
    snprintf(path, sizeof path, VECTORS "/%s.events.json", name);
    AUTO_JSON got = project(name);
    if (getenv("PROJECTION_REGENERATE")) {
        assert_int_equal(json_dump_file(got, path, JSON_INDENT(1)), 0);
        print_message("wrote %s\n", path);
        return;
    }
    AUTO_JSON expected = json_load_file(path, JSON_ALLOW_NUL, NULL);
    if (expected == NULL)
        fail_msg("%s is missing or no JSON", path);
    if (!json_equal(got, expected)) {
        AUTO_BUF text = {0};
        json_write(got, &text);
        print_error("%s gives now:\n%s\n", name, text.p);
        fail_msg("%s differs", path);
    }
}

static void every_log_gives_its_events_for_ever(void **state)
{
    (void)state;
    DIR *dir = opendir(VECTORS);
    assert_non_null(dir); /* run from the top of the repository */
    int n = 0;
    for (struct dirent *d; (d = readdir(dir)) != NULL;) {
        struct str name = str_of(d->d_name);
        if (!str_ends(name, STR(".jsonl")))
            continue;
        char stem[256];
        snprintf(stem, sizeof stem, "%.*s", (int)(name.n - strlen(".jsonl")), name.p);
        compare(stem);
        n++;
    }
    closedir(dir);
    assert_in_range(n, 11, 1000);
}

/* LOG.md: a pure forward function. What a prefix gives never changes when the log grows. */
static bool feed_prefixes(void *arg, int64_t number, struct str line)
{
    (void)number;
    const json_t *whole = arg;
    static struct projection *p;
    static json_t *so_far;
    if (number == 0) {
        projection_free(p);
        json_decref(so_far);
        p = projection_new(SESSION);
        so_far = json_array();
    }
    projection_feed(p, line, collect, so_far);
    for (size_t i = 0; i < json_array_size(so_far); i++)
        assert_true(json_equal(json_array_get(so_far, i), json_array_get(whole, i)));
    return true;
}

static void a_prefix_gives_a_prefix(void **state)
{
    (void)state;
    AUTO_JSON whole = project("turn-with-tools");
    assert_int_equal(log_read("tests/vectors", "projection", "turn-with-tools", feed_prefixes,
                              json_object_get(whole, "events")),
                     0);
}

static const json_t *event_at(const json_t *projected, size_t i)
{
    return json_array_get(json_object_get(projected, "events"), i);
}

/* Beside the golden files, in words, what no regeneration may ever change. */
static void text_survives_whole(void **state)
{
    (void)state;
    AUTO_JSON got = project("text");
    struct str posted =
        json_get_str(json_array_get(json_object_get(event_at(got, 0), "content"), 0), "text");
    assert_int_equal(posted.n, 103);
    assert_true(str_has_nul(posted));
    assert_non_null(strstr(posted.p + 5, "\xe2\x80\xa8"));
    struct str said =
        json_get_str(json_array_get(json_object_get(event_at(got, 4), "content"), 0), "text");
    assert_true(str_eq(said, posted));
    AUTO_BUF line = {0};
    json_write(event_at(got, 4), &line);
    assert_null(memchr(line.p, '\n', line.n)); /* one SSE data line */
    assert_null(memchr(line.p, '\r', line.n));
}

static void lines_behind_a_damaged_one_still_count(void **state)
{
    (void)state;
    AUTO_JSON got = project("damaged");
    const json_t *events = json_object_get(got, "events");
    assert_true(json_get_int(got, "badLines", 0) >= 6);
    const json_t *last = json_array_get(events, json_array_size(events) - 1);
    assert_string_equal(json_get_c(json_array_get(json_object_get(last, "content"), 0), "text"),
                        "still here");
}

static void ids_of_a_fork_are_its_own(void **state)
{
    (void)state;
    AUTO_JSON got = project("fork");
    const json_t *events = json_object_get(got, "events");
    bool own = false;
    size_t i;
    json_t *e;
    json_array_foreach(events, i, e)
    {
        const char *id = json_get_c(e, "id");
        assert_true(id_valid(str_of(id), "evt"));
        if (str_is(json_get_str(e, "type"), "session.forked"))
            own = true;
        if (str_is(json_get_str(e, "type"), "user.message"))
            assert_int_equal(strncmp(id, "evt_01KB9E0", 11) == 0, own);
    }
    assert_true(own);
}

/* A model may nest its arguments as deep as the reader goes; threads have small stacks. */
static void write_event(void *arg, int64_t seq, json_t *event)
{
    (void)seq;
    json_write(event, arg);
    json_t *copy = json_deep_copy(event);
    json_decref(copy);
}

static void *project_deep(void *arg)
{
    (void)arg;
    AUTO_BUF line = {0}, out = {0};
    buf_add_c(&line, "{\"type\":\"message\",\"message\":{\"role\":\"assistant\",\"content\":[{"
                     "\"type\":\"toolCall\",\"id\":\"a\",\"name\":\"b\",\"arguments\":");
    for (int i = 0; i < 2000; i++)
        buf_add_c(&line, i % 2 ? "[" : "{\"a\":");
    buf_add_c(&line, "1");
    for (int i = 2000; i > 0; i--)
        buf_add_c(&line, i % 2 ? "}" : "]");
    buf_add_c(&line, "}],\"stopReason\":\"toolUse\"}}");
    struct projection *p = projection_new(SESSION);
    projection_feed(p, buf_str(&line), write_event, &out);
    bool fine = projection_seq(p) == 1 && out.n > 4000;
    projection_free(p);
    return fine ? "fine" : NULL;
}

static void the_deepest_line_fits_a_threads_stack(void **state)
{
    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); /* its frames are larger than those that the service runs with */
#endif
    void *said = NULL;
    pthread_join(thread_start("deep", project_deep, NULL), &said);
    assert_non_null(said);
}

/* Ids of an imported log are whatever somebody wrote into it. */
static void a_line_id_of_any_length_makes_an_event_id(void **state)
{
    (void)state;
    char line_id[5000], one[ID_MAX], two[ID_MAX];
    memset(line_id, 'x', sizeof line_id);
    line_id[sizeof line_id - 1] = 0;
    projection_event_id("sess_1", line_id, 1796040000000, 0, one);
    assert_true(id_valid(str_of(one), "evt"));
    line_id[sizeof line_id - 2] = 'y'; /* all of it counts */
    projection_event_id("sess_1", line_id, 1796040000000, 0, two);
    assert_string_not_equal(one, two);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_id_of_any_length_makes_an_event_id),
        cmocka_unit_test(every_log_gives_its_events_for_ever),
        cmocka_unit_test(a_prefix_gives_a_prefix),
        cmocka_unit_test(text_survives_whole),
        cmocka_unit_test(lines_behind_a_damaged_one_still_count),
        cmocka_unit_test(ids_of_a_fork_are_its_own),
        cmocka_unit_test(the_deepest_line_fits_a_threads_stack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
