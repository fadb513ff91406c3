/* src/base/clock.c: times as text. */
#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

static const struct {
    int64_t ms;
    const char *text;
} moments[] = {
    {0, "1970-01-01T00:00:00.000Z"},
    {-1, "1969-12-31T23:59:59.999Z"},
    {1796040000007, "2026-11-30T12:00:00.007Z"},
    {951782400010, "2000-02-29T00:00:00.010Z"},
    {253402300799999, "9999-12-31T23:59:59.999Z"},
    {-62167219200000, "0000-01-01T00:00:00.000Z"},
};

static void a_moment_is_written_and_read(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof moments / sizeof *moments; i++) {
        char text[CLOCK_TEXT_MAX];
        int64_t ms;
        assert_string_equal(clock_format(moments[i].ms, text), moments[i].text);
        assert_true(clock_parse(moments[i].text, &ms));
        assert_int_equal(ms, moments[i].ms);
    }
}

/* Each day of eight centuries, at an odd moment of it. */
static void every_date_is_the_librarys(void **state)
{
    (void)state;
    for (int64_t day = -146097; day < 146097; day++) {
        int64_t ms = day * 86400000 + 45296789;
        time_t seconds = (time_t)((ms - 789) / 1000);
        struct tm tm;
        char ours[CLOCK_TEXT_MAX], theirs[64];
        gmtime_r(&seconds, &tm);
        strftime(theirs, sizeof theirs, "%Y-%m-%dT%H:%M:%S.789Z", &tm);
        assert_string_equal(clock_format(ms, ours), theirs);
    }
}

static void what_is_no_moment_is_not_read(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "2026-02-31T00:00:00.000Z",
        "2026-11-30T24:00:00.000Z",
        "2026-11-30T12:00:00Z",
        "2026-11-30 12:00:00.000Z",
        "2026-11-30T12:00:00.000+",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int64_t ms;
        assert_false(clock_parse(texts[i], &ms));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_moment_is_written_and_read),
        cmocka_unit_test(every_date_is_the_librarys),
        cmocka_unit_test(what_is_no_moment_is_not_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
