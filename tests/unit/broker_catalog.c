/* src/broker/catalog.c: what the build extracted from the installed Pi, and damaged files. */
#include "broker/catalog.h"

#include "base/arena.h"
#include "base/fd.h"
#include "broker/dial.h"
#include "broker/wire.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#undef fail /* ours */

#define RUNTIME "build/runtime"

static void pis_own_models_are_there(void **state)
{
    (void)state;
    struct catalog *c;
    assert_int_equal(catalog_load(RUNTIME, &c), 0);
    static const char *const providers[] = {"anthropic", "openai", "google", "openrouter"};
    for (size_t i = 0; i < sizeof providers / sizeof *providers; i++) {
        assert_true(catalog_has_provider(c, providers[i]));
        assert_non_null(strstr(catalog_providers(c), providers[i]));
    }
    assert_false(catalog_has_provider(c, "nonesuch"));
    assert_null(catalog_find(c, "anthropic", "nonesuch"));
    catalog_free(c);
}

static void an_api_we_do_not_speak_is_named(void **state)
{
    (void)state;
    struct catalog *c;
    assert_int_equal(catalog_load(RUNTIME, &c), 0);
    const struct catalog_model *m = catalog_find(c, "amazon-bedrock", "amazon.nova-pro-v1:0");
    assert_non_null(m);
    assert_null(m->api);
    assert_string_equal(m->foreign_api, "bedrock-converse-stream");
    assert_true(catalog_has_provider(c, "amazon-bedrock"));
    assert_null(strstr(catalog_providers(c), "amazon-bedrock"));
    catalog_free(c);
}

static void it_takes_less_than_a_megabyte(void **state)
{
    (void)state;
    struct catalog *c;
    struct mallinfo2 before = mallinfo2();
    assert_int_equal(catalog_load(RUNTIME, &c), 0);
    struct mallinfo2 after = mallinfo2();
    size_t kept = after.uordblks + after.hblkhd - before.uordblks - before.hblkhd;
    if (kept != 0) /* sanitizers' allocators tell nothing */
        assert_true(kept < 1u << 20);
    catalog_free(c);
}

/* A folder with the given catalogue in it. */
static err load_text(const char *text, struct catalog **out)
{
    char dir[] = "/tmp/pm-catalog-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/catalog.json", dir);
    assert_int_equal(fd_write_file_atomic(path, str_of(text), 0600), 0);
    err e = catalog_load(dir, out);
    unlink(path);
    rmdir(dir);
    return e;
}

static void rates_follow_pis_tiers(void **state)
{
    (void)state;
    struct catalog *c;
    assert_int_equal(
        load_text(
            "{\"models\":[\n"
            "[\"p\",\"m\",\"M\",\"openai-responses\",\"https://p.test/v1\",1,2,0.5,0.25,10,5,7,"
            "[[200,10,20,5,2],[100,3,4,1,1]]],\n"
            "[\"p\",\"z\",\"Z\",\"openai-responses\",\"https://p.test/v1\",0,0,0,0,10,5,0,[]]\n"
            "]}\n",
            &c),
        0);
    const struct catalog_model *m = catalog_find(c, "p", "m");
    assert_true(m->price.known && m->reasoning && m->images);
    assert_true(catalog_rates_for(&m->price, 100).input == 1);
    assert_true(catalog_rates_for(&m->price, 101).input == 3);
    assert_true(catalog_rates_for(&m->price, 200).output == 4);
    assert_true(catalog_rates_for(&m->price, 201).output == 20);
    assert_true(catalog_rates_for(&m->price, 0).cache_read == 0.5);
    assert_false(catalog_find(c, "p", "z")->price.known);
    catalog_free(c);
}

static void an_address_with_a_hole_is_not_usable(void **state)
{
    (void)state;
    struct catalog *c;
    assert_int_equal(
        load_text(
            "[\"p\",\"m\",\"M\",\"openai-responses\",\"https://p.test/{X}\",1,2,0,0,1,1,4,[]]\n"
            "[\"p\",\"n\",\"N\",\"openai-responses\",\"\",1,2,0,0,1,1,4,[]]\n",
            &c),
        0);
    assert_null(catalog_find(c, "p", "m")->api);
    assert_null(catalog_find(c, "p", "n")->api);
    assert_string_equal(catalog_providers(c), "");
    catalog_free(c);
}

static void a_damaged_file_is_refused_with_the_place(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        "{}",
        "[1]\n",
        "[\"p\",\"m\",\"M\",\"a\"]\n",
        "[\"p\",\"m\",\n",
        "[\"p\",\"m\",\"M\",\"a\",\"u\",1,2,3,4,5,6,7]\n",
    };
    struct catalog *c;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_int_equal(load_text(texts[i], &c), E_INVALID);
    assert_non_null(strstr(err_text(), "line 1: 12 members"));
    assert_int_equal(catalog_load("/nonexistent", &c), E_NOT_FOUND);
}

/* Every address that a key may be sent to passes the guard's parser, and is https. */
static void every_usable_address_can_be_dialled(void **state)
{
    (void)state;
    AUTO_BUF file = {0};
    assert_int_equal(fd_read_file(RUNTIME "/catalog.json", 16 << 20, &file), 0);
    struct catalog *c;
    assert_int_equal(catalog_load(RUNTIME, &c), 0);
    struct str rest = buf_str(&file), line;
    size_t usable = 0, foreign = 0;
    while (str_split(&rest, '\n', &line)) {
        if (line.n == 0 || line.p[0] != '[')
            continue;
        AUTO_JSON row = NULL;
        if (line.p[line.n - 1] == ',')
            line.n--;
        assert_int_equal(json_read(line, &row), 0);
        const struct catalog_model *m = catalog_find(c, json_string_value(json_array_get(row, 0)),
                                                     json_string_value(json_array_get(row, 1)));
        assert_non_null(m);
        AUTO_ARENA a = arena_new();
        struct dial_url u;
        if (m->api == NULL) {
            foreign++;
            continue;
        }
        usable++;
        assert_non_null(wire_find(m->api));
        assert_int_equal(dial_parse(str_of(m->base_url), a, &u), 0);
        assert_string_equal(u.scheme, "https");
        assert_true(m->context_window > 0 && m->max_tokens > 0);
    }
    assert_true(usable > 1000);
    assert_true(foreign > 100);
    catalog_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pis_own_models_are_there),
        cmocka_unit_test(an_api_we_do_not_speak_is_named),
        cmocka_unit_test(it_takes_less_than_a_megabyte),
        cmocka_unit_test(rates_follow_pis_tiers),
        cmocka_unit_test(an_address_with_a_hole_is_not_usable),
        cmocka_unit_test(a_damaged_file_is_refused_with_the_place),
        cmocka_unit_test(every_usable_address_can_be_dialled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
