/* src/http/multipart.c: what senders send, what attackers send, cut anywhere. */
#include "http/multipart.h"

#include "base/buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#undef fail /* ours */

#define TYPE "multipart/form-data; boundary=XyZ"
#define HEAD "Content-Disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n"

static err see_part(void *arg, const struct multipart_part *p)
{
    buf_printf(arg, "[%.*s|%s%.*s|%.*s:", STR_ARG(p->name), p->filename.p ? "=" : "",
               STR_ARG(p->filename), STR_ARG(p->content_type));
    return 0;
}

static err see_data(void *arg, struct str bytes)
{
    buf_add_str(arg, bytes);
    return 0;
}

static err see_end(void *arg)
{
    buf_add_char(arg, ']');
    return 0;
}

/* What is read of a body that comes in pieces of `step` bytes; NULL when it is refused. */
static const char *read_in_steps(const char *type, struct str body, size_t step, struct buf *out)
{
    struct multipart *m;
    struct multipart_sink sink = {see_part, see_data, see_end, out};
    buf_clear(out);
    if (multipart_new(str_of(type), &sink, &m))
        return NULL;
    err e = 0;
    for (size_t at = 0; !e && at < body.n; at += step)
        e = multipart_feed(m, (struct str){body.p + at, body.n - at < step ? body.n - at : step});
    if (!e)
        e = multipart_end(m);
    multipart_free(m);
    return e ? NULL : out->n ? out->p : "";
}

static void bodies_are_read_the_same_however_they_are_cut(void **state)
{
    (void)state;
    static const struct {
        const char *body, *want; /* NULL: refused */
    } cases[] = {
        {"--XyZ\r\n" HEAD "Content-Type: text/plain\r\n\r\nhello\r\n--XyZ--\r\n",
         "[file|=a.txt|text/plain:hello]"},
        {"\r\n--XyZ\r\n" HEAD "\r\nhello\r\n--XyZ--", "[file|=a.txt|:hello]"},
        {"--XyZ\r\n" HEAD "\r\n\r\n--XyZ--\r\n", "[file|=a.txt|:]"},
        {"--XyZ \t\r\n" HEAD "\r\na\r\n--XyZ\r\ncontent-disposition:form-data;NAME=b\r\n\r\nc\r\n"
         "--XyZ--epilogue\r\n--XyZ\r\n",
         "[file|=a.txt|:a][b||:c]"},
        /* almost a boundary */
        {"--XyZ\r\n" HEAD "\r\n\r\n--XyY\r\n--Xy\r\n-\r\n\r\r\n--XyZ--",
         "[file|=a.txt|:\r\n--XyY\r\n--Xy\r\n-\r\n\r]"},
        /* a boundary that goes on is content's own fault in others' parsers; here it is refused */
        {"--XyZ\r\n" HEAD "\r\na\r\n--XyZZ\r\n--XyZ--", NULL},
        {"--XyZ--", ""},
        {"", NULL},
        {"--XyZ", NULL},
        {"--XyZ\r\n" HEAD "\r\nhello", NULL},
        {"--XyZ\r\n" HEAD "\r\nhello\r\n--XyZ", NULL},
        {"--XyZ\r\n" HEAD "\r\nhello\r\n--XyZ-", NULL},
        {"preamble\r\n--XyZ\r\n" HEAD "\r\nhello\r\n--XyZ--", NULL},
        {"--XyZ\n" HEAD "\n\nhello\n--XyZ--", NULL},
        {"--XyZ\r\n\r\nhello\r\n--XyZ--", NULL}, /* no name */
        {"--XyZ\r\nContent-Disposition: attachment; name=a\r\n\r\nx\r\n--XyZ--", NULL}, /* */
        {"--XyZ\r\nContent-Disposition: form-data\r\n\r\nx\r\n--XyZ--", NULL},
        {"--XyZ\r\n" HEAD HEAD "\r\nx\r\n--XyZ--", NULL},
        {"--XyZ\r\nContent-Disposition: form-data; name=a; name=b\r\n\r\nx\r\n--XyZ--", NULL},
        {"--XyZ\r\n" HEAD "Content-Transfer-Encoding: base64\r\n\r\nx\r\n--XyZ--", NULL},
        {"--XyZ\r\n" HEAD "Content-Transfer-Encoding: binary\r\n\r\nx\r\n--XyZ--",
         "[file|=a.txt|:x]"},
        {"--XyZ\r\n" HEAD "no colon\r\n\r\nx\r\n--XyZ--", NULL},
    };
    AUTO_BUF got = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct str body = str_of(cases[i].body);
        for (size_t step = 1; step <= body.n + 1; step++) {
            const char *text = read_in_steps(TYPE, body, step, &got);
            if (cases[i].want == NULL)
                assert_null(text);
            else
                assert_string_equal(text, cases[i].want);
        }
    }
}

static void names_are_read_as_senders_write_them(void **state)
{
    (void)state;
    static const struct {
        const char *parameters, *want;
    } cases[] = {
        {"name=\"a\"; filename=\"q\\\"uote\\\\.txt\"", "[a|=q\"uote\\.txt|:]"},
        {"name=\"a\"; filename=\"C:\\dir\\file.txt\"", "[a|=C:\\dir\\file.txt|:]"},
        {"name=\"a\"; filename=\"a%22b;c.txt\"", "[a|=a%22b;c.txt|:]"},
        {"name=\"a\"; filename=\"plain\"; filename*=utf-8''%C3%A9%20x", "[a|=\xc3\xa9 x|:]"},
        {"name=\"a\"; filename*=UTF-8'en'x", "[a|=x|:]"},
        {"name=\"\xc3\xa9\"; filename=\"\xc3\xa9.txt\"", "[\xc3\xa9|=\xc3\xa9.txt|:]"},
        {"name=a; filename=\"\"", "[a|=|:]"},
        {"name=\"a\"; other=\"x\"", "[a||:]"},
        {"name=\"a\"; filename=\"\xff\"", NULL},
        {"name=\"a\"; filename*=UTF-8''%ff", NULL},
        {"name=\"a\"; filename*=UTF-8''%zz", NULL},
        {"name=\"a\"; filename*=UTF-8''%c", NULL},
        {"name=\"a\"; filename*=UTF-8''a%00b", NULL},
        {"name=\"a\"; filename*=latin1''x", NULL},
        {"name=\"a", NULL},
        {"name=\"a\" filename=b", NULL},
        {"name=\"a\tb\"", NULL},
        {"=a", NULL},
    };
    AUTO_BUF got = {0}, body = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        buf_clear(&body);
        buf_printf(&body, "--XyZ\r\nContent-Disposition: form-data; %s\r\n\r\n\r\n--XyZ--",
                   cases[i].parameters);
        const char *text = read_in_steps(TYPE, buf_str(&body), body.n, &got);
        if (cases[i].want == NULL)
            assert_null(text);
        else
            assert_string_equal(text, cases[i].want);
    }
}

static void only_form_data_with_one_boundary_is_taken(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "application/json",
        "multipart/form-data",
        "multipart/mixed; boundary=XyZ",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=\"\"",
        "multipart/form-data; boundary=a; boundary=b",
        "multipart/form-data; boundary=\"a",
        "multipart/form-data; boundary=\"ends in a blank \"",
        "multipart/form-data; boundary=\"tab\there\"",
        "multipart/form-data; "
        "boundary=0123456789012345678901234567890123456789012345678901234567890"
        "1234567890",
    };
    AUTO_BUF got = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_null(read_in_steps(bad[i], STR("--XyZ--"), 99, &got));
    assert_non_null(read_in_steps("Multipart/Form-Data; charset=utf-8; Boundary=\"XyZ\"",
                                  STR("--XyZ--"), 99, &got));
    assert_non_null(read_in_steps("multipart/form-data;boundary=XyZ", STR("--XyZ--"), 99, &got));
}

static void headers_and_parts_are_limited(void **state)
{
    (void)state;
    AUTO_BUF got = {0}, body = {0};
    buf_printf(&body, "--XyZ\r\n" HEAD "X: %0*d\r\n\r\n\r\n--XyZ--", MULTIPART_HEADERS_MAX, 0);
    assert_null(read_in_steps(TYPE, buf_str(&body), body.n, &got));
    assert_null(read_in_steps(TYPE, buf_str(&body), 100, &got));
    buf_clear(&body);
    for (int i = 0; i < MULTIPART_PARTS_MAX; i++)
        buf_printf(&body, "--XyZ\r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n");
    size_t fits = body.n;
    buf_add_c(&body, "--XyZ--");
    assert_non_null(read_in_steps(TYPE, buf_str(&body), 7, &got));
    body.n = fits;
    buf_add_c(&body, "--XyZ\r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n--XyZ--");
    assert_null(read_in_steps(TYPE, buf_str(&body), 7, &got));
}

static err refuse_part(void *arg, const struct multipart_part *p)
{
    (void)arg;
    (void)p;
    return fail(E_TOO_LARGE, "no room");
}

static void an_error_of_the_sink_ends_it(void **state)
{
    (void)state;
    struct multipart *m;
    struct multipart_sink sink = {refuse_part, see_data, see_end, NULL};
    assert_int_equal(multipart_new(STR(TYPE), &sink, &m), 0);
    assert_int_equal(multipart_feed(m, STR("--XyZ\r\n" HEAD "\r\n")), E_TOO_LARGE);
    multipart_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies_are_read_the_same_however_they_are_cut),
        cmocka_unit_test(names_are_read_as_senders_write_them),
        cmocka_unit_test(only_form_data_with_one_boundary_is_taken),
        cmocka_unit_test(headers_and_parts_are_limited),
        cmocka_unit_test(an_error_of_the_sink_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
