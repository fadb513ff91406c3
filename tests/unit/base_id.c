/* base/id.c: an id says when it was made. */
#include "base/id.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void an_id_says_when_it_was_made(void **state)
{
    (void)state;
    static const int64_t times[] = {0, 1, 1469918176385, 1790000000000, (INT64_C(1) << 48) - 1};
    char id[ID_MAX];
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        id_new("file", times[i], id);
        assert_true(id_valid(str_of(id), "file"));
        assert_int_equal(id_time_ms(str_of(id)), times[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_id_says_when_it_was_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
