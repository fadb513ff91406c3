/* src/images: names, tags, holders, and what crashes and crowds do to the store. */
#include "images_support.h"

#include "images/wall.h"

#include <linux/landlock.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static const struct row one[] = {{"f", S_IFREG, "one"}, ROWS_END};
static const struct row two[] = {{"f", S_IFREG, "two"}, ROWS_END};

static struct image_imported put(const char *ref, const struct row *rows)
{
    struct image_imported i = {0};
    char source[PATH_MAX + 8];
    make_tar(in_work("t"), rows, ARCHIVE_FILTER_NONE);
    snprintf(source, sizeof source, "tar:%s", in_work("t"));
    if (try_import(ref, source, &i))
        fail_msg("import %s: %s", ref, err_text());
    return i;
}

static void names_and_tags_are_narrow(void **state)
{
    (void)state;
    const char *const good[] = {"a", "debian:12", "a-b.c_d", "0:Latest", "x:_._-"};
    const char *const bad[] = {"",     ".",      "..",  "a/b",   "A",     "-a",       "a-",
                               "a--b", "a:",     ":a",  "a:b:c", "a:.b",  "a:-",      "a b",
                               "host", "host:1", "a\n", "a:/",   "a\x80", "dir:/x/y", "a:b/.."};
    struct image_name n;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        if (image_name_parse(good[i], &n))
            fail_msg("%s: %s", good[i], err_text());
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (image_name_parse(bad[i], &n) != E_INVALID)
            fail_msg("\"%s\" was taken", bad[i]);
    }
    char longest[IMAGE_NAME_MAX + 2];
    memset(longest, 'a', sizeof longest);
    longest[IMAGE_NAME_MAX + 1] = 0;
    assert_int_equal(image_name_parse(longest, &n), E_INVALID);
    longest[IMAGE_NAME_MAX] = 0;
    assert_int_equal(image_name_parse(longest, &n), 0);
    assert_string_equal(n.tag, "latest");
    assert_int_equal(image_name_check("host"), 0);
    assert_int_equal(image_name_check("tar:/x"), E_FORBIDDEN);
}

static void what_is_shown_of_names_is_harmless(void **state)
{
    (void)state;
    char out[IMAGE_SHOWN_MAX], big[1000];
    assert_string_equal(image_shown("a\033[2Jb\n", out), "a?[2Jb?");
    assert_string_equal(image_shown("\xff\xc3\xa4", out), "???");
    assert_string_equal(image_shown("\xc3\xa4", out), "\xc3\xa4");
    memset(big, 'x', sizeof big);
    big[999] = 0;
    assert_int_equal(strlen(image_shown(big, out)), IMAGE_SHOWN_MAX - 1);
}

static void without_a_store_nothing_is_found_and_nothing_breaks(void **state)
{
    (void)state;
    struct image image;
    assert_int_equal(listed(), 0);
    assert_int_equal(image_release(images, "sess_1"), 0);
    assert_int_equal(image_resolve(images, "it", &image), E_NOT_FOUND);
    assert_int_equal(image_hold(images, "it", "sess_1", &image), E_NOT_FOUND);
    assert_non_null(strstr(err_text(), "image import it:latest SOURCE"));
    struct image_imported i;
    strcat(images, "/no/such");
    assert_int_equal(try_import("it", "dir:/var/empty", &i), E_NOT_FOUND);
    assert_non_null(strstr(err_text(), "pi-managed init"));
}

static void a_tag_moves_and_the_old_files_go_unless_held(void **state)
{
    (void)state;
    struct image first, held, again, now;
    put("it", one);
    assert_int_equal(image_hold(images, "it", "sess_1", &first), 0);
    put("it", two);
    assert_int_equal(image_resolve(images, "it", &now), 0);
    assert_string_not_equal(first.digest, now.digest);
    /* The holder keeps what it has, also when it asks for the name again. */
    assert_int_equal(image_held(images, "it", "sess_1", &held), 0);
    assert_string_equal(held.digest, first.digest);
    assert_int_equal(image_hold(images, "it", "sess_1", &again), 0);
    assert_string_equal(again.digest, first.digest);
    assert_int_equal(access(first.rootfs, F_OK), 0);
    assert_int_equal(image_held(images, "it", "sess_2", &held), E_NOT_FOUND);
    assert_int_equal(image_release(images, "sess_1"), 0);
    assert_int_equal(access(first.rootfs, F_OK), -1);
    assert_int_equal(access(now.rootfs, F_OK), 0);
    assert_int_equal(image_release(images, "sess_1"), 0); /* again: fine */
}

static void a_removed_image_stays_for_its_holders_only(void **state)
{
    (void)state;
    struct image image;
    uint64_t holders = 9;
    put("it:a", one);
    put("it:b", one);
    assert_int_equal(listed(), 2);
    assert_int_equal(image_hold(images, "it:a", "sess_1", &image), 0);
    assert_int_equal(image_remove(images, "it:a", &holders), 0);
    assert_int_equal(holders, 1);
    assert_int_equal(image_remove(images, "it:a", &holders), E_NOT_FOUND);
    assert_int_equal(image_remove(images, "it:b", &holders), 0);
    assert_int_equal(listed(), 0);
    assert_int_equal(image_resolve(images, "it:b", &image), E_NOT_FOUND);
    assert_int_equal(image_held(images, "it", "sess_1", &image), 0);
    assert_int_equal(access(image.rootfs, F_OK), 0);
    assert_int_equal(image_release(images, "sess_1"), 0);
    assert_int_equal(count_in(images), 1); /* .lock */
}

static err stop_here(void *arg, const struct image_progress *p)
{
    (void)p;
    int *fd = arg;
    if (write(*fd, "x", 1) != 1)
        _exit(9);
    for (;;)
        pause(); /* killed here */
}

static void an_import_that_is_killed_leaves_nothing(void **state)
{
    (void)state;
    int pipe_fds[2];
    char c, source[PATH_MAX + 8];
    make_tar(in_work("t"), one, ARCHIVE_FILTER_NONE);
    snprintf(source, sizeof source, "tar:%s", in_work("t"));
    assert_int_equal(pipe(pipe_fds), 0);
    pid_t pid = fork();
    if (pid == 0) {
        const struct image_import r = {.images = images,
                                       .ref = "it",
                                       .source = source,
                                       .limits = image_limits_default,
                                       .progress = stop_here,
                                       .arg = &pipe_fds[1]};
        struct image_imported i;
        _exit(image_import(&r, &i) ? 1 : 0);
    }
    assert_int_equal(read(pipe_fds[0], &c, 1), 1); /* in the middle of it */
    assert_int_equal(listed(), 0);
    put("other", two);                     /* one beside it does not take its folder away */
    assert_int_equal(count_in(images), 3); /* .lock, .new-…, other */
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(listed(), 1);
    put("other", one);
    assert_int_equal(count_in(images), 2); /* .lock, other */
    close(pipe_fds[0]);
    close(pipe_fds[1]);
}

/* Died between the rename and the tag: files without a name. */
static void a_digest_without_a_tag_is_not_listed_and_goes(void **state)
{
    (void)state;
    struct image image;
    put("it", one);
    assert_int_equal(image_resolve(images, "it", &image), 0);
    assert_int_equal(unlink(in_work("images/it/tags/latest")), 0);
    assert_int_equal(listed(), 0);
    put("other", one);
    assert_int_equal(access(image.rootfs, F_OK), -1);
    assert_int_equal(count_in(images), 2);
}

static void many_imports_side_by_side_end_with_one_whole_image(void **state)
{
    (void)state;
    enum {
        MANY = 6
    };
    char source[2][PATH_MAX + 8];
    make_tar(in_work("t0"), one, ARCHIVE_FILTER_NONE);
    make_tar(in_work("t1"), two, ARCHIVE_FILTER_NONE);
    for (int i = 0; i < 2; i++)
        snprintf(source[i], sizeof source[i], "tar:%s", in_work(i ? "t1" : "t0"));
    for (int i = 0; i < MANY; i++) {
        struct image_imported done;
        pid_t pid = fork();
        if (pid == 0)
            _exit(try_import("it", source[i % 2], &done) ? 1 : 0);
    }
    for (int i = 0; i < MANY; i++) {
        int status;
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    assert_int_equal(listed(), 1);
    assert_true(has("f"));
    assert_int_equal(count_in(images), 2);               /* .lock, it */
    assert_int_equal(count_in(in_work("images/it")), 2); /* one digest, tags */
}

static void damage_is_named_and_does_not_spread(void **state)
{
    (void)state;
    struct image image;
    put("it", one);
    put("fine", two);
    assert_int_equal(
        fd_write_file_atomic(in_work("images/it/tags/latest"), STR("../../etc\n"), 0644), 0);
    assert_int_equal(image_resolve(images, "it", &image), E_INTERNAL);
    assert_non_null(strstr(err_text(), "import the image again"));
    assert_int_equal(image_resolve(images, "fine", &image), 0);
    int n = 0;
    assert_int_equal(image_list(images, count_image, &n), E_INTERNAL);
    assert_int_equal(n, 1);
    assert_int_equal(image_release(images, "sess_1"), 0);
    put("it", one); /* heals it */
    assert_int_equal(image_resolve(images, "it", &image), 0);
}

static void holders_need_an_id(void **state)
{
    (void)state;
    struct image image;
    put("it", one);
    const char *const bad[] = {"", ".", "..", "../x", "a/b"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(image_hold(images, "it", bad[i], &image), E_INVALID);
        assert_int_equal(image_release(images, bad[i]), E_INVALID);
    }
}

/* 0, or what the wall let through. */
static int try_the_wall(const char *source)
{
    struct image_imported i;
    if (image_wall_enter(images, source))
        return 1;
    if (open(in_work("outside/evil"), O_WRONLY | O_CREAT, 0600) >= 0 || errno != EACCES)
        return 2;
    if (open("/etc/passwd", O_RDONLY) >= 0 || errno != EACCES)
        return 3;
    if (open(in_work("t"), O_WRONLY) >= 0 || errno != EACCES) /* the source itself */
        return 4;
    if (mknod(in_work("images/device"), S_IFCHR | 0600, makedev(1, 3)) == 0)
        return 5;
    return try_import("it", source, &i) ? 6 : 0;
}

static void behind_the_wall_an_import_reaches_its_source_and_the_store_only(void **state)
{
    (void)state;
    const struct row rows[] = {
        {"a/f", S_IFREG, "one"}, {"b/g", 0, "a/f"}, {"b/\xc3\xa4", S_IFREG, "x"}, ROWS_END};
    char source[PATH_MAX + 8];
    if (syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION) < 2)
        skip();
    make_tar(in_work("t"), rows, ARCHIVE_FILTER_GZIP);
    snprintf(source, sizeof source, "tar:%s", in_work("t"));
    pid_t pid = fork();
    if (pid == 0)
        _exit(try_the_wall(source));
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status >> 8, 0);
    assert_int_equal(status, 0);
    assert_text("b/g", "one");
    assert_text("b/\xc3\xa4", "x");
    assert_int_equal(count_in(outside), 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_work, drop_work)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(names_and_tags_are_narrow),
        TEST(what_is_shown_of_names_is_harmless),
        TEST(without_a_store_nothing_is_found_and_nothing_breaks),
        TEST(a_tag_moves_and_the_old_files_go_unless_held),
        TEST(a_removed_image_stays_for_its_holders_only),
        TEST(an_import_that_is_killed_leaves_nothing),
        TEST(a_digest_without_a_tag_is_not_listed_and_goes),
        TEST(many_imports_side_by_side_end_with_one_whole_image),
        TEST(damage_is_named_and_does_not_spread),
        TEST(holders_need_an_id),
        TEST(behind_the_wall_an_import_reaches_its_source_and_the_store_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
