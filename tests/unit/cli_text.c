/* src/cli/text.c: what others wrote, made harmless for a terminal and as wide as wanted. */
#include "cli/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static void check(const char *expected, struct buf *got)
{
    assert_string_equal(buf_str(got).p, expected);
    buf_done(got);
}

static void what_steers_a_terminal_is_replaced(void **state)
{
    (void)state;
    static const struct {
        struct str text;
        const char *safe;
    } cases[] = {
        {STR("plain"), "plain"},
        {STR("two\nlines\tand"), "two\nlines\tand"},
        {STR("\x1b[31m"), "\xef\xbf\xbd[31m"},
        {STR("a\rb\x08"), "a\xef\xbf\xbd"
                          "b\xef\xbf\xbd"},
        {STR("nul\0nul"), "nul\xef\xbf\xbdnul"},
        {STR("\xc2\x9b"), "\xef\xbf\xbd"},             /* C1: CSI */
        {STR("\xe2\x80\xae"), "\xef\xbf\xbd"},         /* right-to-left override */
        {STR("\xe2\x81\xa6"), "\xef\xbf\xbd"},         /* an isolate */
        {STR("\x7f"), "\xef\xbf\xbd"},                 /* DEL */
        {STR("\xff\xc3"), "\xef\xbf\xbd\xef\xbf\xbd"}, /* no UTF-8 at all */
        {STR("\xc3\xa9\xf0\x9f\x98\x80"), "\xc3\xa9\xf0\x9f\x98\x80"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf got = {0};
        text_add_safe(&got, cases[i].text);
        check(cases[i].safe, &got);
    }
}

static void a_line_is_cut_to_columns_not_to_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t columns;
        const char *line;
    } cases[] = {
        {"short", 10, "short"},
        {"exactly", 7, "exactly"},
        {"longer than it", 7, "longer…"},
        {"a\nb\tc", 0, "a b c"},
        {"ééééé", 4, "ééé…"},
        {"\xe6\xbc\xa2\xe5\xad\x97\xe6\xbc\xa2", 5,
         "\xe6\xbc\xa2\xe5\xad\x97…"}, /* two wide each */
        {"", 5, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf got = {0};
        text_add_line(&got, str_of(cases[i].text), cases[i].columns);
        assert_true(cases[i].columns == 0 || text_columns(buf_str(&got)) <= cases[i].columns);
        check(cases[i].line, &got);
    }
}

static void durations_and_money_are_said_in_units_one_reads(void **state)
{
    (void)state;
    static const struct {
        int64_t ms;
        const char *said;
    } times[] = {{0, "0 ms"},
                 {999, "999 ms"},
                 {1000, "1.0 s"},
                 {59900, "59.9 s"},
                 {60000, "1 min 0 s"},
                 {3599999, "59 min 59 s"},
                 {3600000, "1 h 0 min"},
                 {93784000, "26 h 3 min"}};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        struct buf got = {0};
        text_add_ms(&got, times[i].ms);
        check(times[i].said, &got);
    }
    static const struct {
        double usd;
        const char *said;
    } sums[] = {
        {0, "$0.00"}, {0.00421, "$0.0042"}, {0.99, "$0.9900"}, {1.255, "$1.25"}, {12, "$12.00"}};
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
        struct buf got = {0};
        text_add_usd(&got, sums[i].usd);
        check(sums[i].said, &got);
    }
}

static void a_time_loses_its_milliseconds(void **state)
{
    (void)state;
    struct buf got = {0};
    text_add_time(&got, STR("2026-11-30T18:03:12.345Z"));
    check("2026-11-30T18:03:12Z", &got);
    text_add_time(&got, STR("soon"));
    check("soon", &got);
}

static void no_colours_but_on_a_terminal(void **state)
{
    (void)state;
    FILE *f = tmpfile();
    assert_non_null(f);
    assert_false(text_has_colours(f));
    text_paint(f, PAINT_RED, "x");
    assert_int_equal(ftell(f), 1);
    fclose(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_steers_a_terminal_is_replaced),
        cmocka_unit_test(a_line_is_cut_to_columns_not_to_bytes),
        cmocka_unit_test(durations_and_money_are_said_in_units_one_reads),
        cmocka_unit_test(a_time_loses_its_milliseconds),
        cmocka_unit_test(no_colours_but_on_a_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
