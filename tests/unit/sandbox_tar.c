/* src/sandbox/tar.c: what other programs read of it. */
#include "sandbox/tar.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <archive.h>
#include <archive_entry.h>

static struct archive *open_archive(const struct buf *bytes)
{
    struct archive *a = archive_read_new();
    archive_read_support_format_tar(a);
    assert_int_equal(archive_read_open_memory(a, bytes->p, bytes->n), ARCHIVE_OK);
    return a;
}

static struct archive_entry *next_entry(struct archive *a)
{
    struct archive_entry *e;
    int r = archive_read_next_header(a, &e);
    assert_true(r == ARCHIVE_OK || r == ARCHIVE_WARN);
    return e;
}

static void entries_come_back_as_they_were(void **state)
{
    (void)state;
    AUTO_BUF out = {0};
    static char path[3001], target[3001];
    memset(path, 'p', 3000);
    memset(target, 't', 3000);
    for (size_t i = 200; i < 3000; i += 200)
        path[i] = '/';
    tar_add_header(&out, str_of("d"),
                   &(struct copyout_node){.type = COPYOUT_FOLDER, .mode = 01777});
    tar_add_header(&out, str_of(path),
                   &(struct copyout_node){.type = COPYOUT_FILE,
                                          .mode = 04755,
                                          .size = 5,
                                          .mtime_ns = INT64_C(1700000000123456789)});
    buf_add_c(&out, "hello");
    tar_add_padding(&out, 5);
    tar_add_header(
        &out, STR("l"),
        &(struct copyout_node){.type = COPYOUT_LINK, .mode = 0777, .target = str_of(target)});
    tar_add_header(&out, STR("old"),
                   &(struct copyout_node){.type = COPYOUT_FILE, .mtime_ns = INT64_MIN});
    tar_add_comment(&out, STR("a remark\nof two lines"));
    tar_add_end(&out);
    assert_int_equal(out.n % 512, 0);

    struct archive *a = open_archive(&out);
    struct archive_entry *e = next_entry(a);
    assert_string_equal(archive_entry_pathname(e), "d/");
    assert_int_equal(archive_entry_mode(e), AE_IFDIR | 01777);
    e = next_entry(a);
    assert_string_equal(archive_entry_pathname(e), path);
    assert_int_equal(archive_entry_mode(e), AE_IFREG | 04755);
    assert_int_equal(archive_entry_mtime(e), 1700000000);
    char content[8] = {0};
    assert_int_equal(archive_read_data(a, content, sizeof content), 5);
    assert_string_equal(content, "hello");
    e = next_entry(a);
    assert_string_equal(archive_entry_symlink(e), target);
    e = next_entry(a);
    assert_string_equal(archive_entry_pathname(e), "old");
    assert_int_equal(archive_entry_mtime(e), 0);
    assert_int_equal(archive_read_next_header(a, &e), ARCHIVE_EOF);
    archive_read_free(a);
}

static void names_of_any_bytes_come_back(void **state)
{
    (void)state;
    static const char *const names[] = {"a\nb", "\xc3\xa9", "\xff\xfe/x", "with = and 12 numbers"};
    AUTO_BUF out = {0};
    for (size_t i = 0; i < 4; i++)
        tar_add_header(&out, str_of(names[i]),
                       &(struct copyout_node){.type = COPYOUT_FILE, .mode = 0644});
    tar_add_end(&out);
    struct archive *a = open_archive(&out);
    for (size_t i = 0; i < 4; i++) {
        const char *name = archive_entry_pathname(next_entry(a));
        /* Without a locale the library gives no name that is not ASCII when it is told UTF-8. */
        if (i != 1 || name)
            assert_string_equal(name, names[i]);
    }
    archive_read_free(a);
}

static void sizes_beyond_eight_gibibytes_are_kept(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {((uint64_t)8 << 30) - 1, (uint64_t)8 << 30, (uint64_t)1 << 42};
    for (size_t i = 0; i < 3; i++) {
        AUTO_BUF out = {0};
        tar_add_header(&out, STR("big"),
                       &(struct copyout_node){.type = COPYOUT_FILE, .size = sizes[i]});
        struct archive *a = open_archive(&out);
        assert_int_equal(archive_entry_size(next_entry(a)), sizes[i]);
        archive_read_free(a);
    }
}

/* Records count their own digits: lengths around powers of ten. */
static void records_of_every_length_are_read(void **state)
{
    (void)state;
    static char name[1100];
    for (size_t n = 101; n < sizeof name; n++) {
        AUTO_BUF out = {0};
        memset(name, 'x', n);
        name[n] = 0;
        tar_add_header(&out, str_of(name), &(struct copyout_node){.type = COPYOUT_FILE});
        struct archive *a = open_archive(&out);
        assert_string_equal(archive_entry_pathname(next_entry(a)), name);
        archive_read_free(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_come_back_as_they_were),
        cmocka_unit_test(names_of_any_bytes_come_back),
        cmocka_unit_test(sizes_beyond_eight_gibibytes_are_kept),
        cmocka_unit_test(records_of_every_length_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
