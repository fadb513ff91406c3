#include "images/meta.h"

#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

#define META_MAX (1u << 20)

static err path_in(const char *folder, char out[PATH_MAX])
{
    return snprintf(out, PATH_MAX, "%s/meta.json", folder) >= PATH_MAX
               ? fail(E_INVALID, "the path of the image store is too long")
               : 0;
}

err image_meta_write(const char *folder, const struct image_meta *m)
{
    char path[PATH_MAX], at[CLOCK_TEXT_MAX], digest[IMAGE_DIGEST_MAX + 8];
    int64_t now = clock_wall_ms(clock_real());
    AUTO_BUF text = {0};
    AUTO_JSON meta = json_object();
    TRY(path_in(folder, path));
    snprintf(digest, sizeof digest, "sha256:%s", m->digest);
    json_set_str(meta, "name", str_of(m->name));
    json_set_str(meta, "digest", str_of(digest));
    json_set_str(meta, "source", str_of(m->source));
    json_set_str(meta, "importedAt", str_of(clock_format(now, at)));
    json_object_set_new(meta, "importedAtMs", json_integer(now));
    json_set_str(meta, "architecture", str_of(m->architecture));
    json_set_str(meta, "owners", geteuid() == 0 ? STR("kept") : STR("one"));
    json_object_set_new(meta, "entries", json_integer((json_int_t)m->counts.entries));
    json_object_set_new(meta, "bytes", json_integer((json_int_t)m->counts.bytes));
    json_object_set_new(meta, "skipped", json_integer((json_int_t)m->counts.skipped));
    if (m->config)
        json_object_set(meta, "config", (json_t *)m->config);
    json_write(meta, &text);
    buf_add_char(&text, '\n');
    return fd_write_file_atomic(path, buf_str(&text), 0644);
}

err image_meta_read(const char *folder, json_t **out)
{
    char path[PATH_MAX];
    AUTO_BUF text = {0};
    TRY(path_in(folder, path));
    TRY(fd_read_file(path, META_MAX, &text));
    return json_read(buf_str(&text), out);
}

void image_meta_env(const json_t *meta, const char *out[IMAGE_ENV_MAX + 1])
{
    const json_t *env = json_object_get(json_object_get(meta, "config"), "env");
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(env) && n < IMAGE_ENV_MAX; i++) {
        const char *variable = json_string_value(json_array_get(env, i));
        if (variable)
            out[n++] = variable;
    }
    out[n] = NULL;
}
