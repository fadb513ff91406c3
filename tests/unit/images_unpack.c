/* src/images: tars and folders, hostile ones above all. */
#include "images_support.h"

#include <sys/resource.h>
#include <sys/wait.h>

static void a_tar_becomes_an_image_with_modes_times_and_owners(void **state)
{
    (void)state;
    const struct row rows[] = {
        {"./", S_IFDIR, .mode = 0711},
        {"./bin/", S_IFDIR, .mode = 0750, .uid = 3, .gid = 4},
        {"./bin/tool", S_IFREG, "#!", .mode = 04755, .uid = 5, .gid = 65535},
        {"./bin/t", S_IFLNK, "tool", .uid = 7},
        {"deep/er/file", S_IFREG, "deep"}, /* its folders are not in the archive */
        {"pipe", S_IFIFO, .mode = 0600},
        {"\xc3\xa4\xff", S_IFREG, "odd"},
        ROWS_END,
    };
    struct image_imported i = must_import_tar(rows);
    assert_int_equal(i.counts.entries, 9); /* with two folders made on the way */
    assert_text("bin/tool", "#!");
    assert_text("deep/er/file", "deep");
    assert_link("bin/t", "tool");
    struct stat tool = stat_of("bin/tool"), bin = stat_of("bin");
    assert_int_equal(tool.st_mode & 07777, 04755);
    assert_int_equal(tool.st_mtime, TEST_MTIME);
    assert_int_equal(bin.st_mtime, TEST_MTIME); /* though files were put into it */
    assert_int_equal(stat_of("").st_mtime, TEST_MTIME);
    assert_int_equal(stat_of("").st_mode & 07777, 0711);
    assert_int_equal(stat_of("deep").st_mode & 07777, 0755);
    assert_true(S_ISFIFO(stat_of("pipe").st_mode));
    if (geteuid() == 0) {
        assert_int_equal(tool.st_uid, 5);
        assert_int_equal(tool.st_gid, 65535);
        assert_int_equal(bin.st_uid, 3);
        assert_int_equal(stat_of("bin/t").st_uid, 7);
    }
}

static void every_compression_gives_the_same_files(void **state)
{
    (void)state;
    const struct row rows[] = {{"a", S_IFREG, "text"}, ROWS_END};
    const int filters[] = {ARCHIVE_FILTER_NONE, ARCHIVE_FILTER_GZIP, ARCHIVE_FILTER_ZSTD,
                           ARCHIVE_FILTER_XZ};
    char source[PATH_MAX + 8];
    snprintf(source, sizeof source, "tar:%s", in_work("c.tar"));
    for (size_t i = 0; i < 4; i++) {
        make_tar(in_work("c.tar"), rows, filters[i]);
        assert_false(must_import(source).known);
        assert_text("a", "text");
    }
    assert_true(must_import(source).known); /* the same file again */
    assert_int_equal(listed(), 1);
}

static void names_that_lead_out_are_refused(void **state)
{
    (void)state;
    char absolute[160];
    snprintf(absolute, sizeof absolute, "%s/evil", outside);
    const struct {
        const char *name, *says;
    } bad[] = {
        {"../outside/evil", "leads out"},
        {"a/../../outside/evil", "leads out"},
        {"a/..", "leads out"},
        {"./..", "leads out"},
        {absolute, "absolute"},
        {"/", "absolute"},
        {"//etc/passwd", "absolute"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct row rows[] = {{"fine", S_IFREG, "x"}, {bad[i].name, S_IFREG, "x"}, ROWS_END};
        assert_refused(import_tar(rows, &(struct image_imported){0}), bad[i].says);
        assert_non_null(strstr(refusal, "the entry \""));
    }
}

static void links_are_kept_and_never_followed_out(void **state)
{
    (void)state;
    char up[128];
    snprintf(up, sizeof up, "../../../../../../../..%s", outside);
    const char *const targets[] = {outside, up};
    for (size_t i = 0; i < 2; i++) {
        const struct row rows[] = {
            {"out", S_IFLNK, targets[i]}, {"out/evil", S_IFREG, "x"}, ROWS_END};
        assert_refused(import_tar(rows, &(struct image_imported){0}), "leads nowhere");
    }
    const struct row loop[] = {
        {"a", S_IFLNK, "b"}, {"b", S_IFLNK, "a"}, {"a/x", S_IFREG, "x"}, ROWS_END};
    assert_refused(import_tar(loop, &(struct image_imported){0}), "in circles");
    const struct row fine[] = {
        {"usr/lib/", S_IFDIR},
        {"lib", S_IFLNK, "/usr/lib"},
        {"lib/x", S_IFREG, "in"},
        {"abs", S_IFLNK, outside},
        {"top", S_IFLNK, "../../.."},
        {"top/y", S_IFREG, "in"},
        ROWS_END,
    };
    must_import_tar(fine);
    assert_text("usr/lib/x", "in"); /* as the running system would find it */
    assert_text("y", "in");
    assert_link("abs", outside);
    assert_link("lib", "/usr/lib");
    assert_int_equal(count_in(outside), 0);
}

static void a_link_in_the_place_of_a_file_is_replaced_not_written_through(void **state)
{
    (void)state;
    char victim[128];
    snprintf(victim, sizeof victim, "%s/victim", outside);
    const struct row rows[] = {{"f", S_IFLNK, victim},
                               {"f", S_IFREG, "own"},
                               {"g", S_IFLNK, victim},
                               {"g", S_IFIFO},
                               ROWS_END};
    must_import_tar(rows);
    assert_text("f", "own");
    assert_int_equal(count_in(outside), 0);
}

static void hard_links_stay_inside(void **state)
{
    (void)state;
    const char *const bad[][2] = {
        {"../outside/x", "leads out"}, {"/etc/passwd", "absolute"}, {"nothing", "no file"},
        {"out/passwd", "no file"},     {"folder", "no file"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct row rows[] = {
            {"out", S_IFLNK, "/etc"}, {"folder/", S_IFDIR}, {"h", 0, bad[i][0]}, ROWS_END};
        assert_refused(import_tar(rows, &(struct image_imported){0}), bad[i][1]);
    }
    const struct row fine[] = {{"a/f", S_IFREG, "one"},
                               {"b/g", 0, "./a/f"},
                               {"b/g", 0, "b/g"},
                               {"b/g", 0, "a/f"},
                               ROWS_END};
    must_import_tar(fine);
    assert_text("b/g", "one");
    assert_int_equal(stat_of("a/f").st_ino, stat_of("b/g").st_ino);
    assert_int_equal(stat_of("a/f").st_nlink, 2);
}

static void the_last_of_several_entries_wins(void **state)
{
    (void)state;
    const struct row rows[] = {
        {"a", S_IFREG, "first"},
        {"a", S_IFREG, "last"},
        {"b", S_IFREG, "file"},
        {"b/", S_IFDIR},
        {"b/c", S_IFREG, "in it"},
        {"d/e/f", S_IFREG, "x"},
        {"d", S_IFREG, "now a file"},
        {"g/h", S_IFREG, "kept"},
        {"g/", S_IFDIR, .mode = 0700},
        {"i", S_IFREG, "shared"},
        {"j", 0, "i"},
        {"j", S_IFREG, "its own"},
        ROWS_END,
    };
    must_import_tar(rows);
    assert_text("a", "last");
    assert_text("b/c", "in it");
    assert_text("d", "now a file");
    assert_text("g/h", "kept"); /* a folder named again stays */
    assert_int_equal(stat_of("g").st_mode & 07777, 0700);
    assert_text("i", "shared");
    assert_text("j", "its own");
}

static void devices_are_left_out_and_counted(void **state)
{
    (void)state;
    const struct row rows[] = {{"dev/null", S_IFCHR},      {"dev/sda", S_IFBLK},
                               {"replaced", S_IFREG, "x"}, {"replaced", S_IFCHR},
                               {"f", S_IFREG, "x"},        ROWS_END};
    assert_int_equal(must_import_tar(rows).counts.skipped, 3);
    assert_true(has("dev"));
    assert_false(has("dev/null") || has("dev/sda") || has("replaced"));
    assert_text("f", "x");
}

static void owners_beyond_a_sandbox_are_refused_as_root(void **state)
{
    (void)state;
    if (geteuid() != 0)
        skip();
    const struct row uid[] = {{"f", S_IFREG, "x", .uid = 65536}, ROWS_END};
    assert_refused(import_tar(uid, &(struct image_imported){0}), "65536:0 is beyond 65535");
    const struct row gid[] = {{"d/", S_IFDIR, .gid = 1000000}, ROWS_END};
    assert_refused(import_tar(gid, &(struct image_imported){0}), "the entry \"d/\"");
}

/* Run in a process of its own: a change of user has no way back. */
static void check_as_a_plain_user(void)
{
    const struct row rows[] = {
        {"shut/", S_IFDIR, .mode = 0555, .uid = 70000},
        {"shut/f", S_IFREG, "x", .uid = 5},
        {"suid", S_IFREG, "x", .mode = 04711},
        {"none", S_IFREG, "x", .mode = 0001},
        {"dev", S_IFCHR},
        {"h", 0, "shut/f"},
        ROWS_END,
    };
    assert_int_equal(must_import_tar(rows).counts.skipped, 1);
    assert_int_equal(stat_of("shut").st_uid, geteuid());
    assert_int_equal(stat_of("shut").st_mode & 07777, 0755); /* else nobody could remove it */
    assert_int_equal(stat_of("suid").st_mode & 07777, 04711);
    assert_int_equal(stat_of("none").st_mode & 07777, 0001);
    assert_int_equal(stat_of("h").st_ino, stat_of("shut/f").st_ino);
    uint64_t holders;
    assert_int_equal(image_remove(images, "it", &holders), 0);
    assert_int_equal(count_in(images), 1); /* .lock */
}

static void as_a_plain_user_everything_is_the_users_own(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        if (geteuid() == 0 && (setgid(12345) < 0 || setuid(12345) < 0))
            _exit(9);
        check_as_a_plain_user();
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void limits_hold(void **state)
{
    (void)state;
    const struct row rows[] = {{"a", S_IFREG, "12345"}, {"long/er", S_IFREG, "12345"}, ROWS_END};
    const struct row hole[] = {{"h", S_IFREG, .size = INT64_C(1) << 40}, ROWS_END};
    const struct {
        struct image_limits limits;
        const struct row *rows;
        const char *says;
    } cases[] = {
        {{2, 100, 100}, rows, "more than 2 entries"}, /* the folder counts */
        {{9, 9, 100}, rows, "more than 9 bytes"},
        {{9, 100, 6}, rows, "more than 6 bytes"},
        {{9, 1 << 20, 100}, hole, "more than 1048576 bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        limits = cases[i].limits;
        assert_refused(import_tar(cases[i].rows, &(struct image_imported){0}), cases[i].says);
    }
    limits = (struct image_limits){3, 10, 7};
    must_import_tar(rows);
    limits = (struct image_limits){0};
    char name[300];
    memset(name, 'n', sizeof name);
    name[256] = 0;
    const struct row part[] = {{name, S_IFREG, "x"}, ROWS_END};
    assert_int_equal(import_tar(part, &(struct image_imported){0}), E_TOO_LARGE);
}

static void sparse_files_keep_their_size(void **state)
{
    (void)state;
    const struct row rows[] = {{"h", S_IFREG, .size = 50 << 20}, ROWS_END};
    must_import_tar(rows);
    assert_int_equal(stat_of("h").st_size, 50 << 20);
}

static void a_bomb_is_stopped(void **state)
{
    (void)state;
    char source[PATH_MAX + 8], *zeros = calloc(1, 8 << 20);
    memset(zeros, '0', (8 << 20) - 1);
    const struct row rows[] = {{"z", S_IFREG, zeros}, ROWS_END};
    make_tar(in_work("bomb.tgz"), rows, ARCHIVE_FILTER_GZIP);
    free(zeros);
    limits = (struct image_limits){10, 1 << 20, 100};
    snprintf(source, sizeof source, "tar:%s", in_work("bomb.tgz"));
    err e = try_import("it", source, &(struct image_imported){0});
    limits = (struct image_limits){0};
    assert_refused(e, "more than");
}

/* AddressSanitizer keeps 256 MiB of what was freed. */
#ifdef __SANITIZE_ADDRESS__
#define MEMORY_KIB ((64 + 256 + 64) * 1024)
#else
#define MEMORY_KIB (64 * 1024)
#endif

/* Memory must not grow with the number of entries. One name again and again: what is tested is the
   reader, not the disk. */
#ifdef __SANITIZE_THREAD__ /* ten times slower, and there is one thread */
#define MANY 100000
#else
#define MANY 1000000
#endif

static void a_million_entries_need_no_memory(void **state)
{
    (void)state;
    char source[PATH_MAX + 8];
    struct archive *a = archive_write_new();
    archive_write_set_format_ustar(a);
    archive_write_add_filter_gzip(a);
    archive_write_set_filter_option(a, "gzip", "compression-level", "1");
    archive_write_open_filename(a, in_work("million.tgz"));
    struct archive_entry *e = archive_entry_new();
    archive_entry_set_pathname(e, "d/");
    archive_entry_set_filetype(e, S_IFDIR);
    archive_entry_set_perm(e, 0755);
    for (int i = 0; i < MANY; i++)
        archive_write_header(a, e);
    archive_entry_free(e);
    assert_int_equal(archive_write_close(a), ARCHIVE_OK);
    archive_write_free(a);
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    snprintf(source, sizeof source, "tar:%s", in_work("million.tgz"));
    assert_int_equal(must_import(source).counts.entries, MANY);
    getrusage(RUSAGE_SELF, &after);
    assert_true(after.ru_maxrss - before.ru_maxrss < MEMORY_KIB);
    limits = (struct image_limits){MANY - 1, 1 << 20, 100};
    assert_int_equal(try_import("x", source, &(struct image_imported){0}), E_TOO_LARGE);
    limits = (struct image_limits){0};
}

static void what_is_no_tar_is_refused(void **state)
{
    (void)state;
    char source[PATH_MAX + 8];
    const struct row rows[] = {{"a", S_IFREG, "text"}, ROWS_END};
    snprintf(source, sizeof source, "tar:%s", in_work("t"));
    const char *const texts[] = {"", "no tar", "PK\003\004 a zip", "\037\213 no gzip"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        assert_int_equal(fd_write_file_atomic(in_work("t"), str_of(texts[i]), 0644), 0);
        assert_refused(try_import("it", source, &(struct image_imported){0}), "");
    }
    make_tar(in_work("t"), rows, ARCHIVE_FILTER_NONE);
    assert_int_equal(truncate(in_work("t"), 512 + 2), 0); /* in the middle of the file */
    assert_refused(try_import("it", source, &(struct image_imported){0}), "\"a\"");
    make_tar(in_work("t"), rows, ARCHIVE_FILTER_GZIP);
    assert_int_equal(truncate(in_work("t"), 60), 0);
    assert_refused(try_import("it", source, &(struct image_imported){0}), "");
    const struct row saved[] = {{"manifest.json", S_IFREG, "[]"}, ROWS_END};
    assert_refused(import_tar(saved, &(struct image_imported){0}), "use oci:");
}

/* ---- folders ---- */

static void write_text(const char *path, const char *text, mode_t mode)
{
    assert_int_equal(fd_write_file_atomic(path, str_of(text), mode), 0);
}

static void a_folder_is_copied_and_its_digest_tells_of_changes(void **state)
{
    (void)state;
    char source[PATH_MAX + 8];
    snprintf(source, sizeof source, "dir:%s", in_work("root"));
    mkdir(in_work("root"), 0755);
    mkdir(in_work("root/sub"), 0700);
    write_text(in_work("root/sub/f"), "text", 0640);
    write_text(in_work("outside/secret"), "secret", 0600);
    assert_int_equal(symlink(in_work("outside/secret"), in_work("root/link")), 0);
    assert_int_equal(mkfifo(in_work("root/pipe"), 0600), 0); /* would block who opens it */
    struct image_imported first = must_import(source);
    assert_text("sub/f", "text");
    assert_int_equal(stat_of("sub/f").st_mode & 07777, 0640);
    assert_link("link", in_work("outside/secret"));
    assert_true(S_ISFIFO(stat_of("pipe").st_mode));
    assert_true(must_import(source).known);
    write_text(in_work("root/sub/f"), "TEXT", 0640);
    struct image_imported second = must_import(source);
    assert_false(second.known);
    assert_string_not_equal(first.digest, second.digest);
    assert_text("sub/f", "TEXT");
}

static void the_store_is_not_copied_into_itself(void **state)
{
    (void)state;
    char source[PATH_MAX + 8];
    snprintf(source, sizeof source, "dir:%s", work);
    assert_refused(try_import("it", source, &(struct image_imported){0}), "image store itself");
    snprintf(source, sizeof source, "dir:%s", images);
    assert_refused(try_import("it", source, &(struct image_imported){0}), "image store itself");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_work, drop_work)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_tar_becomes_an_image_with_modes_times_and_owners),
        TEST(every_compression_gives_the_same_files),
        TEST(names_that_lead_out_are_refused),
        TEST(links_are_kept_and_never_followed_out),
        TEST(a_link_in_the_place_of_a_file_is_replaced_not_written_through),
        TEST(hard_links_stay_inside),
        TEST(the_last_of_several_entries_wins),
        TEST(devices_are_left_out_and_counted),
        TEST(owners_beyond_a_sandbox_are_refused_as_root),
        TEST(as_a_plain_user_everything_is_the_users_own),
        TEST(limits_hold),
        TEST(sparse_files_keep_their_size),
        TEST(a_bomb_is_stopped),
        TEST(a_million_entries_need_no_memory),
        TEST(what_is_no_tar_is_refused),
        TEST(a_folder_is_copied_and_its_digest_tells_of_changes),
        TEST(the_store_is_not_copied_into_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
