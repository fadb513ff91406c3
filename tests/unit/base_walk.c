/* src/base/walk.c: every entry once, folders around what is in them, however deep. */
#include "base/walk.h"

#include "base/buf.h"
#include "base/fd.h"
#include "base/tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#undef fail /* ours */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char top[64];

static int make_top(void **state)
{
    (void)state;
    snprintf(top, sizeof top, "/tmp/pm-test-walk-XXXXXX");
    return mkdtemp(top) ? 0 : -1;
}

static int remove_top(void **state)
{
    (void)state;
    return tree_remove(top);
}

static void make(const char *command)
{
    char text[512];
    snprintf(text, sizeof text, "cd %s && %s", top, command);
    assert_int_equal(system(text), 0);
}

static err say_entry(void *arg, int dir, const char *name, const struct stat *st)
{
    (void)dir;
    buf_printf(arg, "%s%s ", name, S_ISDIR(st->st_mode) ? "/" : S_ISLNK(st->st_mode) ? "@" : "");
    return 0;
}

static err say_enter(void *arg, int dir, const char *name)
{
    struct stat st;
    assert_int_equal(fstat(dir, &st), 0);
    buf_printf(arg, "(%s ", name);
    return 0;
}

static err say_leave(void *arg, int dir, const struct stat *st)
{
    struct stat now;
    assert_int_equal(fstat(dir, &now), 0);
    assert_int_equal(now.st_ino, st->st_ino);
    buf_add_c(arg, ") ");
    return 0;
}

static err walk(struct buf *out)
{
    AUTO_FD fd = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    return walk_folder(fd, &(struct walk){say_entry, say_enter, say_leave, out});
}

static void folders_stand_around_what_is_in_them(void **state)
{
    (void)state;
    AUTO_BUF out = {0};
    assert_int_equal(walk(&out), 0);
    assert_int_equal(out.n, 0);
    make("mkdir -p a/b && touch a/b/c && ln -s / a/b/l");
    assert_int_equal(walk(&out), 0);
    bool link_first = strstr(out.p, "l@ c") != NULL;
    assert_string_equal(out.p, link_first ? "a/ (a b/ (b l@ c ) ) " : "a/ (a b/ (b c l@ ) ) ");
}

/* Deeper than paths and descriptors reach. */
static void depth_does_not_matter(void **state)
{
    (void)state;
    AUTO_BUF out = {0};
    make("n=$(printf 'd%.0s' $(seq 99)); for i in $(seq 600); do mkdir $n x && cd -P $n || exit 1; "
         "done "
         "2>/dev/null; touch end");
    assert_int_equal(walk(&out), 0);
    size_t folders = 0, sides = 0;
    for (const char *p = out.p; (p = strchr(p, '(')); p++) {
        folders += p[1] == 'd';
        sides += p[1] == 'x';
    }
    assert_int_equal(folders, 600);
    assert_int_equal(sides, 600);
    assert_non_null(strstr(out.p, "end "));
}

static err stop_at_c(void *arg, int dir, const char *name, const struct stat *st)
{
    (void)arg, (void)dir, (void)st;
    return strcmp(name, "c") == 0 ? fail(E_CONFLICT, "met c") : 0;
}

static void the_first_error_ends_it(void **state)
{
    (void)state;
    make("mkdir -p a/b && touch a/b/c");
    AUTO_FD fd = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(walk_folder(fd, &(struct walk){.entry = stop_at_c}), E_CONFLICT);
    assert_string_equal(err_text(), "met c");
}

static void a_file_with_several_names_counts_once(void **state)
{
    (void)state;
    uint64_t one, bytes;
    assert_int_equal(walk_measure("/nonexistent", &bytes), 0);
    assert_int_equal(bytes, 0);
    make("head -c 1000000 /dev/urandom >f && sync f");
    assert_int_equal(walk_measure(top, &one), 0);
    assert_in_range(one, 1000000, 1100000);
    make("ln f g && ln f h && ln -s f l && truncate -s 1G sparse");
    assert_int_equal(walk_measure(top, &bytes), 0);
    assert_in_range(bytes, one - 8, one + 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(folders_stand_around_what_is_in_them, make_top, remove_top),
        cmocka_unit_test_setup_teardown(depth_does_not_matter, make_top, remove_top),
        cmocka_unit_test_setup_teardown(the_first_error_ends_it, make_top, remove_top),
        cmocka_unit_test_setup_teardown(a_file_with_several_names_counts_once, make_top,
                                        remove_top),
    };
    return cmocka_run_group_tests_name("base_walk", tests, NULL, NULL);
}
