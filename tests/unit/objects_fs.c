/* src/objects: whole or not at all, ranges, order, hostile keys, deletes beside puts. */
#include "objects/objects.h"

#include "base/arena.h"
#include "base/buf.h"
#include "base/fd.h"
#include "base/lock.h"
#include "base/mem.h"
#include "base/tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

struct fixture {
    char dir[64];
    struct objects *o;
};

static int set_up(void **state)
{
    struct fixture *f = mem_alloc(sizeof *f);
    snprintf(f->dir, sizeof f->dir, "/tmp/pm-objects-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    assert_int_equal(objects_open(f->dir, &f->o), 0);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    objects_close(f->o);
    assert_int_equal(tree_remove(f->dir), 0);
    mem_free(f);
    return 0;
}

static void put(struct fixture *f, const char *key, const char *text)
{
    assert_int_equal(objects_put(f->o, key, str_of(text)), 0);
}

/* The range as text; NULL when there is no such object. */
static char *get_range(struct fixture *f, const char *key, uint64_t from, uint64_t length)
{
    static char text[256];
    struct object_get *g;
    size_t n, total = 0;
    if (objects_get(f->o, key, from, length, &g, NULL))
        return NULL;
    do {
        assert_int_equal(objects_get_read(g, text + total, 3, &n), 0); /* in small pieces */
        total += n;
    } while (n > 0);
    text[total] = 0;
    objects_get_close(g);
    return text;
}

static char *get(struct fixture *f, const char *key)
{
    return get_range(f, key, 0, OBJECT_TO_END);
}

static size_t count_files(const char *folder)
{
    DIR *d = opendir(folder);
    size_t n = 0;
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(d);
    return n;
}

static size_t half_written(struct fixture *f)
{
    char path[80];
    snprintf(path, sizeof path, "%s/.tmp", f->dir);
    return count_files(path);
}

static void what_was_put_comes_back_with_its_hash(void **state)
{
    struct fixture *f = *state;
    struct object_put *p;
    struct object_info info;
    uint64_t size = 0;
    assert_int_equal(objects_put_begin(f->o, "files/t/a", &p), 0);
    assert_int_equal(objects_put_write(p, STR("ab")), 0);
    assert_int_equal(objects_put_write(p, STR("")), 0);
    assert_int_equal(objects_put_write(p, STR("c")), 0);
    assert_null(get(f, "files/t/a")); /* not before end */
    assert_int_equal(objects_put_end(p, &info), 0);
    assert_int_equal(info.size, 3);
    assert_string_equal(info.sha256,
                        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_string_equal(get(f, "files/t/a"), "abc");
    assert_int_equal(objects_size(f->o, "files/t/a", &size), 0);
    assert_int_equal(size, 3);
    assert_int_equal(half_written(f), 0);
}

static void an_empty_object_is_an_object(void **state)
{
    struct fixture *f = *state;
    put(f, "empty", "");
    assert_string_equal(get(f, "empty"), "");
}

static void an_aborted_put_leaves_the_old_object(void **state)
{
    struct fixture *f = *state;
    struct object_put *p;
    put(f, "a/b", "old");
    assert_int_equal(objects_put_begin(f->o, "a/b", &p), 0);
    assert_int_equal(objects_put_write(p, STR("new")), 0);
    objects_put_abort(p);
    assert_string_equal(get(f, "a/b"), "old");
    assert_int_equal(half_written(f), 0);
    objects_put_abort(NULL);
}

static void a_get_goes_on_after_replace_and_delete(void **state)
{
    struct fixture *f = *state;
    struct object_get *g;
    char text[8] = "";
    size_t n;
    put(f, "a", "first");
    assert_int_equal(objects_get(f->o, "a", 1, 3, &g, NULL), 0);
    put(f, "a", "2");
    assert_string_equal(get(f, "a"), "2");
    assert_int_equal(objects_delete(f->o, "a"), 0);
    assert_int_equal(objects_get_read(g, text, sizeof text, &n), 0);
    assert_int_equal(n, 3);
    assert_memory_equal(text, "irs", 3);
    objects_get_close(g);
}

static void ranges_end_where_the_object_ends(void **state)
{
    struct fixture *f = *state;
    put(f, "a", "0123456789");
    assert_string_equal(get_range(f, "a", 0, 4), "0123");
    assert_string_equal(get_range(f, "a", 8, 4), "89");
    assert_string_equal(get_range(f, "a", 3, OBJECT_TO_END), "3456789");
    assert_string_equal(get_range(f, "a", 10, 1), "");
    assert_string_equal(get_range(f, "a", UINT64_MAX, OBJECT_TO_END), "");
}

static void what_is_missing_is_not_found(void **state)
{
    struct fixture *f = *state;
    struct object_get *g;
    uint64_t size;
    put(f, "a/b", "x");
    assert_int_equal(objects_get(f->o, "c", 0, 1, &g, NULL), E_NOT_FOUND);
    assert_int_equal(objects_get(f->o, "a", 0, 1, &g, NULL), E_NOT_FOUND);     /* a folder */
    assert_int_equal(objects_get(f->o, "a/b/c", 0, 1, &g, NULL), E_NOT_FOUND); /* below a file */
    assert_int_equal(objects_size(f->o, "c", &size), E_NOT_FOUND);
    assert_int_equal(objects_delete(f->o, "c"), 0);
    assert_int_equal(objects_delete(f->o, "a/b/c"), 0);
}

static void a_delete_takes_the_folders_that_it_emptied(void **state)
{
    struct fixture *f = *state;
    put(f, "a/b/c", "x");
    put(f, "a/d", "x");
    assert_int_equal(objects_delete(f->o, "a/b/c"), 0);
    assert_string_equal(get(f, "a/d"), "x");
    assert_int_equal(objects_delete(f->o, "a/d"), 0);
    assert_int_equal(count_files(f->dir), 1); /* .tmp */
}

static void hostile_keys_are_refused(void **state)
{
    struct fixture *f = *state;
    char longest[OBJECT_KEY_MAX + 2];
    memset(longest, 'k', sizeof longest);
    longest[OBJECT_KEY_MAX + 1] = 0;
    const char *keys[] = {"",     "/",      "/a",  "a/",   "a//b", "..",       "a/../b", "./a",
                          "a/.b", ".tmp/x", "a b", "a\nb", "a\\b", "\xc3\xa9", "a%2fb",  longest};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct object_get *g;
        assert_int_equal(objects_put(f->o, keys[i], STR("x")), E_INVALID);
        assert_int_equal(objects_get(f->o, keys[i], 0, 1, &g, NULL), E_INVALID);
        assert_int_equal(objects_delete(f->o, keys[i]), E_INVALID);
    }
    assert_int_equal(objects_list(f->o, "a", NULL, NULL), E_INVALID);
    assert_int_equal(objects_list(f->o, "../", NULL, NULL), E_INVALID);
    assert_int_equal(count_files(f->dir), 1);
}

static void a_link_is_not_followed(void **state)
{
    struct fixture *f = *state;
    struct object_get *g;
    char path[80];
    snprintf(path, sizeof path, "%s/link", f->dir);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    assert_int_not_equal(objects_get(f->o, "link", 0, 1, &g, NULL), 0);
}

static bool collect(void *arg, const char *key, uint64_t size)
{
    buf_printf(arg, "%s=%u ", key, (unsigned)size);
    return true;
}

static bool only_first(void *arg, const char *key, uint64_t size)
{
    collect(arg, key, size);
    return false;
}

static void a_list_is_in_the_order_of_bytes(void **state)
{
    struct fixture *f = *state;
    AUTO_BUF all = {0}, some = {0}, first = {0}, none = {0};
    put(f, "a/x", "1");
    put(f, "a-b", "22");
    put(f, "a.b", "");
    put(f, "a0", "4444");
    put(f, "a/b/c", "1");
    put(f, "b", "1");
    assert_int_equal(objects_list(f->o, "", collect, &all), 0);
    assert_string_equal(all.p, "a-b=2 a.b=0 a/b/c=1 a/x=1 a0=4 b=1 ");
    assert_int_equal(objects_list(f->o, "a/", collect, &some), 0);
    assert_string_equal(some.p, "a/b/c=1 a/x=1 ");
    assert_int_equal(objects_list(f->o, "", only_first, &first), 0);
    assert_string_equal(first.p, "a-b=2 ");
    assert_int_equal(objects_list(f->o, "nothing/", collect, &none), 0);
    assert_int_equal(none.n, 0);
}

static void what_a_crash_left_half_written_goes_at_the_next_open(void **state)
{
    struct fixture *f = *state;
    struct object_put *p;
    put(f, "a", "x");
    assert_int_equal(objects_put_begin(f->o, "b", &p), 0);
    assert_int_equal(half_written(f), 1);
    struct objects *again;
    assert_int_equal(objects_open(f->dir, &again), 0);
    assert_int_equal(half_written(f), 0);
    assert_string_equal(get(f, "a"), "x");
    assert_int_equal(objects_put_end(p, NULL), E_IO); /* and it says so */
    assert_null(get(f, "b"));
    objects_close(again);
}

static void a_full_disk_is_an_error_and_no_object(void **state)
{
    struct fixture *f = *state;
    struct rlimit limit, small = {4096, 0};
    AUTO_BUF big = {0};
    for (int i = 0; i < 1000; i++)
        buf_add_c(&big, "0123456789");
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    small.rlim_max = limit.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    err e = objects_put(f->o, "big", buf_str(&big));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(e, E_IO);
    assert_null(get(f, "big"));
    assert_int_equal(half_written(f), 0);
}

static void *put_many(void *arg)
{
    struct fixture *f = arg;
    for (int i = 0; i < 200; i++)
        assert_int_equal(objects_put(f->o, "deep/er/a", STR("x")), 0);
    return NULL;
}

static void *delete_many(void *arg)
{
    struct fixture *f = arg;
    for (int i = 0; i < 200; i++) {
        assert_int_equal(objects_put(f->o, "deep/er/b", STR("y")), 0);
        assert_int_equal(objects_delete(f->o, "deep/er/b"), 0);
        assert_int_equal(objects_delete(f->o, "deep/er/a"), 0);
    }
    return NULL;
}

static void deletes_beside_puts_lose_no_put(void **state)
{
    struct fixture *f = *state;
    pthread_t one = thread_start("put", put_many, f), two = thread_start("del", delete_many, f);
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    put(f, "deep/er/a", "last");
    assert_string_equal(get(f, "deep/er/a"), "last");
}

static void only_folders_are_taken_as_stores(void **state)
{
    (void)state;
    struct objects *o;
    assert_int_equal(objects_open("s3://bucket", &o), E_INVALID);
    assert_int_equal(objects_open("relative", &o), E_INVALID);
    assert_int_not_equal(objects_open("file:/nowhere/at/all", &o), 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_was_put_comes_back_with_its_hash),
        TEST(an_empty_object_is_an_object),
        TEST(an_aborted_put_leaves_the_old_object),
        TEST(a_get_goes_on_after_replace_and_delete),
        TEST(ranges_end_where_the_object_ends),
        TEST(what_is_missing_is_not_found),
        TEST(a_delete_takes_the_folders_that_it_emptied),
        TEST(hostile_keys_are_refused),
        TEST(a_link_is_not_followed),
        TEST(a_list_is_in_the_order_of_bytes),
        TEST(what_a_crash_left_half_written_goes_at_the_next_open),
        TEST(a_full_disk_is_an_error_and_no_object),
        TEST(deletes_beside_puts_lose_no_put),
        TEST(only_folders_are_taken_as_stores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
