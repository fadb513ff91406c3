/* src/base/json.c: what it writes is what jansson writes. */
#include "base/json.h"

#include "base/arena.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static void assert_like_jansson(const json_t *j)
{
    AUTO_BUF ours = {0};
    char *theirs = json_dumps(j, JSON_COMPACT | JSON_ENCODE_ANY);
    assert_non_null(theirs);
    json_write(j, &ours);
    assert_string_equal(ours.p, theirs);
    free(theirs);
}

static void every_byte_is_written_as_jansson_writes_it(void **state)
{
    (void)state;
    for (unsigned c = 0; c < 0x80; c++) {
        char text[] = {'a', (char)c, 'b'};
        AUTO_JSON one = json_stringn(text, sizeof text);
        assert_like_jansson(one);
        if (c == 0)
            continue;
        AUTO_JSON object = json_object();
        json_object_setn_new(object, text, sizeof text, json_stringn(text + 1, 1));
        assert_like_jansson(object);
    }
    AUTO_JSON long_one = json_string("\xc3\xa9 \xe2\x80\xa8 \xf0\x9f\x98\x80 \"quoted\\\" \x7f/");
    assert_like_jansson(long_one);
}

static void every_kind_is_written_as_jansson_writes_it(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "null",
        "true",
        "false",
        "0",
        "-1",
        "9223372036854775807",
        "-9223372036854775808",
        "0.1",
        "1e300",
        "-0.0",
        "1.0",
        "5e-324",
        "\"\"",
        "[]",
        "{}",
        "[[],{},[{}],null]",
        "{\"b\":1,\"a\":{\"z\":[1,2.5,\"x\"],\"y\":null},\"\":\"\\u0000\"}",
        "[[[[[[[[[[[[[[[[\"deep\"]]]]]]]]]]]]]]]]",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        AUTO_JSON j = NULL;
        assert_int_equal(json_read(str_of(texts[i]), &j), 0);
        assert_like_jansson(j);
    }
}

static void a_text_written_by_members_is_that_of_the_tree(void **state)
{
    (void)state;
    static const double reals[] = {0, -0.0, 0.25, 1.0 / 3, 1e300, 12};
    static const int64_t numbers[] = {0, -1, 42, INT64_MAX, INT64_MIN};
    AUTO_JSON tree = json_pack("{s:s, s:n, s:[i], s:n, s:b, s:b}", "s", "a\n\"\xc3\xa9", "none",
                               "raw", 1, "noraw", "yes", 1, "no", 0);
    AUTO_BUF text = {0};
    buf_add_char(&text, '{');
    json_text_str(&text, "s", "a\n\"\xc3\xa9");
    json_text_str(&text, "none", NULL);
    json_text_raw(&text, "raw", "[1]");
    json_text_raw(&text, "noraw", NULL);
    json_text_bool(&text, "yes", true);
    json_text_bool(&text, "no", false);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char key[] = {'i', (char)('0' + i), 0};
        json_text_int(&text, key, numbers[i]);
        json_object_set_new(tree, key, json_integer(numbers[i]));
    }
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        char key[] = {'r', (char)('0' + i), 0};
        json_text_real(&text, key, reals[i]);
        json_object_set_new(tree, key, json_real(reals[i]));
    }
    json_text_time(&text, "t", 1796040000123);
    json_text_time(&text, "never", -1);
    json_set_time(tree, "t", 1796040000123);
    json_set_time(tree, "never", -1);
    buf_add_char(&text, '}');
    AUTO_BUF whole = {0};
    json_write(tree, &whole);
    assert_string_equal(text.p, whole.p);
}

static void nothing_is_written_of_nothing(void **state)
{
    (void)state;
    AUTO_BUF out = {0};
    json_write(NULL, &out);
    assert_int_equal(out.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_is_written_as_jansson_writes_it),
        cmocka_unit_test(every_kind_is_written_as_jansson_writes_it),
        cmocka_unit_test(a_text_written_by_members_is_that_of_the_tree),
        cmocka_unit_test(nothing_is_written_of_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
