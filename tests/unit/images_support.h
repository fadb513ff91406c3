/* For the tests of src/images: a folder for each test with a store in it, archives made of rows,
   and imports of them. */
#ifndef TESTS_IMAGES_SUPPORT_H
#define TESTS_IMAGES_SUPPORT_H

#include "images/import.h"
#include "images/store.h"

#include "base/buf.h"
#include "base/fd.h"
#include "base/tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define TEST_MTIME 1000000000

static char work[64];    /* of the test at hand */
static char images[80];  /* its store */
static char outside[80]; /* nothing may get in here */

static int make_work(void **state)
{
    (void)state;
    snprintf(work, sizeof work, "/tmp/pm-images-XXXXXX");
    if (!mkdtemp(work))
        return -1;
    chmod(work, 0777); /* some tests go on as another user */
    snprintf(images, sizeof images, "%s/images", work);
    snprintf(outside, sizeof outside, "%s/outside", work);
    return mkdir(outside, 0777);
}

static int drop_work(void **state)
{
    (void)state;
    return tree_remove(work);
}

static const char *in_work(const char *name)
{
    static char paths[8][PATH_MAX];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, PATH_MAX, "%s/%s", work, name);
    return path;
}

static int count_in(const char *folder)
{
    int n = 0;
    DIR *d = opendir(folder);
    for (const struct dirent *e; d && (e = readdir(d));)
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    if (d)
        closedir(d);
    return n;
}

/* ---- archives ---- */

struct row {
    const char *name;
    mode_t type;      /* S_IFREG …; 0: a hard link to `text` */
    const char *text; /* content or target */
    mode_t mode;      /* 0: 0644 or 0755 */
    int64_t uid, gid;
    int64_t size; /* of a hole in place of text, if not 0 */
};

/* Rows name what they have; the rest is zero. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#pragma GCC diagnostic ignored "-Wunused-function"

#define ROWS_END                                                                                   \
    {                                                                                              \
        0                                                                                          \
    }

static void add_row(struct archive *a, const struct row *r)
{
    struct archive_entry *e = archive_entry_new();
    archive_entry_set_pathname(e, r->name);
    archive_entry_set_mtime(e, TEST_MTIME, 0);
    archive_entry_set_uid(e, r->uid);
    archive_entry_set_gid(e, r->gid);
    archive_entry_set_perm(e, r->mode ? r->mode : S_ISDIR(r->type) ? 0755 : 0644);
    if (r->type == 0)
        archive_entry_set_hardlink(e, r->text);
    else
        archive_entry_set_filetype(e, r->type);
    if (S_ISLNK(r->type))
        archive_entry_set_symlink(e, r->text);
    if (S_ISCHR(r->type) || S_ISBLK(r->type))
        archive_entry_set_rdev(e, makedev(1, 3));
    size_t n = S_ISREG(r->type) && r->text ? strlen(r->text) : 0;
    archive_entry_set_size(e, r->size ? r->size : (int64_t)n);
    if (r->size)
        archive_entry_sparse_add_entry(e, 0, 1);
    assert_true(archive_write_header(a, e) >= ARCHIVE_WARN); /* names that are no UTF-8 */
    if (r->size)
        assert_int_equal(archive_write_data(a, "x", 1), 1);
    else if (n)
        assert_int_equal(archive_write_data(a, r->text, n), (la_ssize_t)n);
    archive_entry_free(e);
}

/* `filter`: ARCHIVE_FILTER_NONE, _GZIP … */
static void make_tar(const char *path, const struct row *rows, int filter)
{
    struct archive *a = archive_write_new();
    assert_int_equal(archive_write_set_format_pax_restricted(a), ARCHIVE_OK);
    assert_int_equal(archive_write_add_filter(a, filter), ARCHIVE_OK);
    assert_int_equal(archive_write_open_filename(a, path), ARCHIVE_OK);
    for (; rows->name; rows++)
        add_row(a, rows);
    assert_int_equal(archive_write_close(a), ARCHIVE_OK);
    archive_write_free(a);
}

/* ---- imports ---- */

static struct image_limits limits; /* zero entries: the defaults */

static err try_import(const char *ref, const char *source, struct image_imported *out)
{
    const struct image_import r = {.images = images,
                                   .ref = ref,
                                   .source = source,
                                   .limits = limits.entries ? limits : image_limits_default};
    return image_import(&r, out);
}

static err import_tar(const struct row *rows, struct image_imported *out)
{
    char source[PATH_MAX + 8];
    snprintf(source, sizeof source, "tar:%s", in_work("image.tar"));
    make_tar(in_work("image.tar"), rows, ARCHIVE_FILTER_NONE);
    return try_import("it", source, out);
}

static struct image_imported must_import(const char *source)
{
    struct image_imported i = {0};
    if (try_import("it", source, &i))
        fail_msg("import of %s: %s", source, err_text());
    return i;
}

static struct image_imported must_import_tar(const struct row *rows)
{
    struct image_imported i = {0};
    if (import_tar(rows, &i))
        fail_msg("import: %s", err_text());
    return i;
}

static err count_image(void *arg, const struct image_listed *image)
{
    (void)image;
    ++*(int *)arg;
    return 0;
}

static int listed(void)
{
    int n = 0;
    assert_int_equal(image_list(images, count_image, &n), 0);
    return n;
}

/* Refused with a text that holds `word`, and without a trace. */
static char refusal[ERR_TEXT_MAX];

static void assert_refused(err e, const char *word)
{
    snprintf(refusal, sizeof refusal, "%s", err_text());
    if (!e)
        fail_msg("it was not refused (expected: %s)", word);
    if (!strstr(err_text(), word))
        fail_msg("\"%s\" does not say \"%s\"", err_text(), word);
    int names = 0;
    DIR *d = opendir(images);
    for (const struct dirent *entry; d && (entry = readdir(d));)
        names += strncmp(entry->d_name, ".new", 4) == 0;
    if (d)
        closedir(d);
    assert_int_equal(names, 0);
    assert_int_equal(listed(), 0);
    assert_int_equal(count_in(outside), 0);
}

/* A path in the root file system of the image `it`. */
static const char *in_image(const char *path)
{
    static char out[8][PATH_MAX + 512];
    static unsigned next;
    struct image image;
    if (image_resolve(images, "it", &image))
        fail_msg("resolve: %s", err_text());
    char *p = out[next++ % 8];
    snprintf(p, sizeof out[0], "%s/%s", image.rootfs, path);
    return p;
}

static struct stat stat_of(const char *path)
{
    struct stat st;
    if (lstat(in_image(path), &st) < 0)
        fail_msg("%s is not in the image", path);
    return st;
}

static bool has(const char *path)
{
    return faccessat(AT_FDCWD, in_image(path), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void assert_text(const char *path, const char *text)
{
    AUTO_BUF b = {0};
    assert_true(S_ISREG(stat_of(path).st_mode));
    assert_int_equal(fd_read_file(in_image(path), 1 << 20, &b), 0);
    assert_string_equal(b.p ? b.p : "", text);
}

static void assert_link(const char *path, const char *target)
{
    char got[PATH_MAX] = {0};
    assert_true(readlink(in_image(path), got, sizeof got - 1) > 0);
    assert_string_equal(got, target);
}

#endif
