#include "api/file_upload.h"

#include <sodium.h>
#include <stdio.h>

#include "api/fields.h"
#include "api/mime.h"
#include "api/service.h"
#include "base/mem.h"
#include "http/multipart.h"
#include "session/quota.h"

#define NAME_BYTES_MAX 255
#define MIME_BYTES_MAX 255
#define FIELD_BYTES_MAX (64 * KB)
#define OVERHEAD_BYTES (8 * KB) /* of a body that are not content, about */

enum part {
    PART_FILE,
    PART_NAME,
    PART_METADATA,
    PART_COUNT
};
static const char *const part_names[PART_COUNT] = {"file", "name", "metadata"};

struct state {
    struct ctx *ctx;
    struct multipart *multipart;
    struct object_put *put; /* from the file's part on */
    char id[ID_MAX];
    const char *filename, *mime_type;
    bool seen[PART_COUNT];
    enum part part;
    struct buf fields[PART_COUNT]; /* texts; the file's is not used */
    crypto_generichash_state fingerprint;
};

/* ---- names ---- */

const char *file_name_clean(struct arena *a, struct str name)
{
    for (size_t i = name.n; i > 0; i--) {
        if (name.p[i - 1] == '/' || name.p[i - 1] == '\\') {
            name = (struct str){name.p + i, name.n - i};
            break;
        }
    }
    name.n = str_utf8_floor(name, name.n < NAME_BYTES_MAX ? name.n : NAME_BYTES_MAX);
    char *clean = arena_alloc(a, name.n + 1), *end = clean;
    for (size_t i = 0, n; i < name.n; i += n) {
        n = name.p[i] == '\xc2' && i + 1 < name.n ? 2 : 1; /* U+0080 to U+009F control, too */
        struct str part = {name.p + i, n};
        if (str_has_control(part))
            *end++ = '_';
        else
            end = mempcpy(end, part.p, part.n);
    }
    *end = 0;
    bool none = name.n == 0 || strcmp(clean, ".") == 0 || strcmp(clean, "..") == 0;
    return none ? "file" : clean;
}

/* type/subtype and parameters in visible ASCII; else, and where the client says nothing, what the
   name says. */
static const char *clean_mime(struct arena *a, struct str type, const char *name)
{
    const char *slash = type.n ? memchr(type.p, '/', type.n) : NULL;
    bool ok = slash && slash > type.p && type.n <= MIME_BYTES_MAX;
    for (size_t i = 0; ok && i < type.n; i++)
        ok = type.p[i] >= 0x20 && type.p[i] < 0x7f;
    return ok && !str_is(type, "application/octet-stream") ? arena_str(a, type).p
                                                           : mime_of_name(name);
}

/* ---- parts ---- */

static void add_to_fingerprint(struct state *s, struct str bytes)
{
    uint64_t n = bytes.n;
    crypto_generichash_update(&s->fingerprint, (const unsigned char *)&n, sizeof n);
    crypto_generichash_update(&s->fingerprint, (const unsigned char *)bytes.p, bytes.n);
}

static err begin_file(struct state *s, const struct multipart_part *part)
{
    char key[OBJECT_KEY_MAX];
    struct arena *a = s->ctx->arena;
    if (part->filename.p == NULL) {
        problem_add(s->ctx, "/file", "must be sent as a file, with a filename");
        return fail(E_INVALID, "file: must be sent as a file, with a filename");
    }
    s->filename = file_name_clean(a, part->filename);
    s->mime_type = clean_mime(a, part->content_type, s->filename);
    add_to_fingerprint(s, str_of(s->filename));
    add_to_fingerprint(s, str_of(s->mime_type));
    file_key(s->ctx->tenant, s->id, key);
    return objects_put_begin(s->ctx->service->objects, key, &s->put);
}

static err on_part(void *arg, const struct multipart_part *part)
{
    struct state *s = arg;
    enum part which = 0;
    while (which < PART_COUNT && !str_is(part->name, part_names[which]))
        which++;
    const char *path = arena_printf(s->ctx->arena, "/%.*s", STR_ARG(part->name));
    if (which == PART_COUNT || s->seen[which]) {
        const char *what = which == PART_COUNT ? "is unknown: the parts are file, name and metadata"
                                               : "is given more than once";
        problem_add(s->ctx, path, "%s", what);
        return fail(E_INVALID, "%s: %s", path + 1, what);
    }
    s->seen[which] = true;
    s->part = which;
    add_to_fingerprint(s, part->name);
    return which == PART_FILE ? begin_file(s, part) : 0;
}

static err on_data(void *arg, struct str bytes)
{
    struct state *s = arg;
    crypto_generichash_update(&s->fingerprint, (const unsigned char *)bytes.p, bytes.n);
    if (s->part == PART_FILE)
        return objects_put_write(s->put, bytes);
    if (s->fields[s->part].n + bytes.n > FIELD_BYTES_MAX)
        return fail(E_TOO_LARGE, "%s: is longer than %zu bytes", part_names[s->part],
                    FIELD_BYTES_MAX);
    buf_add_str(&s->fields[s->part], bytes);
    return 0;
}

static err on_end(void *arg)
{
    (void)arg;
    return 0;
}

/* ---- the upload ---- */

static err check_room(struct db_conn *c, void *arg)
{
    struct state *s = arg;
    uint64_t length = ctx_body_length(s->ctx);
    int64_t least = length > OVERHEAD_BYTES ? (int64_t)(length - OVERHEAD_BYTES) : 0;
    return quota_check(c, s->ctx->tenant, QUOTA_FILE_STORAGE_BYTES, least);
}

static err begin_row(struct db_conn *c, void *arg)
{
    struct state *s = arg;
    return file_begin(c, s->ctx->tenant, s->id, clock_wall_ms(s->ctx->clock));
}

static err upload_open(struct ctx *ctx)
{
    struct state *s = mem_alloc(sizeof *s);
    s->ctx = ctx;
    ctx->upload = s;
    id_new("file", clock_wall_ms(ctx->clock), s->id);
    crypto_generichash_init(&s->fingerprint, NULL, 0, UPLOAD_FINGERPRINT);
    struct multipart_sink sink = {on_part, on_data, on_end, s};
    TRY(multipart_new(ctx_header(ctx, "Content-Type"), &sink, &s->multipart));
    TRY(db_read(ctx->service->db, check_room, s));
    return db_write(ctx->service->db, begin_row, s);
}

static err upload_write(struct ctx *ctx, struct str bytes)
{
    struct state *s = ctx->upload;
    return multipart_feed(s->multipart, bytes);
}

static err upload_end(struct ctx *ctx, unsigned char *out_fingerprint)
{
    struct state *s = ctx->upload;
    TRY(multipart_end(s->multipart));
    crypto_generichash_final(&s->fingerprint, out_fingerprint, UPLOAD_FINGERPRINT);
    return 0;
}

static void upload_closed(void *upload)
{
    struct state *s = upload;
    objects_put_abort(s->put);
    multipart_free(s->multipart);
    for (size_t i = 0; i < PART_COUNT; i++)
        buf_done(&s->fields[i]);
    mem_free(s);
}

const struct upload file_upload = {
    .media_type = "multipart/form-data",
    .open = upload_open,
    .write = upload_write,
    .end = upload_end,
    .closed = upload_closed,
};

/* ---- for the handler ---- */

static const struct field fields_parts[] = {
    {.name = "name", .kinds = FIELD_STRING, .line = true, .min = 1, .max = NAME_BYTES_MAX},
    {.name = "metadata", .kinds = FIELD_OBJECT, .check = fields_metadata},
    {0},
};

/* The text parts as the JSON body that they stand for. */
static err read_fields(struct ctx *ctx, struct state *s)
{
    ctx->json = json_object();
    struct str name = buf_str(&s->fields[PART_NAME]);
    if (!str_is_utf8(name))
        return fail(E_INVALID, "name: is not UTF-8");
    if (s->seen[PART_NAME])
        json_set_str(ctx->json, "name", name);
    if (s->seen[PART_METADATA]) {
        json_t *metadata = NULL;
        err e = json_read(buf_str(&s->fields[PART_METADATA]), &metadata);
        if (e)
            problem_add(ctx, "/metadata", "%s", err_text());
        TRY(e);
        json_object_set_new(ctx->json, "metadata", metadata);
    }
    return ctx_fields(ctx, NULL, fields_parts);
}

err file_upload_finish(struct ctx *ctx, struct file_row *out)
{
    struct state *s = ctx->upload;
    struct object_info info;
    if (!s->seen[PART_FILE]) {
        problem_add(ctx, "/file", "is required");
        return fail(E_INVALID, "file: is required");
    }
    TRY(read_fields(ctx, s));
    const json_t *metadata = json_object_get(ctx->json, "metadata");
    const char *name = json_get_c(ctx->json, "name");
    struct object_put *put = s->put;
    s->put = NULL;
    TRY(objects_put_end(put, &info));
    *out = (struct file_row){.name = name ? file_name_clean(ctx->arena, str_of(name)) : s->filename,
                             .mime_type = s->mime_type,
                             .metadata_json =
                                 metadata ? json_write_arena(metadata, ctx->arena).p : "{}",
                             .size = (int64_t)info.size};
    memcpy(out->id, s->id, sizeof out->id);
    memcpy(out->sha256, info.sha256, sizeof out->sha256);
    return 0;
}
