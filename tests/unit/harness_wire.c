/* Tests src/harness/wire.c: what a host sends, cut into messages at any byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#undef fail /* ours is a function */

#include <stdlib.h>
#include <string.h>

#include "harness/protocol.h"
#include "harness/wire.h"

static void add(struct wire_reader *r, const char *text, size_t n)
{
    memcpy(wire_space(r, n + 1), text, n);
    wire_added(r, n);
}

/* All messages in `r` now, as "type:line;" appended to out. */
static err drain(struct wire_reader *r, struct buf *out)
{
    json_t *envelope;
    struct str line;
    err e;
    while (wire_take(r, &envelope, &line, &e)) {
        buf_printf(out, "%s:%.*s;", json_get_c(envelope, "t"), STR_ARG(line));
        json_decref(envelope);
    }
    return e;
}

static const char conversation[] = "{\"t\":\"a\"}\n"
                                   "{\"t\":\"b\",\"lines\":1}\n{\"x\":\"\xe2\x80\xa8\"}\n"
                                   "{\"t\":\"c\",\"lines\":1}\n\n"
                                   "{\"t\":\"d\",\"lines\":0}\n";
static const char cut[] = "a:;b:{\"x\":\"\xe2\x80\xa8\"};c:;d:;";

static void messages_come_out_whole_wherever_the_bytes_are_cut(void **state)
{
    (void)state;
    size_t all = sizeof conversation - 1;
    for (size_t step = 1; step <= all; step++) {
        struct wire_reader r = {0};
        AUTO_BUF got = {0};
        for (size_t at = 0; at < all; at += step) {
            add(&r, conversation + at, all - at < step ? all - at : step);
            assert_int_equal(drain(&r, &got), 0);
        }
        assert_string_equal(got.p, cut);
        wire_done(&r);
    }
}

static void what_is_not_the_protocol_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "\n",
        "nonsense\n",
        "[]\n",
        "{\"t\":\"a\"\n",
        "{\"t\":\"a\",\"lines\":2}\n",
        "\"text\"\n",
        "{\"t\":\"a\",\"lines\":-1}\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct wire_reader r = {0};
        AUTO_BUF got = {0};
        add(&r, bad[i], strlen(bad[i]));
        assert_int_equal(drain(&r, &got), E_INVALID);
        wire_done(&r);
    }
}

static void an_envelope_without_end_is_refused_before_it_fills_memory(void **state)
{
    (void)state;
    struct wire_reader r = {0};
    AUTO_BUF got = {0};
    char *filler = calloc(1, HOST_ENVELOPE_MAX);
    memset(filler, ' ', HOST_ENVELOPE_MAX);
    add(&r, filler, HOST_ENVELOPE_MAX);
    assert_int_equal(drain(&r, &got), 0);
    add(&r, filler, 1);
    assert_int_equal(drain(&r, &got), E_INVALID);
    wire_done(&r);
    free(filler);
}

static void lines_are_counted_and_closed(void **state)
{
    (void)state;
    static const struct {
        const char *lines, *expected;
    } cases[] = {
        {"", "{\"op\":\"x\"}\n"},
        {"[1]", "{\"op\":\"x\",\"lines\":1}\n[1]\n"},
        {"[1]\n", "{\"op\":\"x\",\"lines\":1}\n[1]\n"},
        {"a\nb\nc", "{\"op\":\"x\",\"lines\":3}\na\nb\nc\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        AUTO_JSON envelope = json_pack("{s:s}", "op", "x");
        AUTO_BUF out = {0};
        wire_build(envelope, str_of(cases[i].lines), &out);
        assert_string_equal(out.p, cases[i].expected);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_come_out_whole_wherever_the_bytes_are_cut),
        cmocka_unit_test(what_is_not_the_protocol_is_refused),
        cmocka_unit_test(an_envelope_without_end_is_refused_before_it_fills_memory),
        cmocka_unit_test(lines_are_counted_and_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
