/* src/sandbox/packages.c, what sandbox/bake.c says of a failure, and the paths of images/name.c
   that an operator allowed. */
#include "images/name.h"
#include "sandbox/bake.h"
#include "sandbox/packages.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#undef fail /* ours */

#define wrong(...) (print_error(__VA_ARGS__), _fail(__FILE__, __LINE__))

static void names_with_versions_pass_and_nothing_else_does(void **state)
{
    static const struct {
        enum package_kind kind;
        const char *name;
        bool good;
    } cases[] = {
        {PACKAGE_APT, "jq", true},
        {PACKAGE_APT, "g++", true},
        {PACKAGE_APT, "libc6:i386", true},
        {PACKAGE_APT, "jq=1.6-2.1+deb12u1", true},
        {PACKAGE_APT, "jq-", false}, /* removal */
        {PACKAGE_APT, "-y", false},
        {PACKAGE_APT, "./jq.deb", false},
        {PACKAGE_APT, "jq/testing", false},
        {PACKAGE_APT, "jq=", false},
        {PACKAGE_APT, "jq:", false},
        {PACKAGE_APT, "jq;x", false},
        {PACKAGE_APT, "", false},
        {PACKAGE_NPM, "typescript", true},
        {PACKAGE_NPM, "@types/node@22.1.0", true},
        {PACKAGE_NPM, "a@^1.2", true},
        {PACKAGE_NPM, "a@latest", true},
        {PACKAGE_NPM, "user/repo", false},
        {PACKAGE_NPM, "git+https://x/y.git", false},
        {PACKAGE_NPM, "a@npm:b", false},
        {PACKAGE_NPM, "a@../b", false},
        {PACKAGE_NPM, "a@", false},
        {PACKAGE_NPM, "-g", false},
        {PACKAGE_NPM, ".", false},
        {PACKAGE_PIP, "requests", true},
        {PACKAGE_PIP, "uvicorn[standard]==0.30.1", true},
        {PACKAGE_PIP, "numpy>=2", true},
        {PACKAGE_PIP, "numpy>=2,<3", false},
        {PACKAGE_PIP, "x @ https://y", false},
        {PACKAGE_PIP, "--index-url", false},
        {PACKAGE_PIP, ".", false},
        {PACKAGE_PIP, "x==", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if ((package_check(cases[i].kind, str_of(cases[i].name)) == 0) != cases[i].good)
            wrong("%s %s\n", package_kinds[cases[i].kind], cases[i].name);
    }
    assert_int_equal(package_check(PACKAGE_APT, (struct str){"jq\0x", 4}), E_INVALID);
}

static void canonical_is(const char *json, err wanted, const char *text)
{
    AUTO_JSON packages = NULL;
    AUTO_BUF out = {0};
    assert_int_equal(json_read(str_of(json), &packages), 0);
    assert_int_equal(packages_canonical(packages, &out), wanted);
    if (wanted == 0)
        assert_string_equal(buf_str(&out).p, text);
}

static void equal_wishes_have_one_text(void **state)
{
    (void)state;
    canonical_is("null", 0, "");
    canonical_is("{}", 0, "");
    canonical_is("{\"apt\":[],\"npm\":null}", 0, "");
    canonical_is("{\"pip\":[\"b\",\"a\"],\"apt\":[\"jq\",\"curl\",\"jq\"]}", 0,
                 "apt:curl\napt:jq\npip:a\npip:b\n");
    canonical_is("{\"apt\":[1]}", E_INVALID, NULL);
    canonical_is("{\"apt\":\"jq\"}", E_INVALID, NULL);
}

static err count_one(void *arg, enum package_kind kind, struct str name)
{
    (void)kind, (void)name;
    ++*(int *)arg;
    return 0;
}

static void only_whole_lines_of_good_names_are_read_back(void **state)
{
    (void)state;
    int n = 0;
    assert_int_equal(packages_each(STR("apt:jq\nnpm:a@1\n"), count_one, &n), 0);
    assert_int_equal(n, 2);
    static const char *const bad[] = {"apt:jq", "apt\n", "gem:x\n", "apt:-y\n", "\n", "apt:a b\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(packages_each(str_of(bad[i]), count_one, &n), E_INVALID);
}

static void the_line_that_says_why_is_found(void **state)
{
    static const struct {
        const char *output, *reason;
    } cases[] = {
        {"Reading\nE: Unable to locate package x\nbye\n", "E: Unable to locate package x"},
        {"npm error code E404\nnpm error 404 Not Found\nnpm error A complete log of\n",
         "npm error 404 Not Found"},
        {"ERROR: No matching distribution found for x\n",
         "ERROR: No matching distribution found for x"},
        {"one\n\ntwo\n\n", "two"},
        {"", "it said nothing"},
        {"a\x1b[31mb\xff", "a?[31mb?"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[64];
        bake_reason(cases[i].output, out, sizeof out);
        assert_string_equal(out, cases[i].reason);
    }
    char small[4];
    bake_reason("abcdef", small, sizeof small);
    assert_string_equal(small, "abc");
}

static void only_paths_beneath_the_allowed_ones_are_images(void **state)
{
    static const struct {
        const char *image, *allowed;
        bool good;
    } cases[] = {
        {"dir:/srv/a", "/srv/a", true},
        {"dir:/srv/a/b", "/srv/a", true},
        {"oci:/srv/b/x:tag", "/srv/a,/srv/b", true},
        {"tar:/srv/ab", "/srv/a", false},
        {"dir:/srv/a/../b", "/srv/a", false},
        {"dir:/srv/a//b", "/srv/a", false},
        {"dir:srv/a", "/srv/a", false},
        {"dir:/srv/a", "", false},
        {"name:/srv/a", "/srv/a", false},
        {"/srv/a", "/srv/a", false},
        {"dir:/srv/a/", "/srv/a", true},
        {"dir:/x", "srv,,/", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (image_path_allowed(cases[i].image, cases[i].allowed) != cases[i].good)
            wrong("%s beneath %s\n", cases[i].image, cases[i].allowed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_with_versions_pass_and_nothing_else_does),
        cmocka_unit_test(equal_wishes_have_one_text),
        cmocka_unit_test(only_whole_lines_of_good_names_are_read_back),
        cmocka_unit_test(the_line_that_says_why_is_found),
        cmocka_unit_test(only_paths_beneath_the_allowed_ones_are_images),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
