/* src/api/fields.c: declarative validation. */
#include "api/fields.h"

#include "base/buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#undef fail /* ours */

static const char *const colours[] = {"red", "green", NULL};
static const struct field item = {.kinds = FIELD_INT, .min = 1, .max = 9};

static void refuse_thirteen(struct fields *f, const json_t *value)
{
    if (json_integer_value(value) == 13)
        fields_problem(f, "bad_luck", "must not be 13");
}

static const struct field inner[] = {
    {.name = "id", .kinds = FIELD_STRING, .required = true, .line = true, .min = 1, .max = 4},
    {0},
};

static const struct field shared[] = {
    {.name = "shared", .kinds = FIELD_BOOL, .required = true},
    {.name = "later", .not_supported = "leave it out"},
    {0},
};

static const struct field table[] = {
    {.name = "name", .kinds = FIELD_STRING, .no_nul = true, .min = 1, .max = 4},
    {.name = "colour", .kinds = FIELD_STRING, .nullable = true, .one_of = colours},
    {.name = "count", .kinds = FIELD_INT, .max = 100, .check = refuse_thirteen},
    {.name = "ratio", .kinds = FIELD_NUMBER, .min = 0.5, .max = 2},
    {.name = "bytes", .kinds = FIELD_STRING, .bytes_max = 4},
    {.name = "list", .kinds = FIELD_ARRAY, .min = 1, .max = 3, .item = &item},
    {.name = "either", .kinds = FIELD_STRING | FIELD_OBJECT, .min = 1, .members = inner},
    {.name = "metadata", .kinds = FIELD_OBJECT, .check = fields_metadata},
    {.include = shared},
    {0},
};

static void collect(void *arg, const char *path, const char *text)
{
    struct buf *b = arg;
    buf_printf(b, "%s%s", b->n ? " " : "", path);
    assert_true(text[0] != 0);
}

/* Each row: a body, the paths of its problems, the code. "shared" is given unless the body says so.
 */
static void every_problem_is_found_and_has_a_path(void **state)
{
    (void)state;
    static const struct {
        const char *body, *paths, *code;
    } rows[] = {
        {"{'shared':true}", "", ""},
        {"{}", "/shared", ""},
        {"{'shared':null}", "/shared", ""},
        {"{'shared':1}", "/shared", ""},
        {"[]", "", ""},
        {"{'shared':true,'x':1,'a/b~c':2}", "/x /a~1b~0c", ""},
        {"{'shared':true,'name':''}", "/name", ""},
        {"{'shared':true,'name':'abcd'}", "", ""},
        {"{'shared':true,'name':'abcde'}", "/name", ""},
        {"{'shared':true,'name':'\xc3\xa4\xc3\xb6\xc3\xbc\xc3\x9f'}", "", ""},
        {"{'shared':true,'name':'a\\u0000b'}", "/name", ""},
        {"{'shared':true,'name':7}", "/name", ""},
        {"{'shared':true,'name':null}", "/name", ""},
        {"{'shared':true,'colour':null}", "", ""},
        {"{'shared':true,'colour':'red'}", "", ""},
        {"{'shared':true,'colour':'Red'}", "/colour", ""},
        {"{'shared':true,'colour':'red\\u0000'}", "/colour", ""},
        {"{'shared':true,'count':0}", "", ""},
        {"{'shared':true,'count':1.0}", "/count", ""},
        {"{'shared':true,'count':-1}", "/count", ""},
        {"{'shared':true,'count':101}", "/count", ""},
        {"{'shared':true,'count':13}", "/count", "bad_luck"},
        {"{'shared':true,'ratio':1}", "", ""},
        {"{'shared':true,'ratio':0.4}", "/ratio", ""},
        {"{'shared':true,'bytes':'\xc3\xa4\xc3\xb6\xc3\xbc'}", "/bytes", ""},
        {"{'shared':true,'list':[]}", "/list", ""},
        {"{'shared':true,'list':[1,0,'a']}", "/list/1 /list/2", ""},
        {"{'shared':true,'list':[1,2,3,4]}", "/list", ""},
        {"{'shared':true,'either':'x'}", "", ""},
        {"{'shared':true,'either':{'id':'x'}}", "", ""},
        {"{'shared':true,'either':{}}", "/either/id", ""},
        {"{'shared':true,'either':{'id':'a\\nb','y':1}}", "/either/id /either/y", ""},
        {"{'shared':true,'either':{'id':'\xc2\x85'}}", "/either/id", ""},
        {"{'shared':true,'either':1}", "/either", ""},
        {"{'shared':true,'later':null}", "", ""},
        {"{'shared':true,'later':[]}", "", ""},
        {"{'shared':true,'later':{}}", "", ""},
        {"{'shared':true,'later':[1]}", "/later", "not_supported"},
        {"{'shared':true,'later':0}", "/later", "not_supported"},
        {"{'shared':true,'metadata':{'a':'b','':'c','d':1}}", "/metadata/ /metadata/d", ""},
        {"{'shared':true,'metadata':[]}", "/metadata", ""},
        {"{'shared':true,'metadata':{'k':'a\\u0000b'}}", "/metadata/k", ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        AUTO_BUF body = {0};
        for (const char *c = rows[i].body; *c; c++)
            buf_add_char(&body, *c == '\'' ? '"' : *c);
        AUTO_JSON j = NULL;
        assert_int_equal(json_read(buf_str(&body), &j), 0);
        AUTO_BUF paths = {0};
        struct fields f = {.report = collect, .report_arg = &paths};
        err e = fields_check(&f, j, table);
        bool good = rows[i].paths[0] == 0 && json_is_object(j);
        if (e != (good ? 0 : E_INVALID) || !str_is(buf_str(&paths), rows[i].paths))
            print_error("%s: %d, problems at \"%s\"\n", rows[i].body, e, paths.p ? paths.p : "");
        assert_int_equal(e, good ? 0 : E_INVALID);
        assert_string_equal(paths.n ? paths.p : "", rows[i].paths);
        if (e && rows[i].code[0])
            assert_string_equal(err_code(), rows[i].code);
    }
}

static void the_summary_names_the_first_problem_and_counts_the_rest(void **state)
{
    (void)state;
    AUTO_JSON j = json_pack("{s:i, s:i, s:b}", "name", 1, "count", -1, "shared", 1);
    struct fields f = {0};
    assert_int_equal(fields_check(&f, j, table), E_INVALID);
    assert_string_equal(err_text(), "name: must be a string (and 1 more problem)");
    assert_string_equal(err_code(), "invalid_request");
}

static void count_reports(void *arg, const char *path, const char *text)
{
    (void)text;
    assert_true(strlen(path) < FIELDS_PATH_MAX && str_is_utf8(str_of(path)));
    ++*(int *)arg;
}

static void a_body_of_nonsense_is_cut_short(void **state)
{
    (void)state;
    AUTO_JSON j = json_object();
    for (int i = 0; i < 1000; i++) {
        AUTO_BUF name = {0};
        for (int k = 0; k < 200; k++)
            buf_add_c(&name, k % 3 ? "\xf0\x9f\x98\x80" : "~/");
        buf_printf(&name, "%d", i);
        json_object_set_new(j, name.p, json_null());
    }
    int reports = 0;
    struct fields f = {.report = count_reports, .report_arg = &reports};
    assert_int_equal(fields_check(&f, j, table), E_INVALID);
    assert_int_equal(reports, FIELDS_PROBLEMS_MAX);
    assert_int_equal(f.count, 1001);
    assert_true(str_is_utf8(str_of(err_text())));
}

static void metadata_has_limits(void **state)
{
    (void)state;
    AUTO_JSON j = json_object();
    char text[520], key[70];
    memset(text, 'v', sizeof text);
    memset(key, 'k', sizeof key);
    for (int i = 0; i < 16; i++) {
        snprintf(key + 62, sizeof key - 62, "%02d", i);
        json_object_set_new(j, key, json_stringn(text, 512));
    }
    struct fields f = {0};
    fields_metadata(&f, j);
    assert_int_equal(fields_result(&f), 0);
    json_object_set_new(j, "one too many", json_string(""));
    fields_metadata(&f, j);
    assert_int_equal(f.count, 1);
    json_object_clear(j);
    json_object_set_new(j, "k", json_stringn(text, 513));
    memset(key, 'k', 65);
    key[65] = 0;
    json_object_set_new(j, key, json_string(""));
    fields_metadata(&f, j);
    assert_int_equal(f.count, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_problem_is_found_and_has_a_path),
        cmocka_unit_test(the_summary_names_the_first_problem_and_counts_the_rest),
        cmocka_unit_test(a_body_of_nonsense_is_cut_short),
        cmocka_unit_test(metadata_has_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
