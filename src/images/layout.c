#include "images/layout.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"
#include "base/mem.h"
#include "images/oci.h"
#include "images/stream.h"

#define INDEX_DEPTH_MAX 4
#define LAYER_PATH_MAX OCI_PATH_MAX

/* What unpacks: collected first, whichever of the two forms the folder has. */
struct plan {
    struct oci_config config;
    size_t layer_count;
    struct {
        char path[LAYER_PATH_MAX];
        char digest[IMAGE_DIGEST_MAX + 1]; /* of the file; "" where the form has none (docker) */
        uint64_t size;                     /* likewise */
    } layers[OCI_LAYERS_MAX];
    struct oci_manifest manifest;
    struct docker_image docker;
};

struct pass {
    const struct layout_request *r;
    bool unpacks; /* else it is the one that looks for whiteouts */
};

/* Links inside are fine (old archives of docker have them); where they lead out they lead nowhere.
 */
static err open_file(int dir, const char *path, int *out)
{
    char shown[IMAGE_SHOWN_MAX];
    struct stat st;
    struct open_how how = {
        .flags = O_RDONLY | O_NONBLOCK | O_CLOEXEC,
        .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
    };
    AUTO_FD fd = (int)syscall(SYS_openat2, dir, path, &how, sizeof how);
    if (fd < 0 || fstat(fd, &st) < 0)
        return errno == ENOENT ? fail(E_NOT_FOUND, "%s is missing", image_shown(path, shown))
                               : fail_errno("open %s", image_shown(path, shown));
    if (!S_ISREG(st.st_mode))
        return fail(E_INVALID, "%s is no regular file", image_shown(path, shown));
    *out = fd_take(&fd);
    return 0;
}

static err read_json_file(int dir, const char *path, struct buf *out)
{
    char shown[IMAGE_SHOWN_MAX], piece[16384];
    AUTO_FD fd = -1;
    TRY(open_file(dir, path, &fd));
    for (ssize_t n; (n = read(fd, piece, sizeof piece)) != 0;) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail_errno("read %s", image_shown(path, shown));
        if (out->n + (size_t)n > OCI_JSON_MAX)
            return fail(E_TOO_LARGE, "%s has more than %u bytes", image_shown(path, shown),
                        OCI_JSON_MAX);
        buf_add(out, piece, (size_t)n);
    }
    return 0;
}

static void sum_text(struct str text, char out[IMAGE_DIGEST_MAX + 1])
{
    unsigned char sum[crypto_hash_sha256_BYTES];
    crypto_hash_sha256(sum, (const unsigned char *)text.p, text.n);
    sodium_bin2hex(out, IMAGE_DIGEST_MAX + 1, sum, sizeof sum);
}

static err wrong_digest(const char *what, const char *wanted, const char *got)
{
    return fail(E_INVALID,
                "%s has the wrong digest: sha256:%s was announced, its content has sha256:%s", what,
                wanted, got);
}

static void blob_path(const char *digest, char out[LAYER_PATH_MAX])
{
    snprintf(out, LAYER_PATH_MAX, "blobs/sha256/%s", digest);
}

static err read_blob(int dir, const struct oci_descriptor *d, struct buf *out)
{
    char path[LAYER_PATH_MAX], got[IMAGE_DIGEST_MAX + 1];
    blob_path(d->digest, path);
    buf_clear(out);
    err e = read_json_file(dir, path, out);
    if (e)
        return fail(e, "the blob %s", err_text());
    sum_text(buf_str(out), got);
    if (strcmp(got, d->digest) != 0)
        return wrong_digest(path, d->digest, got);
    if (out->n != d->size)
        return fail(E_INVALID, "%s has %zu bytes, %llu were announced", path, out->n,
                    (unsigned long long)d->size);
    return 0;
}

/* ---- the plan ---- */

/* Follows indexes that stand in indexes. */
static err find_manifest(const struct layout_request *r, struct oci_descriptor *out,
                         struct buf *text)
{
    const char *tag = r->tag;
    TRY(read_json_file(r->dir, "index.json", text));
    for (int depth = 0; depth < INDEX_DEPTH_MAX; depth++) {
        TRY(oci_choose(buf_str(text), tag, oci_architecture(), out));
        TRY(read_blob(r->dir, out, text));
        if (!out->is_index)
            return 0;
        tag = NULL; /* it chose the outermost */
    }
    return fail(E_INVALID, "its indexes are nested more than %d deep", INDEX_DEPTH_MAX);
}

static err plan_oci(const struct layout_request *r, struct plan *p, struct layout_image *out)
{
    AUTO_BUF text = {0};
    struct oci_descriptor manifest;
    TRY(find_manifest(r, &manifest, &text));
    TRY(oci_read_manifest(buf_str(&text), &p->manifest));
    TRY(read_blob(r->dir, &p->manifest.config, &text));
    TRY(oci_read_config(buf_str(&text), &p->config));
    p->layer_count = p->manifest.layer_count;
    for (size_t i = 0; i < p->layer_count; i++) {
        const struct oci_descriptor *layer = &p->manifest.layers[i];
        blob_path(layer->digest, p->layers[i].path);
        memcpy(p->layers[i].digest, layer->digest, sizeof layer->digest);
        p->layers[i].size = layer->size;
    }
    memcpy(out->digest, manifest.digest, sizeof manifest.digest);
    return 0;
}

/* The configuration is named by its digest: <hex>.json or blobs/sha256/<hex>. */
static err check_config_name(const char *path, const char *got)
{
    const char *slash = strrchr(path, '/');
    struct str name = str_of(slash ? slash + 1 : path);
    if (str_ends(name, STR(".json")))
        name.n -= 5;
    if (!image_digest_valid(name) || str_is(name, got))
        return 0; /* a name that is no digest promises nothing */
    char wanted[IMAGE_DIGEST_MAX + 1];
    snprintf(wanted, sizeof wanted, "%.*s", STR_ARG(name));
    return wrong_digest("the configuration", wanted, got);
}

static err plan_docker(const struct layout_request *r, struct plan *p, struct layout_image *out)
{
    AUTO_BUF text = {0};
    TRY(read_json_file(r->dir, "manifest.json", &text));
    TRY(docker_choose(buf_str(&text), r->tag, &p->docker));
    buf_clear(&text);
    TRY(read_json_file(r->dir, p->docker.config, &text));
    sum_text(buf_str(&text), out->digest);
    TRY(check_config_name(p->docker.config, out->digest));
    TRY(oci_read_config(buf_str(&text), &p->config));
    p->layer_count = p->docker.layer_count;
    for (size_t i = 0; i < p->layer_count; i++)
        memcpy(p->layers[i].path, p->docker.layers[i], LAYER_PATH_MAX);
    return 0;
}

static err check_plan(const struct plan *p)
{
    if (strcmp(p->config.architecture, oci_architecture()) != 0)
        return fail(E_INVALID, "the image is for %s, this machine is %s", p->config.architecture,
                    oci_architecture());
    if (p->config.diff_id_count != p->layer_count)
        return fail(E_INVALID, "the image has %zu layers, but its configuration knows %zu",
                    p->layer_count, p->config.diff_id_count);
    return p->layer_count ? 0 : fail(E_INVALID, "the image has no layers");
}

static bool is_there(int dir, const char *path)
{
    AUTO_FD fd = -1;
    return open_file(dir, path, &fd) == 0;
}

static err make_plan(const struct layout_request *r, struct plan *p, struct layout_image *out)
{
    if (is_there(r->dir, "index.json"))
        TRY(plan_oci(r, p, out));
    else if (is_there(r->dir, "manifest.json"))
        TRY(plan_docker(r, p, out));
    else
        return fail(E_INVALID, "there is neither index.json (an OCI image layout) nor "
                               "manifest.json (docker save) in it");
    return check_plan(p);
}

/* ---- layers ---- */

static err take_entry(void *arg, struct stream *s, const struct unpack_entry *e)
{
    const struct pass *pass = arg;
    struct unpack *u = pass->r->unpack;
    TRY(pass->r->tick(pass->r->arg, 0, 0));
    if (!pass->unpacks) {
        bool was;
        return unpack_whiteout(u, e->path, &was);
    }
    if (unpack_is_whiteout(e->path))
        return 0;
    return stream_unpack(s, u, e);
}

static err check_sums(const struct plan *p, size_t i, const struct stream_sums *sums)
{
    const char *digest = p->layers[i].digest;
    if (digest[0] && strcmp(digest, sums->file) != 0)
        return wrong_digest("its file", digest, sums->file);
    if (digest[0] && p->layers[i].size != sums->file_bytes)
        return fail(E_INVALID, "its file has %llu bytes, %llu were announced",
                    (unsigned long long)sums->file_bytes, (unsigned long long)p->layers[i].size);
    if (strcmp(p->config.diff_ids[i], sums->tar) != 0)
        return wrong_digest("its tar (diff_id)", p->config.diff_ids[i], sums->tar);
    return 0;
}

static err read_layer(const struct layout_request *r, const struct plan *p, size_t i, bool unpacks)
{
    struct pass pass = {.r = r, .unpacks = unpacks};
    struct stream_sums sums;
    AUTO_FD fd = -1;
    TRY(open_file(r->dir, p->layers[i].path, &fd));
    TRY(stream_read(fd, stream_max_bytes(r->limits), take_entry, &pass, &sums));
    return check_sums(p, i, &sums);
}

/* Twice through each layer: first its whiteouts, which hide only what is beneath wherever they
   stand in it, and its digests, before anything of it is unpacked. */
static err unpack_layers(const struct layout_request *r, const struct plan *p)
{
    for (size_t i = 0; i < p->layer_count; i++) {
        TRY(r->tick(r->arg, i + 1, p->layer_count));
        err e = read_layer(r, p, i, false);
        if (!e)
            e = read_layer(r, p, i, true);
        if (e)
            return fail(e, "layer %zu of %zu: %s", i + 1, p->layer_count, err_text());
    }
    return 0;
}

static json_t *config_json(const struct oci_config *c)
{
    json_t *j = json_object(), *env = json_array();
    for (const char *p = c->env; p < c->env + c->env_n; p += strlen(p) + 1)
        json_array_append_new(env, json_str(str_of(p)));
    json_object_set_new(j, "env", env);
    json_set_str(j, "user", str_of(c->user));
    json_set_str(j, "workingDir", str_of(c->working_dir));
    return j;
}

err layout_unpack(const struct layout_request *r, struct layout_image *out)
{
    struct plan *p = mem_alloc(sizeof *p);
    struct layout_image image = {0};
    err e = make_plan(r, p, &image);
    if (!e)
        e = unpack_layers(r, p);
    if (!e) {
        image.layer_count = p->layer_count;
        snprintf(image.architecture, sizeof image.architecture, "%s", p->config.architecture);
        image.config = config_json(&p->config);
        *out = image;
    }
    mem_free(p);
    return e;
}
