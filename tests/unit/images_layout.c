/* src/images: OCI layouts and docker save archives, honest and hostile. */
#include "images_support.h"

#include "base/json.h"
#include "images/oci.h"

#include <sodium.h>

#define LAYOUT "layout"

static char source[PATH_MAX + 16];

/* ---- making layouts ---- */

static void put(const char *path, struct str text)
{
    assert_int_equal(fd_write_file_atomic(in_work(path), text, 0644), 0);
}

static void sha256(struct str text, char out[65])
{
    unsigned char sum[crypto_hash_sha256_BYTES];
    crypto_hash_sha256(sum, (const unsigned char *)text.p, text.n);
    sodium_bin2hex(out, 65, sum, sizeof sum);
}

static void make_layout(void)
{
    mkdir(in_work(LAYOUT), 0755);
    mkdir(in_work(LAYOUT "/blobs"), 0755);
    mkdir(in_work(LAYOUT "/blobs/sha256"), 0755);
    put(LAYOUT "/oci-layout", STR("{\"imageLayoutVersion\":\"1.0.0\"}"));
    snprintf(source, sizeof source, "oci:%s", in_work(LAYOUT));
}

static const char *blob_path(const char *hex)
{
    char name[128];
    snprintf(name, sizeof name, LAYOUT "/blobs/sha256/%s", hex);
    return in_work(name);
}

struct blob {
    char hex[65];
    size_t size;
};

static struct blob put_blob(struct str text)
{
    struct blob b = {.size = text.n};
    sha256(text, b.hex);
    assert_int_equal(fd_write_file_atomic(blob_path(b.hex), text, 0644), 0);
    return b;
}

struct layer {
    struct blob blob;
    char diff_id[65];
};

static struct layer put_layer(const struct row *rows, int filter)
{
    AUTO_BUF plain = {0}, packed = {0};
    struct layer l;
    make_tar(in_work("layer"), rows, ARCHIVE_FILTER_NONE);
    assert_int_equal(fd_read_file(in_work("layer"), 1 << 24, &plain), 0);
    sha256(buf_str(&plain), l.diff_id);
    make_tar(in_work("layer"), rows, filter);
    assert_int_equal(fd_read_file(in_work("layer"), 1 << 24, &packed), 0);
    l.blob = put_blob(buf_str(&packed));
    return l;
}

static struct blob put_config(const struct layer *layers, size_t n, const char *architecture)
{
    AUTO_BUF text = {0};
    buf_printf(&text,
               "{\"architecture\":\"%s\",\"os\":\"linux\",\"rootfs\":{\"type\":\"layers\","
               "\"diff_ids\":[",
               architecture);
    for (size_t i = 0; i < n; i++)
        buf_printf(&text, "%s\"sha256:%s\"", i ? "," : "", layers[i].diff_id);
    buf_add_c(&text, "]}}");
    return put_blob(buf_str(&text));
}

static struct blob put_manifest(const struct layer *layers, size_t n, const char *architecture)
{
    struct blob config = put_config(layers, n, architecture);
    AUTO_BUF text = {0};
    buf_printf(&text,
               "{\"schemaVersion\":2,\"config\":{\"mediaType\":\"application/"
               "vnd.oci.image.config.v1+json\",\"digest\":\"sha256:%s\",\"size\":%zu},"
               "\"layers\":[",
               config.hex, config.size);
    for (size_t i = 0; i < n; i++)
        buf_printf(&text,
                   "%s{\"mediaType\":\"application/vnd.oci.image.layer.v1.tar+gzip\","
                   "\"digest\":\"sha256:%s\",\"size\":%zu}",
                   i ? "," : "", layers[i].blob.hex, layers[i].blob.size);
    buf_add_c(&text, "]}");
    return put_blob(buf_str(&text));
}

struct choice {
    struct blob blob;
    const char *architecture, *tag;
    bool index;
};

static void index_text(const struct choice *choices, size_t n, struct buf *out)
{
    buf_add_c(out, "{\"schemaVersion\":2,\"manifests\":[");
    for (size_t i = 0; i < n; i++) {
        const struct choice *c = &choices[i];
        buf_printf(out,
                   "%s{\"mediaType\":\"application/vnd.oci.image.%s.v1+json\",\"digest\":"
                   "\"sha256:%s\",\"size\":%zu",
                   i ? "," : "", c->index ? "index" : "manifest", c->blob.hex, c->blob.size);
        if (c->architecture)
            buf_printf(out, ",\"platform\":{\"architecture\":\"%s\",\"os\":\"linux\"}",
                       c->architecture);
        if (c->tag)
            buf_printf(out, ",\"annotations\":{\"org.opencontainers.image.ref.name\":\"%s\"}",
                       c->tag);
        buf_add_char(out, '}');
    }
    buf_add_c(out, "]}");
}

static void put_index(const struct choice *choices, size_t n)
{
    AUTO_BUF text = {0};
    index_text(choices, n, &text);
    put(LAYOUT "/index.json", buf_str(&text));
}

/* The image of these layers, the only one of the layout. */
static void put_image(const struct layer *layers, size_t n)
{
    put_index(&(struct choice){.blob = put_manifest(layers, n, oci_architecture())}, 1);
}

static struct layer one_file(const char *text)
{
    const struct row rows[] = {{"f", S_IFREG, text}, ROWS_END};
    return put_layer(rows, ARCHIVE_FILTER_GZIP);
}

static err try_source(void)
{
    return try_import("it", source, &(struct image_imported){0});
}

/* ---- layers ---- */

static void whiteouts_hide_what_is_beneath_and_nothing_else(void **state)
{
    (void)state;
    make_layout();
    const struct row low[] = {
        {"gone", S_IFREG, "x"},       {"tree/a/b", S_IFREG, "x"},
        {"opaque/old", S_IFREG, "x"}, {"opaque/sub/x", S_IFREG, "x"},
        {"kept", S_IFREG, "kept"},    {"swap", S_IFREG, "low"},
        {"link", S_IFLNK, "kept"},    {"usr/lib/l", S_IFREG, "l"},
        {"lib", S_IFLNK, "usr/lib"},  ROWS_END,
    };
    const struct row high[] = {
        {"opaque/new", S_IFREG, "new"}, /* before the whiteout that empties its folder */
        {"opaque/.wh..wh..opq", S_IFREG},
        {".wh.gone", S_IFREG},
        {".wh.tree", S_IFREG},
        {"swap", S_IFREG, "high"},
        {".wh.swap", S_IFREG}, /* hides the lower one only */
        {".wh.link", S_IFREG},
        {"lib/.wh.l", S_IFREG},
        {".wh.never-there", S_IFREG},
        {"no/folder/.wh.x", S_IFREG},
        {".wh..wh.plnk", S_IFREG},
        ROWS_END,
    };
    const struct layer layers[] = {put_layer(low, ARCHIVE_FILTER_GZIP),
                                   put_layer(high, ARCHIVE_FILTER_ZSTD)};
    put_image(layers, 2);
    must_import(source);
    assert_false(has("gone") || has("tree") || has("opaque/old") || has("opaque/sub"));
    assert_text("opaque/new", "new");
    assert_text("kept", "kept"); /* the link to it went, not it */
    assert_text("swap", "high");
    assert_false(has("link") || has("usr/lib/l") || has("no"));
    assert_true(has("lib"));
    assert_false(has(".wh.gone") || has("opaque/.wh..wh..opq") || has(".wh..wh.plnk"));
}

static void whiteouts_cannot_lead_out(void **state)
{
    (void)state;
    const char *const names[] = {".wh...", ".wh..", ".wh.", "../.wh.outside", "/.wh.outside"};
    make_layout();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct row rows[] = {{"f", S_IFREG, "x"}, {names[i], S_IFREG}, ROWS_END};
        const struct layer l = put_layer(rows, ARCHIVE_FILTER_NONE);
        put_image(&l, 1);
        assert_refused(try_source(), "layer 1 of 1: the entry");
    }
    put("outside/stays", STR("x"));
    const struct row low[] = {{"out", S_IFLNK, outside}, ROWS_END};
    const struct row high[] = {
        {"out/.wh.stays", S_IFREG}, {"out/.wh..wh..opq", S_IFREG}, {"f", S_IFREG, "x"}, ROWS_END};
    const struct layer layers[] = {put_layer(low, 0), put_layer(high, 0)};
    put_image(layers, 2);
    must_import(source); /* in the image that link leads nowhere */
    assert_int_equal(count_in(outside), 1);
}

static void hard_links_and_replacements_cross_layers(void **state)
{
    (void)state;
    make_layout();
    const struct row low[] = {{"a", S_IFREG, "one"}, {"d/x", S_IFREG, "x"}, ROWS_END};
    const struct row high[] = {{"b", 0, "a"}, {"d", S_IFLNK, "e"}, {"e/y", S_IFREG, "y"}, ROWS_END};
    const struct layer layers[] = {put_layer(low, ARCHIVE_FILTER_XZ),
                                   put_layer(high, ARCHIVE_FILTER_NONE)};
    put_image(layers, 2);
    must_import(source);
    assert_text("b", "one");
    assert_int_equal(stat_of("a").st_ino, stat_of("b").st_ino);
    assert_link("d", "e");
    assert_text("e/y", "y");
}

/* ---- digests ---- */

static void add_to_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "a");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void wrong_digests_and_missing_blobs_are_refused(void **state)
{
    (void)state;
    make_layout();
    struct layer l = one_file("x");
    put_image(&l, 1);
    add_to_file(blob_path(l.blob.hex), "more"); /* behind the end of the gzip stream */
    assert_refused(try_source(), "its file has the wrong digest");
    assert_int_equal(unlink(blob_path(l.blob.hex)), 0);
    assert_refused(try_source(), "is missing");

    l = one_file("x");
    struct layer other = one_file("y");
    memcpy(l.diff_id, other.diff_id, sizeof l.diff_id);
    put_image(&l, 1);
    assert_refused(try_source(), "its tar (diff_id) has the wrong digest");

    l = one_file("x");
    l.blob.size++;
    put_image(&l, 1);
    assert_refused(try_source(), "were announced");

    l = one_file("x");
    struct blob config = put_config(&l, 1, oci_architecture());
    put_image(&l, 1);
    add_to_file(blob_path(config.hex), " ");
    assert_refused(try_source(), "has the wrong digest");
    assert_int_equal(unlink(blob_path(config.hex)), 0);
    assert_refused(try_source(), "is missing");

    struct blob manifest = put_manifest(&l, 1, oci_architecture());
    put_index(&(struct choice){.blob = manifest}, 1);
    add_to_file(blob_path(manifest.hex), "\n");
    assert_refused(try_source(), "has the wrong digest");
    struct blob elsewhere = {.hex = "../../../../../../../../../../../../../etc/passwd"};
    put_index(&(struct choice){.blob = elsewhere}, 1);
    assert_refused(try_source(), "no digest of the form");
}

static void blobs_that_are_links_out_or_fifos_are_not_opened(void **state)
{
    (void)state;
    make_layout();
    struct layer l = one_file("x");
    put_image(&l, 1);
    const char *blob = blob_path(l.blob.hex);
    assert_int_equal(rename(blob, in_work("outside-blob")), 0);
    assert_int_equal(symlink(in_work("outside-blob"), blob), 0);
    assert_refused(try_source(), "is missing"); /* beneath the layout there is no such file */
    assert_int_equal(unlink(blob), 0);
    assert_int_equal(mkfifo(blob, 0644), 0);
    assert_refused(try_source(), "no regular file"); /* and no waiting for a writer */
}

/* ---- choosing ---- */

static void the_hosts_architecture_is_chosen(void **state)
{
    (void)state;
    make_layout();
    const struct layer mine = one_file("mine"), other = one_file("other");
    const char *here = oci_architecture();
    const char *there = strcmp(here, "s390x") == 0 ? "amd64" : "s390x";
    const struct choice choices[] = {
        {put_manifest(&other, 1, there), there},
        {put_manifest(&mine, 1, here), here},
        {put_manifest(&other, 1, here), "unknown"}, /* an attestation */
    };
    put_index(choices, 3);
    must_import(source);
    assert_text("f", "mine");
    uint64_t holders;
    assert_int_equal(image_remove(images, "it", &holders), 0);
    put_index(choices, 1);
    assert_refused(try_source(), "there is no image for");
    put_index(&(struct choice){.blob = choices[0].blob}, 1); /* the index does not say for whom */
    assert_refused(try_source(), "the image is for");
}

static void tags_choose_and_several_without_one_are_refused(void **state)
{
    (void)state;
    make_layout();
    const struct layer one = one_file("one"), two = one_file("two");
    const struct choice choices[] = {
        {put_manifest(&one, 1, oci_architecture()), .tag = "1"},
        {put_manifest(&two, 1, oci_architecture()), .tag = "example.com/x:2"},
    };
    put_index(choices, 2);
    assert_refused(try_source(), "oci:PATH:TAG (1, example.com/x:2)");
    snprintf(source, sizeof source, "oci:%s:3", in_work(LAYOUT));
    assert_refused(try_source(), "there is no image 3");
    snprintf(source, sizeof source, "oci:%s:2", in_work(LAYOUT));
    must_import(source);
    assert_text("f", "two");
    snprintf(source, sizeof source, "oci:%s:1", in_work(LAYOUT));
    must_import(source);
    assert_text("f", "one");
}

static void nested_indexes_are_followed_to_a_depth(void **state)
{
    (void)state;
    make_layout();
    const struct layer l = one_file("deep");
    struct choice c = {.blob = put_manifest(&l, 1, oci_architecture())};
    for (int depth = 1; depth <= 5; depth++) {
        put_index(&c, 1);
        if (depth < 5) {
            must_import(source);
            uint64_t holders;
            assert_int_equal(image_remove(images, "it", &holders), 0);
        } else {
            assert_refused(try_source(), "nested more than 4 deep");
        }
        AUTO_BUF text = {0};
        index_text(&c, 1, &text);
        c = (struct choice){.blob = put_blob(buf_str(&text)), .index = true};
    }
    /* An index that names itself: its digest cannot be right. */
    struct blob self = {.size = 1};
    memset(self.hex, 'a', 64);
    AUTO_BUF text = {0};
    index_text(&(struct choice){.blob = self, .index = true}, 1, &text);
    put(LAYOUT "/index.json", buf_str(&text));
    assert_int_equal(fd_write_file_atomic(blob_path(self.hex), buf_str(&text), 0644), 0);
    assert_refused(try_source(), "wrong digest");
}

static void damaged_json_is_refused_with_what_it_is(void **state)
{
    (void)state;
    static const struct {
        const char *index, *says;
    } cases[] = {
        {"", "no valid JSON"},
        {"[]", "no JSON object"},
        {"{}", "no list of manifests"},
        {"{\"manifests\":{}}", "no list of manifests"},
        {"{\"manifests\":[7,null,{}]}", "no digest"},
        {"{\"manifests\":[{\"digest\":\"md5:00\"}]}", "no digest"},
        {"{\"manifests\":[{\"digest\":"
         "\"sha256:00000000000000000000000000000000000000000000000000000000000000\"}]}",
         "no digest"},
        {"{\"manifests\":[{\"digest\":"
         "\"sha256:0000000000000000000000000000000000000000000000000000000000000000\","
         "\"size\":-1}]}",
         "has no size"},
    };
    make_layout();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put(LAYOUT "/index.json", str_of(cases[i].index));
        assert_refused(try_source(), cases[i].says);
    }
    unlink(in_work(LAYOUT "/index.json"));
    assert_refused(try_source(), "neither index.json");
    struct oci_manifest *m = calloc(1, sizeof *m);
    assert_int_equal(oci_read_manifest(STR("{\"schemaVersion\":1}"), m), E_INVALID);
    free(m);
}

/* ---- archives ---- */

/* tar of a folder's files, by the tool everybody has. */
static void tar_up(const char *folder, const char *to)
{
    char command[3 * PATH_MAX];
    snprintf(command, sizeof command, "tar cf '%s' -C '%s' .", in_work(to), in_work(folder));
    assert_int_equal(system(command), 0);
    snprintf(source, sizeof source, "oci:%s", in_work(to));
}

static void a_layout_may_come_as_a_tar(void **state)
{
    (void)state;
    make_layout();
    const struct layer l = one_file("packed");
    put_image(&l, 1);
    tar_up(LAYOUT, "layout.tar");
    must_import(source);
    assert_text("f", "packed");
    /* Nothing but the image stays. */
    struct image image;
    assert_int_equal(image_resolve(images, "it", &image), 0);
    *strrchr(image.rootfs, '/') = 0;
    assert_int_equal(count_in(image.rootfs), 3); /* rootfs used meta.json */
}

/* As docker save wrote them for years: each layer in a folder, shared ones as links. */
static void make_saved(const char *wanted_config)
{
    AUTO_BUF plain = {0}, config = {0}, manifest = {0};
    char diff_id[65], hex[65];
    const struct row rows[] = {{"f", S_IFREG, "saved"}, ROWS_END};
    mkdir(in_work("saved"), 0755);
    mkdir(in_work("saved/one"), 0755);
    mkdir(in_work("saved/two"), 0755);
    make_tar(in_work("saved/one/layer.tar"), rows, ARCHIVE_FILTER_NONE);
    unlink(in_work("saved/two/layer.tar"));
    assert_int_equal(symlink("../one/layer.tar", in_work("saved/two/layer.tar")), 0);
    assert_int_equal(fd_read_file(in_work("saved/one/layer.tar"), 1 << 24, &plain), 0);
    sha256(buf_str(&plain), diff_id);
    buf_printf(&config,
               "{\"architecture\":\"%s\",\"os\":\"linux\",\"rootfs\":{\"diff_ids\":["
               "\"sha256:%s\",\"sha256:%s\"]}}",
               oci_architecture(), diff_id, diff_id);
    sha256(buf_str(&config), hex);
    const char *name = wanted_config ? wanted_config : hex;
    char path[128];
    snprintf(path, sizeof path, "saved/%s.json", name);
    put(path, buf_str(&config));
    buf_printf(&manifest,
               "[{\"Config\":\"%s.json\",\"RepoTags\":[\"example:1\"],\"Layers\":["
               "\"one/layer.tar\",\"two/layer.tar\"]}]",
               name);
    put("saved/manifest.json", buf_str(&manifest));
}

static void archives_of_docker_save_are_read(void **state)
{
    (void)state;
    make_saved(NULL);
    tar_up("saved", "saved.tar");
    must_import(source);
    assert_text("f", "saved");
    snprintf(source, sizeof source, "oci:%s:example:1", in_work("saved.tar"));
    must_import(source);
    snprintf(source, sizeof source, "oci:%s:1", in_work("saved.tar"));
    must_import(source);
    snprintf(source, sizeof source, "oci:%s:2", in_work("saved.tar"));
    assert_int_equal(try_source(), E_NOT_FOUND);
    assert_non_null(strstr(err_text(), "example:1"));
    snprintf(source, sizeof source, "oci:%s", in_work("saved")); /* unpacked by hand */
    must_import(source);
}

static void a_docker_archive_with_a_wrong_configuration_is_refused(void **state)
{
    (void)state;
    char zeros[65];
    memset(zeros, '0', 64);
    zeros[64] = 0;
    make_saved(zeros);
    tar_up("saved", "saved.tar");
    assert_refused(try_source(), "the configuration has the wrong digest");
    put("saved/manifest.json", STR("[{\"Config\":\"../../etc/passwd\",\"Layers\":[]}]"));
    tar_up("saved", "saved.tar");
    assert_refused(try_source(), "is missing");
    put("saved/manifest.json", STR("{}"));
    tar_up("saved", "saved.tar");
    assert_refused(try_source(), "no list of images");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_work, drop_work)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(whiteouts_hide_what_is_beneath_and_nothing_else),
        TEST(whiteouts_cannot_lead_out),
        TEST(hard_links_and_replacements_cross_layers),
        TEST(wrong_digests_and_missing_blobs_are_refused),
        TEST(blobs_that_are_links_out_or_fifos_are_not_opened),
        TEST(the_hosts_architecture_is_chosen),
        TEST(tags_choose_and_several_without_one_are_refused),
        TEST(nested_indexes_are_followed_to_a_depth),
        TEST(damaged_json_is_refused_with_what_it_is),
        TEST(a_layout_may_come_as_a_tar),
        TEST(archives_of_docker_save_are_read),
        TEST(a_docker_archive_with_a_wrong_configuration_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
