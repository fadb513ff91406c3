/* src/sandbox/copyout_reader.c: what the other side may say, and that nothing else is believed. */
#include "copyout_support.h"
#include "hands/frames.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

struct entry_spec {
    unsigned char change, now, before;
    uint32_t mode;
    uint64_t size;
    const char *path;
    size_t path_n; /* 0: strlen */
    const char *target;
};

static void put(struct buf *b, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        buf_add_char(b, (char)(v >> 8 * i & 0xff));
}

static void add_entry(struct buf *out, const struct entry_spec *e)
{
    AUTO_BUF p = {0};
    size_t path_n = e->path_n ? e->path_n : strlen(e->path);
    size_t target_n = e->target ? strlen(e->target) : 0;
    put(&p, e->change, 1);
    put(&p, e->now, 1);
    put(&p, e->before, 1);
    put(&p, 0, 1);
    put(&p, e->mode, 4);
    put(&p, 0, 4);
    put(&p, path_n, 4);
    put(&p, target_n, 4);
    put(&p, 0, 4);
    put(&p, e->size, 8);
    for (int i = 0; i < 5; i++)
        put(&p, 0, 8);
    buf_add(&p, e->path, path_n);
    buf_add(&p, e->target ? e->target : "", target_n);
    frame_add(out, FRAME_COPY_ENTRY, buf_str(&p));
}

#define DONE STR("\0\0")

static err feed(const struct copyout_request *r, const struct buf *bytes, size_t step, bool *ended)
{
    AUTO_NOTES n = {.count_only = true};
    struct copyout_sink sink = sink_of(&n);
    struct copyout_reader *reader = copyout_reader_new(r, &sink);
    struct copyout_summary s;
    err e = 0;
    *ended = false;
    for (size_t at = 0; at < bytes->n && !e && !*ended; at += step) {
        size_t left = bytes->n - at;
        struct str piece = {bytes->p + at, left < step ? left : step};
        e = copyout_reader_feed(reader, piece, ended, &s);
    }
    copyout_reader_free(reader);
    return e;
}

static void expect_refused(const struct copyout_request *r, const struct buf *bytes,
                           const char *why)
{
    bool ended;
    assert_int_equal(feed(r, bytes, 1000000, &ended), E_INVALID);
    if (!strstr(err_text(), why))
        fail_msg("expected \"%s\", got \"%s\"", why, err_text());
}

static void impossible_entries_are_refused(void **state)
{
    (void)state;
    static char long_name[257];
    memset(long_name, 'x', 256);
    static const struct {
        struct entry_spec e;
        const char *why;
    } cases[] = {
        {{.now = 1, .path = "../x"}, "impossible path"},
        {{.now = 1, .path = "a/../x"}, "impossible path"},
        {{.now = 1, .path = "/etc/passwd"}, "impossible path"},
        {{.now = 1, .path = "a//b"}, "impossible path"},
        {{.now = 1, .path = "a/"}, "impossible path"},
        {{.now = 1, .path = "."}, "impossible path"},
        {{.now = 1, .path = ""}, "impossible path"},
        {{.now = 1, .path = "a\0b", .path_n = 3}, "impossible path"},
        {{.now = 1, .path = long_name}, "impossible path"},
        {{.now = 5, .path = "a"}, "unknown type"},
        {{.change = 4, .now = 1, .path = "a"}, "unknown type"},
        {{.now = 0, .path = "a"}, "a change that is none"},
        {{.change = 1, .now = 1, .path = "a"}, "a change that is none"},
        {{.now = 1, .before = 1, .path = "a"}, "a change that is none"},
        {{.now = 1, .mode = 0100644, .path = "a"}, "impossible mode"},
        {{.now = 2, .size = 1, .path = "a"}, "impossible size"},
        {{.now = 1, .size = UINT64_MAX, .path = "a"}, "impossible size"},
        {{.now = 3, .path = "a"}, "impossible target"},
        {{.now = 1, .path = "a", .target = "b"}, "impossible target"},
    };
    const struct copyout_request r = {.root = "/", .contents = true};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        AUTO_BUF bytes = {0};
        add_entry(&bytes, &cases[i].e);
        expect_refused(&r, &bytes, cases[i].why);
    }
}

static void paths_come_in_order_and_below_folders_only(void **state)
{
    (void)state;
    static const struct {
        struct entry_spec first, second;
        const char *why;
    } cases[] = {
        {{.now = 1, .path = "b"}, {.now = 1, .path = "a"}, "out of order"},
        {{.now = 1, .path = "a"}, {.now = 1, .path = "a"}, "out of order"},
        {{.now = 1, .path = "a.b"}, {.now = 1, .path = "a/b"}, "out of order"},
        {{.now = 3, .path = "a", .target = "/etc"}, {.now = 1, .path = "a/passwd"}, "no folder"},
        {{.now = 1, .path = "a"}, {.now = 2, .path = "a/b"}, "no folder"},
    };
    const struct copyout_request r = {.root = "/", .contents = true};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        AUTO_BUF bytes = {0};
        add_entry(&bytes, &cases[i].first);
        frame_add(&bytes, FRAME_COPY_DONE, DONE);
        add_entry(&bytes, &cases[i].second);
        expect_refused(&r, &bytes, cases[i].why);
    }
}

static void below_a_leaf_there_is_only_what_was_removed(void **state)
{
    (void)state;
    const struct copyout_request r = {.root = "/", .changes = true};
    AUTO_BUF bytes = {0};
    add_entry(&bytes, &(struct entry_spec){.change = 2, .now = 1, .before = 2, .path = "a"});
    frame_add(&bytes, FRAME_COPY_DONE, DONE);
    add_entry(&bytes, &(struct entry_spec){.change = 3, .before = 1, .path = "a/b"});
    frame_add(&bytes, FRAME_COPY_DONE, DONE);
    bool ended;
    assert_int_equal(feed(&r, &bytes, 1, &ended), 0);
    add_entry(&bytes, &(struct entry_spec){.change = 1, .now = 1, .path = "a/c"});
    expect_refused(&r, &bytes, "no folder");
}

static void content_keeps_to_what_was_told(void **state)
{
    (void)state;
    const struct entry_spec file = {.now = 1, .mode = 0644, .size = 4, .path = "f"};
    const struct copyout_request all = {.root = "/", .contents = true}, names = {.root = "/"},
                                 little = {.root = "/", .contents = true, .bytes = 3},
                                 small = {.root = "/", .contents = true, .file_bytes = 3};
    AUTO_BUF entry = {0}, more = {0}, less = {0}, old = {0}, two = {0}, wrong = {0};
    add_entry(&entry, &file);
    buf_add_str(&more, buf_str(&entry));
    frame_add(&more, FRAME_COPY_DATA, STR("12345"));
    expect_refused(&all, &more, "more content than it has");
    buf_add_str(&less, buf_str(&entry));
    frame_add(&less, FRAME_COPY_DATA, STR("123"));
    frame_add(&less, FRAME_COPY_DONE, DONE);
    expect_refused(&all, &less, "less content");
    buf_add_str(&old, buf_str(&entry));
    frame_add(&old, FRAME_COPY_OLD, STR("1"));
    expect_refused(&all, &old, "nobody asked for");
    expect_refused(&names, &more, "nobody asked for");
    expect_refused(&small, &more, "nobody asked for");
    buf_add_str(&two, buf_str(&entry));
    frame_add(&two, FRAME_COPY_DATA, STR("1234"));
    expect_refused(&little, &two, "more content than asked for");
    buf_add_str(&two, buf_str(&entry));
    expect_refused(&all, &two, "inside another");
    frame_add(&wrong, FRAME_STDOUT, STR("x"));
    expect_refused(&all, &wrong, "unexpected frame");
}

static void counts_and_lengths_are_held(void **state)
{
    (void)state;
    AUTO_BUF bytes = {0}, claim = {0};
    const struct copyout_request r = {.root = "/", .entries = 1};
    add_entry(&bytes, &(struct entry_spec){.now = 1, .path = "a"});
    frame_add(&bytes, FRAME_COPY_DONE, DONE);
    add_entry(&bytes, &(struct entry_spec){.now = 1, .path = "b"});
    expect_refused(&r, &bytes, "more entries");
    put(&claim, FRAME_MAX, 4);
    expect_refused(&r, &claim, "at most");
}

static void frames_may_be_cut_anywhere(void **state)
{
    (void)state;
    AUTO_BUF bytes = {0};
    const struct copyout_request r = {.root = "/", .contents = true};
    add_entry(&bytes, &(struct entry_spec){.now = 1, .size = 4, .path = "a"});
    frame_add(&bytes, FRAME_COPY_DATA, STR("1234"));
    frame_add(&bytes, FRAME_PONG, STR("{}"));
    frame_add(&bytes, FRAME_COPY_DONE, DONE);
    frame_add(&bytes, FRAME_COPY_END, STR("{\"leftOut\":1,\"truncated\":false}"));
    for (size_t step = 1; step <= bytes.n; step++) {
        bool ended;
        assert_int_equal(feed(&r, &bytes, step, &ended), 0);
        assert_true(ended);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(impossible_entries_are_refused),
        cmocka_unit_test(paths_come_in_order_and_below_folders_only),
        cmocka_unit_test(below_a_leaf_there_is_only_what_was_removed),
        cmocka_unit_test(content_keeps_to_what_was_told),
        cmocka_unit_test(counts_and_lengths_are_held),
        cmocka_unit_test(frames_may_be_cut_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
