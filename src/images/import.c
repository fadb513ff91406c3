#include "images/import.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/json.h"
#include "base/tree.h"
#include "images/copy.h"
#include "images/layout.h"
#include "images/meta.h"
#include "images/store.h"
#include "images/stream.h"

enum source_kind {
    SOURCE_DIR,
    SOURCE_TAR,
    SOURCE_OCI
};

struct source {
    enum source_kind kind;
    char path[PATH_MAX];
    char tag[256]; /* "": none given */
};

/* One import under way. */
struct job {
    const struct image_import *r;
    struct source source;
    struct image_scratch scratch;
    struct unpack *unpack; /* the one that progress tells of */
    struct image_progress progress;
    char digest[IMAGE_DIGEST_MAX + 1];
    char architecture[32];
    json_t *config; /* owned; NULL where the source says nothing */
};

/* ---- the source ---- */

/* oci:/a:b is the path /a:b where that exists, else the image b in /a; tags may hold : and /
   (docker save has NAME:TAG). */
static void split_tag(struct source *s)
{
    struct stat st;
    if (lstat(s->path, &st) == 0)
        return;
    for (char *colon = s->path; (colon = strchr(colon, ':')); colon++) {
        *colon = 0;
        if (lstat(s->path, &st) == 0) {
            snprintf(s->tag, sizeof s->tag, "%s", colon + 1);
            return;
        }
        *colon = ':';
    }
}

static err parse_source(const char *text, struct source *out)
{
    static const char *const prefixes[] = {
        [SOURCE_DIR] = "dir:", [SOURCE_TAR] = "tar:", [SOURCE_OCI] = "oci:"};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        size_t n = strlen(prefixes[i]);
        if (strncmp(text, prefixes[i], n) != 0)
            continue;
        struct source s = {.kind = (enum source_kind)i};
        if (text[n] == 0 || snprintf(s.path, sizeof s.path, "%s", text + n) >= (int)sizeof s.path)
            return fail(E_INVALID, "the source %s needs a path", prefixes[i]);
        if (s.kind == SOURCE_OCI)
            split_tag(&s);
        *out = s;
        return 0;
    }
    return fail(E_INVALID,
                "the source must be dir:PATH, tar:PATH or oci:PATH[:TAG] (oci: also reads what "
                "docker save writes); for an image of a registry run: docker save -o FILE IMAGE, "
                "or skopeo copy docker://IMAGE oci:PATH:TAG");
}

err image_source_path(const char *source, char out[PATH_MAX])
{
    struct source s;
    TRY(parse_source(source, &s));
    memcpy(out, s.path, sizeof s.path);
    return 0;
}

/* ---- progress ---- */

static err tell(struct job *j)
{
    if (j->r->progress == NULL)
        return 0;
    unpack_counts(j->unpack, &j->progress.counts);
    return j->r->progress(j->r->arg, &j->progress);
}

static err tell_copying(void *arg)
{
    return tell(arg);
}

static err tell_layer(void *arg, size_t layer, size_t layer_count)
{
    struct job *j = arg;
    if (layer > 0) {
        j->progress.layer = layer;
        j->progress.layer_count = layer_count;
    }
    return tell(j);
}

/* ---- unpacking ---- */

static err open_source(const char *path, int flags, int *out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | flags);
    if (fd < 0)
        return fail_errno("open %s", path);
    *out = fd;
    return 0;
}

static err take_entry(void *arg, struct stream *s, const struct unpack_entry *e)
{
    struct job *j = arg;
    TRY(tell(j));
    return stream_unpack(s, j->unpack, e);
}

static err unpack_tar(struct job *j, struct stream_sums *out)
{
    AUTO_FD fd = -1;
    TRY(open_source(j->source.path, 0, &fd));
    return stream_read(fd, stream_max_bytes(&j->r->limits), take_entry, j, out);
}

/* A usual slip, which would give a sandbox without programs. */
static err check_no_layout(int root)
{
    if ((faccessat(root, "oci-layout", F_OK, AT_SYMLINK_NOFOLLOW) == 0 ||
         faccessat(root, "manifest.json", F_OK, AT_SYMLINK_NOFOLLOW) == 0) &&
        faccessat(root, "bin", F_OK, AT_SYMLINK_NOFOLLOW) != 0)
        return fail(E_INVALID, "this is an OCI image or an archive of docker save, not a root file "
                               "system: use oci: in place of tar: or dir:");
    return 0;
}

static err import_tar(struct job *j, int root)
{
    struct stream_sums sums;
    TRY(unpack_tar(j, &sums));
    memcpy(j->digest, sums.file, sizeof sums.file);
    return check_no_layout(root);
}

static err import_dir(struct job *j, int root)
{
    AUTO_FD store = -1;
    TRY(open_source(j->r->images, O_DIRECTORY, &store));
    TRY(copy_folder(j->source.path, store, j->unpack, tell_copying, j, j->digest));
    return check_no_layout(root);
}

static err open_times(const struct job *j, int *out)
{
    AUTO_FD fd = open(j->scratch.path, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0) { /* a file system without O_TMPFILE */
        char path[PATH_MAX + 8];
        snprintf(path, sizeof path, "%s/times", j->scratch.path);
        fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0 || unlink(path) < 0)
            return fail_errno("make %s", path);
    }
    *out = fd_take(&fd);
    return 0;
}

static err make_folder(const struct job *j, const char *name, int *out)
{
    if (mkdirat(j->scratch.lock, name, 0700) < 0)
        return fail_errno("make %s/%s", j->scratch.path, name);
    int fd = openat(j->scratch.lock, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return fail_errno("open %s/%s", j->scratch.path, name);
    *out = fd;
    return 0;
}

/* An archive of a layout is unpacked beside the image first, by the same rules: its blobs may stand
   in any order. */
static err open_archive(struct job *j, int *out)
{
    AUTO_FD archive = -1, times = -1;
    struct stream_sums ignored;
    TRY(make_folder(j, "archive", &archive));
    TRY(open_times(j, &times));
    j->unpack = unpack_new(archive, times, &j->r->limits);
    err e = unpack_tar(j, &ignored);
    unpack_free(j->unpack);
    j->unpack = NULL;
    TRY(e);
    *out = fd_take(&archive);
    return 0;
}

static err open_layout(struct job *j, int *out)
{
    struct stat st;
    if (stat(j->source.path, &st) < 0)
        return fail_errno("open %s", j->source.path);
    return S_ISDIR(st.st_mode) ? open_source(j->source.path, O_DIRECTORY, out)
                               : open_archive(j, out);
}

static err import_layout(struct job *j, int layout)
{
    struct layout_image image;
    const struct layout_request r = {
        .dir = layout,
        .tag = j->source.tag[0] ? j->source.tag : NULL,
        .limits = &j->r->limits,
        .unpack = j->unpack,
        .tick = tell_layer,
        .arg = j,
    };
    TRY(layout_unpack(&r, &image));
    memcpy(j->digest, image.digest, sizeof image.digest);
    memcpy(j->architecture, image.architecture, sizeof image.architecture);
    j->config = image.config;
    return 0;
}

static err import_into(struct job *j, int root, int layout)
{
    switch (j->source.kind) {
    case SOURCE_DIR:
        return import_dir(j, root);
    case SOURCE_TAR:
        return import_tar(j, root);
    default:
        return import_layout(j, layout);
    }
}

static err fill_root(struct job *j, int layout)
{
    AUTO_FD root = -1, times = -1;
    TRY(make_folder(j, "rootfs", &root));
    TRY(open_times(j, &times));
    if (fchmod(root, 0755) < 0)
        return fail_errno("set the mode of the image's top");
    j->unpack = unpack_new(root, times, &j->r->limits);
    err e = import_into(j, root, layout);
    if (!e)
        e = unpack_finish(j->unpack);
    unpack_counts(j->unpack, &j->progress.counts);
    unpack_free(j->unpack);
    if (!e && j->progress.counts.entries == 0)
        e = fail(E_INVALID, "there is no file in it");
    return e;
}

/* ---- the image ---- */

static err write_meta(const struct job *j, const struct image_name *name)
{
    const struct image_meta meta = {
        .name = name->name,
        .digest = j->digest,
        .source = j->r->origin ? j->r->origin : j->r->source,
        .architecture = j->architecture,
        .counts = j->progress.counts,
        .config = j->config,
    };
    return image_meta_write(j->scratch.path, &meta);
}

/* What the image's maker wanted and a sandbox has otherwise. */
static void image_wishes(const json_t *config, struct image_imported *out)
{
    const char *user = json_get_c(config, "user"), *dir = json_get_c(config, "workingDir");
    snprintf(out->user, sizeof out->user, "%s", user ? user : "");
    snprintf(out->working_dir, sizeof out->working_dir, "%s", dir ? dir : "");
}

static err make_image(struct job *j, const struct image_name *name, struct image_imported *out)
{
    AUTO_FD layout = -1;
    if (j->source.kind == SOURCE_OCI)
        TRY(open_layout(j, &layout));
    TRY(fill_root(j, layout));
    TRY(tree_remove_at(j->scratch.lock, "archive"));
    TRY(write_meta(j, name));
    struct image_imported done = {.name = *name, .counts = j->progress.counts};
    memcpy(done.digest, j->digest, sizeof done.digest);
    image_wishes(j->config, &done);
    TRY(image_scratch_commit(j->r->images, &j->scratch, name, j->digest, &done.known));
    *out = done;
    return 0;
}

static err import_here(const struct image_import *r, struct image_imported *out)
{
    struct image_name name;
    struct job j = {.r = r, .scratch = {.lock = -1}};
    TRY(image_name_parse(r->ref, &name));
    TRY(parse_source(r->source, &j.source));
    TRY(image_scratch_open(r->images, &j.scratch));
    err e = make_image(&j, &name, out);
    image_scratch_close(&j.scratch);
    json_decref(j.config);
    return e;
}

/* Names in archives are UTF-8 or bytes; libarchive converts them to the locale's form. */
err image_import(const struct image_import *r, struct image_imported *out)
{
    locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
    locale_t before = utf8 ? uselocale(utf8) : (locale_t)0;
    err e = import_here(r, out);
    if (utf8) {
        uselocale(before);
        freelocale(utf8);
    }
    return e;
}
