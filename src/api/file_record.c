#include "api/file_record.h"

#include <stdio.h>
#include <string.h>

#include "api/service.h"
#include "base/clock.h"
#include "base/log.h"

#define FILES "files/"
#define RECORD_BYTES_MAX (128u << 10)
#define GRACE_MS INT64_C(86400000)

static void record_key(const char *tenant, const char *id, char out[OBJECT_KEY_MAX])
{
    snprintf(out, OBJECT_KEY_MAX, "file-records/%s/%s.json", tenant, id);
}

err file_record_put(struct objects *o, const char *tenant, const struct file_row *row)
{
    char key[OBJECT_KEY_MAX];
    AUTO_BUF text = {0};
    AUTO_JSON j = file_json(row);
    if (row->changed_at)
        json_set_str(j, "changedAt", str_of(row->changed_at));
    json_write(j, &text);
    record_key(tenant, row->id, key);
    return objects_put(o, key, buf_str(&text));
}

err file_record_remove(struct objects *o, const char *tenant, const char *id)
{
    char key[OBJECT_KEY_MAX];
    record_key(tenant, id, key);
    return objects_delete(o, key);
}

/* ---- reading one back ---- */

static const char *text_of(struct arena *a, const json_t *j, const char *member)
{
    struct str s = json_get_str(j, member);
    return s.p ? arena_str(a, s).p : NULL;
}

/* Strings live in the arena. */
static err read_record(struct objects *o, struct arena *a, const char *tenant, const char *id,
                       struct file_row *out)
{
    char key[OBJECT_KEY_MAX];
    AUTO_BUF text = {0};
    AUTO_JSON j = NULL;
    record_key(tenant, id, key);
    TRY(objects_read(o, key, RECORD_BYTES_MAX, &text));
    TRY(json_read(buf_str(&text), &j));
    struct file_row row = {
        .name = text_of(a, j, "name"),
        .mime_type = text_of(a, j, "mimeType"),
        .metadata_json = json_write_arena(json_object_get(j, "metadata"), a).p,
        .size = json_get_int(j, "sizeBytes", -1),
        .session = text_of(a, j, "sessionId"),
        .path = text_of(a, j, "path"),
        .changed_at = text_of(a, j, "changedAt"),
    };
    const char *created = json_get_c(j, "createdAt");
    if (row.name == NULL || row.mime_type == NULL || row.size < 0 || created == NULL ||
        !clock_parse(created, &row.created_at_ms))
        return fail(E_INVALID, "%s is not what the service wrote", key);
    snprintf(row.id, sizeof row.id, "%s", id);
    snprintf(row.sha256, sizeof row.sha256, "%.*s", STR_ARG(json_get_str(j, "sha256")));
    *out = row;
    return 0;
}

/* ---- reconciling ---- */

struct reconcile {
    struct service *service;
    int64_t started_at_ms;
    bool restored;
    char tenant[ID_MAX], id[ID_MAX]; /* of the object that is looked at */
    enum file_state state;
    const struct file_row *record;
    size_t adopted, removed, left;
};

static err read_state(struct db_conn *c, void *arg)
{
    struct reconcile *r = arg;
    return file_state(c, r->tenant, r->id, &r->state);
}

static err adopt_in(struct db_conn *c, void *arg)
{
    struct reconcile *r = arg;
    if (r->state == FILE_UNKNOWN)
        TRY(file_begin(c, r->tenant, r->id, r->record->created_at_ms));
    return file_finish(c, r->tenant, r->record);
}

static err remove_orphan(struct reconcile *r)
{
    char key[OBJECT_KEY_MAX];
    file_key(r->tenant, r->id, key);
    TRY(objects_delete(r->service->objects, key));
    r->removed++;
    return 0;
}

/* The object has no row, or an old one. */
static err adopt_or_remove(struct reconcile *r, int64_t made_at_ms)
{
    AUTO_ARENA a = arena_new();
    struct file_row row;
    err e = read_record(r->service->objects, a, r->tenant, r->id, &row);
    if (e == E_NOT_FOUND) {
        bool old = clock_wall_ms(r->service->clock) - made_at_ms > GRACE_MS;
        if (old && r->state == FILE_UNKNOWN)
            return remove_orphan(r);
        r->left++; /* young, or the sweep's */
        return 0;
    }
    TRY(e);
    r->record = &row;
    TRY(db_write(r->service->db, adopt_in, r));
    r->adopted++;
    return 0;
}

static err look_at(struct reconcile *r, int64_t made_at_ms)
{
    TRY(db_read(r->service->db, read_state, r));
    if (r->state == FILE_NO_TENANT)
        r->left++;
    else if (r->state == FILE_UNKNOWN || (r->state == FILE_PENDING && r->restored))
        return adopt_or_remove(r, made_at_ms);
    return 0;
}

/* files/<tenant>/<id> */
static bool see_object(void *arg, const char *key, uint64_t size)
{
    struct reconcile *r = arg;
    struct str rest = str_of(key + strlen(FILES)), tenant;
    int64_t made_at_ms;
    (void)size;
    if (!str_split(&rest, '/', &tenant) || !id_valid(tenant, "tenant") || !id_valid(rest, "file"))
        return true; /* somebody else's */
    made_at_ms = id_time_ms(rest);
    if (made_at_ms >= r->started_at_ms)
        return true; /* being written, or has its row */
    snprintf(r->tenant, sizeof r->tenant, "%.*s", STR_ARG(tenant));
    snprintf(r->id, sizeof r->id, "%.*s", STR_ARG(rest));
    if (look_at(r, made_at_ms)) { /* one that fails must not keep the others away */
        log_warn("the object of %s stays as it is: %s", r->id, err_text());
        r->left++;
    }
    return true;
}

err files_reconcile(struct service *service, int64_t started_at_ms, bool restored)
{
    struct reconcile r = {.service = service, .started_at_ms = started_at_ms, .restored = restored};
    TRY(objects_list(service->objects, FILES, see_object, &r));
    if (r.adopted || r.removed || r.left)
        log_warn("objects of files without a row: %zu got it back, %zu old ones were removed, %zu "
                 "stay",
                 r.adopted, r.removed, r.left);
    return 0;
}
