#include "images/oci.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/json.h"

#define CHOICES_MAX 4096 /* descriptors in one index */

const char *oci_architecture(void)
{
    static const char *const names[][2] = {
        {"x86_64", "amd64"},        {"aarch64", "arm64"},   {"armv7l", "arm"},
        {"armv6l", "arm"},          {"i686", "386"},        {"i386", "386"},
        {"ppc64le", "ppc64le"},     {"riscv64", "riscv64"}, {"s390x", "s390x"},
        {"loongarch64", "loong64"},
    };
    static _Thread_local char other[32];
    struct utsname u;
    if (uname(&u) < 0)
        return "unknown";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(u.machine, names[i][0]) == 0)
            return names[i][1];
    }
    snprintf(other, sizeof other, "%.31s", u.machine);
    return other;
}

static err read_object(struct str text, const char *what, json_t **out)
{
    json_t *j;
    char shown[IMAGE_SHOWN_MAX];
    err e = json_read(text, &j);
    if (e) /* its words may quote what stands there */
        return fail(E_INVALID, "%s is no valid JSON: %s", what, image_shown(err_text(), shown));
    if (!json_is_object(j)) {
        json_decref(j);
        return fail(E_INVALID, "%s is no JSON object", what);
    }
    *out = j;
    return 0;
}

static err read_digest(struct str text, const char *what, char out[IMAGE_DIGEST_MAX + 1])
{
    const struct str prefix = STR("sha256:");
    if (str_starts(text, prefix)) {
        struct str hex = {text.p + prefix.n, text.n - prefix.n};
        if (image_digest_valid(hex)) {
            memcpy(out, hex.p, hex.n);
            out[hex.n] = 0;
            return 0;
        }
    }
    return fail(E_INVALID, "%s has no digest of the form sha256:<64 hex digits>", what);
}

static bool type_is_index(struct str type)
{
    return str_is(type, "application/vnd.oci.image.index.v1+json") ||
           str_is(type, "application/vnd.docker.distribution.manifest.list.v2+json");
}

static bool type_is_manifest(struct str type)
{
    return type.p == NULL || str_is(type, "application/vnd.oci.image.manifest.v1+json") ||
           str_is(type, "application/vnd.docker.distribution.manifest.v2+json");
}

/* The stream reader finds out how a layer is compressed; the type only says that it is one. */
static bool type_is_layer(struct str type)
{
    return str_starts(type, STR("application/vnd.oci.image.layer.v1.tar")) ||
           str_starts(type, STR("application/vnd.oci.image.layer.nondistributable.v1.tar")) ||
           str_starts(type, STR("application/vnd.docker.image.rootfs.diff.tar")) ||
           str_starts(type, STR("application/vnd.docker.image.rootfs.foreign.diff.tar"));
}

static err read_descriptor(const json_t *j, const char *what, struct oci_descriptor *out)
{
    struct oci_descriptor d = {.is_index = type_is_index(json_get_str(j, "mediaType"))};
    int64_t size = json_get_int(j, "size", -1);
    TRY(read_digest(json_get_str(j, "digest"), what, d.digest));
    if (size < 0)
        return fail(E_INVALID, "%s sha256:%s has no size", what, d.digest);
    d.size = (uint64_t)size;
    *out = d;
    return 0;
}

/* ---- choosing ---- */

static bool fits_platform(const json_t *descriptor, const char *architecture)
{
    const json_t *platform = json_object_get(descriptor, "platform");
    if (!json_is_object(platform))
        return true; /* its configuration will tell */
    struct str os = json_get_str(platform, "os");
    return str_is(json_get_str(platform, "architecture"), architecture) &&
           (os.p == NULL || str_is(os, "linux"));
}

static struct str tag_of(const json_t *descriptor)
{
    return json_get_str(json_object_get(descriptor, "annotations"),
                        "org.opencontainers.image.ref.name");
}

/* `full` is "tag", "name:tag" or "host/name:tag". */
static bool tag_fits(struct str full, const char *tag)
{
    struct str wanted = str_of(tag);
    return str_eq(full, wanted) ||
           (full.n > wanted.n && full.p[full.n - wanted.n - 1] == ':' && str_ends(full, wanted));
}

static void list_choice(struct buf *list, struct str text)
{
    char copy[IMAGE_SHOWN_MAX], shown[IMAGE_SHOWN_MAX];
    snprintf(copy, sizeof copy, "%.*s", text.n < 100 ? (int)text.n : 100, text.p);
    if (text.n && list->n < 300)
        buf_printf(list, "%s%s", list->n ? ", " : "", image_shown(copy, shown));
}

static void list_descriptor(struct buf *list, const json_t *d)
{
    struct str tag = tag_of(d);
    const char *architecture = json_get_c(json_object_get(d, "platform"), "architecture");
    list_choice(list, tag);
    if (architecture)
        list_choice(list, str_of(architecture));
}

static err nothing_fits(const json_t *manifests, const char *tag, const char *architecture)
{
    AUTO_BUF list = {0};
    size_t i;
    json_t *d;
    json_array_foreach(manifests, i, d)
    {
        list_descriptor(&list, d);
    }
    return fail(E_NOT_FOUND, "there is no image%s%s for %s in it%s%s", tag ? " " : "",
                tag ? tag : "", architecture, list.n ? "; there is: " : "", list.n ? list.p : "");
}

static err several_fit(const json_t *manifests, const char *tag)
{
    AUTO_BUF list = {0};
    size_t i;
    json_t *d;
    json_array_foreach(manifests, i, d)
    {
        list_choice(&list, tag_of(d));
    }
    return fail(E_INVALID, "several images in it fit%s%s: say which with oci:PATH:TAG%s%s%s",
                tag ? " " : "", tag ? tag : "", list.n ? " (" : "", list.n ? list.p : "",
                list.n ? ")" : "");
}

static err choose(const json_t *manifests, const char *tag, const char *architecture,
                  struct oci_descriptor *out)
{
    struct oci_descriptor found = {0};
    size_t i;
    json_t *d;
    json_array_foreach(manifests, i, d)
    {
        struct str type = json_get_str(d, "mediaType"), full = tag_of(d);
        if (!type_is_index(type) && !type_is_manifest(type))
            continue;
        if (!fits_platform(d, architecture) || (tag && !(full.p && tag_fits(full, tag))))
            continue;
        struct oci_descriptor next;
        TRY(read_descriptor(d, "a manifest of the index", &next));
        if (found.digest[0] && strcmp(found.digest, next.digest) != 0)
            return several_fit(manifests, tag);
        found = next;
    }
    if (found.digest[0] == 0)
        return nothing_fits(manifests, tag, architecture);
    *out = found;
    return 0;
}

err oci_choose(struct str index, const char *tag, const char *architecture,
               struct oci_descriptor *out)
{
    AUTO_JSON j = NULL;
    TRY(read_object(index, "the index", &j));
    const json_t *manifests = json_object_get(j, "manifests");
    if (!json_is_array(manifests) || json_array_size(manifests) > CHOICES_MAX)
        return fail(E_INVALID, "the index has no list of manifests, or one of more than %d",
                    CHOICES_MAX);
    return choose(manifests, tag, architecture, out);
}

/* ---- manifest and configuration ---- */

static err read_layers(const json_t *layers, struct oci_manifest *out)
{
    if (!json_is_array(layers) || json_array_size(layers) > OCI_LAYERS_MAX)
        return fail(E_INVALID, "the manifest has no list of layers, or one of more than %d",
                    OCI_LAYERS_MAX);
    size_t i;
    json_t *d;
    json_array_foreach(layers, i, d)
    {
        const char *type = json_get_c(d, "mediaType");
        char shown[IMAGE_SHOWN_MAX];
        if (type == NULL || !type_is_layer(str_of(type)) || strstr(type, "encrypted"))
            return fail(E_INVALID, "layer %zu has the type \"%s\", which is no layer of files",
                        i + 1, image_shown(type ? type : "", shown));
        TRY(read_descriptor(d, "a layer", &out->layers[i]));
    }
    out->layer_count = json_array_size(layers);
    return 0;
}

err oci_read_manifest(struct str text, struct oci_manifest *out)
{
    AUTO_JSON j = NULL;
    TRY(read_object(text, "the manifest", &j));
    if (json_get_int(j, "schemaVersion", 0) != 2)
        return fail(E_INVALID, "the manifest is not of schema version 2");
    TRY(read_descriptor(json_object_get(j, "config"), "the configuration", &out->config));
    return read_layers(json_object_get(j, "layers"), out);
}

static bool is_variable(struct str s)
{
    struct str value = s, name = {0};
    str_split(&value, '=', &name);
    if (name.n == 0 || name.n == s.n || (name.p[0] >= '0' && name.p[0] <= '9') || str_has_nul(s))
        return false;
    for (size_t i = 0; i < name.n; i++) {
        if (name.p[i] <= ' ' || name.p[i] > '~')
            return false;
    }
    return true;
}

static err read_env(const json_t *env, struct oci_config *out)
{
    size_t i;
    json_t *variable;
    out->env_n = 0;
    json_array_foreach(env, i, variable)
    {
        struct str s = {json_string_value(variable), json_string_length(variable)};
        if (s.p == NULL || !is_variable(s))
            return fail(E_INVALID, "the configuration's Env has an entry that is no NAME=VALUE");
        if (s.n >= sizeof out->env - out->env_n)
            return fail(E_INVALID, "the configuration's Env is longer than %zu bytes",
                        sizeof out->env);
        memcpy(out->env + out->env_n, s.p, s.n);
        out->env[out->env_n + s.n] = 0;
        out->env_n += s.n + 1;
    }
    return 0;
}

static err read_text(const json_t *config, const char *key, char *out, size_t cap)
{
    struct str s = json_get_str(config, key);
    if (s.n >= cap || str_has_nul(s))
        return fail(E_INVALID, "the configuration's %s is longer than %zu bytes", key, cap - 1);
    memcpy(out, s.n ? s.p : "", s.n);
    out[s.n] = 0;
    return 0;
}

/* Of an image of docker or an OCI builder; absent where there is nothing to say. */
static err read_wishes(const json_t *config, struct oci_config *out)
{
    TRY(read_env(json_object_get(config, "Env"), out));
    TRY(read_text(config, "User", out->user, sizeof out->user));
    return read_text(config, "WorkingDir", out->working_dir, sizeof out->working_dir);
}

err oci_read_config(struct str text, struct oci_config *out)
{
    AUTO_JSON j = NULL;
    TRY(read_object(text, "the configuration", &j));
    const char *architecture = json_get_c(j, "architecture"), *os = json_get_c(j, "os");
    const json_t *ids = json_object_get(json_object_get(j, "rootfs"), "diff_ids");
    char shown[IMAGE_SHOWN_MAX];
    if (architecture == NULL || strlen(architecture) >= sizeof out->architecture)
        return fail(E_INVALID, "the configuration names no architecture");
    if (os == NULL || strcmp(os, "linux") != 0)
        return fail(E_INVALID, "the image is for \"%s\", not for linux",
                    image_shown(os ? os : "", shown));
    if (!json_is_array(ids) || json_array_size(ids) > OCI_LAYERS_MAX)
        return fail(E_INVALID, "the configuration has no list of diff_ids, or one of more than %d",
                    OCI_LAYERS_MAX);
    size_t i;
    json_t *id;
    json_array_foreach(ids, i, id)
    {
        struct str hex = {json_string_value(id), json_string_length(id)};
        TRY(read_digest(hex, "a diff_id of the configuration", out->diff_ids[i]));
    }
    TRY(read_wishes(json_object_get(j, "config"), out));
    out->diff_id_count = json_array_size(ids);
    snprintf(out->architecture, sizeof out->architecture, "%s", architecture);
    return 0;
}

/* ---- docker save ---- */

static err read_path(const json_t *j, char out[OCI_PATH_MAX])
{
    const char *path = json_string_value(j);
    if (path == NULL || path[0] == 0 || json_string_length(j) >= OCI_PATH_MAX ||
        strlen(path) != json_string_length(j))
        return fail(E_INVALID, "manifest.json names a file by no name of 1 to %d bytes",
                    OCI_PATH_MAX - 1);
    snprintf(out, OCI_PATH_MAX, "%s", path);
    return 0;
}

static bool has_tag(const json_t *image, const char *tag)
{
    size_t i;
    json_t *t;
    json_array_foreach(json_object_get(image, "RepoTags"), i, t)
    {
        if (json_is_string(t) &&
            tag_fits((struct str){json_string_value(t), json_string_length(t)}, tag))
            return true;
    }
    return false;
}

static err read_docker_image(const json_t *image, struct docker_image *out)
{
    const json_t *layers = json_object_get(image, "Layers");
    TRY(read_path(json_object_get(image, "Config"), out->config));
    if (!json_is_array(layers) || json_array_size(layers) > OCI_LAYERS_MAX)
        return fail(E_INVALID, "manifest.json has no list of layers, or one of more than %d",
                    OCI_LAYERS_MAX);
    size_t i;
    json_t *path;
    json_array_foreach(layers, i, path)
    {
        TRY(read_path(path, out->layers[i]));
    }
    out->layer_count = json_array_size(layers);
    return 0;
}

static err no_docker_image(const json_t *list, const char *tag, bool several)
{
    AUTO_BUF names = {0};
    size_t i, k;
    json_t *image, *t;
    json_array_foreach(list, i, image)
    {
        json_array_foreach(json_object_get(image, "RepoTags"), k, t)
        {
            if (json_is_string(t))
                list_choice(&names, str_of(json_string_value(t)));
        }
    }
    return fail(several ? E_INVALID : E_NOT_FOUND, "%s%s in the archive%s%s",
                several ? "say which image is meant with oci:PATH:TAG: there are several"
                        : "there is no image ",
                !several && tag ? tag : "", names.n ? ": " : "", names.n ? names.p : "");
}

err docker_choose(struct str text, const char *tag, struct docker_image *out)
{
    AUTO_JSON list = NULL;
    char shown[IMAGE_SHOWN_MAX];
    err e = json_read(text, &list);
    if (e || !json_is_array(list))
        return fail(E_INVALID, "manifest.json is no list of images%s%s", e ? ": " : "",
                    e ? image_shown(err_text(), shown) : "");
    const json_t *found = NULL;
    size_t i;
    json_t *image;
    json_array_foreach(list, i, image)
    {
        if (tag && !has_tag(image, tag))
            continue;
        if (found)
            return no_docker_image(list, tag, true);
        found = image;
    }
    return found ? read_docker_image(found, out) : no_docker_image(list, tag, false);
}
