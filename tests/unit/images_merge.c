/* src/images/merge.c: an image and what a sandbox wrote over it become one tree. The layers are
   made by hand, as overlayfs writes them; hostile ones, too. */
#include "images/merge.h"

#include "images_support.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <sys/xattr.h>

#define UID_BASE 1000000u

static bool root;

static void put(const char *name, const char *text, mode_t mode)
{
    const char *path = in_work(name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

static void folder(const char *name)
{
    assert_int_equal(mkdir(in_work(name), 0755), 0);
}

/* Who writes in a sandbox as its root. */
static void own(const char *name, uid_t inside)
{
    if (root)
        assert_int_equal(lchown(in_work(name), UID_BASE + inside, UID_BASE + inside), 0);
}

static err merge(struct image_counts *counts, uint64_t bytes)
{
    struct image_limits most = image_limits_default;
    if (bytes)
        most.bytes = bytes;
    folder("out");
    AUTO_FD out = open(in_work("out"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return images_merge(&(struct merge_request){.base = in_work("base"),
                                                .upper = in_work("upper"),
                                                .uid_base = UID_BASE,
                                                .limits = most,
                                                .out = out},
                        counts);
}

static int make_layers(void **state)
{
    int rc = make_work(state);
    root = geteuid() == 0;
    folder("base");
    folder("base/etc");
    folder("upper");
    put("base/etc/kept", "kept", 0640);
    put("base/etc/changed", "before", 0644);
    put("base/etc/gone", "gone", 0644);
    return rc;
}

static bool there(const char *name)
{
    struct stat st;
    return lstat(in_work(name), &st) == 0;
}

static void holds(const char *name, const char *text)
{
    AUTO_BUF content = {0};
    assert_int_equal(fd_read_file(in_work(name), 1000, &content), 0);
    assert_string_equal(buf_str(&content).p, text);
}

static void what_was_written_lies_over_the_image(void **state)
{
    (void)state;
    struct image_counts counts;
    struct stat st;
    folder("upper/etc");
    put("upper/etc/changed", "after", 0600);
    own("upper/etc/changed", 7);
    assert_int_equal(chmod(in_work("upper/etc/changed"), 04751), 0);
    put("upper/etc/new", "new", 0600);
    own("upper/etc/new", 0);
    assert_int_equal(link(in_work("upper/etc/new"), in_work("upper/etc/again")), 0);
    assert_int_equal(mknod(in_work("upper/etc/gone"), S_IFCHR, 0), 0); /* a whiteout */
    own("upper/etc", 0);
    assert_int_equal(merge(&counts, 0), 0);
    holds("out/etc/kept", "kept");
    holds("out/etc/changed", "after");
    holds("out/etc/again", "new");
    assert_false(there("out/etc/gone"));
    assert_int_equal(lstat(in_work("out/etc/changed"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 04751);
    assert_int_equal(st.st_uid, root ? 7 : geteuid());
    assert_int_equal(lstat(in_work("out/etc/again"), &st), 0);
    assert_int_equal(st.st_uid, root ? 0 : geteuid());
    holds("base/etc/changed", "before"); /* the image beneath is as it was */
    holds("base/etc/gone", "gone");
}

static void a_folder_made_anew_hides_what_was_in_it(void **state)
{
    (void)state;
    struct image_counts counts;
    folder("upper/etc");
    put("upper/etc/only", "x", 0644);
    own("upper/etc/only", 0);
    own("upper/etc", 0);
    const char *opaque = root ? "trusted.overlay.opaque" : "user.overlay.opaque";
    if (setxattr(in_work("upper/etc"), opaque, "y", 1, 0) < 0)
        skip(); /* a file system without extended attributes */
    assert_int_equal(merge(&counts, 0), 0);
    holds("out/etc/only", "x");
    assert_false(there("out/etc/kept"));
}

static void a_link_in_the_image_leads_nowhere_while_merging(void **state)
{
    (void)state;
    struct image_counts counts;
    assert_int_equal(symlink(outside, in_work("base/way")), 0);
    folder("upper/way"); /* where the sandbox has a folder now */
    put("upper/way/in", "x", 0644);
    own("upper/way/in", 0);
    own("upper/way", 0);
    assert_int_equal(merge(&counts, 0), 0);
    holds("out/way/in", "x");
    assert_int_equal(count_in(outside), 0);
}

static void what_is_the_sandboxs_own_stays_out(void **state)
{
    static const char *const names[] = {"workspace", ".pi", "tmp", "proc"};
    (void)state;
    struct image_counts counts;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[32];
        snprintf(path, sizeof path, "upper/%s", names[i]);
        folder(path);
        own(path, 0);
    }
    folder("upper/mnt");
    folder("upper/mnt/session");
    folder("upper/mnt/mine");
    own("upper/mnt/mine", 0);
    own("upper/mnt", 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", in_work("upper/socket"));
    AUTO_FD s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s, (const struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(merge(&counts, 0), 0);
    assert_int_equal(count_in(in_work("out")), 2); /* etc, mnt */
    assert_true(there("out/mnt/mine") && !there("out/mnt/session"));
    assert_int_equal(counts.skipped, 1);
}

static void a_layer_too_deep_is_refused(void **state)
{
    (void)state;
    struct image_counts counts;
    char path[1024] = "upper";
    for (int i = 0; i < 140; i++) {
        strcat(path, "/d");
        folder(path);
        own(path, 0);
    }
    assert_int_equal(merge(&counts, 0), E_INVALID);
    assert_non_null(strstr(err_text(), "deeper"));
}

static void a_layer_too_big_is_refused(void **state)
{
    (void)state;
    struct image_counts counts;
    put("upper/big", "0123456789", 0644);
    own("upper/big", 0);
    assert_int_equal(merge(&counts, 9), E_TOO_LARGE);
}

static void a_file_of_nobody_inside_is_refused(void **state)
{
    (void)state;
    struct image_counts counts;
    if (!root)
        skip(); /* only root has ids to shift */
    put("upper/odd", "x", 0644);
    own("upper/odd", 65536);
    assert_int_equal(merge(&counts, 0), E_INVALID);
    assert_non_null(strstr(err_text(), "not the sandbox's"));
}

static void a_layer_of_another_overlay_feature_is_refused(void **state)
{
    (void)state;
    struct image_counts counts;
    folder("upper/moved");
    own("upper/moved", 0);
    const char *redirect = root ? "trusted.overlay.redirect" : "user.overlay.redirect";
    if (setxattr(in_work("upper/moved"), redirect, "/etc", 4, 0) < 0)
        skip();
    assert_int_equal(merge(&counts, 0), E_INTERNAL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_layers, drop_work)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_was_written_lies_over_the_image),
        TEST(a_folder_made_anew_hides_what_was_in_it),
        TEST(a_link_in_the_image_leads_nowhere_while_merging),
        TEST(what_is_the_sandboxs_own_stays_out),
        TEST(a_layer_too_deep_is_refused),
        TEST(a_layer_too_big_is_refused),
        TEST(a_file_of_nobody_inside_is_refused),
        TEST(a_layer_of_another_overlay_feature_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
