/* sources: src/base/path.c src/base/str.c src/base/arena.c src/base/mem.c src/base/err.c src/base/buf.c */
/* sources: src/base/clock.c src/base/json.c src/base/json_scan.c src/images/name.c src/images/oci.c */
/* Indexes, manifests, configurations and docker's manifest.json: what is accepted is bounded and
   fit to become a path; what is refused says why, in valid UTF-8. The first byte chooses. */
#include "images/oci.h"

#include <stdlib.h>

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void check_digest(const char *digest)
{
    must(image_digest_valid(str_of(digest)));
}

static void check_refusal(err e)
{
    if (e)
        must(err_text()[0] != 0 && str_is_utf8(str_of(err_text())));
}

static void check_index(struct str text, const char *tag)
{
    struct oci_descriptor d;
    err e = oci_choose(text, tag, "amd64", &d);
    check_refusal(e);
    if (!e)
        check_digest(d.digest);
}

static void check_manifest(struct str text)
{
    static struct oci_manifest m;
    err e = oci_read_manifest(text, &m);
    check_refusal(e);
    if (e)
        return;
    must(m.layer_count <= OCI_LAYERS_MAX);
    check_digest(m.config.digest);
    for (size_t i = 0; i < m.layer_count; i++)
        check_digest(m.layers[i].digest);
}

static void check_config(struct str text)
{
    static struct oci_config c;
    err e = oci_read_config(text, &c);
    check_refusal(e);
    if (e)
        return;
    must(c.diff_id_count <= OCI_LAYERS_MAX);
    must(memchr(c.architecture, 0, sizeof c.architecture) != NULL);
    for (size_t i = 0; i < c.diff_id_count; i++)
        check_digest(c.diff_ids[i]);
    must(c.env_n <= OCI_ENV_MAX && (c.env_n == 0 || c.env[c.env_n - 1] == 0));
    for (const char *p = c.env; p < c.env + c.env_n; p += strlen(p) + 1)
        must(strchr(p, '=') > p);
    must(memchr(c.user, 0, sizeof c.user) && memchr(c.working_dir, 0, sizeof c.working_dir));
}

static void check_docker(struct str text, const char *tag)
{
    static struct docker_image d;
    err e = docker_choose(text, tag, &d);
    check_refusal(e);
    if (e)
        return;
    must(d.layer_count <= OCI_LAYERS_MAX && d.config[0] && memchr(d.config, 0, OCI_PATH_MAX));
    for (size_t i = 0; i < d.layer_count; i++)
        must(d.layers[i][0] && memchr(d.layers[i], 0, OCI_PATH_MAX));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n == 0)
        return 0;
    const struct str text = {(const char *)data + 1, n - 1};
    switch (data[0] % 6) {
    case 0:
        check_index(text, NULL);
        break;
    case 1:
        check_index(text, "1");
        break;
    case 2:
        check_manifest(text);
        break;
    case 3:
        check_config(text);
        break;
    case 4:
        check_docker(text, NULL);
        break;
    default:
        check_docker(text, "1");
    }
    return 0;
}
