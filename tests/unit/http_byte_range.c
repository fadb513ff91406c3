/* src/http/byte_range.c against a table. */
#include "http/byte_range.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static void ranges_are_read_as_the_rfc_says(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        uint64_t size;
        int want; /* 1: a range, 0: all of it, -1: not satisfiable */
        uint64_t from, length;
    } cases[] = {
        {NULL, 10, 0, 0, 10},          {"bytes=0-4", 10, 1, 0, 5},
        {"Bytes=9-9", 10, 1, 9, 1},    {"bytes=3-", 10, 1, 3, 7},
        {"bytes=3-99", 10, 1, 3, 7},   {"bytes=0-18446744073709551614", 10, 1, 0, 10},
        {"bytes=-3", 10, 1, 7, 3},     {"bytes=-99", 10, 1, 0, 10},
        {"bytes=-0", 10, -1, 0, 0},    {"bytes=10-", 10, -1, 0, 0},
        {"bytes=0-", 0, -1, 0, 0},     {"bytes=-1", 0, -1, 0, 0},
        {"bytes=4-3", 10, 0, 0, 10},   {"bytes=0-1,3-4", 10, 0, 0, 10},
        {"bytes=", 10, 0, 0, 10},      {"bytes=-", 10, 0, 0, 10},
        {"bytes=a-b", 10, 0, 0, 10},   {"bytes= 0-1", 10, 0, 0, 10},
        {"bytes=0-1-2", 10, 0, 0, 10}, {"bytes=99999999999999999999-", 10, 0, 0, 10},
        {"lines=0-1", 10, 0, 0, 10},   {"0-1", 10, 0, 0, 10},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct byte_range r;
        err e = byte_range_read(str_of(cases[i].header), cases[i].size, &r);
        assert_int_equal(e, cases[i].want < 0 ? E_RANGE : 0);
        if (e)
            continue;
        assert_int_equal(r.partial, cases[i].want);
        assert_int_equal(r.from, cases[i].from);
        assert_int_equal(r.length, cases[i].length);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranges_are_read_as_the_rfc_says)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
