/* base/json_scan.c: values made quickly are those that the library makes, slices stand as they are,
   and what is not plain is left to the library. */
#include "base/json.h"
#include "base/json_scan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static json_t *theirs(struct str text)
{
    return json_loadb(text.p, text.n, JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);
}

static const char *const plain[] = {
    "null",
    "true",
    " false\t",
    "0",
    "-0",
    "-12.5e-3",
    "1E2",
    "999999999999999999",
    "\"\"",
    "\"caf\xc3\xa9\"",
    "\"a\\u0000b\\n\\/\\\\\\\"\"",
    "\"\\ud83d\\ude00 \\u00e9\\uffff\"",
    "[]",
    "[ 1 , [ ] , { } ]",
    "{\"a\":{\"b\":[1,2,{\"c\":\"}]\"}]},\"a\":2, \"\" : null}",
};

static void a_value_is_the_one_that_the_library_makes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        AUTO_JSON expected = theirs(str_of(plain[i]));
        AUTO_JSON found = json_scan_read(str_of(plain[i]), false);
        assert_non_null(expected);
        assert_non_null(found);
        assert_true(json_equal(found, expected));
    }
}

static void what_is_not_plain_is_left_to_others(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        " ",
        "{\"a\\n\":1}",
        "1234567890123456789",
        "1e400",
        "01",
        "+1",
        "1.",
        ".5",
        "1e",
        "nul",
        "truex",
        "\"\\ud83d\"",
        "\"\\ude00\"",
        "\"\\ud83d\\u0041\"",
        "\"\\x\"",
        "\"\\u12g4\"",
        "\"a\nb\"",
        "\"abc",
        "\"\xff\"",
        "\"\xc0\x80\"",
        "[1,]",
        "[1 2]",
        "{\"a\" 1}",
        "{\"a\":1,}",
        "{a:1}",
        "{\"a\":1}}",
        "[1]]",
        "'a'",
        "\"12345678\\",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_null(json_scan_read(str_of(texts[i]), false));
    assert_null(json_scan_read(STR("{\"a\":1,\"a\":2}"), true));
    json_t *read = NULL; /* rare, and valid: a line keeps its meaning */
    assert_int_equal(json_read_log(STR("{\"a\\n\":1234567890123456789}"), &read), 0);
    assert_int_equal(json_get_int(read, "a\n", 0), 1234567890123456789);
    json_decref(read);
}

static void deep_nesting_is_left_to_the_library(void **state)
{
    (void)state;
    AUTO_BUF text = {0};
    for (int i = 0; i < 1000; i++)
        buf_add_char(&text, '[');
    for (int i = 0; i < 1000; i++)
        buf_add_char(&text, ']');
    assert_null(json_scan_read(buf_str(&text), false));
    json_t *read = NULL;
    assert_int_equal(json_read_log(buf_str(&text), &read), 0);
    json_decref(read);
}

static void members_are_slices_and_the_last_of_a_name_counts(void **state)
{
    (void)state;
    static const char *const names[] = {"type", "message", "id", "none"};
    struct str v[4];
    struct str line =
        STR("{\"id\":1,\"type\":\"message\",\"message\": {\"id\":\"x}\",\"b\":[1,{}]} ,"
            "\"id\":\"last\"}");
    assert_true(json_scan_members(line, names, 4, v));
    assert_true(str_is(v[0], "\"message\""));
    assert_true(str_is(v[1], "{\"id\":\"x}\",\"b\":[1,{}]}"));
    assert_true(str_is(v[2], "\"last\""));
    assert_null(v[3].p);
    assert_true(json_scan_members(STR(" {} "), names, 1, v) && v[0].p == NULL);
    assert_false(json_scan_members(STR("[]"), names, 1, v));
    assert_false(json_scan_members(STR("{\"type\":1} x"), names, 1, v));
    assert_false(json_scan_members(STR("{\"type\":1"), names, 1, v));
    assert_false(json_scan_members(STR("{\"type\":\"\\ud800\"}"), names, 1, v));
}

static bool add_item(void *arg, struct str item)
{
    buf_add_str(arg, item);
    buf_add_char(arg, '|');
    return !str_is(item, "\"stop\"");
}

static void items_come_in_order_until_somebody_has_enough(void **state)
{
    (void)state;
    AUTO_BUF seen = {0};
    assert_true(json_scan_items(STR("[1, {\"a\":[2]} ,\"]\"]"), add_item, &seen));
    assert_true(str_is(buf_str(&seen), "1|{\"a\":[2]}|\"]\"|"));
    buf_clear(&seen);
    assert_true(json_scan_items(STR("[\"stop\",2]"), add_item, &seen));
    assert_true(str_is(buf_str(&seen), "\"stop\"|"));
    assert_true(json_scan_items(STR("[ ]"), add_item, &seen));
    assert_false(json_scan_items(STR("{}"), add_item, &seen));
    assert_false(json_scan_items(STR("[1,"), add_item, &seen));
}

static void text_is_given_only_as_it_stands(void **state)
{
    (void)state;
    struct str text;
    assert_true(json_scan_text(STR("\"caf\xc3\xa9\""), &text) && str_is(text, "caf\xc3\xa9"));
    assert_true(json_scan_text(STR("\"\""), &text) && text.p && text.n == 0);
    assert_true(json_scan_text(STR("null"), &text) && text.p == NULL);
    assert_false(json_scan_text(STR("\"a\\n\""), &text));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_value_is_the_one_that_the_library_makes),
        cmocka_unit_test(what_is_not_plain_is_left_to_others),
        cmocka_unit_test(deep_nesting_is_left_to_the_library),
        cmocka_unit_test(members_are_slices_and_the_last_of_a_name_counts),
        cmocka_unit_test(items_come_in_order_until_somebody_has_enough),
        cmocka_unit_test(text_is_given_only_as_it_stands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
