/* src/base/line_diff.c */
#include "base/line_diff.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void hunks_are_as_diff_makes_them(void **state)
{
    (void)state;
    static const struct {
        const char *before, *after, *hunks;
    } cases[] = {
        {"", "", ""},
        {"a\nb\n", "a\nb\n", ""},
        {"", "a\n", "@@ -0,0 +1 @@\n+a\n"},
        {"a\n", "", "@@ -1 +0,0 @@\n-a\n"},
        {"a\n", "b\n", "@@ -1 +1 @@\n-a\n+b\n"},
        {"a\n", "a", "@@ -1 +1 @@\n-a\n+a\n\\ No newline at end of file\n"},
        {"a", "a\nb",
         "@@ -1 +1,2 @@\n-a\n\\ No newline at end of file\n+a\n+b\n\\ No newline at end "
         "of file\n"},
        {"1\n2\n3\n4\n5\n6\n7\n8\n", "1\n2\n3\n4\nx\n6\n7\n8\n",
         "@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+x\n 6\n 7\n 8\n"},
        {"a\nb\nc\na\nb\nb\na\n", "c\nb\na\nb\na\nc\n",
         "@@ -1,7 +1,6 @@\n-a\n-b\n c\n+b\n a\n b\n-b\n a\n+c\n"},
        /* Six equal lines between two changes: one hunk; seven: two. */
        {"a\n1\n2\n3\n4\n5\n6\nb\n", "A\n1\n2\n3\n4\n5\n6\nB\n",
         "@@ -1,8 +1,8 @@\n-a\n+A\n 1\n 2\n 3\n 4\n 5\n 6\n-b\n+B\n"},
        {"a\n1\n2\n3\n4\n5\n6\n7\nb\n", "A\n1\n2\n3\n4\n5\n6\n7\nB\n",
         "@@ -1,4 +1,4 @@\n-a\n+A\n 1\n 2\n 3\n@@ -6,4 +6,4 @@\n 5\n 6\n 7\n-b\n+B\n"},
        {"a\r\n", "a\n", "@@ -1 +1 @@\n-a\r\n+a\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        AUTO_BUF out = {0};
        buf_add_c(&out, "");
        line_diff(str_of(cases[i].before), str_of(cases[i].after), &out);
        assert_string_equal(out.p ? out.p : "", cases[i].hunks);
    }
}

static size_t count(const struct buf *b, const char *what)
{
    size_t n = 0;
    for (const char *p = b->p; p && (p = strstr(p, what)); p++)
        n++;
    return n;
}

static void what_has_little_in_common_is_replaced_whole(void **state)
{
    (void)state;
    AUTO_BUF before = {0}, after = {0}, out = {0};
    buf_add_c(&before, "same\n");
    buf_add_c(&after, "same\n");
    for (int i = 0; i < 5000; i++) {
        buf_printf(&before, "old %d\n%s", i, i % 2 ? "x\n" : "");
        buf_printf(&after, "new %d\n%s", i, i % 3 ? "" : "x\n");
    }
    line_diff(buf_str(&before), buf_str(&after), &out);
    assert_int_equal(count(&out, "@@ -"), 1);
    assert_int_equal(count(&out, "\n-old"), 5000);
    assert_int_equal(count(&out, "\n+new"), 5000);
}

/* Equal lines by the hundred thousand would cost the square of it. */
static void work_is_bounded(void **state)
{
    (void)state;
    AUTO_BUF before = {0}, after = {0}, out = {0};
    for (int i = 0; i < 400000; i++) {
        buf_add_c(&before, i % 400 ? "\n" : "a\n");
        buf_add_c(&after, i % 397 ? "\n" : "b\n");
    }
    line_diff(buf_str(&before), buf_str(&after), &out);
    assert_true(out.n > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hunks_are_as_diff_makes_them),
        cmocka_unit_test(what_has_little_in_common_is_replaced_whole),
        cmocka_unit_test(work_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
